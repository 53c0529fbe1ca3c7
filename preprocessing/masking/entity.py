"""Whole phrases and words (ERNIE)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, Rounding, most_runs
from preprocessing.masking.token import TokenMasking
from preprocessing.masking.whole_word import WholeWordMasking
from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec


@spec
class EntityMasking:
    """Whole phrases and whole words in random order (ERNIE, arXiv:1904.09223, 4.2).

    A unit is a phrase, as defined by the key `phrases` in the corpus file, or a word outside all phrases. Units are
    selected in the same way as the words of whole-word masking. The rounding `independent` is that of the released
    ERNIE/batching.py: each unit is selected with probability `rate`. In a fraction `token_level_prob` of the sequences,
    single tokens are selected instead (ERNIE's character-level masking).
    """

    kind: Literal["entity"] = "entity"
    rate: float = key(default=0.15, doc="Fraction of tokens to select, from 0 to 1.")
    rounding: Rounding | Literal["independent"] = key(
        default="nearest", doc="Rounding of the number of selected tokens; independent: one draw per unit."
    )
    max_predictions_per_seq: int = key(default=0, doc="Maximum number of selected tokens per sequence; 0: no maximum.")
    token_level_prob: float = key(
        default=0.0, doc="Fraction of sequences in which single tokens are selected instead of units."
    )

    required_columns: ClassVar[frozenset[str]] = frozenset({"special_tokens_mask", "unit_starts"})
    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    kernel_gap: ClassVar[str] = "entity"
    scale_overrides: ClassVar[ScaleOverrides] = {}
    required_annotations: ClassVar[frozenset[str]] = frozenset({"phrases"})

    def __post_init__(self) -> None:
        TokenMasking(
            rate=self.rate, rounding=self.rounding, max_predictions_per_seq=self.max_predictions_per_seq
        )  # checks the values
        require(
            0 <= self.token_level_prob <= 1,
            "masking.token_level_prob",
            self.token_level_prob,
            "a fraction from 0 to 1",
        )

    @property
    def predicted(self) -> float:
        return self.rate

    def most_runs(self, num_tokens: int) -> int:
        return (
            most_runs(num_tokens)
            if self.rounding == "independent"
            else most_runs(num_tokens, self.rate, self.max_predictions_per_seq)
        )

    def describe(self) -> str:
        single = f"; single tokens in {self.token_level_prob:.0%} of the sequences" if self.token_level_prob else ""
        return f"{self.rate:.0%} of the tokens, in whole phrases and words{single}"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        if self.token_level_prob and rng.random() < self.token_level_prob:
            return TokenMasking(
                rate=self.rate, rounding=self.rounding, max_predictions_per_seq=self.max_predictions_per_seq
            )(row, rng)
        if self.rounding == "independent":
            begin_W = np.flatnonzero(row["unit_starts"])
            is_selected_W = (rng.random(len(begin_W)) < self.rate) & ~row["special_tokens_mask"][begin_W]
            long_W = np.diff(begin_W, append=len(row["input_ids"]))
            return np.repeat(np.where(is_selected_W, np.cumsum(is_selected_W), 0), long_W).astype(np.int32)
        words = WholeWordMasking(
            rate=self.rate, rounding=self.rounding, max_predictions_per_seq=self.max_predictions_per_seq
        )
        return words(row | {"word_starts": row["unit_starts"]}, rng)
