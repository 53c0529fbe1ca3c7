"""Geometric spans of whole words (SpanBERT)."""

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, Rounding, budget, check, most_runs, number_runs
from preprocessing.schema import Floats, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec


@spec
class SpanMasking:
    """Spans of whole words with geometric lengths (SpanBERT, arXiv:1907.10529, 3.1).

    Touching spans are one unit. A length l from 1 to `max_span_length` words is drawn with probability proportional to
    p * (1 - p)^(l - 1). By default its mean is 3.797 words; the paper gives 3.8 (clipping longer draws would give
    4.463). A span begins at the start of the word of a uniformly drawn token that is not yet selected. It ends early
    at a special token. The last span stops exactly at the budget, even inside a word, as in the
    reference.

    A fraction `phrase_prob` of the spans are phrases of at least two words that are not yet selected, if any remain
    (table 3, named entities and noun phrases). The reference draws again if it has already masked the phrase.
    """

    kind: Literal["span"] = "span"
    rate: float = key(default=0.15, doc="Fraction of tokens to select, from 0 to 1.")
    geometric_p: float = key(
        default=0.2, doc="Parameter p of the geometric distribution of span lengths; larger values give shorter spans."
    )
    max_span_length: int = key(default=10, doc="Maximum span length in words.")
    rounding: Rounding = key(default="up", doc="Rounding of the number of selected tokens, as for token masking.")
    phrase_prob: float = key(
        default=0.0, doc="Fraction of spans that are phrases of at least two words, from the corpus key phrases."
    )

    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        check(self.rate, 0)
        require(0 < self.geometric_p < 1, "masking.geometric_p", self.geometric_p, "a probability between 0 and 1")
        require(
            self.max_span_length >= 1, "masking.max_span_length", self.max_span_length, "a positive number of words"
        )
        require(0 <= self.phrase_prob <= 1, "masking.phrase_prob", self.phrase_prob, "a fraction from 0 to 1")

    @property
    def kernel_gap(self) -> str:
        return f"{self.kind} with phrase_prob" if self.phrase_prob else ""

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a sequence that the scheme reads."""
        return frozenset({"special_tokens_mask", "word_starts"} | ({"unit_starts"} if self.phrase_prob else set()))

    @property
    def predicted(self) -> float:
        return self.rate

    @property
    def required_annotations(self) -> frozenset[str]:
        return frozenset({"phrases"} if self.phrase_prob else ())

    def most_runs(self, num_tokens: int) -> int:
        return most_runs(num_tokens, self.rate)

    def describe(self) -> str:
        phrases = f"; {self.phrase_prob:.0%} of the spans are phrases" if self.phrase_prob else ""
        return f"{self.rate:.0%} of the tokens, in spans of up to {self.max_span_length} words{phrases}"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        special_S, num_tokens = row["special_tokens_mask"], len(row["input_ids"])
        begin_W = np.flatnonzero(row["word_starts"])
        word_S = np.cumsum(row["word_starts"]) - 1
        special_word_W = np.append(np.flatnonzero(special_S[begin_W]), len(begin_W))
        # index of the next special token among the words
        wall_W = special_word_W[np.searchsorted(special_word_W, np.arange(len(begin_W)))]
        begin, wall, word = [*begin_W.tolist(), num_tokens], wall_W.tolist(), word_S.tolist()
        ordinary = np.flatnonzero(~special_S)
        left = budget(row, self.rate, self.rounding, 0, rng)
        is_selected_S = np.zeros(num_tokens, dtype=bool)
        phrases = _phrases(row, rng) if self.phrase_prob else []
        while left:
            anchors = ordinary[rng.integers(len(ordinary), size=left)].tolist()
            for anchor, num_words in zip(
                anchors, span_lengths(self.geometric_p, self.max_span_length, left, rng).tolist(), strict=True
            ):
                if phrases and rng.random() < self.phrase_prob:
                    span_S = is_selected_S[phrases.pop()]
                elif is_selected_S[anchor]:
                    continue
                else:
                    first = word[anchor]
                    span_S = is_selected_S[begin[first] : begin[min(first + num_words, wall[first])]]
                free = np.flatnonzero(~span_S)[:left]
                span_S[free] = True
                left -= len(free)
                if not left:
                    break
        return number_runs(is_selected_S)


def _phrases(row: Row, rng: np.random.Generator) -> list[slice]:
    """Return the token ranges of phrases of at least two words, in random order."""
    begin_U = np.flatnonzero(row["unit_starts"])
    end_U = np.append(begin_U[1:], len(row["input_ids"]))
    words_S1 = np.append(0, np.cumsum(row["word_starts"]))
    many = np.flatnonzero(words_S1[end_U] - words_S1[begin_U] >= 2)
    return [slice(begin_U[unit], end_U[unit]) for unit in rng.permutation(many).tolist()]


def span_lengths(p: float, longest: int, count: int, rng: np.random.Generator) -> Ints:
    """Draw lengths in words from the geometric distribution, truncated to 1 ... `longest`, int64 [count]."""
    return 1 + np.searchsorted(span_cdf(p, longest), rng.random(count), side="right")


@lru_cache
def span_cdf(p: float, longest: int) -> Floats:
    weight = (1 - p) ** np.arange(longest)
    return np.cumsum(weight)[:-1] / weight.sum()  # the last value, 1, is omitted
