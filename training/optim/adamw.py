"""AdamW."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from preprocessing.spec import spec
from training.optim.updates import Moments

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class AdamW(Moments):
    """Adam with decoupled weight decay (arXiv:1711.05101)."""

    kind: Literal["adamw"] = "adamw"
    bias_correction: bool = True  # the reference BERT has none

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """The optimiser over parameter `groups`; the learning rate is set before each step."""
        from torch.optim import AdamW as TorchAdamW

        from training.optim.optimizers import UncorrectedAdamW

        if self.bias_correction:
            betas = (self.beta1, self.beta2)
            return TorchAdamW(list(groups), lr=self.peak, betas=betas, eps=self.eps, fused=True)
        return UncorrectedAdamW(list(groups), lr=self.peak, betas=(self.beta1, self.beta2), eps=self.eps)
