"""Whole phrases and words (ERNIE)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.choose.budget import HITS, Rounding, most_runs
from preprocessing.choose.tokens import Tokens
from preprocessing.choose.words import Words
from preprocessing.schema import Ints, Row
from preprocessing.spec import Shrinks, require, spec


@spec
class Entities:
    """Whole phrases and whole words in random order while they fit (ERNIE, arXiv:1904.09223, 4.2): Words over units.

    The phrases are those that `units` of the corpus file names; a word outside of them is a unit by itself. Rounding
    `independent` is that of the released ERNIE/batching.py: a unit is chosen when the draw of its first token is below
    `rate`. A share `tokens` of the rows has single tokens chosen instead (its character level).
    """

    kind: Literal["entities"] = "entities"
    rate: float = 0.15
    rounding: Rounding | Literal["independent"] = "nearest"  # of the number of tokens; independent: units by themselves
    most: int = 0
    tokens: float = 0.0

    needs: ClassVar[frozenset[str]] = frozenset({"special", "unit_starts"})
    emits: ClassVar[frozenset[str]] = HITS
    can_emit: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    shrinks: ClassVar[Shrinks] = {}
    wants: ClassVar[frozenset[str]] = frozenset({"phrases"})

    def __post_init__(self) -> None:
        Tokens(rate=self.rate, rounding=self.rounding, most=self.most)  # has the same limits
        require(0 <= self.tokens <= 1, "choose.tokens", self.tokens, "a share of the rows, from 0 to 1")

    @property
    def predicted(self) -> float:
        return self.rate

    def most_runs(self, num_tokens: int) -> int:
        return most_runs(num_tokens) if self.rounding == "independent" else most_runs(num_tokens, self.rate, self.most)

    def describe(self) -> str:
        singly = f", or ({self.tokens:.0%} of the rows) one by one" if self.tokens else ""
        return f"{self.rate:.0%} of the tokens, in whole phrases and words{singly}"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        if self.tokens and rng.random() < self.tokens:
            return Tokens(rate=self.rate, rounding=self.rounding, most=self.most)(row, rng)
        if self.rounding == "independent":
            begin_W = np.flatnonzero(row["unit_starts"])
            is_chosen_W = (rng.random(len(begin_W)) < self.rate) & ~row["special"][begin_W]
            long_W = np.diff(begin_W, append=len(row["ids"]))
            return np.repeat(np.where(is_chosen_W, np.cumsum(is_chosen_W), 0), long_W).astype(np.int32)
        words = Words(rate=self.rate, rounding=self.rounding, most=self.most)
        return words(row | {"word_starts": row["unit_starts"]}, rng)
