"""Contamination: n-grams of words that a text shares with evaluation sets.

GPT-3 (arXiv:2005.14165, appendix C) compares 13-grams of lower-case words without punctuation, and shorter ones, down
to 8 words, where a set's texts are short; below that, chance agreement begins. So here: a text of evaluation gives all
its n-grams; one that is shorter than an n-gram counts as a whole from 8 words up, and not at all below that.
What a word is: preprocessing/text/ngrams.py.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from preprocessing.text.ngrams import Hashes, hashed_ngrams, hashed_words

_FEWEST: Final = 8  # words of a whole short text: GPT-3's least N
_LENGTH_BITS: Final = 58  # the number of words, up to 63 + 1, is in the upper bits: each length is a range when sorted


def fewest_words(ngram: int) -> int:
    """Words that a text of evaluation has at least, or it is not searched for.

    >>> fewest_words(13), fewest_words(5)
    (8, 5)
    """
    return min(ngram, _FEWEST)


def ngram_hashes(texts: Iterable[str], ngram: int, num: Counter[str] | None = None) -> Hashes:
    """uint64 [K], sorted, each once: the hashes by which the texts are found in others.

    `num` counts the "texts", and those that are "too_short" to be searched for.

    >>> sets = ["What is the capital of the country that lies between Spain and the sea?", "Too short."]
    >>> len(ngram_hashes(sets, ngram=13)), len(ngram_hashes(sets, ngram=8))
    (2, 7)
    """
    known = set[int]()
    for text in texts:
        word_W = hashed_words(text)
        length = ngram if len(word_W) >= ngram else len(word_W)
        is_long = length >= fewest_words(ngram)
        if is_long:
            known.update(_tagged(word_W, length).tolist())
        if num is not None:
            num.update({"texts": 1, "too_short": not is_long})
    return np.array(sorted(known), np.uint64)


def shared_ngrams(text: str, known_K: Hashes, ngram: int) -> int:
    """How many places of the text begin something known: an n-gram, or a whole short text of evaluation.

    >>> known_K = ngram_hashes(["one two three four five six seven eight"], ngram=13)
    >>> shared_ngrams("Zero, one two three FOUR five six, seven eight - nine.", known_K, ngram=13)
    1
    """
    word_W = hashed_words(text)
    num_shared = 0
    for length in range(fewest_words(ngram), ngram + 1):
        least, greatest = _range(length)
        first, stop = np.searchsorted(known_K, least), np.searchsorted(known_K, greatest, side="right")
        if first < stop:
            hash_N, known = _tagged(word_W, length), known_K[first:stop]
            at_N = np.minimum(np.searchsorted(known, hash_N), len(known) - 1)
            num_shared += int((known[at_N] == hash_N).sum())
    return num_shared


def _tagged(word_W: Hashes, length: int) -> Hashes:
    return hashed_ngrams(word_W, length) >> np.uint64(64 - _LENGTH_BITS) | _range(length)[0]


def _range(length: int) -> Hashes:
    """The least hash of an n-gram of so many words, and the greatest."""
    least = (length - 1) << _LENGTH_BITS
    return np.array([least, least + (1 << _LENGTH_BITS) - 1], np.uint64)
