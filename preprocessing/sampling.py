"""The definition of training examples: the parts that make them, the seed, and the number of static masks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from preprocessing.masking import Masking
from preprocessing.objectives import Objective
from preprocessing.packing import Packing
from preprocessing.spec import part
from preprocessing.tokenization import Vocab, add_frame


@dataclass(frozen=True, kw_only=True)
class ExampleSpec:
    """Everything that determines a training example, except its text and its length.

    The length is not included, because the phases of a recipe may have different lengths. With `static_masks` k > 0,
    masking is static: epoch e repeats the pairs and masks of epoch e % k. With 0, each epoch draws new ones. The order
    is new in every epoch in both cases.

    With `shuffle_window_shards` w > 0, only the sequences of w shards are shuffled together (windowed_order.py).
    """

    packing: Packing
    masking: Masking
    objective: Objective
    seed: int = 0
    static_masks: int = 0
    shuffle_window_shards: int = 0

    @property
    def unmixable(self) -> str:
        """The reason why its sequences cannot be interleaved from several sources, or "" if they can."""
        return f"sequences of packing {self.packing.kind} continue each other" if self.packing.ordered else ""

    def adapt_tokenizer(self, vocab: Vocab) -> Vocab:
        """The tokenizer for a model of these examples: adds the same special tokens around a text as the examples."""
        return add_frame(vocab, self.objective.frame(self.packing.frame))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ExampleSpec":
        """The spec from the values of `dataclasses.asdict`, also after a round trip through JSON.

        >>> from dataclasses import asdict
        >>> from preprocessing.masking import TokenMasking
        >>> from preprocessing.objectives import MaskedLM
        >>> from preprocessing.packing import SegmentPair
        >>> pairs = SegmentPair(negatives="random")
        >>> bert = ExampleSpec(packing=pairs, masking=TokenMasking(), objective=MaskedLM(), static_masks=10)
        >>> ExampleSpec.of(asdict(bert)) == bert
        True
        """
        unions = {"packing": Packing, "masking": Masking, "objective": Objective}
        return cls(**{**values, **{name: part(union, values[name]) for name, union in unions.items()}})
