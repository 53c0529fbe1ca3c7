"""Position -> sample: a shuffle without a table, and the share of a batch that one worker takes."""

from math import isqrt
from typing import Final

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.rng import Key
from preprocessing.schema import Ints

_ROUNDS: Final = 6  # each mixes both halves; with four, orders of five samples are not equally frequent (chi-square)


def shuffled(position_N: Ints, size: int, key: Key, epoch: int) -> Ints:
    """Samples at these positions of the epoch: a random-looking bijection of [0, size) onto itself, int64 [N].

    A Feistel network over a grid of about sqrt(size) x sqrt(size) cells; a cell past the end is sent through again
    (cycle walking: Black and Rogaway 2002), which keeps the map a bijection. Memory and time depend on N alone.

    >>> from preprocessing.rng import key
    >>> shuffled(np.arange(8), 8, key(0, "order"), epoch=0).tolist()
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


def rank_slice(batch: int, rank: int, world: int) -> slice:
    """Rows of a global batch that one of `world` workers takes: contiguous, as even as possible, all rows once.

    >>> [rank_slice(10, rank, world=4) for rank in range(4)]
    [slice(0, 2, None), slice(2, 5, None), slice(5, 7, None), slice(7, 10, None)]
    """
    if world > batch:
        raise BadInput(f"a batch of {batch} rows cannot be shared by {world} workers: use at most {batch} workers")
    return slice(rank * batch // world, (rank + 1) * batch // world)
