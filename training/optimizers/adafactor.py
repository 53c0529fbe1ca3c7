"""Adafactor."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, merge_scales, require, spec
from training.optimizers.updates import Updates

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class Adafactor(Updates):
    """Adafactor: factored second moments, no first moment, clipped updates (arXiv:1804.04235).

    The defaults are those of T5: updates are scaled to the size of the weights, and the learning rate is
    1 / sqrt(max(step, 10,000)). Grover does not scale updates (`scale_parameter: false`).
    """

    kind: Literal["adafactor"] = "adafactor"
    learning_rate: float = 0.01
    warmup_steps: int = 10_000
    lr_schedule: str = "constant_then_inverse_sqrt"
    weight_decay: float = 0.0
    max_grad_norm: float = 0.0
    scale_parameter: bool = key(default=True, doc="Whether updates are scaled to the size of the weights.")
    beta2: float = key(default=0.0, doc="Decay rate of the running mean of squares; 0: 1 - step^-0.8.")
    states: ClassVar[float] = 0.0
    other_states: ClassVar[float] = 1.0  # second moments of all parameters that are not large matrices
    factored_from: ClassVar[int] = 128  # as in T5 (mesh_tensorflow/optimize.py)

    takes_slices: ClassVar[bool] = True
    is_one_by_one: ClassVar[bool] = True
    # T5's peak learning rates, relative to the weights; with a third of them, or three times, training is slower
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Updates.scale_overrides,
        {
            "tiny": {"learning_rate": 3e-2, "scale_parameter": True},
            "small": {"learning_rate": 2e-2, "scale_parameter": True},
        },
    )

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.beta2 < 1, "optimizer.beta2", self.beta2, "a number from 0 to below 1")

    def describe(self) -> str:
        return "Adafactor"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """Build the optimizer of parameter `groups`; the engine sets the learning rate before each step."""
        from training.optimizers.steps import FactoredUpdates, split_groups

        return FactoredUpdates(
            split_groups(groups), self.learning_rate, self.scale_parameter, self.beta2, self.factored_from
        )
