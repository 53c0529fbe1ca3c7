"""Kernels that sign many texts at once: their words, n-grams, MinHash signatures, and the hashes of bands.

They return what hash_words, hash_ngrams, signature and bands_of (ngrams.py, minhash.py) return for one text at a time.

Shapes: S characters of all texts, C code points (0x110000), N texts, P permutations, B bands, W words of a text.
"""

from typing import Any, Final

import numpy as np

from preprocessing.jit import kernel

LEAST_BYTES, MOST_BYTES = 17, 128  # of a message that `hash_bands` can hash
_BASE: Final = np.uint64(0x9E3779B97F4A7C15)  # as in ngrams.py
_INVERSE: Final = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_PART, _ALONE = 1, 2  # classes of characters in ngrams.py
_LOW: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)

# XXH3 of 64 bits (Collet 2019, github.com/Cyan4973/xxHash, doc/xxhash_spec.md): constants, and the default secret as
# little-endian numbers of 64 bits
_PRIME: Final = np.uint64(0x9E3779B185EBCA87)
_AVALANCHE: Final = np.uint64(0x165667919E3779F9)
_SECRET: Final = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    ),
    "<u8",
)


@kernel
def _finish(hash: Any) -> Any:
    """Mix the bits of a uint64 (the finalizer of SplitMix64)."""
    hash = (hash ^ (hash >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hash = (hash ^ (hash >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hash ^ (hash >> np.uint64(31))


@kernel
def _hash_words(code_S: Any, start: int, stop: int, kind_C: Any, word_W: Any) -> Any:
    """Write the hashes of the words of a text, and return their number."""
    num, is_inside, hash, power = 0, False, np.uint64(0), np.uint64(1)
    for at in range(start, stop):
        code = code_S[at]
        kind = kind_C[code]
        if kind == _PART:
            hash += (np.uint64(code) + np.uint64(1)) * power
            power *= _BASE
            is_inside = True
            continue
        if is_inside:
            word_W[num], is_inside, hash, power = _finish(hash), False, np.uint64(0), np.uint64(1)
            num += 1
        if kind == _ALONE:
            word_W[num] = _finish(np.uint64(code) + np.uint64(1))
            num += 1
    if is_inside:
        word_W[num] = _finish(hash)
        num += 1
    return num


@kernel
def _hash_ngrams(word_W: Any, num_words: int, ngram: int, low_N: Any) -> Any:
    """Write the lower halves of the hashes of all n-grams, and return their number."""
    last = np.uint64(1)
    for _ in range(ngram - 1):
        last *= _BASE
    hash, power = np.uint64(0), np.uint64(1)
    for at in range(ngram):
        hash += word_W[at] * power
        power *= _BASE
    num = num_words - ngram + 1
    for at in range(num):
        low_N[at] = np.uint32(_finish(hash) & _LOW)
        if at + 1 < num:
            hash = (hash - word_W[at]) * _INVERSE + word_W[at + ngram] * last
    return num


@kernel
def sign_texts(code_S: Any, stop_N: Any, kind_C: Any, ngram: int, multiplier_P: Any, shift_P: Any) -> Any:
    """Return the signatures of texts, uint32 [N, P], and whether each has a word, bool [N].

    `code_S`, uint32: the characters of all texts in lower case. `stop_N`, int64: where each text stops. `kind_C`,
    uint8: the class of each character. `multiplier_P`, `shift_P`, uint32: the permutations.
    """
    signature_NP = np.zeros((len(stop_N), len(multiplier_P)), np.uint32)
    has_word_N = np.zeros(len(stop_N), np.bool_)
    longest, start = 1, np.int64(0)
    for stop in stop_N:
        longest, start = max(longest, stop - start), stop
    word_W, low_N = np.empty(longest, np.uint64), np.empty(longest, np.uint32)
    start = np.int64(0)
    for text in range(len(stop_N)):
        num_words = _hash_words(code_S, start, stop_N[text], kind_C, word_W)
        start = stop_N[text]
        if num_words == 0:
            continue
        has_word_N[text] = True
        num = _hash_ngrams(word_W, num_words, min(ngram, num_words), low_N)
        for p in range(len(multiplier_P)):
            multiplier, shift, least = multiplier_P[p], shift_P[p], np.uint32(0xFFFFFFFF)
            for at in range(num):
                least = min(least, np.uint32(multiplier * low_N[at] + shift))
            signature_NP[text, p] = least
    return signature_NP, has_word_N


@kernel
def _read(byte_M: Any, at: int) -> Any:
    """Return eight bytes as a little-endian uint64."""
    value = np.uint64(0)
    for place in range(8):
        value |= np.uint64(byte_M[at + place]) << np.uint64(8 * place)
    return value


@kernel
def _fold(one: Any, other: Any) -> Any:
    """Return the product of two uint64, of 128 bits, as the exclusive or of its halves."""
    one_low, one_high, other_low, other_high = one & _LOW, one >> _32, other & _LOW, other >> _32
    low, high = one_low * other_low, one_high * other_high
    middle, other_middle = one_high * other_low, one_low * other_high
    carry = (low >> _32) + (middle & _LOW) + other_middle
    return ((carry << _32) | (low & _LOW)) ^ (high + (middle >> _32) + (carry >> _32))


@kernel
def _mix(byte_M: Any, at: int, place: int) -> Any:
    """Return the hash of 16 bytes with two numbers of the secret."""
    return _fold(_read(byte_M, at) ^ _SECRET[place], _read(byte_M, at + 8) ^ _SECRET[place + 1])


@kernel
def hash_message(byte_M: Any) -> Any:
    """Return xxh3-64 of a message of 17 to 128 bytes, as uint64."""
    length = len(byte_M)
    hash = np.uint64(length) * _PRIME
    for pair in range(3, -1, -1):
        if length > 32 * pair:
            hash += _mix(byte_M, 16 * pair, 4 * pair) + _mix(byte_M, length - 16 * (pair + 1), 4 * pair + 2)
    hash = (hash ^ (hash >> np.uint64(37))) * _AVALANCHE
    return hash ^ (hash >> _32)


@kernel
def hash_bands(signature_NP: Any, num_bands: int) -> Any:
    """Return xxh3-64 of each band of signatures, after a byte with its number, uint64 [N, B].

    The message must have LEAST_BYTES to MOST_BYTES.
    """
    rows = signature_NP.shape[1] // num_bands
    hash_NB = np.empty((len(signature_NP), num_bands), np.uint64)
    byte_M = np.empty(1 + 4 * rows, np.uint8)
    for text in range(len(signature_NP)):
        for band in range(num_bands):
            byte_M[0] = band
            for row in range(rows):
                value = signature_NP[text, band * rows + row]
                for place in range(4):
                    byte_M[1 + 4 * row + place] = (value >> np.uint32(8 * place)) & np.uint32(0xFF)
            hash_NB[text, band] = hash_message(byte_M)
    return hash_NB
