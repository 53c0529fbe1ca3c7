"""Perplexity by token, word and byte, from one sum of log-probabilities."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A text, and as it was before it was normalised for the net: words and bytes are those of `original`, so that
    detokenising cannot flatter a score."""

    text: str
    original: str = ""  # empty: the same

    @property
    def words(self) -> int:
        return len((self.original or self.text).split())

    @property
    def bytes(self) -> int:
        return len((self.original or self.text).encode())


@dataclass(frozen=True)
class Perplexity:
    """How well a net predicts texts; `window` and `stride` are part of what the figures mean.

    >>> measured = Perplexity(nats=20.0, tokens=10, words=5, bytes=40, window=8, stride=8)
    >>> round(measured.by_token, 3), round(measured.by_word, 3), round(measured.bits_by_byte, 3)
    (7.389, 54.598, 0.721)
    """

    nats: float  # -log p of all texts
    tokens: int
    words: int
    bytes: int
    window: int  # tokens that a prediction can be from, at most, without those of a memory
    stride: int  # tokens that each window but the first predicts
    memory: int = 0  # tokens before a window whose states were carried along

    @property
    def by_token(self) -> float:
        return math.exp(self.nats / max(1, self.tokens))

    @property
    def by_word(self) -> float:
        return math.exp(self.nats / max(1, self.words))

    @property
    def by_byte(self) -> float:
        return math.exp(self.nats / max(1, self.bytes))

    @property
    def bits_by_token(self) -> float:
        """Bits a token: bits per character, where tokens are single bytes (enwik8)."""
        return self.nats / max(1, self.tokens) / math.log(2)

    @property
    def bits_by_byte(self) -> float:
        return self.nats / max(1, self.bytes) / math.log(2)

    def describe(self) -> str:
        """What was counted, and how, in one line."""
        memory = f", a memory of {self.memory:,} tokens carried along" if self.memory else ""
        return (
            f"{self.tokens:,} tokens, {self.words:,} words, {self.bytes:,} bytes; windows of {self.window:,} tokens, "
            f"{self.stride:,} new ones each{memory}"
        )


def windows(count: int, window: int, stride: int) -> list[tuple[int, int, int]]:
    """(begin, first, stop) of each window over `count` tokens: it predicts those from `first` to before `stop`, from
    those that begin at `begin`; -1 is the token behind which a text begins.

    The first predicts `window` tokens, the others `stride`, and the last what is left, from as many as fit before it.

    >>> windows(10, window=4, stride=4)
    [(-1, 0, 4), (3, 4, 8), (5, 8, 10)]
    >>> windows(8, window=4, stride=2)
    [(-1, 0, 4), (1, 4, 6), (3, 6, 8)]
    """
    found, first = [], 0
    while first < count:
        stop = min(count, first + (stride if first else window))
        found.append((max(-1, stop - 1 - window), first, stop))
        first = stop
    return found
