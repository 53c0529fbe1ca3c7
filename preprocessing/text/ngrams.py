"""64-bit hashes of words and of n-grams of words, with which near-duplicates and contamination are found.

A word is a run of letters, digits and combining marks, in lower case; all other characters only separate words. In
scripts without spaces between words (Chinese, Japanese, Thai, Lao, Burmese, Khmer), each character counts as a word, so
their n-grams are n-grams of characters.

All arithmetic is modulo 2**64 on whole arrays with fixed constants, so the hashes are the same in every process.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from preprocessing.characters import get_category, pin_characters

Hashes: TypeAlias = npt.NDArray[np.uint64]
Where: TypeAlias = npt.NDArray[np.int64] | slice

_BLOCK: Final = 1 << 15  # characters per step, so that the arrays fit into the cache of a core
_BETWEEN, _PART, _ALONE, _MARK = range(4)  # classes of characters: white space, part of a word, a word, a mark
_SPACELESS: Final = (
    (0x0E00, 0x0F00),  # Thai, Lao
    (0x1000, 0x10A0),  # Burmese
    (0x1780, 0x1800),  # Khmer
    (0x3005, 0x3008),  # ideographic iteration mark, closing mark, zero
    (0x3040, 0x3100),  # Hiragana, Katakana
    (0x31F0, 0x3200),
    (0x3400, 0x4DC0),  # Han
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0xFF66, 0xFFA0),  # half-width Katakana
    (0x20000, 0x40000),
)
_BASE: Final = 0x9E3779B97F4A7C15  # an arbitrary number without a pattern; odd, so that its powers have inverses


@pin_characters
def hash_words(text: str) -> Hashes:
    """One hash for each word of the text, in order.

    >>> one, two, three = hash_words("Well-known, WELL")
    >>> one == three, one == two, len(hash_words("\\u4f60\\u597d"))
    (np.True_, np.False_, 2)
    """
    blocks = [_hash_block(block) for block in _blocks(text.lower())]
    return np.concatenate(blocks) if blocks else np.zeros(0, np.uint64)


def hash_ngrams(word_W: Hashes, ngram: int) -> Hashes:
    """The hashes of all n-grams of `ngram` words, from the hashes of W words: W - ngram + 1 hashes, or none.

    >>> word_W = hash_words("to be or not to be")
    >>> hash_ngrams(word_W, 2).shape, len(set(hash_ngrams(word_W, 2).tolist()))
    ((5,), 4)
    """
    num_ngrams = max(len(word_W) - ngram + 1, 0)
    hash_N = np.zeros(num_ngrams, np.uint64)
    step = _BLOCK - ngram + 1
    for first in range(0, num_ngrams, step):
        stop = min(first + step, num_ngrams)
        starts, stops = slice(0, stop - first), slice(ngram, stop - first + ngram)
        hash_N[first:stop] = _polynomials(word_W[first : stop + ngram - 1], starts, stops)
    return hash_N


@pin_characters
def lower_blocks(text: str) -> str:
    """The text in lower case. If it is long, a control character is between the blocks that `hash_words` hashes."""
    lower = text.lower()
    return lower if len(lower) <= _BLOCK else "\x01".join(_blocks(lower))


def find_kinds() -> npt.NDArray[np.uint8]:
    """The class of each character, uint8 [0x110000]: 1 for parts of words, 2 for words, others separate words."""
    return _kind_of_code()


class Tokens(NamedTuple):
    """The T tokens of a text: the hash of each, uint64 [T], and its characters [start, stop), int64 [T] each."""

    hash_T: Hashes
    start_T: npt.NDArray[np.int64]
    stop_T: npt.NDArray[np.int64]


def find_tokens(text: str) -> Tokens:
    """The words of a text, and each other visible character as a token of its own, e.g. a punctuation mark.

    Unlike in `hash_words`, upper and lower case differ. White space and control characters only separate tokens. A
    character that Unicode 14.0 does not assign, for example a newer letter, is a token, so texts with others differ.

    >>> tokens = find_tokens("Well-known,  WELL")
    >>> tokens.start_T.tolist(), tokens.stop_T.tolist(), tokens.hash_T[0] == tokens.hash_T[4]
    ([0, 4, 5, 10, 13], [4, 5, 10, 11, 17], np.False_)
    """
    found, first = [Tokens(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))], 0
    for block in _blocks(text):
        code_S = np.frombuffer(block.encode("utf-32-le", "surrogatepass"), "<u4")
        start_T, stop_T = _ranges(code_S, _PART, _ALONE, _MARK)
        found.append(Tokens(_polynomials(code_S + np.uint64(1), start_T, stop_T), start_T + first, stop_T + first))
        first += len(block)
    return Tokens(*map(np.concatenate, zip(*found, strict=True)))


def _ranges(code_S: np.ndarray, part: int, *alone: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the runs of characters of class `part`, and of the single ones of the classes `alone`."""
    kind_S = _kind_of_code()[code_S]
    is_part_S, is_alone_S = kind_S == part, np.isin(kind_S, alone)
    begins_S, ends_S = is_part_S.copy(), is_part_S.copy()
    begins_S[1:] &= ~is_part_S[:-1]
    ends_S[:-1] &= ~is_part_S[1:]
    return np.flatnonzero(begins_S | is_alone_S), np.flatnonzero(ends_S | is_alone_S) + 1


