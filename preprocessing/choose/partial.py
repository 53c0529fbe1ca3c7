"""Partial prediction (XLNet)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.choose.budget import HITS, words_until_special
from preprocessing.choose.ngrams import ngram_lengths
from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import Shrinks, require, spec


@spec
class Partial:
    """One token in `of`, as n-grams each in a context of `of` * n tokens (XLNet, arXiv:1906.08237, 2.3 and 3.1).

    Half of the tokens are chosen in each half of the row, which an XLNet row has, the odd one in the first: 43 and 42
    of 512. From left to right: a number of words n from 1 to `longest`, p(n) proportional to 1/n; a place in the next
    `of` * n tokens, drawn uniformly and moved on to where a word begins; behind the n-gram the rest of the context.
    Where the half ends first, tokens drawn uniformly make up for what is missing (`_sample_mask` in data_utils.py).

    Mended against the reference: it counts pieces where it means words (while it looks for the end of a word, it tests
    the first piece again and again). A special token is never chosen here; there it may be, and is not predicted.
    """

    kind: Literal["partial"] = "partial"
    of: int = 6
    longest: int = 5

    needs: ClassVar[frozenset[str]] = frozenset({"special", "word_starts"})
    emits: ClassVar[frozenset[str]] = HITS
    can_emit: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    shrinks: ClassVar[Shrinks] = {}
    wants: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        require(self.of >= 2, "choose.of", self.of, "a number of tokens from 2 up")
        require(self.longest >= 1, "choose.longest", self.longest, "a number of words from 1 up")

    @property
    def predicted(self) -> float:
        return 1 / self.of

    def describe(self) -> str:
        return f"one token in {self.of}, in n-grams of up to {self.longest}"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        special_S, starts_S = row["special"], row["word_starts"]
        num_tokens = len(special_S)
        middle, wanted = num_tokens // 2, num_tokens // self.of
        is_chosen_S, is_first_S = np.zeros((2, num_tokens), dtype=bool)
        for start, stop, goal in ((0, middle, wanted - wanted // 2), (middle, num_tokens, wanted // 2)):
            ngrams, left = self._ngrams(special_S[start:stop], starts_S[start:stop], goal, rng)
            for first, end in ngrams:
                is_chosen_S[start + first : start + end] = is_first_S[start + first] = True
            free = start + np.flatnonzero(~(is_chosen_S | special_S)[start:stop])
            singles = rng.permutation(free)[:left]
            is_chosen_S[singles] = is_first_S[singles] = True
        return np.where(is_chosen_S, np.cumsum(is_first_S), 0).astype(np.int32)

    def _ngrams(
        self, special_S: Bools, starts_S: Bools, goal: int, rng: np.random.Generator
    ) -> tuple[list[tuple[int, int]], int]:
        """Start and stop of the n-grams of a half, and how many of the `goal` tokens are still to be found."""
        begin_W = np.flatnonzero(starts_S)
        until_W = words_until_special(special_S[begin_W]).tolist()
        word_S = np.searchsorted(begin_W, np.arange(len(special_S) + 1)).tolist()  # the first that begins here or later
        bound_W1 = [*begin_W.tolist(), len(special_S)]
        found, at, left = list[tuple[int, int]](), 0, goal
        lengths, places = ngram_lengths(self.longest, goal, rng).tolist(), rng.random(goal).tolist()
        for num_words, place in zip(lengths, places, strict=True):
            context = self.of * min(num_words, left)
            before = int(place * context)
            word = word_S[min(at + before, len(special_S))]
            while word < len(until_W) and not until_W[word]:
                word += 1  # a special token is not predicted
            if not left or word == len(until_W):
                break
            last = word + min(num_words, until_W[word])
            while last > word and bound_W1[last] - bound_W1[word] > left:
                last -= 1
            stop = bound_W1[last]
            if last == word or stop == len(special_S):
                break  # as there, where a half ends inside of the n-gram
            found.append((bound_W1[word], stop))
            left -= stop - bound_W1[word]
            at = stop + context - before
        return found, left
