"""Choices over the whole of a row: T5's random segmentation, MASS' fragment, XLNet's partial prediction."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.hits import HITS, number_runs, words_to_wall
from preprocessing.knob import knob, require
from preprocessing.schema import Bools, Ints, Row
from preprocessing.spans import ngram_lengths


@knob
class NoiseSpans:
    """The row is cut into spans that are chosen in turns, beginning with one that is not (T5, arXiv:1910.10683, 3.1.4).

    n = round(rate * T) of T tokens are chosen, at least one and never all, in max(1, round(n / mean)) spans. Both the
    chosen and the other tokens are cut into so many parts, each way to do it being as likely (random_spans_noise_mask
    in t5/data/preprocessors.py). So the first token never is chosen and the last one always: that is the reference. A
    separator between documents is a token like any other here; T5's rows have none.
    """

    kind: Literal["noise_spans"] = "noise_spans"
    rate: float = 0.15
    mean: float = 3.0  # tokens

    needs: ClassVar[frozenset[str]] = frozenset({"ids"})
    emits: ClassVar[frozenset[str]] = HITS

    def __post_init__(self) -> None:
        require(0 < self.rate < 1, "choose.rate", self.rate, "a share between 0 and 1")
        require(self.mean >= 1, "choose.mean", self.mean, "a number of tokens from 1 up")

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        num_tokens = len(row["ids"])
        num_chosen = min(max(round(self.rate * num_tokens), 1), num_tokens - 1)
        num_spans = min(max(1, round(num_chosen / self.mean)), num_chosen, num_tokens - num_chosen)
        if num_spans == 0:
            return np.zeros(num_tokens, dtype=np.int32)
        long_2N = [_composition(total, num_spans, rng) for total in (num_chosen, num_tokens - num_chosen)]
        unit_2N = np.stack([np.zeros(num_spans, dtype=np.int32), np.arange(1, num_spans + 1, dtype=np.int32)])
        return np.repeat(unit_2N.T.reshape(-1), np.stack(long_2N[::-1], axis=1).reshape(-1))


def _composition(total: int, num_parts: int, rng: np.random.Generator) -> Ints:
    """`total` as a sum of `num_parts` numbers from 1 up, each way being as likely, int64."""
    cuts = 1 + np.sort(rng.permutation(total - 1)[: num_parts - 1])
    return np.diff(cuts, prepend=0, append=total)


@knob
class Fragment:
    """One run of tokens (MASS, arXiv:1905.02450, 3.1): as many as a share `rate` of the row, its ends counted as well.

    In 20 % of the rows it stands at the start, in 20 % at the end, in 60 % anywhere, be it there (`shuffle_segments` in
    MASS-unsupNMT/src/trainer.py, whose runs may end with the end token of a sentence; here they end before it). It is
    several units where special tokens stand inside.

    With `block` there is one in each so many tokens, as long as a share `rate` of these, rounded down, and anywhere in
    them with the same probability (MASS for summarisation: masked_dataset.py in MASS-summarization, where blocks begin
    behind the first token as well). A row that is too short for that has one run as without blocks.
    """

    kind: Literal["fragment"] = "fragment"
    rate: float = 0.5
    block: int = 0  # tokens; 0: the whole row

    needs: ClassVar[frozenset[str]] = frozenset({"special"})
    emits: ClassVar[frozenset[str]] = HITS

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "choose.rate", self.rate, "a share above 0, at most 1")
        require(self.block >= 0, "choose.block", self.block, "a number of tokens from 1 up, or 0 for the whole row")

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        if self.block and np.any(is_chosen_S := self._of_blocks(len(row["special"]), rng) & ~row["special"]):
            return number_runs(is_chosen_S)
        ordinary = np.flatnonzero(~row["special"])
        is_chosen_S = np.zeros(len(row["special"]), dtype=bool)
        if len(ordinary):
            first, stop = int(ordinary[0]), int(ordinary[-1]) + 1
            wanted = min(max(1, round(self.rate * len(is_chosen_S))), stop - first)
            where, place = rng.random(2)
            free = stop - first - wanted
            first += 0 if where < 0.2 else free if where < 0.4 else int(place * (free + 1))
            is_chosen_S[first : first + wanted] = True
        return number_runs(is_chosen_S & ~row["special"])

    def _of_blocks(self, num_tokens: int, rng: np.random.Generator) -> Bools:
        """Which tokens are in the run of their block."""
        begin_N = np.arange(1, num_tokens, self.block)
        long_N = np.minimum(self.block, num_tokens - begin_N)
        wanted_N = (self.rate * long_N).astype(np.int64)
        first_N = begin_N + (rng.random(len(begin_N)) * (long_N - wanted_N + 1)).astype(np.int64)
        inside_S = np.arange(1, num_tokens) - np.repeat(first_N, long_N)
        return np.append(False, (inside_S >= 0) & (inside_S < np.repeat(wanted_N, long_N)))


@knob
class Partial:
    """One token in `of`, as n-grams each in a context of `of` * n tokens (XLNet, arXiv:1906.08237, 2.3 and 3.1).

    Each half of the row, which an XLNet row has, is asked for half of the tokens, the first for the odd one: 43 and 42
    of 512. From left to right: a number of words n from 1 to `longest`, p(n) proportional to 1/n; a place in the next
    `of` * n tokens, drawn uniformly and moved on to where a word begins; behind the n-gram the rest of the context.
    Where the half ends first, tokens drawn uniformly make up for what is missing (`_sample_mask` in data_utils.py).

    Mended against the reference: it counts pieces where it means words (while it looks for the end of a word, it tests
    the first piece again and again). A special token is never chosen here, there it is and asks nothing later.
    """

    kind: Literal["partial"] = "partial"
    of: int = 6
    longest: int = 5

    needs: ClassVar[frozenset[str]] = frozenset({"special", "word_starts"})
    emits: ClassVar[frozenset[str]] = HITS

    def __post_init__(self) -> None:
        require(self.of >= 2, "choose.of", self.of, "a number of tokens from 2 up")
        require(self.longest >= 1, "choose.longest", self.longest, "a number of words from 1 up")

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
        wall_W = words_to_wall(special_S[begin_W]).tolist()
        word_S = np.searchsorted(begin_W, np.arange(len(special_S) + 1)).tolist()  # the first that begins here or later
        bound_W1 = [*begin_W.tolist(), len(special_S)]
        found, at, left = list[tuple[int, int]](), 0, goal
        lengths, places = ngram_lengths(self.longest, goal, rng).tolist(), rng.random(goal).tolist()
        for num_words, place in zip(lengths, places, strict=True):
            context = self.of * min(num_words, left)
            before = int(place * context)
            word = word_S[min(at + before, len(special_S))]
            while word < len(wall_W) and not wall_W[word]:
                word += 1  # a special token asks nothing
            if not left or word == len(wall_W):
                break
            last = word + min(num_words, wall_W[word])
            while last > word and bound_W1[last] - bound_W1[word] > left:
                last -= 1
            stop = bound_W1[last]
            if last == word or stop == len(special_S):
                break  # as there, where a half ends inside of the n-gram
            found.append((bound_W1[word], stop))
            left -= stop - bound_W1[word]
            at = stop + context - before
        return found, left
