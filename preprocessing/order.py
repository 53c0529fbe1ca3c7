"""Position -> sample: a shuffle without a table, whose turn it is, the share of a batch that one worker takes."""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Final, TypeVar

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.rng import RandomKey
from preprocessing.schema import Ints

_ROUNDS: Final = 6  # each mixes both halves; with four, orders of five samples are not equally frequent (chi-square)

_WHOLE: Final = 1 << 30
Count = TypeVar("Count", int, Ints)


def shuffle(position_N: Ints, size: int, key: RandomKey, epoch: int) -> Ints:
    """Samples at these positions of the epoch: a random-looking bijection of [0, size) onto itself, int64 [N].

    A Feistel network over a grid of about sqrt(size) x sqrt(size) cells; a cell past the end is sent through again
    (cycle walking: Black and Rogaway 2002), which keeps the map a bijection. Memory and time depend on N alone.

    >>> from preprocessing.rng import key
    >>> shuffle(np.arange(8), 8, key(0, "order"), epoch=0).tolist()
    [6, 4, 3, 2, 7, 0, 5, 1]
    """
    sample_N = np.array(position_N, dtype=np.uint64, ndmin=1)
    if sample_N.size and int(sample_N.max()) >= size:
        raise ValueError(f"position {int(sample_N.max())} is outside an epoch of {size} samples")
    num_rows = isqrt(max(size - 1, 0)) + 1
    num_columns = -(-size // num_rows)
    round_keys = key.at(epoch, 0).integers(2**64, size=2 * _ROUNDS, dtype=np.uint64)
    todo = np.arange(sample_N.size)
    while todo.size:
        sample_N[todo] = _feistel(sample_N[todo], num_rows, num_columns, round_keys)
        todo = todo[sample_N[todo] >= size]
    return sample_N.astype(np.int64)


def _feistel(cell_N: Ints, num_rows: int, num_columns: int, round_keys: Ints) -> Ints:
    """Bijection of [0, num_rows * num_columns): row and column take turns to be moved by a hash of the other."""
    row_N, column_N = np.divmod(cell_N, np.uint64(num_columns))
    for row_key, column_key in round_keys.reshape(-1, 2):
        row_N = (row_N + _hash(column_N ^ row_key)) % np.uint64(num_rows)
        column_N = (column_N + _hash(row_N ^ column_key)) % np.uint64(num_columns)
    return row_N * np.uint64(num_columns) + column_N


def _hash(value_N: Ints) -> Ints:
    """splitmix64's finaliser (Steele et al. 2014), top bit cleared so that a sum with it cannot wrap round."""
    value_N = (value_N ^ (value_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value_N = (value_N ^ (value_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (value_N ^ (value_N >> np.uint64(31))) >> np.uint64(1)


def deal(position_N: Ints, share_G: Ints) -> tuple[Ints, Ints]:
    """Which of G takes its turn at each position, and how many turns it had before, int64 [N] each.

    `share_G` (int64, above 0, with a sum of 2**30 at most) are shares of the turns. The G are split in two, the first
    side having had `p * share / sum` turns at position p, rounded, and each side is split again in the same way. So up
    to any position whatever everyone has had its share of the turns to within two turns (of two or three: one), no call
    depends on an earlier one, and memory and time depend on N alone.

    >>> deal(np.arange(8), np.array([2, 1, 1]))[0].tolist()
    [0, 1, 0, 2, 0, 1, 0, 2]
    """
    order_G = np.argsort(-share_G, kind="stable")
    who_N, turn_N = _dealt(np.array(position_N, dtype=np.int64, ndmin=1), share_G[order_G])
    return order_G[who_N], turn_N


def _dealt(turn_N: Ints, share_G: Ints) -> tuple[Ints, Ints]:
    """The same for shares in descending order; `turn` counts the turns of all of them."""
    who_N = np.zeros(len(turn_N), np.int64)
    if len(share_G) == 1 or not len(turn_N):
        return who_N, turn_N
    cut, share, total = _halved(share_G)
    before_N, after_N = (_rounded(at_N, share, total) for at_N in (turn_N, turn_N + 1))
    is_first_N = after_N > before_N
    turn_N = np.where(is_first_N, before_N, turn_N - before_N)
    for mine_N, share_K, first in ((is_first_N, share_G[:cut], 0), (~is_first_N, share_G[cut:], cut)):
        who_K, turn_N[mine_N] = _dealt(turn_N[mine_N], share_K)
        who_N[mine_N] = first + who_K
    return who_N, turn_N


def _halved(share_G: Ints) -> tuple[int, int, int]:
    """How many of the shares are the first of two sides, which are as equal as can be; its sum, and that of all."""
    upto_G = np.cumsum(share_G)
    total = int(upto_G[-1])
    cut = 1 + int(np.argmin(np.abs(2 * upto_G[:-1] - total)))
    return cut, int(upto_G[cut - 1]), total


def _rounded(count: Count, share: int, total: int) -> Count:
    """count * share / total, to the nearest; of an array exact up to a count of 2**33."""
    return (count * share + total // 2) // total


def turns(position: int, share_G: Ints) -> Ints:
    """How many turns each of G has had before a position, int64 [G]: what `deal` deals out up to there.

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
    cut, share, total = _halved(share_G)
    first = _rounded(position, share, total)
    return [*_turns(first, share_G[:cut]), *_turns(position - first, share_G[cut:])]


def whole_shares(weights: Sequence[Fraction]) -> Ints:
    """Weights above 0 as whole numbers from 1 up for `deal`, whose sum is 2**30, int64: off by 2**-30 of it at most.

    >>> whole_shares([Fraction(1), Fraction(3)]).tolist()
    [268435456, 805306368]
    """
    total = sum(weights)
    upto = [round(_WHOLE * sum(weights[: number + 1]) / total) for number in range(len(weights))]
    return np.maximum(1, np.diff([0, *upto]))


def rank_slice(batch: int, rank: int, world: int) -> slice:
    """Rows of a global batch that one of `world` workers takes: contiguous, as even as possible, all rows once.

    >>> [rank_slice(10, rank, world=4) for rank in range(4)]
    [slice(0, 2, None), slice(2, 5, None), slice(5, 7, None), slice(7, 10, None)]
    """
    if world > batch:
        raise BadInput(f"a batch of {batch} rows cannot be shared by {world} workers: use at most {batch} workers")
    return slice(rank * batch // world, (rank + 1) * batch // world)
