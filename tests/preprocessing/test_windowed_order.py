"""The order with locality: a permutation that reads few shards at a time, and its inverse."""

import numpy as np
import pytest

from preprocessing import rng
from preprocessing.windowed_order import WindowedOrder, order_shards


@pytest.mark.parametrize("window", [1, 3, 7, 50])
def test_windows_are_a_permutation_with_locality(window: int) -> None:
    count_K = np.random.default_rng(window).integers(0, 40, size=7)
    end_K, key = np.cumsum(count_K), rng.key(3, "order")
    position_N = np.arange(end_K[-1])
    for epoch in range(2):
        order = WindowedOrder(end_K, window, key, epoch)
        sample_N = order.samples(position_N)
        shard_N, shard_K = np.searchsorted(end_K, sample_N, side="right"), order_shards(7, key, epoch)
        assert sorted(sample_N) == position_N.tolist()
        start = 0
        for first in range(0, 7, window):  # naively, one window after the other
            members = shard_K[first : first + window]
            stop = start + int(count_K[members].sum())
            assert set(shard_N[start:stop]) == {k for k in members if count_K[k]}
            start = stop
        apart = [order.samples(at_N) for at_N in np.split(position_N, [1, 2, 9, 50])]
        assert np.array_equal(np.concatenate(apart), sample_N)  # a pure function of the position
        assert np.array_equal(order.positions(sample_N), position_N)
        assert np.array_equal(order.positions(sample_N[[5, 3]]), [5, 3])
    assert not np.array_equal(sample_N, WindowedOrder(end_K, window, rng.key(4, "order"), 1).samples(position_N))
