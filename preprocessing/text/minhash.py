"""Near-duplicates: texts with many n-grams of words in common meet in a band of their MinHash signatures.

MinHash: Broder 1997, "On the resemblance and containment of documents". Bands: Leskovec, Rajaraman, Ullman, "Mining of
Massive Datasets", section 3.4: texts of Jaccard similarity s meet with probability 1 - (1 - s**rows)**bands. What a
word is: preprocessing/text/ngrams.py. A text of fewer words than an n-gram has one: all its words.

A permutation is x -> multiplier * x + shift modulo 2**32, with an odd multiplier, of hashes that are random already: a
bijection, so two n-grams never tie for the least. No prime is needed, and nothing can overflow unseen as in the common
`(a * x + b) % (2**61 - 1)` on 64-bit integers, whose product wraps before the modulus is taken (datatrove).
"""

from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from preprocessing.text.ngrams import Hashes, hashed_ngrams, hashed_words

Signature: TypeAlias = npt.NDArray[np.uint32]

_AT_ONCE: Final = 256  # n-grams hashed by all permutations at once: 112 x 256 x 4 bytes stay in the cache


def band_hashes(text: str, ngram: int, bands: int, rows: int) -> Hashes:
    """uint64 [bands], or [0] where the text has no word; two texts are candidates where they agree in one place.

    >>> band_hashes("One two three four five six.", ngram=5, bands=14, rows=8).shape, band_hashes("...", 5, 14, 8).shape
    ((14,), (0,))
    """
    shingle_N = shingles(text, ngram)
    return bands_of(signature(shingle_N, bands * rows), bands) if len(shingle_N) else np.zeros(0, np.uint64)


def bands_of(signature_P: Signature, bands: int) -> Hashes:
    """The hash of each band of a signature, uint64 [bands]."""
    bands_BR = signature_P.reshape(bands, -1)
    digests = [xxhash.xxh3_64_intdigest(bytes([band]) + row.tobytes()) for band, row in enumerate(bands_BR)]
    return np.array(digests, np.uint64)


def signature(shingle_N: Hashes, num_permutations: int) -> Signature:
    """uint32 [num_permutations], little-endian: the least of the permuted hashes, of at least one n-gram."""
    multiplier_P1, shift_P1 = _permutations(num_permutations)
    low_N = shingle_N.astype(np.uint32)
    least_P = np.full(num_permutations, 0xFFFFFFFF, "<u4")
    for first in range(0, len(low_N), _AT_ONCE):
        permuted_PN = multiplier_P1 * low_N[first : first + _AT_ONCE]
        permuted_PN += shift_P1
        np.minimum(least_P, permuted_PN.min(axis=1), out=least_P)
    return least_P


def jaccard(a: str, b: str, ngram: int) -> float:
    """n-grams of words that two texts share, as a share of all that they have; 0 where one of them has no word.

    >>> jaccard("a b c d", "a b c e", ngram=2)
    0.5
    """
    shingles_a, shingles_b = (np.unique(shingles(text, ngram)) for text in (a, b))
    num_shared = len(np.intersect1d(shingles_a, shingles_b, assume_unique=True))
    return num_shared / max(len(shingles_a) + len(shingles_b) - num_shared, 1)


def components(edges_E2: npt.NDArray[np.int64], num_nodes: int) -> npt.NDArray[np.int64]:
    """int64 [num_nodes]: the smallest node of each node's connected component, given pairs of nodes.

    Every root is hung below the smallest root that it touches, then every path is halved until it has length one;
    all edges at once (Shiloach, Vishkin 1982). A root that hangs is gone, so this ends; few rounds are needed.

    >>> components(np.array([[3, 1], [4, 3]]), 6).tolist()
    [0, 1, 2, 1, 1, 5]
    """
    root_N = np.arange(num_nodes)
    a_E, b_E = edges_E2[:, 0], edges_E2[:, 1]
    while len(a_E):
        a_E, b_E = root_N[a_E], root_N[b_E]
        apart_E = a_E != b_E
        a_E, b_E = a_E[apart_E], b_E[apart_E]
        np.minimum.at(root_N, np.maximum(a_E, b_E), np.minimum(a_E, b_E))
        while not np.array_equal(above_N := root_N[root_N], root_N):
            root_N = above_N
    return root_N


def shingles(text: str, ngram: int) -> Hashes:
    """The hashes of a text's n-grams of words, uint64, [0] where it has no word."""
    word_W = hashed_words(text)
    return hashed_ngrams(word_W, max(min(ngram, len(word_W)), 1))


@cache
def _permutations(num: int) -> tuple[Signature, Signature]:
    """Odd multipliers and shifts, uint32 [num, 1] each: halves of the xxh3-64 of a counter, the same for ever."""
    digest_P1 = np.array([[xxhash.xxh3_64_intdigest(nth.to_bytes(8, "little"))] for nth in range(num)], np.uint64)
    return digest_P1.astype(np.uint32) | np.uint32(1), (digest_P1 >> np.uint64(32)).astype(np.uint32)
