"""The facts of an optimizer. The training loop, engines, scales and reports read no other facts about optimizers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from preprocessing.spec import ScaleOverrides
from training.optimizers.schedule import LearningRates
from training.optimizers.updates import Decays

if TYPE_CHECKING:
    from torch.optim import Optimizer


class OptimizerPart(LearningRates, Protocol):
    """A member of the union `Optimizer`: the update rule of the weights, and the learning rates of a run."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Values of keys for each `--scale`."""

    states: ClassVar[float]
    """Number of float32 values in the state for each weight of the linear layers between tables and heads."""
    other_states: ClassVar[float]
    """Number of float32 values in the state for each other weight: tables, heads, norms and biases."""
    factored_from: ClassVar[int]
    """Minimum size of both sides of a matrix with a factored state; 0: no factored states.

    A factored state has one number for each row and each column, and every worker has all of it."""
    takes_slices: ClassVar[bool]
    """Whether its step on slices of a tensor, as under tensor parallelism, equals its step on the whole tensor.

    This is so if it updates each number independently, or sums over the slices (steps/optimizer_shard.py)."""
    is_one_by_one: ClassVar[bool]
    """Whether each parameter forms a separate group, which ZeRO divides over the workers separately."""

    @property
    def kind(self) -> str:
        """The name in a recipe."""

    @property
    def weight_decay(self) -> float:
        """Coefficient of the decoupled weight decay."""

    @property
    def weight_decay_params(self) -> Decays:
        """Parameters that receive weight decay: matrices and tables, or all."""

    @property
    def max_grad_norm(self) -> float:
        """Global norm to which a larger gradient is scaled down; 0: no clipping."""

    def describe(self) -> str:
        """The usual name, such as "Adam"."""

    def describe_schedule(self) -> str:
        """The learning rate after the warmup, in words, such as "cosine decay to 10% of the peak"."""

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """Build the optimizer of parameter groups; the engine sets the learning rate before each step.

        A group has the keys "params", "weight_decay", "shapes", "hidden" and "slices", and "workers" with ZeRO. Each
        of `shapes`, `hidden` and `slices` has one entry per parameter. `shapes` has the shapes of its tensors. `hidden`
        is True for matrices of linear layers between tables and heads. `slices` has the slice of each tensor, or is
        empty. `workers` is the process group over which ZeRO divides a parameter. This method imports torch, which the
        module does not.
        """
