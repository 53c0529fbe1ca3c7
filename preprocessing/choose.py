"""Row -> hits: which tokens the model is asked about. 0 = not chosen, k = part of the k-th chosen unit, left to right.

A special token is never chosen, no unit reaches over one, and each row has a budget of tokens that is met exactly
(by Words, as far as whole words allow).
"""

from functools import lru_cache
from math import ceil, floor
from typing import ClassVar, Literal

import numpy as np

from preprocessing.knob import knob, require
from preprocessing.schema import Bools, Floats, Ints, Row

Rounding = Literal["nearest", "stochastic", "up"]


@knob
class Nothing:
    """No token is chosen: left-to-right models ask about every next token."""

    kind: Literal["nothing"] = "nothing"

    needs: ClassVar[frozenset[str]] = frozenset()
    emits: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        return np.zeros(len(row["ids"]), dtype=np.int32)


@knob
class Tokens:
    """Single tokens, uniformly and without replacement (BERT, arXiv:1810.04805, 3.1).

    The budget of a row of n tokens, m of them ordinary: `nearest` is BERT's max(1, round(rate * n)); `stochastic` is
    fairseq's floor(rate * n + U) with U uniform in [0, 1); `up` is SpanBERT's ceil(rate * m). `most` caps it (BERT's
    max_predictions_per_seq); 0 is no cap.
    """

    kind: Literal["tokens"] = "tokens"
    rate: float = 0.15
    rounding: Rounding = "nearest"
    most: int = 0

    needs: ClassVar[frozenset[str]] = frozenset({"special"})
    emits: ClassVar[frozenset[str]] = frozenset({"hits"})

    def __post_init__(self) -> None:
        _check(self.rate, self.most)

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        ordinary = np.flatnonzero(~row["special"])
        budget = _budget(row, self.rate, self.rounding, self.most, rng)
        hit_S = np.zeros(len(row["ids"]), dtype=np.int32)
        hit_S[np.sort(rng.permutation(ordinary)[:budget])] = np.arange(1, budget + 1)
        return hit_S


@knob
class Words:
    """Whole words in random order while they fit (BERT's whole-word masking, README of google-research/bert, May 2019).

    A word that would overflow the budget is skipped and the search goes on, so a row falls short of its budget only
    when every word that is left is longer than what is left of the budget.
    """

    kind: Literal["words"] = "words"
    rate: float = 0.15
    rounding: Rounding = "nearest"
    most: int = 0

    needs: ClassVar[frozenset[str]] = frozenset({"special", "word_starts"})
    emits: ClassVar[frozenset[str]] = frozenset({"hits"})

    def __post_init__(self) -> None:
        _check(self.rate, self.most)

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        begin_W = np.flatnonzero(row["word_starts"])
        long_W = np.diff(begin_W, append=len(row["ids"]))
        left = _budget(row, self.rate, self.rounding, self.most, rng)
        order = rng.permutation(np.flatnonzero(~row["special"][begin_W]))
        is_chosen_W = np.zeros(len(begin_W), dtype=bool)
        while True:
            order = order[long_W[order] <= left]  # the budget only shrinks: what does not fit now never will
            if not order.size:
                break
            total = np.cumsum(long_W[order])
            num_taken = int(np.searchsorted(total, left, side="right"))
            is_chosen_W[order[:num_taken]] = True
            left -= int(total[num_taken - 1])
            order = order[num_taken:]
        return np.repeat(np.where(is_chosen_W, np.cumsum(is_chosen_W), 0), long_W).astype(np.int32)


@knob
class Entities:
    """Whole phrases and whole words in random order while they fit (ERNIE, arXiv:1904.09223, 4.2): Words over units.

    The phrases are those that `units` of the corpus file names; a word outside of them is a unit by itself.
    """

    kind: Literal["entities"] = "entities"
    rate: float = 0.15
    rounding: Rounding = "nearest"
    most: int = 0

    needs: ClassVar[frozenset[str]] = frozenset({"special", "unit_starts"})
    emits: ClassVar[frozenset[str]] = frozenset({"hits"})

    def __post_init__(self) -> None:
        _check(self.rate, self.most)

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        words = Words(rate=self.rate, rounding=self.rounding, most=self.most)
        return words(row | {"word_starts": row["unit_starts"]}, rng)


