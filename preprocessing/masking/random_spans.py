"""T5's random segmentation into noise spans."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS
from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec


@spec
class RandomSpans:
    """Random spans that alternate with unselected spans (T5, arXiv:1910.10683, 3.1.4).

    Of T tokens, n = round(rate * T) are selected, at least one and never all, in max(1, round(n / mean)) spans. The
    selected tokens are divided into this number of spans, and so are the other tokens. All divisions are equally likely
    (random_spans_noise_mask in t5/data/preprocessors.py). As in the reference, a sequence begins with an unselected
    span, so its first token is never selected and its last token always is. Separators between documents count as
    ordinary tokens; T5's sequences have no separators.
    """

    kind: Literal["random_spans"] = "random_spans"
    rate: float = key(default=0.15, doc="Fraction of tokens to select, from 0 to 1.")
    mean_noise_span_length: float = key(default=3.0, doc="Mean span length in tokens.")

    required_columns: ClassVar[frozenset[str]] = frozenset({"input_ids"})
    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    required_annotations: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        require(0 < self.rate < 1, "masking.rate", self.rate, "a fraction between 0 and 1")
        require(
            self.mean_noise_span_length >= 1,
            "masking.mean_noise_span_length",
            self.mean_noise_span_length,
            "a number of tokens, at least 1",
        )

    @property
    def predicted(self) -> float:
        return self.rate

    @property
    def span_mean(self) -> float:
        return self.mean_noise_span_length

    def most_runs(self, num_tokens: int) -> int:
        return int(
            self({"input_ids": np.zeros(num_tokens)}, np.random.default_rng(0)).max(initial=0)
        )  # every draw has the same number of spans

    def describe(self) -> str:
        return f"{self.rate:.0%} of the tokens, in spans of {self.mean_noise_span_length:g} on average"

    def counts(self, num_tokens: int) -> tuple[int, int]:
        """Return the numbers of selected tokens and of spans of a sequence of `num_tokens` tokens."""
        num_selected = min(max(round(self.rate * num_tokens), 1), num_tokens - 1)
        num_spans = min(
            max(1, round(num_selected / self.mean_noise_span_length)), num_selected, num_tokens - num_selected
        )
        return num_selected, num_spans

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        num_tokens = len(row["input_ids"])
        num_selected, num_spans = self.counts(num_tokens)
        if num_spans == 0:
            return np.zeros(num_tokens, dtype=np.int32)
        long_2N = [_composition(total, num_spans, rng) for total in (num_selected, num_tokens - num_selected)]
        unit_2N = np.stack([np.zeros(num_spans, dtype=np.int32), np.arange(1, num_spans + 1, dtype=np.int32)])
        return np.repeat(unit_2N.T.reshape(-1), np.stack(long_2N[::-1], axis=1).reshape(-1))


def _composition(total: int, num_parts: int, rng: np.random.Generator) -> Ints:
    """Draw `num_parts` positive integers that sum to `total`, uniformly among all such compositions, int64."""
    cuts = 1 + np.sort(rng.permutation(total - 1)[: num_parts - 1])
    return np.diff(cuts, prepend=0, append=total)
