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
    """A state of contiguous elements of a tensor, or of a whole tensor."""

    state: str  # name of the state, such as "square"
    values: "Tensor"  # [N]; with `start`, one value for each of N elements
    tensor: int  # number of the tensor among the `shapes` of the group
    start: int | None  # index of the first element in the tensor or this worker's slice; None: a state of the tensor
    is_own: bool = True  # whether this worker writes the values to a checkpoint


@runtime_checkable
class ShardedStateOptimizer(Protocol):
    """An optimizer with one parameter in each group. `weight` is this worker's shard of it, `group` its group.

    The parameter may be a flat tensor with several parameters of the model, whose tensors `shapes` of the group lists.
    A state of a whole tensor is equal on all workers. A checkpoint has it as STATE.NUMBER of a parameter, where the
    tensors of each parameter are numbered from 0.
    """

    def stretches(self, weight: "Tensor", group: Mapping[str, Any]) -> Iterator[ShardedState]:
        """Iterate over the states of a parameter, which must exist: call it after `step` or `begin`."""

    def numbers(self, weight: "Tensor") -> Mapping[str, float]:
        """The single numbers in the state of a parameter."""

    def begin(self, weight: "Tensor", group: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        """Create a new state of a parameter with these single numbers, and with tensors of zeros to be loaded."""
