"""AdamW."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, merge_scales, spec
from training.optimizers.updates import Moments

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class AdamW(Moments):
    """Adam with decoupled weight decay (arXiv:1711.05101)."""

    kind: Literal["adamw"] = "adamw"
    bias_correction: bool = key(
        default=True,
        doc="Whether running means are corrected for their initial value of 0; false in the reference BERT.",
    )
    states: ClassVar[float] = 2.0
    other_states: ClassVar[float] = 2.0

    takes_slices: ClassVar[bool] = True
    is_one_by_one: ClassVar[bool] = False
    # with bias correction; without it, the first updates correspond to several times the peak learning rate
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Moments.scale_overrides,
        {
            "tiny": {"learning_rate": 3e-3, "bias_correction": True},
            "small": {"learning_rate": 1e-3, "bias_correction": True},
        },
    )

    def describe(self) -> str:
        return "Adam"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """Build the optimizer of parameter `groups`; the engine sets the learning rate before each step."""
        from training.optimizers.steps import CorrectedAdamW, UncorrectedAdamW

        if self.bias_correction:
            betas = (self.beta1, self.beta2)
            return CorrectedAdamW(list(groups), lr=self.learning_rate, betas=betas, eps=self.eps, fused=True)
        return UncorrectedAdamW(list(groups), lr=self.learning_rate, betas=(self.beta1, self.beta2), eps=self.eps)
