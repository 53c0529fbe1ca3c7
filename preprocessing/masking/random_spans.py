"""T5's random segmentation into noise spans."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS
from preprocessing.schema import Ints, Row
from preprocessing.spec import Shrinks, require, spec


@spec
class RandomSpans:
    """The row is cut into spans that are chosen in turns, beginning with one that is not (T5, arXiv:1910.10683, 3.1.4).

    n = round(rate * T) of T tokens are chosen, at least one and never all, in max(1, round(n / mean)) spans. Both the
    chosen and the other tokens are cut into so many parts, each way to do it being as likely (random_spans_noise_mask
    in t5/data/preprocessors.py). So the first token never is chosen and the last one always: that is the reference. A
    separator between documents is a token like any other here; T5's rows have none.
    """

    kind: Literal["random_spans"] = "random_spans"
    rate: float = 0.15
    mean_noise_span_length: float = 3.0  # tokens

    needs: ClassVar[frozenset[str]] = frozenset({"input_ids"})
    emits: ClassVar[frozenset[str]] = HITS
    can_emit: ClassVar[frozenset[str]] = HITS
    shrinks: ClassVar[Shrinks] = {}
    wants: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        require(0 < self.rate < 1, "masking.rate", self.rate, "a share between 0 and 1")
        require(
            self.mean_noise_span_length >= 1,
            "masking.mean_noise_span_length",
            self.mean_noise_span_length,
            "a number of tokens from 1 up",
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
        )  # any draw has as many

    def describe(self) -> str:
        return f"{self.rate:.0%} of the tokens, in spans of {self.mean_noise_span_length:g} on average"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        num_tokens = len(row["input_ids"])
        num_chosen = min(max(round(self.rate * num_tokens), 1), num_tokens - 1)
        num_spans = min(max(1, round(num_chosen / self.mean_noise_span_length)), num_chosen, num_tokens - num_chosen)
        if num_spans == 0:
            return np.zeros(num_tokens, dtype=np.int32)
        long_2N = [_composition(total, num_spans, rng) for total in (num_chosen, num_tokens - num_chosen)]
        unit_2N = np.stack([np.zeros(num_spans, dtype=np.int32), np.arange(1, num_spans + 1, dtype=np.int32)])
        return np.repeat(unit_2N.T.reshape(-1), np.stack(long_2N[::-1], axis=1).reshape(-1))


def _composition(total: int, num_parts: int, rng: np.random.Generator) -> Ints:
    """`total` as a sum of `num_parts` numbers from 1 up, each way being as likely, int64."""
    cuts = 1 + np.sort(rng.permutation(total - 1)[: num_parts - 1])
    return np.diff(cuts, prepend=0, append=total)
