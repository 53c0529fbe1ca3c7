"""Single tokens (BERT, RoBERTa, XLM)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, Rounding, budget, check, most_runs
from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec


@spec
class TokenMasking:
    """Single tokens, selected uniformly and without replacement (BERT, arXiv:1810.04805, 3.1).

    The number of selected tokens of a sequence with n tokens, m of them ordinary (not special), depends on `rounding`:
    `nearest` is BERT's max(1, round(rate * n)); `stochastic` is fairseq's floor(rate * n + U) with U uniform in [0, 1);
    `up` is SpanBERT's ceil(rate * m). With `independent`, each token is selected with probability `rate` (XLM and
    ERNIE), so a sequence may have no selected token. `max_predictions_per_seq` limits the number, except with
    `independent`. With `mask_special_tokens` all n tokens may be selected, as in fairseq.

    With `sample_alpha` rare tokens are more likely: weights are count^-alpha (XLM 3.3; alpha is 0.5 there), and tokens
    are drawn one after the other from those not yet selected. In XLM's code a special token has no count and therefore
    no weight (`mask_scores` in src/trainer.py). Its released default is one draw per token, which may select any token
    except the first.
    """

    kind: Literal["token"] = "token"
    rate: float = key(default=0.15, doc="Fraction of tokens to select, from 0 to 1.")
    rounding: Rounding | Literal["independent"] = key(
        default="nearest", doc="Rounding of the number of selected tokens; independent: one draw per token."
    )
    max_predictions_per_seq: int = key(default=0, doc="Maximum number of selected tokens per sequence; 0: no maximum.")
    mask_special_tokens: bool = key(default=False, doc="Whether special tokens may be selected, as in fairseq.")
    sample_alpha: float = key(
        default=0.0, doc="Exponent of the sampling weights count^-alpha (XLM: 0.5); 0: uniform sampling."
    )

    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    scale_overrides: ClassVar[ScaleOverrides] = {}
    required_annotations: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check(self.rate, self.max_predictions_per_seq)
        require(0 <= self.sample_alpha <= 1, "masking.sample_alpha", self.sample_alpha, "a number from 0 to 1")
        is_allowed = self.sample_alpha == 0 or not self.mask_special_tokens
        require(
            is_allowed,
            "masking.mask_special_tokens",
            True,
            "false if sample_alpha is above 0, because special tokens would count as rare",
        )
        if self.rounding == "independent":
            require(
                self.max_predictions_per_seq == 0,
                "masking.max_predictions_per_seq",
                self.max_predictions_per_seq,
                "0 with rounding independent",
            )
            require(
                self.sample_alpha == 0,
                "masking.sample_alpha",
                self.sample_alpha,
                "0 with rounding independent",
            )

    @property
    def kernel_gap(self) -> str:
        options = {"sample_alpha": self.sample_alpha, "mask_special_tokens": self.mask_special_tokens}
        return next((f"{self.kind} with {name}" for name, value in options.items() if value), "")

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a sequence that the scheme reads."""
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
        return f"{self.rate:.0%} of the tokens" + (", rare tokens more often" if self.sample_alpha else "")

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        num_tokens = len(row["input_ids"])
        if self.mask_special_tokens:
            row = row | {"special_tokens_mask": np.zeros(num_tokens, dtype=bool)}
        if self.rounding == "independent":
            is_selected_S = (rng.random(num_tokens) < self.rate) & ~row["special_tokens_mask"]
            return np.where(is_selected_S, np.cumsum(is_selected_S), 0).astype(np.int32)
        ordinary = np.flatnonzero(~row["special_tokens_mask"])
        count = budget(row, self.rate, self.rounding, self.max_predictions_per_seq, rng)
        if self.sample_alpha:
            # Sort by exponential arrival times: the first tokens are a weighted draw without replacement
            arrival = (
                rng.standard_exponential(len(ordinary)) * np.maximum(row["counts"][ordinary], 1) ** self.sample_alpha
            )
            order = ordinary[np.argsort(arrival)]
        else:
            order = rng.permutation(ordinary)
        hit_S = np.zeros(num_tokens, dtype=np.int32)
        hit_S[np.sort(order[:count])] = np.arange(1, count + 1)
        return hit_S
