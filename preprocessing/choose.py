"""Row -> hits: which tokens the model is asked about. 0 = not chosen, k = part of the k-th chosen unit, left to right.

A special token is never chosen, no unit reaches over one, and each row has a budget of tokens that is met exactly
(by Words, as far as whole words allow); where a part differs it says so. Runs of words are in spans.py, what
sequence to sequence and XLNet ask for in partial.py.
"""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.hits import HITS, Rounding, budget, check
from preprocessing.knob import knob, require
from preprocessing.partial import Fragment, NoiseSpans, Partial
from preprocessing.schema import Ints, Row
from preprocessing.spans import Ngrams, Spans, ngram_lengths, span_lengths

__all__ = [
    "Choose",
    "Entities",
    "Fragment",
    "Ngrams",
    "NoiseSpans",
    "Nothing",
    "Partial",
    "Rounding",
    "Spans",
    "Tokens",
    "Words",
    "ngram_lengths",
    "span_lengths",
]


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
    fairseq's floor(rate * n + U) with U uniform in [0, 1); `up` is SpanBERT's ceil(rate * m); `independent` has none:
    each token is chosen with probability `rate` (XLM and ERNIE), and a row may be asked nothing. `most` caps it (BERT's
    max_predictions_per_seq); 0 is no cap. With `mask_specials` all n tokens may be chosen, as in fairseq.

    With `alpha` rare tokens are more likely: weights count^-alpha (XLM 3.3; .5 there), one token after the other drawn
    from those that are left. There a special token has no count and then no weight either (`mask_scores` in
    src/trainer.py), while its released default, a coin for each token, may choose any but the first.
    """

    kind: Literal["tokens"] = "tokens"
    rate: float = 0.15
    rounding: Rounding | Literal["independent"] = "nearest"
    most: int = 0
    mask_specials: bool = False
    alpha: float = 0.0

    emits: ClassVar[frozenset[str]] = HITS

    def __post_init__(self) -> None:
        check(self.rate, self.most)
        require(0 <= self.alpha <= 1, "choose.alpha", self.alpha, "a number from 0 to 1")
        plain = self.alpha == 0 or not self.mask_specials
        require(plain, "choose.mask_specials", True, "false where rare tokens come first: special ones count as rare")
        if self.rounding == "independent":
            require(self.most == 0, "choose.most", self.most, "0 where tokens are chosen independently")
            require(self.alpha == 0, "choose.alpha", self.alpha, "0 where tokens are chosen independently")

    @property
    def needs(self) -> frozenset[str]:
        """Columns of a row that are read."""
        return frozenset({"special", "counts"} if self.alpha else {"special"})

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        num_tokens = len(row["ids"])
        if self.mask_specials:
            row = row | {"special": np.zeros(num_tokens, dtype=bool)}
        if self.rounding == "independent":
            is_chosen_S = (rng.random(num_tokens) < self.rate) & ~row["special"]
            return np.where(is_chosen_S, np.cumsum(is_chosen_S), 0).astype(np.int32)
        ordinary = np.flatnonzero(~row["special"])
        wanted = budget(row, self.rate, self.rounding, self.most, rng)
        if self.alpha:
            # An exponential race: the first to arrive are a draw without replacement by rate of arrival
            arrival = rng.standard_exponential(len(ordinary)) * np.maximum(row["counts"][ordinary], 1) ** self.alpha
            order = ordinary[np.argsort(arrival)]
        else:
            order = rng.permutation(ordinary)
        hit_S = np.zeros(num_tokens, dtype=np.int32)
        hit_S[np.sort(order[:wanted])] = np.arange(1, wanted + 1)
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
    emits: ClassVar[frozenset[str]] = HITS

    def __post_init__(self) -> None:
        check(self.rate, self.most)

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        begin_W = np.flatnonzero(row["word_starts"])
        long_W = np.diff(begin_W, append=len(row["ids"]))
        left = budget(row, self.rate, self.rounding, self.most, rng)
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

    The phrases are those that `units` of the corpus file names; a word outside of them is a unit by itself. Rounding
    `independent` is that of the released ERNIE/batching.py: a unit is chosen when the draw of its first token is below
    `rate`. A share `tokens` of the rows has single tokens chosen instead (its character level).
    """

    kind: Literal["entities"] = "entities"
    rate: float = 0.15
    rounding: Rounding | Literal["independent"] = "nearest"
    most: int = 0
    tokens: float = 0.0

    needs: ClassVar[frozenset[str]] = frozenset({"special", "unit_starts"})
    emits: ClassVar[frozenset[str]] = HITS

    def __post_init__(self) -> None:
        Tokens(rate=self.rate, rounding=self.rounding, most=self.most)  # has the same limits
        require(0 <= self.tokens <= 1, "choose.tokens", self.tokens, "a share of the rows, from 0 to 1")

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        if self.tokens and rng.random() < self.tokens:
            return Tokens(rate=self.rate, rounding=self.rounding, most=self.most)(row, rng)
        if self.rounding == "independent":
            begin_W = np.flatnonzero(row["unit_starts"])
            is_chosen_W = (rng.random(len(begin_W)) < self.rate) & ~row["special"][begin_W]
            long_W = np.diff(begin_W, append=len(row["ids"]))
            return np.repeat(np.where(is_chosen_W, np.cumsum(is_chosen_W), 0), long_W).astype(np.int32)
        words = Words(rate=self.rate, rounding=self.rounding, most=self.most)
        return words(row | {"word_starts": row["unit_starts"]}, rng)


Choose = Nothing | Tokens | Words | Entities | Spans | Ngrams | NoiseSpans | Fragment | Partial
