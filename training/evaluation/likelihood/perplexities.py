"""Perplexity per token, word and byte, from one sum of log-probabilities."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from preprocessing.tokenization import Vocab

MOST_WINDOW: Final = 1_024  # default and upper limit, if neither the task nor the model has a lower one


class Windowing(NamedTuple):
    """How to read a text that is longer than a sequence; 0 selects the model's default."""

    window: int = 0  # maximum context of a prediction, in tokens
    stride: int = 0  # new tokens per window; 0: equal to the window, so that windows are disjoint
    carry: bool = False  # whether each window uses the memory of earlier ones (arXiv:1901.02860, 3.2)


@dataclass(frozen=True)
class PerplexityText:
    """A text, and its original form before normalization for the model.

    Words and bytes are counted in `original`, so that detokenization cannot improve a score.
    """

    text: str
    original: str = ""  # empty: equal to text
    line_ends: bool = False  # whether a line end counts as a word, like <eos> of PTB and WikiText

    @property
    def words(self) -> int:
        return len(self._given.split()) + self.line_ends * (self.inner_ends + self.is_open)

    @property
    def bytes(self) -> int:
        return len(self._given.encode())

    @property
    def inner_ends(self) -> int:
        """Number of line ends in the text."""
        return self._given.count("\n")

    @property
    def is_open(self) -> bool:
        """Whether the last line has no line end, as in texts of one sentence (lm1b)."""
        return not self._given.endswith("\n")

    @property
    def _given(self) -> str:
        return self.original or self.text


class Targets(NamedTuple):
    """The tokens of a text that a model predicts, and the number of words they form."""

    ids: list[int]
    words: int
    ends_left_out: int  # line ends that the vocabulary lacks: neither predicted nor counted as words
    unknown: int  # number of unknown tokens


def targets_of(vocab: Vocab, text: PerplexityText) -> Targets:
    """Return the predicted tokens of a text; only words that are predicted are counted.

    If line ends count as words, the line ends of the text are predicted, unless the vocabulary treats them as blanks. A
    last line without a line end is followed by the end-of-text token, as in pretraining.
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
    """The number of unknown tokens among `ids`."""
    return 0 if vocab.unk is None else ids.count(vocab.unk)


def exp_of(nats: float) -> float:
    """Return e ** nats, or infinity if that exceeds a float.

    This happens for a long text that counts as one word, and for a model that predicts very badly.

    >>> round(exp_of(2.0), 3), exp_of(5_000.0)
    (7.389, inf)
    """
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of texts under a model. It depends on `window` and `stride`.

    >>> measured = Perplexity(nats=20.0, tokens=10, words=5, bytes=40, window=8, stride=8)
    >>> round(measured.by_token, 3), round(measured.by_word, 3), round(measured.bits_by_byte, 3)
    (7.389, 54.598, 0.721)
    """

    nats: float  # -log p, summed over all texts
    tokens: int
    words: int
    bytes: int
    window: int  # maximum context of a prediction in tokens, without the memory
    stride: int  # tokens that each window after the first predicts
    memory: int = 0  # tokens before a window whose hidden states are reused
    unknown: int = 0  # unknown tokens
    ends_left_out: int = 0  # line ends that the vocabulary lacks: counted as bytes only

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
        """The counts and the windows, in one line."""
        memory = f", with a memory of {self.memory:,} tokens" if self.memory else ""
        unknown = f" ({self.unknown:,} unknown)" if self.unknown else ""
        return (
            f"{self.tokens:,} tokens{unknown}, {self.words:,} words, {self.bytes:,} bytes; "
            f"windows of {self.window:,} tokens, {self.stride:,} new ones each{memory}"
        )


_SUMMED: Final = ("nats", "tokens", "words", "bytes", "unknown", "ends_left_out")


def total(parts: Sequence[Perplexity]) -> Perplexity:
    """Combine the perplexities of several texts, which must have equal windows.

    >>> one = Perplexity(nats=20.0, tokens=10, words=5, bytes=40, window=8, stride=8)
    >>> total([one, one]).tokens, total([one, one]).by_token == one.by_token
    (20, True)
    """
    first, *others = parts
    assert all((one.window, one.stride, one.memory) == (first.window, first.stride, first.memory) for one in others)
    return replace(first, **{name: sum(getattr(one, name) for one in parts) for name in _SUMMED})


_WIKITEXT: Final = (  # undo WikiText's spacing of words and punctuation, in this order
    (r" @([-,.])@ ", r"\1"),  # inside words and numbers
    (r" ([,.;:!?)\]}])", r"\1"),
    (r"([(\[{]) ", r"\1"),
    (r'" ([^"\n]*) "', r'"\1"'),
    (r" '(?=(?:s|t|d|m|re|ve|ll)\b)", "'"),
    (r"(?<=s) '(?= )", "'"),
    (r"(?<==) (?==)", ""),  # the levels of headings
    (r" *\n *", "\n"),
)


def detokenize(text: str) -> str:
    """Remove WikiText's spaces around punctuation; <unk> stays.

    >>> detokenize("It cost 1 @,@ 000 ( about ) , in the town 's well @-@ known shop .")
    "It cost 1,000 (about), in the town's well-known shop."
    """
    for pattern, written in _WIKITEXT:
        text = re.sub(pattern, written, text)
    return text


def windows(count: int, window: int, stride: int) -> list[tuple[int, int, int]]:
    """Return (begin, first, stop) of each window over `count` tokens.

    A window predicts the tokens `first` to `stop` - 1. Its context starts at token `begin`; -1 is the start token of
    the text. The first window predicts `window` tokens, the others `stride`, and the last one the rest. Each
    context has as many tokens as fit.

    >>> windows(10, window=4, stride=4)
    [(-1, 0, 4), (3, 4, 8), (5, 8, 10)]
    >>> windows(8, window=4, stride=2)
    [(-1, 0, 4), (1, 4, 6), (3, 6, 8)]
    """
    spans, first = [], 0
    while first < count:
        stop = min(count, first + (stride if first else window))
        spans.append((max(-1, stop - 1 - window), first, stop))
        first = stop
    return spans
