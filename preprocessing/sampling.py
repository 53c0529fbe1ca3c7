"""What a row is: the parts that make it, the seed of their draws, and how often the draws change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from preprocessing.choose import Choose
from preprocessing.rewrite import Rewrite
from preprocessing.segment import Segment
from preprocessing.spec import part
from preprocessing.vocab import Vocab, framed


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """All that decides what a row is, but for its text and its length: one recipe has phases of several lengths.

    `static_masks` k > 0 is static masking: epoch e repeats the pairs and masks of epoch e % k; with 0 each epoch draws
    new ones. The order is new in every epoch either way.
    """

    packing: Segment
    masking: Choose
    objective: Rewrite
    seed: int = 0
    static_masks: int = 0

    @property
    def unmixable(self) -> str:
        """Why its rows cannot be those of several sources in turn, or "" where they can."""
        return f"rows of packing {self.packing.kind} go on from each other" if self.packing.ordered else ""

    def reading(self, vocab: Vocab) -> Vocab:
        """The vocabulary as a net of such rows reads texts: with the special tokens around them that the rows have."""
        return framed(vocab, self.objective.frame(self.packing.frame))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Sampling":
        """The sampling that `dataclasses.asdict` wrote, once as JSON and back.

        >>> from dataclasses import asdict
        >>> from preprocessing.choose import Tokens
        >>> from preprocessing.rewrite import Cloze
        >>> from preprocessing.segment import Pair
        >>> bert = Sampling(packing=Pair(negatives="random"), masking=Tokens(), objective=Cloze(), static_masks=10)
        >>> Sampling.of(asdict(bert)) == bert
        True
        """
        unions = {"packing": Segment, "masking": Choose, "objective": Rewrite}
        return cls(**{**values, **{name: part(union, values[name]) for name, union in unions.items()}})
