"""The random generator of kernels against numpy's Generator(Philox), which is the oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.rng import key

philox = pytest.importorskip("preprocessing.compiled.philox", reason="needs numba")

WORD = 2**64 - 1
ADDRESSES = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
HIGHS = st.one_of(st.integers(1, 300), st.integers(1, 2**32 - 2), st.integers(2**31, 3 * 2**30))
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("random"), st.integers(0, 20)),
        st.tuples(st.just("integers"), HIGHS, st.integers(0, 7)),
        st.tuples(st.just("permutation"), st.integers(0, 300)),
        st.tuples(st.just("poisson"), st.floats(0.01, 9.9), st.integers(0, 9)),
    ),
    max_size=12,
)


def state_of(seed: int, epoch: int, sample: int) -> np.ndarray:
    bits = key(seed, "masking").bits
    words = np.array([bits & WORD, bits >> 64], np.uint64)
    return philox.make_states(words, np.array([epoch]), np.array([sample]))[0]


def call(state: np.ndarray, name: str, *arguments) -> list:
    """What the kernels give for a method of a Generator."""
    match name, *arguments:
        case "random", count:
            out = np.empty(count)
            philox.fill_doubles(state, count, out)
            return out.tolist()
        case "integers", high, count:
            return [philox.draw_below(state, high) for _ in range(count)]
        case "permutation", count:
            array = np.arange(count)
            philox.shuffle(state, array, count)
            return array.tolist()
        case "poisson", mean, count:
            return [philox.draw_poisson(state, np.exp(-mean)) for _ in range(count)]
    raise ValueError(name)


@settings(deadline=None)
@given(seed=st.integers(0, 2**70), address=ADDRESSES, calls=CALLS)
def test_any_sequence_of_draws_equals_that_of_numpy(seed: int, address: tuple[int, int], calls: list) -> None:
    """Among them odd numbers of 32-bit draws, whose second half waits, and rejected draws."""
    state, generator = state_of(seed, *address), key(seed, "masking").at(*address)
    for name, *arguments in calls:
        last = {"size": arguments[-1]} if name in ("integers", "poisson") else {}
        first = arguments[:-1] if last else arguments
        assert call(state, name, *arguments) == getattr(generator, name)(*first, **last).tolist()


def test_lemires_method_rejects_as_numpy_does() -> None:
    """Of 3 * 2**30 numbers, a quarter of the draws are rejected."""
    state, generator = state_of(0, 1, 2), key(0, "masking").at(1, 2)
    high = 3 * 2**30
    assert call(state, "integers", high, 1000) == generator.integers(high, size=1000).tolist()
    used, blocks = state[10], state[0]
    assert 4 * int(blocks) + int(used) > 1200 / 2  # words of 64 bits, two draws each


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 31, 32, 33, 64, 65, 127, 128, 129, 510, 5000])
def test_shuffle_at_powers_of_two(count: int) -> None:
    state, generator = state_of(3, 0, count), key(3, "masking").at(0, count)
    assert call(state, "permutation", count) == generator.permutation(count).tolist()
    assert call(state, "integers", 7, 3) == generator.integers(7, size=3).tolist()


def test_a_counter_overflows_into_the_next_word() -> None:
    state = state_of(0, 5, 6)
    state[0] = WORD
    generator = np.random.Generator(
        np.random.Philox(key=key(0, "masking").bits, counter=np.array([WORD, 0, 6, 5], np.uint64))
    )
    assert call(state, "random", 9) == generator.random(9).tolist()
