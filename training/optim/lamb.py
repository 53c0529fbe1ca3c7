"""LAMB."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from preprocessing.spec import spec
from training.optim.updates import Moments

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class Lamb(Moments):
    """Adam whose update of each tensor is as long as its weights (arXiv:1904.00962), as the reference ALBERT has it:
    no bias correction, and tensors that do not decay do not scale either."""

    kind: Literal["lamb"] = "lamb"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """The optimiser over parameter `groups`; the learning rate is set before each step."""
        from training.optim.optimizers import ScaledAdamW, one_by_one

        return ScaledAdamW(one_by_one(groups), lr=self.peak, betas=(self.beta1, self.beta2), eps=self.eps)
