"""N-grams of whole words or tokens that do not overlap (ALBERT, UniLM)."""

from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, OrdinaryWords, Rounding, budget, check, most_runs
from preprocessing.schema import Floats, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec


@spec
class NgramMasking:
    """Runs of 1 to `max_ngram` whole words, without overlap (ALBERT, arXiv:1909.11942, 3.1).

    A number of words n is drawn with probability proportional to 1/n (0.545, 0.273 and 0.182, mean 1.636). A start is
    then drawn uniformly from the places where n words are free; if there is no such place, n - 1 words are tried. The
    ordinary words of a sequence form a circle, so that each word is selected equally often. A run that crosses a
    special token or the end of the sequence is cut there into two n-grams. A run that exceeds the budget is cut after a
    word, and a word that is longer than the remaining budget is skipped.

    `ngram_weights` are other probabilities of 1, 2, ... words; UniLM has 0.8, 0.1 and 0.1 (arXiv:1905.03197, 2.3). With
    `ngram_unit: token`, as in UniLM, each ordinary token counts as a word.

    Two points differ from the reference (create_masked_lm_predictions of google-research/albert). Its sequences form no
    circle, so the first word is selected half as often as others. It does not cut n-grams that cross [SEP].
    """

    kind: Literal["ngram"] = "ngram"
    rate: float = key(default=0.15, doc="Fraction of tokens to select, from 0 to 1.")
    max_ngram: int = key(default=3, doc="Maximum n-gram length in units of ngram_unit.")
    rounding: Rounding = key(default="nearest", doc="Rounding of the number of selected tokens, as for token masking.")
    max_predictions_per_seq: int = key(default=0, doc="Maximum number of selected tokens per sequence; 0: no maximum.")
    ngram_weights: tuple[float, ...] = key(
        default=(), doc="Relative frequencies of n-grams by length, from 1 unit up; []: 1/n."
    )
    ngram_unit: Literal["word", "token"] = key(default="word", doc="Unit of an n-gram.")

    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    required_annotations: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check(self.rate, self.max_predictions_per_seq)
        require(self.max_ngram >= 1, "masking.max_ngram", self.max_ngram, "a positive number of words")
        if self.ngram_weights:
            each = (
                len(self.ngram_weights) == self.max_ngram
                and min(self.ngram_weights) >= 0
                and abs(sum(self.ngram_weights) - 1) < 1e-6
            )
            require(
                each,
                "masking.ngram_weights",
                self.ngram_weights,
                f"{self.max_ngram} probabilities that sum to 1, or an empty list",
            )

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a sequence that the scheme reads."""
        return frozenset(
            {"special_tokens_mask", "word_starts"} if self.ngram_unit == "word" else {"special_tokens_mask"}
        )

    @property
    def predicted(self) -> float:
        return self.rate

    def most_runs(self, num_tokens: int) -> int:
        return most_runs(num_tokens, self.rate, self.max_predictions_per_seq)

    def describe(self) -> str:
        return f"{self.rate:.0%} of the tokens, in n-grams of up to {self.max_ngram} {self.ngram_unit}s"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        words = OrdinaryWords(
            row["special_tokens_mask"],
            row["word_starts"] if self.ngram_unit == "word" else np.ones(len(row["input_ids"]), bool),
        )
        long, count = words.long_O.tolist(), len(words.long_O)
        # places_of[n]: starts of n + 1 consecutive free words, in a sorted list, since each step removes few of them
        places_of = [list(range(count)) if n < count else list[int]() for n in range(self.max_ngram)]
        kinds = [0, *sorted(set(long))]
        widest_of = kinds[-1:] * self.max_ngram  # an upper bound of the tokens per word in each list
        left = budget(row, self.rate, self.rounding, self.max_predictions_per_seq, rng)
        lengths, draws = ngram_lengths(self.max_ngram, left, rng, self.ngram_weights), rng.random(left)
        selected, firsts = list[int](), list[int]()
        for num_words, draw in zip(lengths.tolist(), draws.tolist(), strict=True):
            places: list[int] = []
            while left and num_words and not places:
                num_words -= 1
                places = places_of[num_words]
                if left < widest_of[num_words]:  # longer words will not fit later either
                    places[:] = [word for word in places if long[word] <= left]
                    widest_of[num_words] = kinds[bisect_right(kinds, left) - 1]
            if not places:
                break
            first = last = places[int(draw * len(places))]
            firsts.append(first)
            while last <= first + num_words and long[last % count] <= left:
                left -= long[last % count]
                selected.append(last % count)
                last += 1
            for n, places in enumerate(places_of):
                _remove(places, first - n, last, count)
        return words.units(selected, firsts)


def _remove(places: list[int], start: int, stop: int, count: int) -> None:
    """Remove the places [start, stop) of a circle of `count` places from a sorted list.

    >>> places = [0, 1, 2, 3, 4, 5]
    >>> _remove(places, -1, 2, 6)
    >>> places
    [2, 3, 4]
    """
    del places[bisect_left(places, start) : bisect_left(places, stop)]
    if start < 0:
        del places[bisect_left(places, start + count) :]
    if stop > count:
        del places[: bisect_left(places, stop - count)]


def ngram_lengths(longest: int, count: int, rng: np.random.Generator, weights: tuple[float, ...] = ()) -> Ints:
    """Draw numbers of words from 1 to `longest`, with p(n) proportional to weights[n - 1] or to 1/n, int64 [count]."""
    return 1 + np.searchsorted(ngram_cdf(longest, tuple(weights)), rng.random(count), side="right")


@lru_cache
def ngram_cdf(longest: int, weights: tuple[float, ...]) -> Floats:
    weight = np.array(weights) if weights else 1 / np.arange(1, longest + 1)
    return np.cumsum(weight)[:-1] / weight.sum()  # the last value, 1, is omitted
