"""One run of tokens (MASS)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, most_runs, number_runs
from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec


@spec
class FragmentMasking:
    """One run of tokens per sequence or per block (MASS, arXiv:1905.02450, 3.1).

    The length of the run is a fraction `rate` of the sequence, including its first and last tokens. The run is at the
    start in 20 % of the sequences, at the end in 20 %, and at a random position in 60 %. The reference is
    `shuffle_segments` in MASS-unsupNMT/src/trainer.py. Its runs may include the end token of a sentence, but runs here
    do not. Special tokens inside the run divide it into several units.

    With `block_size`, each block of that many tokens has one run. The length of the run is a fraction `rate` of the
    block, rounded down, and all positions in the block are equally likely. Blocks start after the first token. This is
    MASS for summarization (masked_dataset.py in MASS-summarization). A sequence that is too short for a run per block
    has one run, as without blocks.
    """

    kind: Literal["fragment"] = "fragment"
    rate: float = key(default=0.5, doc="Fraction of tokens to select, from 0 to 1.")
    block_size: int = key(default=0, doc="Block size in tokens, with one run per block; 0: the whole sequence.")

    required_columns: ClassVar[frozenset[str]] = frozenset({"special_tokens_mask"})
    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    kernel_gap: ClassVar[str] = "fragment"
    scale_overrides: ClassVar[ScaleOverrides] = {}
    required_annotations: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "masking.rate", self.rate, "a fraction greater than 0 and at most 1")
        require(
            self.block_size >= 0,
            "masking.block_size",
            self.block_size,
            "a positive number of tokens, or 0 for the whole sequence",
        )

    @property
    def predicted(self) -> float:
        return self.rate

    def most_runs(self, num_tokens: int) -> int:
        return most_runs(num_tokens, self.rate)

    def describe(self) -> str:
        return f"{self.rate:.0%} of the tokens, in one run" + (
            f" per block of {self.block_size:,} tokens" if self.block_size else ""
        )

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        if self.block_size and np.any(
            is_selected_S := self._block_runs(len(row["special_tokens_mask"]), rng) & ~row["special_tokens_mask"]
        ):
            return number_runs(is_selected_S)
        ordinary = np.flatnonzero(~row["special_tokens_mask"])
        is_selected_S = np.zeros(len(row["special_tokens_mask"]), dtype=bool)
        if len(ordinary):
            first, stop = int(ordinary[0]), int(ordinary[-1]) + 1
            count = min(max(1, round(self.rate * len(is_selected_S))), stop - first)
            placement, offset = rng.random(2)
            free = stop - first - count
            first += 0 if placement < 0.2 else free if placement < 0.4 else int(offset * (free + 1))
            is_selected_S[first : first + count] = True
        return number_runs(is_selected_S & ~row["special_tokens_mask"])

    def _block_runs(self, num_tokens: int, rng: np.random.Generator) -> Bools:
        """Return a mask of the tokens that belong to the run of their block, bool [S]."""
        begin_N = np.arange(1, num_tokens, self.block_size)
        long_N = np.minimum(self.block_size, num_tokens - begin_N)
        count_N = (self.rate * long_N).astype(np.int64)
        first_N = begin_N + (rng.random(len(begin_N)) * (long_N - count_N + 1)).astype(np.int64)
        inside_S = np.arange(1, num_tokens) - np.repeat(first_N, long_N)
        return np.append(False, (inside_S >= 0) & (inside_S < np.repeat(count_N, long_N)))