def is_inside_word(before: str, after: str) -> bool:
    """Whether two characters are part of one word if one follows the other; "" is no part of a word.

    >>> is_inside_word("a", "b"), is_inside_word("a", "-"), is_inside_word("\u4f60", "\u597d"), is_inside_word("a", "")
    (True, False, False, False)
    """
    return all(char != "" and int(_kind_of_code()[ord(char)]) == _PART for char in (before, after))


def _blocks(text: str) -> Iterator[str]:
    """Split a text into blocks, after spaces if possible; a run of more than _BLOCK characters is split anywhere."""
    start = 0
    while start < len(text):
        stop = start + _BLOCK
        if stop < len(text):
            stop = text.rfind(" ", start, stop) + 1 or stop
        yield text[start:stop]
        start = stop


def _hash_block(text: str) -> Hashes:
    code_S = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    start_W, stop_W = _ranges(code_S, _PART, _ALONE)
    return _polynomials(code_S + np.uint64(1), start_W, stop_W)


def _polynomials(value_S: Hashes, start: Where, stop: Where) -> Hashes:
    """A polynomial hash of value[start:stop] for each start and stop, as a difference of prefix sums.

    The difference is multiplied by base**-start. Then the finalizer of SplitMix64 (Steele, Lea, Flood 2014, "Fast
    splittable pseudorandom number generators") makes each bit depend on all bits.
    """
    power_S, inverse_S = _powers()
    sum_S1 = np.zeros(len(value_S) + 1, np.uint64)
    np.cumsum(value_S * power_S[: len(value_S)], out=sum_S1[1:])
    hash_N = (sum_S1[stop] - sum_S1[start]) * inverse_S[start]
    hash_N = (hash_N ^ (hash_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hash_N = (hash_N ^ (hash_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hash_N ^ (hash_N >> np.uint64(31))


@cache
def _kind_of_code() -> npt.NDArray[np.uint8]:
    """The class of each character, uint8 [0x110000]; computed on first use in 0.1 s.

    Planes 4 to 13 are unassigned, planes 15 and 16 for private use.
    """
    class_of = {"L": _PART, "N": _PART, "M": _PART, "P": _MARK, "S": _MARK, "Cn": _MARK, "Co": _MARK}
    kind = np.full(0x110000, _MARK, np.uint8)
    for first, stop in ((0, 0x40000), (0xE0000, 0xF0000)):
        categories = map(get_category, map(chr, range(first, stop)))
        found = (class_of.get(each, class_of.get(each[0], _BETWEEN)) for each in categories)
        kind[first:stop] = np.fromiter(found, np.uint8, stop - first)
    is_part = kind == _PART
    for first, stop in _SPACELESS:
        kind[first:stop][is_part[first:stop]] = _ALONE
    return kind


@cache
def _powers() -> tuple[Hashes, Hashes]:
    """base**s and base**-s modulo 2**64, for s from 0 to _BLOCK - 1."""
    power_S, inverse_S = np.ones((2, _BLOCK), np.uint64)
    power_S[1:], inverse_S[1:] = _BASE, pow(_BASE, -1, 1 << 64)
    return np.cumprod(power_S, dtype=np.uint64), np.cumprod(inverse_S, dtype=np.uint64)
