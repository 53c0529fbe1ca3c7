"""Row -> the ids that the model sees, and the labels that it is asked for."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.knob import knob, require
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.vocab import Vocab


@knob
class Cloze:
    """Chosen tokens become [MASK], a random token, or stay; the label is the token that was there (BERT 3.1: 80/10/10).

    `unit`: the dice are thrown for each token, or once for all tokens of a chosen unit (a span, as in SpanBERT).
    `swap_from`: a random token is never a special one (ordinary, as in fairseq), or is any id (vocabulary, as in the
    reference BERT).
    """

    kind: Literal["cloze"] = "cloze"
    mask: float = 0.8
    swap: float = 0.1
    unit: Literal["token", "span"] = "token"
    swap_from: Literal["ordinary", "vocabulary"] = "ordinary"

    needs: ClassVar[frozenset[str]] = frozenset({"ids", "hits"})
    emits: ClassVar[frozenset[str]] = frozenset({"labels"})
    specials: ClassVar[tuple[str, ...]] = ("mask",)
    lookahead: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name in ("mask", "swap"):
            share = getattr(self, name)
            require(0 <= share <= 1, f"rewrite.{name}", share, "a share from 0 to 1")
        require(self.mask + self.swap <= 1 + 1e-9, "rewrite.mask + swap", self.mask + self.swap, "at most 1")

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        hit_S, ids_S = row["hits"], row["ids"].copy()
        at_M = np.flatnonzero(hit_S)
        labels_S = np.full(len(ids_S), IGNORE, dtype=np.int32)
        labels_S[at_M] = ids_S[at_M]
        dice_M = rng.random(len(at_M)) if self.unit == "token" else rng.random(hit_S.max(initial=0))[hit_S[at_M] - 1]
        swap_at = at_M[(dice_M >= self.mask) & (dice_M < self.mask + self.swap)]
        ids_S[at_M[dice_M < self.mask]] = vocab.mask
        ids_S[swap_at] = self._random_ids(len(swap_at), vocab, rng)
        return row | {"ids": ids_S, "labels": labels_S}

    def _random_ids(self, count: int, vocab: Vocab, rng: np.random.Generator) -> Ints:
        if self.swap_from == "vocabulary":
            return rng.integers(vocab.size, size=count)
        special = np.sort(np.array(vocab.special_ids, dtype=np.int64))
        ordinal = rng.integers(vocab.size - len(special), size=count)
        num_below = np.searchsorted(special - np.arange(len(special)), ordinal, side="right")
        return ordinal + num_below  # the n-th ordinary id: n, moved up by the special ids below it


@knob
class Shift:
    """Each token is asked for the next one (GPT); a row of n + 1 tokens gives n questions."""

    kind: Literal["shift"] = "shift"

    needs: ClassVar[frozenset[str]] = frozenset({"ids"})
    emits: ClassVar[frozenset[str]] = frozenset({"labels"})
    specials: ClassVar[tuple[str, ...]] = ()
    lookahead: ClassVar[int] = 1

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        shortened = {name: column[:-1] if np.ndim(column) else column for name, column in row.items()}
        return shortened | {"labels": row["ids"][1:]}


Rewrite = Cloze | Shift
