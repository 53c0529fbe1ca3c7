"""Perplexity by token, word and byte, from one sum of log-probabilities."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from preprocessing.tokenization import Vocab

MOST_WINDOW: Final = 1_024  # tokens that are read at once where neither a task nor the positions of a net say fewer


class Windowing(NamedTuple):
    """How a text that is longer than a row is read; 0 leaves a number to the net."""

    window: int = 0  # tokens that a prediction is from, at most
    stride: int = 0  # new tokens that each window predicts; 0: as many as the window has, so that windows are disjoint
    carry: bool = False  # whether each window has the memory of those before it (arXiv:1901.02860, 3.2)


@dataclass(frozen=True)
class PerplexityText:
    """A text, and as it was before it was normalised for the net: words and bytes are those of `original`, so that
    detokenising cannot flatter a score."""

    text: str
    original: str = ""  # empty: the same
    line_ends: bool = False  # whether the end of a line counts as a word: <eos> of PTB and WikiText

    @property
    def words(self) -> int:
        return len(self._given.split()) + self.line_ends * (self.inner_ends + self.is_open)

    @property
    def bytes(self) -> int:
        return len(self._given.encode())

    @property
    def inner_ends(self) -> int:
        """Ends of lines that stand in the text."""
        return self._given.count("\n")

    @property
    def is_open(self) -> bool:
        """Whether its last line ends with the text alone, as sentences do that are texts of their own (lm1b)."""
        return not self._given.endswith("\n")

    @property
    def _given(self) -> str:
        return self.original or self.text


class Targets(NamedTuple):
    """The tokens of a text that a net predicts, and the words that they make up."""

    ids: list[int]
    words: int
    ends_left_out: int  # ends of lines that are not predicted, and no words: the vocabulary has none
    unknown: int  # of the tokens


def targets_of(vocab: Vocab, text: PerplexityText) -> Targets:
    """What is predicted of a text, so that no word counts which is not.

    Where ends of lines are words, those in the text are predicted if the vocabulary does not take them for blanks; a
    last line that ends with the text is followed by the token of the end of a text, as in pretraining.
    """
    ids, left_out = vocab.encode(text.text), text.inner_ends
    if left_out and vocab.encode("a\nb") != vocab.encode("a b"):
        left_out = 0
    if text.line_ends and text.is_open and vocab.sep is not None:
        ids = [*ids, vocab.sep]
    elif text.line_ends and text.is_open:
        left_out += 1
    return Targets(ids, text.words - text.line_ends * left_out, left_out, unknown_of(vocab, ids))


def unknown_of(vocab: Vocab, ids: Sequence[int]) -> int:
    """How many of the tokens stand for what the vocabulary does not have."""
    return 0 if vocab.unk is None else ids.count(vocab.unk)


def exp_of(nats: float) -> float:
    """e to the power of so many nats; infinite where that is too large for a number, as of a long text that counts as
    one word, or of weights that mean nothing.

    >>> round(exp_of(2.0), 3), exp_of(5_000.0)
    (7.389, inf)
    """
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


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
    unknown: int = 0  # tokens that stand for what the vocabulary does not have
    ends_left_out: int = 0  # ends of lines that it does not have: neither tokens nor words, but bytes

    @property
    def by_token(self) -> float:
        return exp_of(self.nats / max(1, self.tokens))

    @property
    def by_word(self) -> float:
        return exp_of(self.nats / max(1, self.words))

    @property
    def by_byte(self) -> float:
        return exp_of(self.nats / max(1, self.bytes))

    @property
    def bits_by_byte(self) -> float:
        return self.nats / max(1, self.bytes) / math.log(2)

    def describe(self) -> str:
        """What was counted, and how, in one line."""
        memory = f", a memory of {self.memory:,} tokens carried along" if self.memory else ""
        unknown = f" ({self.unknown:,} unknown to the vocabulary)" if self.unknown else ""
        return (
            f"{self.tokens:,} tokens{unknown}, {self.words:,} words, {self.bytes:,} bytes; "
            f"windows of {self.window:,} tokens, {self.stride:,} new ones each{memory}"
        )


_SUMMED: Final = ("nats", "tokens", "words", "bytes", "unknown", "ends_left_out")


def total(parts: Sequence[Perplexity]) -> Perplexity:
    """That of several texts together. They were measured alike.

    >>> one = Perplexity(nats=20.0, tokens=10, words=5, bytes=40, window=8, stride=8)
    >>> total([one, one]).tokens, total([one, one]).by_token == one.by_token
    (20, True)
    """
    first, *others = parts
    assert all((one.window, one.stride, one.memory) == (first.window, first.stride, first.memory) for one in others)
    return replace(first, **{name: sum(getattr(one, name) for one in parts) for name in _SUMMED})


_WIKITEXT: Final = (  # how WikiText sets words and marks apart, rule by rule, undone in this order
    (r" @([-,.])@ ", r"\1"),  # inside of words and numbers
    (r" ([,.;:!?)\]}])", r"\1"),
    (r"([(\[{]) ", r"\1"),
    (r'" ([^"\n]*) "', r'"\1"'),
    (r" '(?=(?:s|t|d|m|re|ve|ll)\b)", "'"),
    (r"(?<=s) '(?= )", "'"),
    (r"(?<==) (?==)", ""),  # the levels of headings
    (r" *\n *", "\n"),
)


def detokenize(text: str) -> str:
    """A text of WikiText as it was before its words and marks were set apart; <unk> stays.

    >>> detokenize("It cost 1 @,@ 000 ( about ) , in the town 's well @-@ known shop .")
    "It cost 1,000 (about), in the town's well-known shop."
    """
    for pattern, written in _WIKITEXT:
        text = re.sub(pattern, written, text)
    return text


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
