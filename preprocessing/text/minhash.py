"""Near-duplicates: texts with many common n-grams of words agree in a band of their MinHash signatures.

MinHash: Broder 1997, "On the resemblance and containment of documents". Bands: Leskovec, Rajaraman, Ullman, "Mining of
Massive Datasets", section 3.4: texts of Jaccard similarity s agree in a band with probability 1 - (1 - s**rows)**bands.
preprocessing/text/ngrams.py defines words. A text with fewer words than an n-gram has one n-gram: all its words.

A permutation is x -> multiplier * x + shift modulo 2**32 with an odd multiplier, applied to hashes that are already
random. It is a bijection, so two n-grams never share the minimum. It needs no prime and has no hidden overflow. The
common `(a * x + b) % (2**61 - 1)` on 64-bit integers does overflow before the modulus is applied (datatrove).
"""

from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from preprocessing.text.ngrams import Hashes, hash_ngrams, hash_words

Signature: TypeAlias = npt.NDArray[np.uint32]

_AT_ONCE: Final = 256  # n-grams per step: 112 permutations x 256 n-grams x 4 bytes fit into the cache


def band_hashes(text: str, ngram: int, bands: int, rows: int) -> Hashes:
    """The hashes of the bands of a text, uint64 [bands], or [0] if it has no word.

    Two texts are candidates for near-duplicates if the hashes of one band are equal.

    >>> band_hashes("One two three four five six.", ngram=5, bands=14, rows=8).shape, band_hashes("...", 5, 14, 8).shape
    ((14,), (0,))
    """
    shingle_N = shingles(text, ngram)
    return bands_of(signature(shingle_N, bands * rows), bands) if len(shingle_N) else np.zeros(0, np.uint64)


def bands_of(signature_P: Signature, bands: int) -> Hashes:
    """The hashes of the bands of a signature, uint64 [bands]."""
    bands_BR = signature_P.reshape(bands, -1)
    digests = [xxhash.xxh3_64_intdigest(bytes([band]) + row.tobytes()) for band, row in enumerate(bands_BR)]
    return np.array(digests, np.uint64)


def signature(shingle_N: Hashes, num_permutations: int) -> Signature:
    """The minimum of the hashes under each permutation, uint32 [num_permutations], little-endian.

    It needs at least one n-gram.
    """
    multiplier_P1, shift_P1 = _permutations(num_permutations)
    low_N = shingle_N.astype(np.uint32)
    least_P = np.full(num_permutations, 0xFFFFFFFF, "<u4")
    for first in range(0, len(low_N), _AT_ONCE):
        permuted_PN = multiplier_P1 * low_N[first : first + _AT_ONCE]
        permuted_PN += shift_P1
        np.minimum(least_P, permuted_PN.min(axis=1), out=least_P)
    return least_P


def jaccard(a: str, b: str, ngram: int) -> float:
    """The Jaccard similarity of two texts: common n-grams divided by all n-grams; 0 if one of them has no word.

    >>> jaccard("a b c d", "a b c e", ngram=2)
    0.5
    """
    shingles_a, shingles_b = (np.unique(shingles(text, ngram)) for text in (a, b))
    num_shared = len(np.intersect1d(shingles_a, shingles_b, assume_unique=True))
    return num_shared / max(len(shingles_a) + len(shingles_b) - num_shared, 1)


def components(edges_E2: npt.NDArray[np.int64], num_nodes: int) -> npt.NDArray[np.int64]:
    """The smallest node of the connected component of each node, int64 [num_nodes], from pairs of nodes.

    Each round attaches every root to the smallest root that it shares an edge with, for all edges at once. Then it
    halves all paths until they have length one (Shiloach, Vishkin 1982). Each round removes roots, so the loop ends; it
    needs few rounds.

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
    """The hashes of the n-grams of words of a text, uint64; shape [0] if it has no word."""
    word_W = hash_words(text)
    return hash_ngrams(word_W, max(min(ngram, len(word_W)), 1))


@cache
def _permutations(num: int) -> tuple[Signature, Signature]:
    """Odd multipliers and shifts, uint32 [num, 1] each: the halves of xxh3-64 of a counter, which never change."""
    digest_P1 = np.array([[xxhash.xxh3_64_intdigest(nth.to_bytes(8, "little"))] for nth in range(num)], np.uint64)
    return digest_P1.astype(np.uint32) | np.uint32(1), (digest_P1 >> np.uint64(32)).astype(np.uint32)
