"""Blends: the weights with which training reads the groups of a mixture, and where other weights replace them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.order import deal, find_turns, turns
from preprocessing.schema import Ints
from preprocessing.spec import require

_SHOWN: Final = 20  # groups that a message lists


@dataclass(frozen=True)
class Blend:
    """The weight of each group from a position on, in the order of the store; a group of weight 0 is not read.

    Without weights, those of the corpus apply.
    """

    start: int
    weight_by_group: tuple[float, ...]


class BlendedTurns:
    """The group of each position, and its place in the order of the group; positions are numbered across all epochs.

    Each blend interleaves its groups with `deal`. A group continues at the place where the blend before it stopped, so
    that none of its sequences is left out or read twice. Everything follows from the position by arithmetic.

    >>> two = BlendedTurns([(0, np.array([1, 1])), (4, np.array([0, 1])), (6, np.array([3, 1]))])
    >>> [column.tolist() for column in two.deal(0, 10)]
    [[0, 1, 0, 1, 1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 2, 3, 2, 3, 4, 4]]
    >>> two.turns(10).tolist()
    [5, 5]
    """

    def __init__(self, blends: Sequence[tuple[int, Ints]]) -> None:
        """Take the first position and the shares (as for `deal`, or 0) of each blend, in order."""
        self._starts = [start for start, _ in blends]
        self._group_BK = [np.flatnonzero(share_G) for _, share_G in blends]
        self._share_BK = [share_G[share_G > 0] for _, share_G in blends]
        self._num_groups = len(blends[0][1])
        self._before_BG = [np.zeros(self._num_groups, np.int64)]
        for number, (start, stop) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            self._before_BG.append(self._before_BG[number] + self._turns_in(number, stop - start))

    @property
    def groups(self) -> list[int]:
        """The groups that any blend reads."""
        return sorted({group for group_K in self._group_BK for group in group_K.tolist()})

    def deal(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """The group at each of the positions start ... stop - 1, and its place in the order of the group, int64 [N]."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for number, first in enumerate(self._starts):
            end = self._starts[number + 1] if number + 1 < len(self._starts) else stop
            begin, end = max(start, first), min(stop, end)
            if begin < end:
                which_N, turn_N = deal(np.arange(begin - first, end - first), self._share_BK[number])
                group_N = self._group_BK[number][which_N]
                found.append((group_N, self._before_BG[number][group_N] + turn_N))
        return np.concatenate([group_N for group_N, _ in found]), np.concatenate([place_N for _, place_N in found])

    def positions(self, group: int, place_N: Ints) -> Ints:
        """The positions of these places of a group, int64 [N], or -1 at places that are never read."""
        found_N = np.full(len(place_N), -1)
        ends = [before_G[group] for before_G in self._before_BG[1:]]
        for number, group_K in enumerate(self._group_BK):
            which = np.flatnonzero(group_K == group)
            if not len(which):
                continue
            first = self._before_BG[number][group]
            mine_N = (first <= place_N) & (place_N < ends[number] if number < len(ends) else True)
            turn_N = place_N[mine_N] - first
            found_N[mine_N] = self._starts[number] + find_turns(int(which[0]), turn_N, self._share_BK[number])
        return found_N

    def turns(self, position: int) -> Ints:
        """The number of positions of each group before a position, int64 [G]."""
        number = max(number for number, start in enumerate(self._starts) if start <= position)
        return self._before_BG[number] + self._turns_in(number, position - self._starts[number])

    def _turns_in(self, number: int, count: int) -> Ints:
        had_G = np.zeros(self._num_groups, np.int64)
        had_G[self._group_BK[number]] = turns(count, self._share_BK[number])
        return had_G


def weights_of(mixture: Mapping[str, float], names: Sequence[str], where: str) -> tuple[float, ...]:
    """The weights of the groups `names`, 0 for a group that `mixture` does not have.

    Raises BadInput for an unknown group. `where` is the key of the mixture.
    """
    if not names:
        raise BadInput(
            f"invalid {where}: got {dict(mixture)}, expected none, because the corpus has no groups; remove it, or use "
            "a corpus file with `mixture`"
        )
    if unknown := [name for name in mixture if name not in names]:
        shown = ", ".join(names[:_SHOWN]) + " ..." * (len(names) > _SHOWN)
        raise BadInput(f"invalid {where}: got {unknown[0]}, expected a group of the corpus ({shown}); correct the name")
    return tuple(float(mixture.get(name, 0)) for name in names)


def require_weights(where: str, mixture: Mapping[str, float]) -> None:
    """Raise InvalidValue unless the weights are finite, none is negative, and the sum is above 0; {} is valid."""
    values = list(mixture.values())
    is_valid = all(0 <= value < float("inf") for value in values) and (not values or sum(values) > 0)
    require(is_valid, where, mixture, "weights by group that are not negative, at least one above 0")