@knob
class Spans:
    """Runs of whole words with geometric lengths (SpanBERT, arXiv:1907.10529, 3.1); touching runs are one unit.

    A length of 1 to `longest` words is drawn with p(l) proportional to p * (1 - p)^(l - 1), renormalised: mean 3.797
    words, the paper's 3.8 (clipping long draws would give 4.463). A token that is not yet chosen is drawn uniformly;
    the span begins where its word begins and ends early at a special token. The last span stops exactly at the budget,
    be it inside a word: one cut in a row, as in the reference.
    """

    kind: Literal["spans"] = "spans"
    rate: float = 0.15
    p: float = 0.2
    longest: int = 10
    rounding: Rounding = "up"

    needs: ClassVar[frozenset[str]] = frozenset({"special", "word_starts"})
    emits: ClassVar[frozenset[str]] = frozenset({"hits"})

    def __post_init__(self) -> None:
        _check(self.rate, 0)
        require(0 < self.p < 1, "choose.p", self.p, "a probability between 0 and 1")
        require(self.longest >= 1, "choose.longest", self.longest, "a number of words from 1 up")

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        special_S, num_tokens = row["special"], len(row["ids"])
        begin_W = np.flatnonzero(row["word_starts"])
        word_S = np.cumsum(row["word_starts"]) - 1
        special_word_W = np.append(np.flatnonzero(special_S[begin_W]), len(begin_W))
        wall_W = special_word_W[np.searchsorted(special_word_W, np.arange(len(begin_W)))]  # next special word
        begin, wall, word = [*begin_W.tolist(), num_tokens], wall_W.tolist(), word_S.tolist()
        ordinary = np.flatnonzero(~special_S)
        left = _budget(row, self.rate, self.rounding, 0, rng)
        is_chosen_S = np.zeros(num_tokens, dtype=bool)
        while left:
            anchors = ordinary[rng.integers(len(ordinary), size=left)].tolist()
            for anchor, num_words in zip(anchors, span_lengths(self.p, self.longest, left, rng).tolist(), strict=True):
                if is_chosen_S[anchor]:
                    continue
                first = word[anchor]
                span_S = is_chosen_S[begin[first] : begin[min(first + num_words, wall[first])]]
                free = np.flatnonzero(~span_S)[:left]
                span_S[free] = True
                left -= len(free)
                if not left:
                    break
        return _number_runs(is_chosen_S)


def span_lengths(p: float, longest: int, count: int, rng: np.random.Generator) -> Ints:
    """Lengths in words from the geometric distribution, truncated to 1 ... longest and renormalised, int64 [count]."""
    return 1 + np.searchsorted(_span_cdf(p, longest), rng.random(count), side="right")


@lru_cache
def _span_cdf(p: float, longest: int) -> Floats:
    weight = (1 - p) ** np.arange(longest)
    return np.cumsum(weight)[:-1] / weight.sum()  # without its last value, 1


