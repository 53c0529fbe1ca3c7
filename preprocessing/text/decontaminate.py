"""Contamination: n-grams of words that a text shares with evaluation sets.

GPT-3 (arXiv:2005.14165, appendix C) compares 13-grams of lower-case words without punctuation. For sets of short texts
it uses shorter n-grams, but at least 8-grams, because shorter n-grams match by chance. This module is similar: it
searches for all n-grams of an evaluation text. A text that is shorter than an n-gram is searched for as a whole if it
has at least 8 words. preprocessing/text/ngrams.py defines words.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from preprocessing.text.ngrams import Hashes, hash_ngrams, hash_words

_FEWEST: Final = 8  # minimum number of words of a text to search for; GPT-3's minimum n
_LENGTH_BITS: Final = 58  # the upper 6 bits are the number of words minus 1, so sorting groups the hashes by length


def fewest_words(ngram: int) -> int:
    """The smallest number of words of an evaluation text that is searched for.

    >>> fewest_words(13), fewest_words(5)
    (8, 5)
    """
    return min(ngram, _FEWEST)


def ngram_hashes(texts: Iterable[str], ngram: int, num: Counter[str] | None = None) -> Hashes:
    """The sorted unique hashes of evaluation texts that are searched for in other texts, uint64 [K].

    `num` counts the "texts", and the texts that are "too_short" to be searched for.

    >>> sets = ["What is the capital of the country that lies between Spain and the sea?", "Too short."]
    >>> len(ngram_hashes(sets, ngram=13)), len(ngram_hashes(sets, ngram=8))
    (2, 7)
    """
    known = set[int]()
    for text in texts:
        word_W = hash_words(text)
        length = ngram if len(word_W) >= ngram else len(word_W)
        is_long = length >= fewest_words(ngram)
        if is_long:
            known.update(_tag(word_W, length).tolist())
        if num is not None:
            num.update({"texts": 1, "too_short": not is_long})
    return np.array(sorted(known), np.uint64)


def count_shared_ngrams(text: str, known_K: Hashes, ngram: int) -> int:
    """The number of places in a text at which an n-gram or a whole short text of the evaluation sets begins.

    >>> known_K = ngram_hashes(["one two three four five six seven eight"], ngram=13)
    >>> count_shared_ngrams("Zero, one two three FOUR five six, seven eight - nine.", known_K, ngram=13)
    1
    """
    word_W = hash_words(text)
    num_shared = 0
    for length in range(fewest_words(ngram), ngram + 1):
        least, greatest = _range(length)
        first, stop = np.searchsorted(known_K, least), np.searchsorted(known_K, greatest, side="right")
        if first < stop:
            hash_N, known = _tag(word_W, length), known_K[first:stop]
            at_N = np.minimum(np.searchsorted(known, hash_N), len(known) - 1)
            num_shared += int((known[at_N] == hash_N).sum())
    return num_shared


def _tag(word_W: Hashes, length: int) -> Hashes:
    return hash_ngrams(word_W, length) >> np.uint64(64 - _LENGTH_BITS) | _range(length)[0]


def _range(length: int) -> Hashes:
    """The smallest and the largest hash of an n-gram of `length` words."""
    least = (length - 1) << _LENGTH_BITS
    return np.array([least, least + (1 << _LENGTH_BITS) - 1], np.uint64)
