"""Single tokens (BERT, RoBERTa, XLM)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, Rounding, budget, check, most_runs
from preprocessing.schema import Ints, Row
from preprocessing.spec import Shrinks, require, spec


@spec
class TokenMasking:
    """Single tokens, uniformly and without replacement (BERT, arXiv:1810.04805, 3.1).

    The budget of a row of n tokens, m of them ordinary: `nearest` is BERT's max(1, round(rate * n)); `stochastic` is
    fairseq's floor(rate * n + U) with U uniform in [0, 1); `up` is SpanBERT's ceil(rate * m); `independent` has none:
    each token is chosen with probability `rate` (XLM and ERNIE), and a row may have none. `max_predictions_per_seq`
    caps it (BERT's max_predictions_per_seq); 0 is no cap. With `mask_special_tokens` all n tokens may be chosen, as in
    fairseq.

    With `sample_alpha` rare tokens are more likely: weights count^-alpha (XLM 3.3; .5 there), one token after the other
    drawn from those that are left. There a special token has no count and then no weight either (`mask_scores` in
    src/trainer.py), while its released default, a coin for each token, may choose any but the first.
    """

    kind: Literal["token"] = "token"
    rate: float = 0.15
    rounding: Rounding | Literal["independent"] = "nearest"  # of the number of tokens; independent: each by itself
    max_predictions_per_seq: int = 0
    mask_special_tokens: bool = False
    sample_alpha: float = 0.0

    emits: ClassVar[frozenset[str]] = HITS
    can_emit: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    shrinks: ClassVar[Shrinks] = {}
    wants: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check(self.rate, self.max_predictions_per_seq)
        require(0 <= self.sample_alpha <= 1, "masking.sample_alpha", self.sample_alpha, "a number from 0 to 1")
        plain = self.sample_alpha == 0 or not self.mask_special_tokens
        require(
            plain, "masking.mask_special_tokens", True, "false where rare tokens come first: special ones count as rare"
        )
        if self.rounding == "independent":
            require(
                self.max_predictions_per_seq == 0,
                "masking.max_predictions_per_seq",
                self.max_predictions_per_seq,
                "0 where tokens are chosen independently",
            )
            require(
                self.sample_alpha == 0,
                "masking.sample_alpha",
                self.sample_alpha,
                "0 where tokens are chosen independently",
            )

    @property
    def needs(self) -> frozenset[str]:
        """Columns of a row that are read."""
        return frozenset({"special_tokens_mask", "counts"} if self.sample_alpha else {"special_tokens_mask"})

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
        return f"{self.rate:.0%} of the tokens" + (", rare ones more often" if self.sample_alpha else "")

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        num_tokens = len(row["input_ids"])
        if self.mask_special_tokens:
            row = row | {"special_tokens_mask": np.zeros(num_tokens, dtype=bool)}
        if self.rounding == "independent":
            is_chosen_S = (rng.random(num_tokens) < self.rate) & ~row["special_tokens_mask"]
            return np.where(is_chosen_S, np.cumsum(is_chosen_S), 0).astype(np.int32)
        ordinary = np.flatnonzero(~row["special_tokens_mask"])
        wanted = budget(row, self.rate, self.rounding, self.max_predictions_per_seq, rng)
        if self.sample_alpha:
            # An exponential race: the first to arrive are a draw without replacement by rate of arrival
            arrival = (
                rng.standard_exponential(len(ordinary)) * np.maximum(row["counts"][ordinary], 1) ** self.sample_alpha
            )
            order = ordinary[np.argsort(arrival)]
        else:
            order = rng.permutation(ordinary)
        hit_S = np.zeros(num_tokens, dtype=np.int32)
        hit_S[np.sort(order[:wanted])] = np.arange(1, wanted + 1)
        return hit_S
