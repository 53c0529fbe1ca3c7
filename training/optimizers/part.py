"""The facts that each optimiser states about itself; loop, engines, scales and reports read them here only."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from preprocessing.spec import ScaleOverrides
from training.optimizers.schedule import LearningRates
from training.optimizers.updates import Decays

if TYPE_CHECKING:
    from torch.optim import Optimizer


class OptimizerPart(LearningRates, Protocol):
    """A part of the union Optim: how a gradient becomes an update, and the learning rates of a run."""

    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it."""

    states: ClassVar[float]
    """Numbers in float32 that it keeps for each weight of the linears between tables and heads."""
    other_states: ClassVar[float]
    """And for each weight of all else: tables, heads, norms and biases."""
    factored_from: ClassVar[int]
    """Both sides of a matrix, at least, of which it keeps a number for each row and column instead, all of them on
    every worker; 0: of no matrix."""
    takes_slices: ClassVar[bool]
    """Whether its step is that of whole tensors where a worker has slices of them, as under tensor parallelism: it
    updates each number by itself, or adds up over the slices (steps/optimizer_shard.py)."""
    is_one_by_one: ClassVar[bool]
    """Whether each tensor is a group of its own, which ZeRO divides over the workers by itself."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def weight_decay(self) -> float:
        """Weight decay."""

    @property
    def weight_decay_params(self) -> Decays:
        """What decays: matrices and tables, or norms and biases too."""

    @property
    def max_grad_norm(self) -> float:
        """Global norm of the raw gradient above which it is scaled down; 0: no clipping."""

    def describe(self) -> str:
        """Its name in the field: "Adam"."""

    def describe_schedule(self) -> str:
        """What becomes of its learning rate after the warm-up: "cosine decay to 10% of the peak"."""

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """The optimiser over `groups` {"params", "weight_decay", "shapes", "hidden", "slices"}; the engine sets the
        learning rate before each step. For each parameter `shapes` has those of the tensors in it, `hidden` whether it
        is the matrix of a linear between tables and heads, and `slices` how each tensor is cut, or nothing. `workers`
        is the group of those over which ZeRO divides a parameter. torch is imported when this is called."""
