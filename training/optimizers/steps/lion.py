"""The step of Lion."""

import torch

from training.optimizers.steps.optimizer_shard import Closure, Groups, with_gradient


class SignUpdates(torch.optim.Optimizer):
    """Lion (arXiv:2302.06675, algorithm 2).

    weight -= rate * (sign(beta1 * mean + (1 - beta1) * gradient) + weight_decay * weight), and then
    mean = beta2 * mean + (1 - beta2) * gradient. Elements are updated independently, so a worker needs only its shard.
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        for group, weight, gradient in with_gradient(self.param_groups):
            beta1, beta2 = group["betas"]
            mean = self.state[weight].setdefault("mean", torch.zeros_like(gradient))
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.add_(mean.lerp(gradient, 1 - beta1).sign_(), alpha=-group["lr"])
            mean.lerp_(gradient, 1 - beta2)
