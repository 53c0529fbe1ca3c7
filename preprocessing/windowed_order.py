"""The order of samples with locality: shards are read in windows, and samples are shuffled within each window."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from preprocessing.order import shuffle, unshuffle
from preprocessing.rng import RandomKey
from preprocessing.schema import Ints


def order_shards(num_shards: int, key: RandomKey, epoch: int) -> Ints:
    """The shards in the order in which WindowedOrder reads them in an epoch, int64 [num_shards].

    >>> from preprocessing.rng import key
    >>> order_shards(4, key(0, "order"), epoch=0).tolist()
    [0, 3, 1, 2]
    """
    return np.argsort(key.at(epoch, 1).integers(2**64, size=num_shards, dtype=np.uint64), kind="stable")


@dataclass(frozen=True)
class WindowedOrder:
    """The order of the samples of an epoch in which few shards are read at a time: a bijection.

    Shard k has the samples from end_K[k - 1] up to end_K[k]. The shards are put into the order of `order_shards` and
    divided into windows of `window` shards; the last one may have fewer. The windows follow each other, and `shuffle`
    permutes the samples of each. Time depends on the number of indices and of shards.

    >>> from preprocessing.rng import key
    >>> order = WindowedOrder(np.array([2, 4, 6, 8]), 2, key(0, "order"), epoch=0)
    >>> order.samples(np.arange(8)).tolist(), order.positions(np.array([6, 7, 0, 1, 2, 5, 4, 3])).tolist()
    ([6, 7, 0, 1, 2, 5, 4, 3], [0, 1, 2, 3, 4, 5, 6, 7])
    """

    end_K: Ints
    window: int
    key: RandomKey
    epoch: int

    def samples(self, position_N: Ints) -> Ints:
        """The samples at these positions, int64 [N]."""
        place_N = self._walk(shuffle, np.array(position_N, np.int64, ndmin=1))
        shard_N = np.searchsorted(self._stop_K, place_N, side="right")
        return place_N - self._begin_K[shard_N] + self._first_K[shard_N]

    def positions(self, sample_N: Ints) -> Ints:
        """The positions of these samples, int64 [N]: the inverse of `samples`."""
        sample_N = np.array(sample_N, np.int64, ndmin=1)
        turn_K = np.argsort(self._shard_K)  # the place of each shard in the order of reading
        turn_N = turn_K[np.searchsorted(self.end_K, sample_N, side="right")]
        return self._walk(unshuffle, sample_N - self._first_K[turn_N] + self._begin_K[turn_N])

    def _walk(self, permute: Callable[[Ints, int, RandomKey, int, int], Ints], place_N: Ints) -> Ints:
        """Permute the places of each window."""
        stop_W = np.append(self._stop_K[self.window - 1 : -1 : self.window], self._stop_K[-1])
        window_N = np.searchsorted(stop_W, place_N, side="right")
        found_N = np.empty_like(place_N)
        for number in np.unique(window_N).tolist():
            start, mine_N = int(stop_W[number - 1]) if number else 0, window_N == number
            size = int(stop_W[number]) - start
            found_N[mine_N] = start + permute(place_N[mine_N] - start, size, self.key, self.epoch, 2 + number)
        return found_N

    @cached_property
    def _shard_K(self) -> Ints:
        return order_shards(len(self.end_K), self.key, self.epoch)

    @cached_property
    def _stop_K(self) -> Ints:
        """The ends of the shards in the order of reading; `_begin_K`: their starts, `_first_K`: their first samples."""
        return np.cumsum(self._long_K)

    @cached_property
    def _long_K(self) -> Ints:
        return np.diff(self.end_K, prepend=0)[self._shard_K]

    @property
    def _begin_K(self) -> Ints:
        return self._stop_K - self._long_K

    @property
    def _first_K(self) -> Ints:
        return self.end_K[self._shard_K] - self._long_K
