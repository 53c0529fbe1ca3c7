"""Data order: shuffle samples without a table, interleave groups by weight, and split a batch among workers."""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Final, TypeVar

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.rng import RandomKey
from preprocessing.schema import Ints

_ROUNDS: Final = (
    6  # each round mixes both halves; with four rounds, a chi-square test of the orders of five samples fails
)

_WHOLE: Final = 1 << 30
Count = TypeVar("Count", int, Ints)


def shuffle(position_N: Ints, size: int, key: RandomKey, epoch: int, address: int = 0) -> Ints:
    """The samples at these positions of an epoch, int64 [N]: a pseudorandom bijection of [0, size) onto itself.

    It is a Feistel network over a grid of about sqrt(size) x sqrt(size) cells. A cell beyond the end passes through
    the network again (cycle walking: Black and Rogaway 2002), so the map is a bijection. Memory and time depend only
    on N. `address` distinguishes several orders of an epoch.

    >>> from preprocessing.rng import key
    >>> shuffle(np.arange(8), 8, key(0, "order"), epoch=0).tolist()
    [6, 4, 3, 2, 7, 0, 5, 1]
    """
    sample_N = np.array(position_N, dtype=np.uint64, ndmin=1)
    if sample_N.size and int(sample_N.max()) >= size:
        raise ValueError(
            f"invalid position: got {int(sample_N.max())}, expected less than the {size} samples of an epoch"
        )
    num_rows = isqrt(max(size - 1, 0)) + 1
    num_columns = -(-size // num_rows)
    round_keys = key.at(epoch, address).integers(2**64, size=2 * _ROUNDS, dtype=np.uint64)
    todo = np.arange(sample_N.size)
    while todo.size:
        sample_N[todo] = _feistel(sample_N[todo], num_rows, num_columns, round_keys)
        todo = todo[sample_N[todo] >= size]
    return sample_N.astype(np.int64)


def order_shards(num_shards: int, key: RandomKey, epoch: int) -> Ints:
    """The shards in the order in which `shuffle_windows` reads them in an epoch, int64 [num_shards].

    >>> from preprocessing.rng import key
    >>> order_shards(4, key(0, "order"), epoch=0).tolist()
    [0, 3, 1, 2]
    """
    return np.argsort(key.at(epoch, 1).integers(2**64, size=num_shards, dtype=np.uint64), kind="stable")


def shuffle_windows(position_N: Ints, end_K: Ints, window: int, key: RandomKey, epoch: int) -> Ints:
    """The samples at these positions of an epoch, int64 [N], so that few shards are read at a time: a bijection.

    Shard k has the samples from end_K[k - 1] up to end_K[k]. The shards are put into the order of `order_shards` and
    divided into windows of `window` shards; the last one may have fewer. The windows follow each other, and `shuffle`
    permutes the samples of each. Time depends on N and on the number of shards.

    >>> from preprocessing.rng import key
    >>> shuffle_windows(np.arange(8), np.array([2, 4, 6, 8]), 2, key(0, "order"), epoch=0).tolist()
    [6, 7, 0, 1, 2, 5, 4, 3]
    """
    position_N = np.array(position_N, np.int64, ndmin=1)
    shard_K = order_shards(len(end_K), key, epoch)
    long_K = np.diff(end_K, prepend=0)[shard_K]
    stop_K = np.cumsum(long_K)  # of each shard in the order of reading
    stop_W = np.append(stop_K[window - 1 : -1 : window], stop_K[-1])
    window_N = np.searchsorted(stop_W, position_N, side="right")
    place_N = np.empty_like(position_N)
    for number in np.unique(window_N).tolist():
        start, mine_N = int(stop_W[number - 1]) if number else 0, window_N == number
        in_window = shuffle(position_N[mine_N] - start, int(stop_W[number]) - start, key, epoch, 2 + number)
        place_N[mine_N] = start + in_window
    shard_N = np.searchsorted(stop_K, place_N, side="right")
    return place_N - (stop_K - long_K)[shard_N] + (end_K[shard_K] - long_K)[shard_N]


def _feistel(cell_N: Ints, num_rows: int, num_columns: int, round_keys: Ints) -> Ints:
    """A bijection of [0, num_rows * num_columns): shifts row and column in turn by a hash of the other."""
    row_N, column_N = np.divmod(cell_N, np.uint64(num_columns))
    for row_key, column_key in round_keys.reshape(-1, 2):
        row_N = (row_N + _hash(column_N ^ row_key)) % np.uint64(num_rows)
        column_N = (column_N + _hash(row_N ^ column_key)) % np.uint64(num_columns)
    return row_N * np.uint64(num_columns) + column_N


def _hash(value_N: Ints) -> Ints:
    """The finalizer of splitmix64 (Steele et al. 2014), with the top bit cleared so that sums cannot overflow."""
    value_N = (value_N ^ (value_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value_N = (value_N ^ (value_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (value_N ^ (value_N >> np.uint64(31))) >> np.uint64(1)


def deal(position_N: Ints, share_G: Ints) -> tuple[Ints, Ints]:
    """For each position, its group and the number of earlier positions of that group, int64 [N] each.

    `share_G` (int64, above 0, with a sum of at most 2**30) are the weights of the G groups. The groups are split into
    two sides. Of the first p positions, the first side gets `p * weight / sum`, rounded. Each side is split again in
    the same way. So the number of positions of a group differs from `p * weight / sum` by at most two, or by at most
    one with two or three groups. No call depends on an earlier call, and memory and time depend only on N.

    >>> deal(np.arange(8), np.array([2, 1, 1]))[0].tolist()
    [0, 1, 0, 2, 0, 1, 0, 2]
    """
    order_G = np.argsort(-share_G, kind="stable")
    group_N, turn_N = _deal_sorted(np.array(position_N, dtype=np.int64, ndmin=1), share_G[order_G])
    return order_G[group_N], turn_N


def _deal_sorted(turn_N: Ints, share_G: Ints) -> tuple[Ints, Ints]:
    """The same as `deal`, for shares in descending order; `turn_N` counts only the positions of these groups."""
    group_N = np.zeros(len(turn_N), np.int64)
    if len(share_G) == 1 or not len(turn_N):
        return group_N, turn_N
    cut, share, total = _split(share_G)
    before_N, after_N = (_round_share(at_N, share, total) for at_N in (turn_N, turn_N + 1))
    is_first_N = after_N > before_N
    turn_N = np.where(is_first_N, before_N, turn_N - before_N)
    for mine_N, share_K, first in ((is_first_N, share_G[:cut], 0), (~is_first_N, share_G[cut:], cut)):
        group_K, turn_N[mine_N] = _deal_sorted(turn_N[mine_N], share_K)
        group_N[mine_N] = first + group_K
    return group_N, turn_N


def _split(share_G: Ints) -> tuple[int, int, int]:
    """Split shares into two sides of similar sums: return the length and sum of the first side, and the total."""
    upto_G = np.cumsum(share_G)
    total = int(upto_G[-1])
    cut = 1 + int(np.argmin(np.abs(2 * upto_G[:-1] - total)))
    return cut, int(upto_G[cut - 1]), total


def _round_share(count: Count, share: int, total: int) -> Count:
    """count * share / total, rounded to the nearest integer; exact for arrays with counts of at most 2**33."""
    return (count * share + total // 2) // total


def turns(position: int, share_G: Ints) -> Ints:
    """The number of positions of each group before a position, int64 [G]: the counts of the groups in `deal`.

    >>> turns(6, np.array([2, 1, 1])).tolist()
    [3, 2, 1]
    """
    order_G = np.argsort(-share_G, kind="stable")
    had_G = np.empty(len(share_G), np.int64)
    had_G[order_G] = _turns(position, share_G[order_G])
    return had_G


def _turns(position: int, share_G: Ints) -> list[int]:
    if len(share_G) == 1:
        return [position]
    cut, share, total = _split(share_G)
    first = _round_share(position, share, total)
    return [*_turns(first, share_G[:cut]), *_turns(position - first, share_G[cut:])]


def whole_shares(weights: Sequence[Fraction]) -> Ints:
    """Convert positive weights to integers of at least 1 for `deal`, int64, with a sum of 2**30.

    The error is at most 2**-30 of the sum.

    >>> whole_shares([Fraction(1), Fraction(3)]).tolist()
    [268435456, 805306368]
    """
    total = sum(weights)
    upto = [round(_WHOLE * sum(weights[: number + 1]) / total) for number in range(len(weights))]
    return np.maximum(1, np.diff([0, *upto]))


def rank_slice(batch: int, rank: int, world: int) -> slice:
    """The sequences of a global batch for one of `world` workers: contiguous, as even as possible, each exactly once.

    >>> [rank_slice(10, rank, world=4) for rank in range(4)]
    [slice(0, 2, None), slice(2, 5, None), slice(5, 7, None), slice(7, 10, None)]
    """
    if world > batch:
        raise BadInput(f"cannot split a batch of {batch} sequences among {world} workers; use at most {batch} workers")
    return slice(rank * batch // world, (rank + 1) * batch // world)
