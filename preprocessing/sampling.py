"""What a row is: the parts that make it, the seed of their draws, and how often the draws change."""

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
    """All that decides what a row is, but for its text and its length: one recipe has phases of several lengths.

    `static_masks` k > 0 is static masking: epoch e repeats the pairs and masks of epoch e % k; with 0 each epoch draws
    new ones. The order is new in every epoch either way.
    """

    packing: Packing
    masking: Masking
    objective: Objective
    seed: int = 0
    static_masks: int = 0

    @property
    def unmixable(self) -> str:
        """Why its rows cannot be those of several sources in turn, or "" where they can."""
        return f"rows of packing {self.packing.kind} go on from each other" if self.packing.ordered else ""

    def reading(self, vocab: Vocab) -> Vocab:
        """The vocabulary as a net of such rows reads texts: with the special tokens around them that the rows have."""
        return add_frame(vocab, self.objective.frame(self.packing.frame))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ExampleSpec":
        """The sampling that `dataclasses.asdict` wrote, once as JSON and back.

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
