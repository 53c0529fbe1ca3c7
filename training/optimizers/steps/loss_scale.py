"""Scaled gradients and skipped steps, without a read of the device by the host.

With float16, a loss is multiplied by a scale, and a step with a gradient that is not finite is skipped. An engine that
reads the gradient on the host waits until the device has finished its work. Instead, it may set two attributes of any
optimizer of this package before a step, as `torch.amp.GradScaler` does for the fused optimizers of torch:

- `grad_scale`: float32 [], by which the step divides the gradients;
- `found_inf`: float32 [], 1 if the step must change nothing, else 0.

Both are on the device of the weights. None, or no attribute, means no scale, and that the step is not skipped.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossScale:
    """The two attributes of an optimizer, and how a step obeys them.

    A step of zeros is computed if it is skipped: gradients are zeros, decay rates are 1, and updates are zeros. If
    `found_inf` is 0, the results have the same bits as without the attribute.
    """

    grad_scale: Tensor | None  # float32 []
    found_inf: Tensor | None  # float32 []
    is_skipped: Tensor | None  # bool []

    def unscale(self, gradient: Tensor) -> None:
        """Divide a gradient by the scale, in place, and replace it by zeros in a skipped step.

        torch's fused optimizers also store the quotient in the gradient.
        """
        if self.grad_scale is not None:
            gradient.div_(self.grad_scale)
        self.clear(gradient)

    def clear(self, update: Tensor) -> Tensor:
        """Replace an update by zeros, in place, in a skipped step. This also replaces infinities and NaN."""
        return update if self.is_skipped is None else update.masked_fill_(self.is_skipped, 0.0)

    def choose(self, number: float | Tensor, skipped: float, like: Tensor) -> float | Tensor:
        """Return `number`, or the number `skipped` in a skipped step; a tensor [] has the data type of `like`."""
        if self.is_skipped is None:
            return number.to(like.dtype) if isinstance(number, Tensor) else number
        # new_full writes on the device; a copy of a number from the host would wait for the device
        tensor = number if isinstance(number, Tensor) else like.new_full((), number)
        return tensor.to(like.dtype).masked_fill(self.is_skipped, skipped)

    def count_step(self, state: dict[str, int | Tensor], like: Tensor) -> Tensor:
        """Add 1 to `step` of a state unless the step is skipped, and return it: int64 [] on the device of `like`.

        A state of an earlier version of Sesame, or of a checkpoint, has an integer.
        """
        step = state.get("step", 0)
        if not isinstance(step, Tensor):
            step = like.new_full((), step, dtype=torch.int64)
        if step.device != like.device:  # torch loads a count to the CPU
            step = step.to(like.device)
        state["step"] = step.add_(1 if self.is_skipped is None else ~self.is_skipped)
        return step


def read_loss_scale(optimizer: torch.optim.Optimizer) -> LossScale:
    """The attributes `grad_scale` and `found_inf` of an optimizer."""
    found_inf = getattr(optimizer, "found_inf", None)
    return LossScale(
        getattr(optimizer, "grad_scale", None), found_inf, None if found_inf is None else found_inf.detach() != 0
    )
