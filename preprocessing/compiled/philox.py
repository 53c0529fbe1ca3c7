"""numpy's random generator Philox4x64, bit for bit, for kernels (Salmon et al. 2011).

The state of a generator is a uint64 array of WORDS elements, so that a generator of each sequence passes from the
masking to the objective: 0-3 the counter, 4-5 the key, 6-9 the current block, 10 the number of its used words, 11
whether the upper half of a word is left for the next 32-bit number, 12 this half.

The sources are numpy/random/src/philox/philox.h and numpy/random/src/distributions/distributions.c.
"""

from typing import Final

import numpy as np
from numba import int64, uint32, uint64

from preprocessing.compiled.intrinsics import multiply_high
from preprocessing.jit import kernel
from preprocessing.schema import Floats, Ints

WORDS: Final = 13
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW: Final = np.uint64(0xFFFFFFFF)


@kernel
def make_states(key: Ints, epoch_B: Ints, sample_B: Ints) -> Ints:
    """The states of the generators RandomKey.at(epoch, sample), uint64 [B, WORDS]; `key` is uint64 [2], low first."""
    states = np.zeros((len(sample_B), WORDS), np.uint64)
    for b in range(len(sample_B)):
        states[b, 2], states[b, 3] = sample_B[b], epoch_B[b]
        states[b, 4], states[b, 5] = key[0], key[1]
        states[b, 10] = 4
    return states


@kernel
def _make_block(state: Ints) -> None:
    """Advance the counter and write the next four words."""
    for word in range(4):
        state[word] += uint64(1)
        if state[word] != 0:
            break
    c0, c1, c2, c3, k0, k1 = state[0], state[1], state[2], state[3], state[4], state[5]
    for _ in range(10):
        high_0, low_0 = multiply_high(_MULTIPLIER_0, c0), _MULTIPLIER_0 * c0
        high_1, low_1 = multiply_high(_MULTIPLIER_1, c2), _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = k0 + _WEYL_0, k1 + _WEYL_1
    state[6], state[7], state[8], state[9] = c0, c1, c2, c3


@kernel
def next_uint64(state: Ints) -> int:
    used = state[10]
    if used == 4:
        _make_block(state)
        used = uint64(0)
    state[10] = used + uint64(1)
    return state[6 + used]


@kernel
def next_uint32(state: Ints) -> int:
    """The lower half of a word, then its upper half; other draws in between do not use this half."""
    if state[11]:
        state[11] = 0
        return uint32(state[12])
    word = next_uint64(state)
    state[11], state[12] = 1, word >> uint64(32)
    return uint32(word & _LOW)


@kernel
def draw_double(state: Ints) -> float:
    """Generator.random(): a float64 in [0, 1) with 53 random bits."""
    return (next_uint64(state) >> uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def fill_doubles(state: Ints, count: int, out_N: Floats) -> None:
    """Generator.random(count), written to the first elements of `out_N`."""
    for i in range(count):
        out_N[i] = draw_double(state)


@kernel
def draw_below(state: Ints, high: int) -> int:
    """Generator.integers(high) for 0 < high < 2**32 - 1 (Lemire 2019, arXiv:1805.10941); int64."""
    if high == 1:
        return 0
    exclusive = uint64(high)
    product = uint64(next_uint32(state)) * exclusive
    if product & _LOW < exclusive:
        threshold = (_LOW - (exclusive - uint64(1))) % exclusive
        while product & _LOW < threshold:
            product = uint64(next_uint32(state)) * exclusive
    return int64(product >> uint64(32))


@kernel
def shuffle(state: Ints, array: Ints, count: int) -> None:
    """Generator.shuffle of the first `count` elements, in place (Fisher and Yates; masked draws with rejection).

    Generator.permutation(array) shuffles a copy in the same way, and permutation(n) the numbers 0 ... n - 1. `count` is
    at most 2**32.
    """
    last, mask = count - 1, uint64(0)
    while mask < uint64(max(last, 0)):
        mask = (mask << uint64(1)) | uint64(1)
    has_half, half = state[11] != 0, state[12]
    while last > 0:
        bits, mask = mask, mask >> uint64(1)
        while last > int64(mask):  # without branches on random numbers, which no processor predicts
            word = half
            if not has_half:
                word = next_uint64(state)
                half = word >> uint64(32)
            has_half = not has_half
            drawn = int64(word & bits)
            is_accepted = drawn <= last
            other = drawn if is_accepted else last
            value = array[last]
            array[last] = array[other]
            array[other] = value
            last -= is_accepted
    state[11], state[12] = has_half, half


@kernel
def draw_poisson(state: Ints, threshold: float) -> int:
    """Generator.poisson(mean) for a mean below 10; `threshold` is exp(-mean)."""
    number, product = 0, 1.0
    while True:
        product *= draw_double(state)
        if product <= threshold:
            return number
        number += 1
