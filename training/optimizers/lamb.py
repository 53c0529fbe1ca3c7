"""LAMB."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, merge_scales, spec
from training.optimizers.updates import Moments

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class Lamb(Moments):
    """LAMB: Adam with each tensor's update scaled to its weight norm (arXiv:1904.00962).

    As in the reference ALBERT, there is no bias correction, and tensors without weight decay are not scaled.
    """

    kind: Literal["lamb"] = "lamb"
    states: ClassVar[float] = 2.0
    other_states: ClassVar[float] = 2.0

    takes_slices: ClassVar[bool] = True
    is_one_by_one: ClassVar[bool] = True
    # learning rates relative to the weight norms; with a third of them, or three times, training is slower
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Moments.scale_overrides, {"tiny": {"learning_rate": 1e-2}, "small": {"learning_rate": 1e-2}}
    )

    def describe(self) -> str:
        return "LAMB"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """Build the optimizer of parameter `groups`; the engine sets the learning rate before each step."""
        from training.optimizers.steps import ScaledAdamW, split_groups

        return ScaledAdamW(split_groups(groups), lr=self.learning_rate, betas=(self.beta1, self.beta2), eps=self.eps)
