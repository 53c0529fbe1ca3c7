"""The step of Lion."""

import torch

from training.optimizers.steps.loss_scale import read_loss_scale
from training.optimizers.steps.optimizer_shard import Closure, Groups, with_gradient


class SignUpdates(torch.optim.Optimizer):
    """Lion (arXiv:2302.06675, algorithm 2).

    weight -= rate * (sign(beta1 * mean + (1 - beta1) * gradient) + weight_decay * weight), and then
    mean = beta2 * mean + (1 - beta2) * gradient. Elements are updated independently, so a worker needs only its shard.
    """

    _step_supports_amp_scaling = True  # of torch.amp.GradScaler: see loss_scale.py

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        scale = read_loss_scale(self)
        for group, weight, gradient in with_gradient(self.param_groups, scale):
            beta1, beta2 = group["betas"]
            state = self.state[weight]
            if "mean" not in state:
                state["mean"] = torch.zeros_like(gradient)
            mean = state["mean"]
            weight.mul_(scale.choose(1 - group["lr"] * group["weight_decay"], 1.0, weight))
            weight.add_(scale.clear(mean.lerp(gradient, 1 - beta1).sign_()), alpha=-group["lr"])
            mean.lerp_(gradient, scale.choose(1 - beta2, 0.0, mean))
