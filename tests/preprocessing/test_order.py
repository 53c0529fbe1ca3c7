from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.errors import BadInput
from preprocessing.order import deal, find_turns, rank_slice, shuffle, unshuffle, whole_shares
from preprocessing.rng import key

ORDER = key(0, "order")


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 5000), seed=st.integers(0, 2**40), epoch=st.integers(0, 1000))
def test_every_sample_occurs_once_per_epoch(size, seed, epoch):
    sample_N = shuffle(np.arange(size), size, key(seed, "order"), epoch)
    assert sorted(sample_N.tolist()) == list(range(size))


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 10**12), data=st.data())
def test_the_sample_of_a_position_is_independent_of_other_queries(size, data):
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=50))
    together = shuffle(np.array(positions), size, ORDER, epoch=2)
    assert together.tolist() == [int(shuffle(np.array([at]), size, ORDER, epoch=2)[0]) for at in positions]


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 5000), seed=st.integers(0, 2**40), epoch=st.integers(0, 1000))
def test_the_inverse_of_an_order_gives_the_position_of_each_sample(size, seed, epoch):
    sample_N = shuffle(np.arange(size), size, key(seed, "order"), epoch)
    assert unshuffle(sample_N, size, key(seed, "order"), epoch).tolist() == list(range(size))


def test_positions_among_three_billion_samples_need_no_search():
    position_N = np.random.default_rng(0).integers(0, 3 * 10**9, 5000)
    sample_N = shuffle(position_N, 3 * 10**9, ORDER, epoch=4)
    assert np.array_equal(unshuffle(sample_N, 3 * 10**9, ORDER, epoch=4), position_N)
    with pytest.raises(ValueError, match="less than the 8 samples"):
        unshuffle(np.array([8]), 8, ORDER, epoch=0)


def test_the_position_of_a_turn_is_that_at_which_deal_gives_it():
    rng = np.random.default_rng(0)
    for _ in range(30):
        shares = whole_shares([Fraction(str(weight)) for weight in (rng.random(rng.integers(1, 20)) ** 3 + 1e-3)])
        start = int(rng.integers(0, 1 << 32))
        group_N, turn_N = deal(np.arange(start, start + 2000), shares)
        for group in range(len(shares)):
            mine_N = group_N == group
            assert np.array_equal(find_turns(group, turn_N[mine_N], shares), start + np.flatnonzero(mine_N))


@pytest.mark.parametrize("start", [10**11, 10**15])
def test_the_position_of_a_far_turn_does_not_overflow(start: int) -> None:
    shares = whole_shares([Fraction(1), Fraction(3), Fraction(2)])
    group_N, turn_N = deal(np.arange(start, start + 60), shares)
    for group in range(3):
        mine_N = group_N == group
        assert np.array_equal(find_turns(group, turn_N[mine_N], shares), start + np.flatnonzero(mine_N))


def test_a_batch_from_three_billion_samples_is_distinct_and_evenly_spread():
    sample_N = shuffle(np.arange(100_000), 3 * 10**9, ORDER, epoch=0)
    assert len(np.unique(sample_N)) == 100_000
    count_16 = np.bincount(sample_N * 16 // (3 * 10**9), minlength=16)
    assert ((count_16 - 6250) ** 2 / 6250).sum() < 37.7  # chi-square, 15 degrees of freedom, p = .001


def test_neighboring_samples_do_not_stay_together():
    sample_N = shuffle(np.arange(100_000), 100_000, ORDER, epoch=0)
    assert abs(np.corrcoef(sample_N[:-1], sample_N[1:])[0, 1]) < 0.01
    assert (np.abs(np.diff(sample_N)) == 1).sum() < 15  # 2 are expected


@pytest.mark.parametrize("size", [3, 6])
def test_all_orders_of_a_small_epoch_are_equally_likely(size):
    firsts = min(size, 3)
    orders = [tuple(shuffle(np.arange(firsts), size, ORDER, epoch).tolist()) for epoch in range(5000)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    kinds = np.prod(np.arange(size, size - firsts, -1))
    assert len(counts) == kinds
    expected = 5000 / kinds
    assert ((counts - expected) ** 2 / expected).sum() < kinds + 4 * np.sqrt(2 * kinds)


def test_epochs_and_seeds_have_different_orders():
    orders = [shuffle(np.arange(1000), 1000, key(seed, "order"), epoch) for seed in (0, 1) for epoch in (0, 1)]
    same = [(one == other).mean() for i, one in enumerate(orders) for other in orders[:i]]
    assert max(same) < 0.01


def test_a_position_past_the_end_is_an_error():
    with pytest.raises(ValueError, match="invalid position: got 10, expected less than the 10 samples of an epoch"):
        shuffle(np.array([10]), 10, ORDER, epoch=0)


def test_shuffling_no_positions_returns_no_samples():
    assert shuffle(np.array([], dtype=np.int64), 10, ORDER, epoch=0).tolist() == []


def test_an_epoch_without_samples_has_an_empty_order():
    assert shuffle(np.array([], dtype=np.int64), 0, ORDER, epoch=0).tolist() == []


def test_a_single_position_may_be_a_scalar():
    assert shuffle(np.int64(3), 8, ORDER, epoch=0).tolist() == [2]


@pytest.mark.parametrize(
    ("size", "order"),
    [
        (9, [8, 4, 3, 2, 7, 0, 5, 1, 6]),
        (10, [4, 3, 6, 1, 0, 2, 7, 8, 9, 5]),
        (16, [2, 15, 3, 0, 1, 9, 10, 8, 6, 14, 7, 11, 12, 13, 4, 5]),
        (17, [8, 2, 12, 15, 3, 6, 5, 11, 13, 14, 9, 4, 0, 10, 7, 16, 1]),
    ],
)
def test_the_order_of_an_epoch_does_not_change_between_versions(size, order):
    """Sizes below and above a square number, where the grid used by the shuffle changes."""
    assert shuffle(np.arange(size), size, ORDER, epoch=0).tolist() == order


@given(batch=st.integers(1, 600), data=st.data())
def test_ranks_divide_a_batch_contiguously_and_evenly(batch, data):
    world = data.draw(st.integers(1, batch))
    slices = [rank_slice(batch, rank, world) for rank in range(world)]
    assert slices[0].start == 0
    assert slices[-1].stop == batch
    assert all(one.stop == other.start for one, other in pairwise(slices))
    sizes = [share.stop - share.start for share in slices]
    assert max(sizes) - min(sizes) <= 1


def test_more_workers_than_sequences_are_refused():
    with pytest.raises(BadInput, match="cannot split a batch of 2 sequences among 3 workers"):
        rank_slice(2, 0, 3)
