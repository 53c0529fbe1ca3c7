"""Data order: shuffle samples without a table, interleave groups by weight, and split a batch among workers."""

from collections.abc import Callable, Sequence
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
    return _walk(_feistel, position_N, size, key.at(epoch, address))


def unshuffle(sample_N: Ints, size: int, key: RandomKey, epoch: int, address: int = 0) -> Ints:
    """The positions of these samples in an epoch, int64 [N]: the inverse of `shuffle`, in the same time.

    >>> from preprocessing.rng import key
    >>> unshuffle(np.array([6, 4, 3, 2, 7, 0, 5, 1]), 8, key(0, "order"), epoch=0).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    return _walk(_invert_feistel, sample_N, size, key.at(epoch, address))


def _walk(
    network: Callable[[Ints, int, int, Ints], Ints], index_N: Ints, size: int, draws: np.random.Generator
) -> Ints:
    """The cells that a network maps these indices to; a cell beyond the end passes through the network again."""
    cell_N = np.array(index_N, dtype=np.uint64, ndmin=1)
    if cell_N.size and int(cell_N.max()) >= size:
        raise ValueError(
            f"invalid position: got {int(cell_N.max())}, expected less than the {size} samples of an epoch"
        )
    num_rows = isqrt(max(size - 1, 0)) + 1
    num_columns = -(-size // num_rows)
    round_keys = draws.integers(2**64, size=2 * _ROUNDS, dtype=np.uint64)
    todo = np.arange(cell_N.size)
    while todo.size:
        cell_N[todo] = network(cell_N[todo], num_rows, num_columns, round_keys)
        todo = todo[cell_N[todo] >= size]
    return cell_N.astype(np.int64)


def _feistel(cell_N: Ints, num_rows: int, num_columns: int, round_keys: Ints) -> Ints:
    """A bijection of [0, num_rows * num_columns): shifts row and column in turn by a hash of the other."""
    row_N, column_N = np.divmod(cell_N, np.uint64(num_columns))
    for row_key, column_key in round_keys.reshape(-1, 2):
        row_N = (row_N + _hash(column_N ^ row_key)) % np.uint64(num_rows)
        column_N = (column_N + _hash(row_N ^ column_key)) % np.uint64(num_columns)
    return row_N * np.uint64(num_columns) + column_N


def _invert_feistel(cell_N: Ints, num_rows: int, num_columns: int, round_keys: Ints) -> Ints:
    """The inverse of `_feistel`: shifts column and row back, from the last round to the first."""
    row_N, column_N = np.divmod(cell_N, np.uint64(num_columns))
    for row_key, column_key in round_keys.reshape(-1, 2)[::-1]:
        column_N = (column_N + _complement(_hash(row_N ^ column_key), num_columns)) % np.uint64(num_columns)
        row_N = (row_N + _complement(_hash(column_N ^ row_key), num_rows)) % np.uint64(num_rows)
    return row_N * np.uint64(num_columns) + column_N


def _complement(shift_N: Ints, size: int) -> Ints:
    """The shifts that undo these modulo `size`, from 1 to `size`."""
    return np.uint64(size) - shift_N % np.uint64(size)


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
    """count * share / total, rounded to the nearest integer.

    It is exact for arrays, too: no product exceeds int64 for shares and totals of at most 2**30 and share <= total.
    """
    whole = count // total
    return whole * share + ((count - whole * total) * share + total // 2) // total


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


def find_turns(group: int, turn_N: Ints, share_G: Ints) -> Ints:
    """The positions at which a group has these turns, int64 [N]: the inverse of `deal` for one group.

    >>> find_turns(0, np.array([0, 1, 2]), np.array([2, 1, 1])).tolist()
    [0, 2, 4]
    """
    order_G = np.argsort(-share_G, kind="stable")
    number = int(np.flatnonzero(order_G == group)[0])
    return _find_turns(number, np.array(turn_N, dtype=np.int64, ndmin=1), share_G[order_G])


def _find_turns(group: int, turn_N: Ints, share_G: Ints) -> Ints:
    """The same for shares in descending order. Turn k of a side is the first position after which it has k + 1."""
    if len(share_G) == 1:
        return turn_N
    cut, share, total = _split(share_G)
    half = total // 2  # products stay below 2**61, because each `total` positions repeat the turns
    if group < cut:
        whole_N, inner_N = np.divmod(_find_turns(group, turn_N, share_G[:cut]), share)
        return whole_N * total - (half - (inner_N + 1) * total) // share - 1
    whole_N, inner_N = np.divmod(_find_turns(group - cut, turn_N, share_G[cut:]), total - share)
    return whole_N * total - (-(inner_N * total + half + 1) // (total - share)) - 1


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
