"""The state of an optimiser that keeps more than a number for each element, told piece by piece.

Checkpoints know no layout (training/engines/fragments.py): they must be told of which elements of a parameter each
tensor is, or that it is of the whole parameter. Where an optimiser keeps tensors of the size of the parameter and
single numbers, that is seen; any other has the methods of `ShardedStateOptimizer`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ShardedState:
    """Numbers that an optimiser keeps for elements of a parameter that lie together, or for all of it."""

    state: str  # its name: "square"
    values: "Tensor"  # [N]; as long as there are elements, where `start` is given
    start: int | None  # elements of the parameter before them; None: each worker has the same, of the whole parameter
    is_own: bool = True  # whether this worker writes it


@runtime_checkable
class ShardedStateOptimizer(Protocol):
    """An optimiser whose groups have one parameter each; `weight` is what this worker has of it, `group` its group."""

    def stretches(self, weight: "Tensor", group: Mapping[str, Any]) -> Iterator[ShardedState]:
        """Its state, which must have begun."""

    def numbers(self, weight: "Tensor") -> Mapping[str, float]:
        """What it keeps beside them."""

    def begin(self, weight: "Tensor", group: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        """Make its state anew, with these numbers, and with zeros to be filled."""
