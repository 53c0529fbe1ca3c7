"""Whole words (BERT, May 2019)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, Rounding, budget, check, most_runs
from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides, key, spec


@spec
class WholeWordMasking:
    """Whole words in random order, until the budget is full (BERT whole-word masking, May 2019).

    The source is the README of google-research/bert. A word that exceeds the remaining budget is skipped and the search
    continues. A sequence has fewer selected tokens than its budget only if every remaining word is too long.
    """

    kind: Literal["whole_word"] = "whole_word"
    rate: float = key(default=0.15, doc="Fraction of tokens to select, from 0 to 1.")
    rounding: Rounding = key(default="nearest", doc="Rounding of the number of selected tokens, as for token masking.")
    max_predictions_per_seq: int = key(default=0, doc="Maximum number of selected tokens per sequence; 0: no maximum.")

    required_columns: ClassVar[frozenset[str]] = frozenset({"special_tokens_mask", "word_starts"})
    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    required_annotations: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check(self.rate, self.max_predictions_per_seq)

    @property
    def predicted(self) -> float:
        return self.rate

    def most_runs(self, num_tokens: int) -> int:
        return most_runs(num_tokens, self.rate, self.max_predictions_per_seq)

    def describe(self) -> str:
        return f"{self.rate:.0%} of the tokens, in whole words"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        begin_W = np.flatnonzero(row["word_starts"])
        long_W = np.diff(begin_W, append=len(row["input_ids"]))
        left = budget(row, self.rate, self.rounding, self.max_predictions_per_seq, rng)
        order = rng.permutation(np.flatnonzero(~row["special_tokens_mask"][begin_W]))
        is_selected_W = np.zeros(len(begin_W), dtype=bool)
        while True:
            order = order[long_W[order] <= left]  # longer words will not fit later either
            if not order.size:
                break
            total = np.cumsum(long_W[order])
            num_taken = int(np.searchsorted(total, left, side="right"))
            is_selected_W[order[:num_taken]] = True
            left -= int(total[num_taken - 1])
            order = order[num_taken:]
        return np.repeat(np.where(is_selected_W, np.cumsum(is_selected_W), 0), long_W).astype(np.int32)
