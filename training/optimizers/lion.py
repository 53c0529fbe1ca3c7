"""Lion."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, merge_scales, require, spec
from training.optimizers.updates import Updates

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class Lion(Updates):
    """Lion: the update is the sign of an interpolated momentum (arXiv:2302.06675).

    Compared with AdamW, the paper divides the learning rate by 3 to 10 and multiplies the weight decay by 3 to 10.
    """

    kind: Literal["lion"] = "lion"
    beta1: float = key(default=0.9, doc="Weight of the running mean in the interpolation whose sign is the update.")
    beta2: float = key(default=0.99, doc="Decay rate of the running mean of the gradient.")
    takes_slices: ClassVar[bool] = True
    is_one_by_one: ClassVar[bool] = False
    states: ClassVar[float] = 1.0
    other_states: ClassVar[float] = 1.0

    # a third of AdamW's learning rates, as in the paper
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Updates.scale_overrides, {"tiny": {"learning_rate": 1e-3}, "small": {"learning_rate": 3e-4}}
    )

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.beta1 < 1, "optimizer.beta1", self.beta1, "a number from 0 to below 1")
        require(0 <= self.beta2 < 1, "optimizer.beta2", self.beta2, "a number from 0 to below 1")

    def describe(self) -> str:
        return "Lion"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """Build the optimizer of parameter `groups`; the engine sets the learning rate before each step."""
        from training.optimizers.steps import SignUpdates

        return SignUpdates(list(groups), lr=self.learning_rate, betas=(self.beta1, self.beta2))
