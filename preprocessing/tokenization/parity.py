"""The trial of a fast encoder: it must return the IDs of `tokenizers` for made-up strings and for a sample of the text.

The strings contain what real text rarely has: control characters, combining marks, all kinds of blanks, rare scripts,
the names of special tokens, and words of about the longest length.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from preprocessing.schema import Ints
from preprocessing.tokenization.encoders import BatchEncoder

NUM_STRINGS: Final = 50_000  # of a trial before use; the tests have a million
_AT_ONCE: Final = 5_000  # strings in a call
_LONGEST: Final = 12  # pieces of a string
_SHOWN: Final = 40  # characters of a difference in a message
_COMMON: Final = [chr(code) for code in range(0x20, 0x7F)]
_ODD: Final = [
    *map(chr, range(0x20)),  # control characters
    *map(chr, range(0x7F, 0x180)),  # more of them, and Latin letters
    *map(chr, range(0x2000, 0x2070)),  # blanks, dashes, quotation marks, invisible characters
    *("\u0300\u0301\u0307\u0323\u0345\u05b0\u064b\u0e31\u0f71\u3099\u20e3\ufe0f"),  # marks that combine
    *("\u03a3\u03c3\u03c2\u0130\u0131\u1e9e\u00df\ufb01\u01c5\u2126\u212a\u212b"),  # cases and compatibility forms
    *("\u088f\ua7ce\U00033372"),  # new in Unicode 17
    *("\u061d\u061f\u2e43\u2e52\u3001\u3002\u30fb\uff01\uff65\U00010a50"),  # punctuation
    *("\u4e00\u9fa5\u3400\U00020000\uf900\u3042\u30ab\uac00\u1100\u0e01\u0915\u094d\u0627\u05d0"),  # scripts
    *("\U0001f600\U0001f1e9\U0001f1ea\u200d\U0001f469\u2640\ufffd\ufeff\ufffe\U000e0041\U0010ffff"),
]
_LONG: Final = [letter * length for letter in "ax\u00e9\u4e00" for length in (99, 100, 101, 250)]
_NAMES: Final = [
    "[MASK]",
    "[UNK]",
    "[CLS]",
    "<s>",
    "</s>",
    "<mask>",
    "<|endoftext|>",
    "<unk>",
    "##a",
    "'s",
    "'LL",
    "can't",
]


def make_strings(number: int, pieces: Sequence[str], seed: int = 0) -> Iterator[str]:
    """Yield random strings; `pieces` are tokens of the vocabulary, some of which occur in the strings.

    >>> [len(text) < 6_000 for text in make_strings(2, ["the"])]
    [True, True]
    """
    rng = np.random.Generator(np.random.Philox(seed))
    kinds: list[Sequence[str]] = [_COMMON, _ODD, pieces or _COMMON, [" ", "\n", "  ", "\r\n", "\t"], _NAMES, _LONG]
    odds_K = np.cumsum([0.4, 0.25, 0.2, 0.12, 0.028, 0.002])
    for first in range(0, number, _AT_ONCE):
        length_N = rng.integers(1, _LONGEST + 1, min(_AT_ONCE, number - first))
        total = int(length_N.sum())
        kind_P, place_P = np.searchsorted(odds_K, rng.random(total), side="right"), rng.random(total)
        code_P, is_any_P = rng.integers(0, 0x110000, total), rng.random(total) < 0.03
        size_K = np.array(list(map(len, kinds)))
        index_P = (place_P * size_K[np.minimum(kind_P, len(kinds) - 1)]).astype(np.int64)
        is_any_P &= (code_P < 0xD800) | (code_P >= 0xE000)  # halves of surrogate pairs are not text
        words = [
            chr(code) if is_any else kinds[min(kind, len(kinds) - 1)][index]
            for kind, index, code, is_any in zip(
                kind_P.tolist(), index_P.tolist(), code_P.tolist(), is_any_P.tolist(), strict=True
            )
        ]
        left = iter(words)
        yield from ("".join(islice(left, length)) for length in length_N.tolist())


def find_difference(
    encoder: BatchEncoder, reference: Callable[[list[str]], list[list[int]]], texts: Iterator[str]
) -> str:
    """The first text whose IDs differ from those of the reference, with both; "" if there is none."""
    while batch := list(islice(texts, _AT_ONCE)):
        wanted, (ids_T, end_N) = reference(batch), encoder.encode(batch)
        if are_equal(wanted, ids_T, end_N):
            continue
        for text, ids, start, end in zip(batch, wanted, end_N[:-1], end_N[1:], strict=True):
            if ids_T[start:end].tolist() != ids:
                given = ids_T[start:end].tolist()
                return f"{_shorten(repr(text))} is {_shorten(str(given))}, expected {_shorten(str(ids))}"
    return ""


def are_equal(wanted: Sequence[Sequence[int]], ids_T: Ints, end_N: Ints) -> bool:
    """Whether the IDs of all texts, with their ends, are these lists."""
    length_N = np.array(list(map(len, wanted)), np.int64)
    if not np.array_equal(np.diff(end_N), length_N):
        return False
    flat_T = np.fromiter((id for ids in wanted for id in ids), np.int64, int(length_N.sum()))
    return np.array_equal(flat_T, ids_T)


def _shorten(shown: str) -> str:
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
