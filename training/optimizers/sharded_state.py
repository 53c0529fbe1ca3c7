"""The interface of optimizers whose state does not have one number for each element of a parameter.

Checkpoints are independent of the parallel layout (training/engines/fragments.py). For each tensor of a state, they
therefore store which elements of a parameter it describes, or that it describes the whole parameter. The engines infer
this for tensors with the size of the parameter and for single numbers. Any other optimizer implements
`ShardedStateOptimizer`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ShardedState:
    """A state of contiguous elements of a parameter, or of the whole parameter."""

    state: str  # name of the state, such as "square"
    values: "Tensor"  # [N]; with `start`, one value for each of N elements
    start: int | None  # index of the first element; None: a state of the whole parameter, equal on all workers
    is_own: bool = True  # whether this worker writes the values to a checkpoint


@runtime_checkable
class ShardedStateOptimizer(Protocol):
    """An optimizer with one parameter in each group. `weight` is this worker's shard of it, `group` its group."""

    def stretches(self, weight: "Tensor", group: Mapping[str, Any]) -> Iterator[ShardedState]:
        """Iterate over the states of a parameter, which must exist: call it after `step` or `begin`."""

    def numbers(self, weight: "Tensor") -> Mapping[str, float]:
        """The single numbers in the state of a parameter."""

    def begin(self, weight: "Tensor", group: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        """Create a new state of a parameter with these single numbers, and with tensors of zeros to be loaded."""
