"""Partial prediction (XLNet)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking.budget import HITS, OrdinaryWords, most_runs
from preprocessing.masking.ngram import ngram_lengths
from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec


@spec
class PartialPrediction:
    """One token in `group_size`, as n-grams of words in a context (XLNet, arXiv:1906.08237, 3.1).

    Each half of the sequence has half of the selected tokens; the first half has one more if their number is odd, e.g.
    43 and 42 of 512. In each half, the procedure starts at a uniformly drawn word and visits all ordinary words once,
    as a circle. Each step draws a number of words n from 1 to `max_ngram`, with probability proportional to 1/n. The
    next `group_size` * n words are the context, in which n consecutive words at a random position are selected. A run
    that crosses a special token or the end of the half is cut there into two n-grams. If the circle ends before the
    budget is full, uniformly drawn single tokens fill the rest. About one in a hundred selected tokens is drawn
    in this way, or one in ten if words have four tokens.

    The paper describes spans of tokens; the reference (`_sample_mask` in data_utils.py) uses words, as here. The
    reference differs in these points:

    * It selects n tokens rather than n words, because its loop over the words tests only the first token. So the first
      tokens of long words are targets several times as often as their last tokens.
    * Its context does not include the n-gram. So it selects a seventh of the tokens as n-grams, and draws the rest from
      anywhere.
    * Its first context starts at the start of the half, and its last n-gram ends before the end of the half. So there
      are fewer targets at both ends.
    * It may select special tokens, but does not predict them. Here they are never selected.
    """

    kind: Literal["partial_prediction"] = "partial_prediction"
    group_size: int = key(default=6, doc="Number of tokens per selected token; XLNet's K.")
    max_ngram: int = key(default=5, doc="Maximum n-gram length in words.")

    required_columns: ClassVar[frozenset[str]] = frozenset({"special_tokens_mask", "word_starts"})
    produced_columns: ClassVar[frozenset[str]] = HITS
    possible_columns: ClassVar[frozenset[str]] = HITS
    span_mean: ClassVar[float] = 0.0
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    required_annotations: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        require(self.group_size >= 2, "masking.group_size", self.group_size, "a number of tokens, at least 2")
        require(self.max_ngram >= 1, "masking.max_ngram", self.max_ngram, "a positive number of words")

    @property
    def predicted(self) -> float:
        return 1 / self.group_size

    def most_runs(self, num_tokens: int) -> int:
        return most_runs(num_tokens, 1 / self.group_size)

    def describe(self) -> str:
        return f"one token in {self.group_size}, in n-grams of up to {self.max_ngram} words"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        special_S, starts_S = row["special_tokens_mask"], row["word_starts"]
        num_tokens = len(special_S)
        middle, goal = num_tokens // 2, num_tokens // self.group_size
        first_half_S = self._half(special_S[:middle], starts_S[:middle], goal - goal // 2, rng)
        second_half_S = self._half(special_S[middle:], starts_S[middle:], goal // 2, rng)
        second_half_S[second_half_S > 0] += first_half_S.max(initial=0)
        return np.append(first_half_S, second_half_S)

    def _half(self, special_S: Bools, starts_S: Bools, goal: int, rng: np.random.Generator) -> Ints:
        """Return the column `hits` of a half with `goal` selected tokens, or with all ordinary tokens if fewer."""
        words = OrdinaryWords(special_S, starts_S)
        selected, firsts, left = self._ngrams(words.long_O.tolist(), goal, rng)
        hit_S = words.units(selected, firsts)
        single_S = np.zeros(len(hit_S), dtype=bool)
        single_S[rng.permutation(np.flatnonzero((hit_S == 0) & ~special_S))[:left]] = True
        # Renumber the units: a unit begins at each single token, and where the number of the n-gram changes
        is_first_S = single_S | ((hit_S > 0) & (np.diff(hit_S, prepend=0) != 0))
        return np.where(single_S | (hit_S > 0), np.cumsum(is_first_S), 0).astype(np.int32)

    def _ngrams(self, long: list[int], goal: int, rng: np.random.Generator) -> tuple[list[int], list[int], int]:
        """Return the selected words of a half, the first words of n-grams, and the number of tokens still to select.

        `long` lists the number of tokens of each word.
        """
        selected, firsts, left, at = list[int](), list[int](), goal, 0
        begin = int(rng.random() * len(long))
        lengths, places = ngram_lengths(self.max_ngram, goal, rng).tolist(), rng.random(goal).tolist()
        for num_words, place in zip(lengths, places, strict=True):
            num_words = min(num_words, left)
            first = at + int(place * ((self.group_size - 1) * num_words + 1))
            if not left or first + num_words > len(long):
                break
            at += self.group_size * num_words
            firsts.append((begin + first) % len(long))
            for word in range(begin + first, begin + first + num_words):
                if long[word % len(long)] > left:
                    break
                left -= long[word % len(long)]
                selected.append(word % len(long))
        return selected, firsts, left