@knob
class Ngrams:
    """Runs of 1 to `longest` whole words that keep apart: no two share a word (ALBERT, arXiv:1909.11942, 3.1).

    A number of words n is drawn with p(n) proportional to 1/n (.545, .273 and .182, mean 1.636), then a place for it
    uniformly among those where n free words stand between two special tokens; where there is none left, n - 1 words do.
    What would overflow the budget is cut behind a word, and a word that is longer than the rest of it is passed over.
    """

    kind: Literal["ngrams"] = "ngrams"
    rate: float = 0.15
    longest: int = 3
    rounding: Rounding = "nearest"
    most: int = 0

    needs: ClassVar[frozenset[str]] = frozenset({"special", "word_starts"})
    emits: ClassVar[frozenset[str]] = frozenset({"hits"})

    def __post_init__(self) -> None:
        _check(self.rate, self.most)
        require(self.longest >= 1, "choose.longest", self.longest, "a number of words from 1 up")

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        begin_W = np.flatnonzero(row["word_starts"])
        long_W = np.diff(begin_W, append=len(row["ids"]))
        free_W = _words_to_wall(row["special"][begin_W])  # free words in a row from each one on
        left = _budget(row, self.rate, self.rounding, self.most, rng)
        lengths, where = ngram_lengths(self.longest, left, rng), rng.random(left)
        is_chosen_W, is_first_W = np.zeros((2, len(begin_W)), dtype=bool)
        for num_words, share in zip(lengths.tolist(), where.tolist(), strict=True):
            free_W[long_W > left] = 0  # the budget only shrinks
            wanted = min(num_words, int(free_W.max(initial=0)))
            if not wanted:
                break
            places = np.flatnonzero(free_W >= wanted)
            first = int(places[int(share * len(places))])
            total = np.cumsum(long_W[first : first + wanted])
            num_taken = int(np.searchsorted(total, left, side="right"))
            left -= int(total[num_taken - 1])
            is_first_W[first] = True
            is_chosen_W[first : first + num_taken] = True
            free_W[first : first + num_taken] = 0
            near = slice(max(first - self.longest, 0), first)
            free_W[near] = np.minimum(free_W[near], np.arange(first - near.start, 0, -1))
        return np.repeat(np.where(is_chosen_W, np.cumsum(is_first_W), 0), long_W).astype(np.int32)


def ngram_lengths(longest: int, count: int, rng: np.random.Generator) -> Ints:
    """Numbers of words from 1 to `longest` with p(n) proportional to 1/n, int64 [count]."""
    return 1 + np.searchsorted(_ngram_cdf(longest), rng.random(count), side="right")


@lru_cache
def _ngram_cdf(longest: int) -> Floats:
    weight = 1 / np.arange(1, longest + 1)
    return np.cumsum(weight)[:-1] / weight.sum()  # without its last value, 1


def _words_to_wall(special_W: Bools) -> Ints:
    """Words from each one on up to the next special one, or to the end.

    >>> _words_to_wall(np.array([True, False, False, True, False])).tolist()
    [0, 2, 1, 0, 1]
    """
    wall_at = np.append(np.flatnonzero(special_W), len(special_W))
    word_W = np.arange(len(special_W))
    return wall_at[np.searchsorted(wall_at, word_W)] - word_W


def _number_runs(is_chosen_S: Bools) -> Ints:
    """Each run of chosen positions gets its number, from 1 up.

    >>> _number_runs(np.array([True, True, False, False, True])).tolist()
    [1, 1, 0, 0, 2]
    """
    is_first_S = is_chosen_S.copy()
    is_first_S[1:] &= ~is_chosen_S[:-1]
    return np.where(is_chosen_S, np.cumsum(is_first_S), 0).astype(np.int32)


def _budget(row: Row, rate: float, rounding: Rounding, most: int, rng: np.random.Generator) -> int:
    """Tokens to choose: a share of the row, rounded as Tokens says, never more than it has ordinary ones."""
    num_tokens = len(row["special"])
    num_ordinary = num_tokens - int(np.count_nonzero(row["special"]))
    if rounding == "nearest":
        budget = max(1, round(rate * num_tokens))
    elif rounding == "stochastic":
        budget = floor(rate * num_tokens + rng.random())
    else:
        budget = ceil(rate * num_ordinary - 1e-9)  # 0.07 * 100 is 7.000000000000001, and 7 is meant
    return min(budget, num_ordinary, most or num_ordinary)


def _check(rate: float, most: int) -> None:
    require(0 < rate <= 1, "choose.rate", rate, "a share above 0, at most 1")
    require(most >= 0, "choose.most", most, "a number of tokens from 1 up, or 0 for no cap")


Choose = Nothing | Tokens | Words | Entities | Spans | Ngrams
