"""Near-duplicates: texts with many common n-grams of words agree in a band of their MinHash signatures.

MinHash: Broder 1997, "On the resemblance and containment of documents". Bands: Leskovec, Rajaraman, Ullman, "Mining of
Massive Datasets", section 3.4: texts of Jaccard similarity s agree in a band with probability 1 - (1 - s**rows)**bands.
preprocessing/text/ngrams.py defines words. A text with fewer words than an n-gram has one n-gram: all its words.

A permutation is x -> multiplier * x + shift modulo 2**32 with an odd multiplier, applied to hashes that are already
random. It is a bijection, so two n-grams never share the minimum. It needs no prime and has no hidden overflow. The
common `(a * x + b) % (2**61 - 1)` on 64-bit integers does overflow before the modulus is applied (datatrove).
"""

import logging
import sys
from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from preprocessing.imports import has_compiler
from preprocessing.schema import Bools
from preprocessing.text.ngrams import Hashes, find_kinds, hash_ngrams, hash_words, lower_blocks

log = logging.getLogger(__name__)

Signature: TypeAlias = npt.NDArray[np.uint32]

_LEAST_CHARS: Final = 1 << 21  # for less text, numpy is done before the compiler has been imported
_NUM_COMPARED: Final = 8  # texts of each call
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


def sign_texts(texts: Sequence[str], ngram: int, num_permutations: int) -> tuple[Signature, Bools]:
    """The signatures of N texts, uint32 [N, num_permutations], and whether each has a word, bool [N].

    The signature of a text without a word is 0. Kernels sign many texts, if numba is installed. The signatures of the
    first ones are compared with those of `signature`, which makes all if there is a difference.

    >>> sign_texts(["one two", "..."], ngram=5, num_permutations=4)[1].tolist()
    [True, False]
    """
    if not texts or not _has_kernels(sum(map(len, texts))):
        return _sign_by_numpy(texts, ngram, num_permutations)
    from preprocessing.text import signature_kernels

    lower = list(map(lower_blocks, texts))
    code_S = np.frombuffer("".join(lower).encode("utf-32-le", "surrogatepass"), "<u4")
    stop_N = np.cumsum(np.fromiter(map(len, lower), np.int64, len(lower)))
    permutations = (np.ascontiguousarray(each_P1[:, 0]) for each_P1 in _permutations(num_permutations))
    signature_NP, has_word_N = signature_kernels.sign_texts(code_S, stop_N, find_kinds(), ngram, *permutations)
    wanted_NP, wanted_N = _sign_by_numpy(texts[:_NUM_COMPARED], ngram, num_permutations)
    if np.array_equal(signature_NP[: len(wanted_N)], wanted_NP) and np.array_equal(
        has_word_N[: len(wanted_N)], wanted_N
    ):
        return signature_NP, has_word_N
    log.warning("compiled signatures differ from those of numpy, which makes all, with the same result")
    return _sign_by_numpy(texts, ngram, num_permutations)


def _sign_by_numpy(texts: Sequence[str], ngram: int, num_permutations: int) -> tuple[Signature, Bools]:
    signature_NP, has_word_N = np.zeros((len(texts), num_permutations), np.uint32), np.zeros(len(texts), np.bool_)
    for number, text in enumerate(texts):
        if len(shingle_N := shingles(text, ngram)):
            signature_NP[number], has_word_N[number] = signature(shingle_N, num_permutations), True
    return signature_NP, has_word_N


def hash_bands(signature_NP: Signature, bands: int) -> Hashes:
    """The hashes of the bands of N signatures, uint64 [N, bands]."""
    num_bytes = 1 + 4 * (signature_NP.shape[1] // bands)
    if _has_kernels(signature_NP.size):
        from preprocessing.text import signature_kernels

        if signature_kernels.LEAST_BYTES <= num_bytes <= signature_kernels.MOST_BYTES and bands <= 256:
            hash_NB: Hashes = signature_kernels.hash_bands(np.ascontiguousarray(signature_NP, np.uint32), bands)
            some = zip(hash_NB[:_NUM_COMPARED], signature_NP, strict=False)
            if all(np.array_equal(hash_B, bands_of(signature_P, bands)) for hash_B, signature_P in some):
                return hash_NB
            log.warning("compiled hashes of bands differ from those of xxhash, which makes all, with the same result")
    return np.array([bands_of(signature_P, bands) for signature_P in signature_NP], np.uint64).reshape(-1, bands)


def _has_kernels(num_values: int) -> bool:
    """Whether kernels have been loaded, or can be and pay for this number of characters or values."""
    if "preprocessing.text.signature_kernels" in sys.modules:
        return True
    return num_values >= _LEAST_CHARS and has_compiler()


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
