"""The steps of AdamW: torch's, and a step without bias correction."""

from typing import Any, Final

import torch
from torch import Tensor

from training.optimizers.steps.loss_scale import LossScale, read_loss_scale
from training.optimizers.steps.optimizer_shard import Closure, Groups, create_moments, update_moments

LAST_STEP: Final = 1e30
"""A step at which beta ** step is 0 for any beta below 1, also in float32, so that 1 - beta ** step is exactly 1."""


class CorrectedAdamW(torch.optim.AdamW):
    """torch's AdamW. Its step does not import torch's compiler, which takes a second (see compiler_import.py)."""

    step = torch.no_grad()(torch.optim.Adam.step.__wrapped__)  # type: ignore[attr-defined]  # set by update_wrapper


class UncorrectedAdamW(torch.optim.Optimizer):
    """AdamW without bias correction, as in the reference BERT (google-research/bert, optimization.py).

    weight -= rate * (mean / (sqrt(square) + eps) + weight_decay * weight)

    torch's fused kernel of AdamW computes this rule: after `LAST_STEP` steps, its corrections of both means are exactly
    1. Weights in another precision than float32, or on another device, are updated by separate operations.
    """

    _step_supports_amp_scaling = True  # of torch.amp.GradScaler: see loss_scale.py

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        scale = read_loss_scale(self)
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            update = _update_fused if weights and is_fused(weights[0]) else _update_each
            update(self.state, weights, group, scale)


def is_fused(weight: Tensor) -> bool:
    """Whether torch's fused kernel updates this weight."""
    return weight.device.type in ("cpu", "cuda") and weight.dtype == torch.float32


def _update_fused(state: dict[Tensor, Any], weights: list[Tensor], group: dict[str, Any], scale: LossScale) -> None:
    """Update all weights of a group by one kernel, which also obeys the loss scale."""
    gradients: list[Any] = [weight.grad for weight in weights]
    moments = [create_moments(state[weight], gradient) for weight, gradient in zip(weights, gradients, strict=True)]
    means, squares = map(list, zip(*moments, strict=True))
    beta1, beta2 = group["betas"]
    torch._fused_adamw_(
        weights,
        gradients,
        means,
        squares,
        [],
        [weights[0].new_full((), LAST_STEP, dtype=torch.float32)] * len(weights),
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
        grad_scale=scale.grad_scale,
        found_inf=scale.found_inf,
    )


def _update_each(state: dict[Tensor, Any], weights: list[Tensor], group: dict[str, Any], scale: LossScale) -> None:
    """Update each weight of a group by separate operations."""
    for weight in weights:
        gradient: Any = weight.grad
        scale.unscale(gradient)
        mean, root = update_moments(state[weight], gradient, group["betas"], scale)
        weight.mul_(scale.choose(1 - group["lr"] * group["weight_decay"], 1.0, weight))
        if scale.is_skipped is not None:
            mean = scale.clear(mean.clone())  # the update is zeros in a skipped step
        weight.addcdiv_(mean, root.add_(group["eps"]), value=-group["lr"])
