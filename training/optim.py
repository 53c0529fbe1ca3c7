"""Client optimisers: DeepSpeed gets them ready-made, so that each ZeRO stage and one plain process take the same step.

Under ZeRO an optimiser sees flat pieces of the weights: whatever is written here must work element by element.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from training.spec import Optim


def build(optim: Optim, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
    """The optimiser over parameter `groups` ({"params", "weight_decay"}); the learning rate is set before each step."""
    betas = (optim.beta1, optim.beta2)
    if optim.bias_correction:
        return torch.optim.AdamW(list(groups), lr=optim.peak, betas=betas, eps=optim.eps, fused=True)
    return UncorrectedAdamW(list(groups), lr=optim.peak, betas=betas, eps=optim.eps)


class UncorrectedAdamW(torch.optim.Optimizer):
    """AdamW as the reference BERT has it: without bias correction (google-research/bert, optimization.py).

    weight -= rate * (mean / (sqrt(square) + eps) + weight_decay * weight)
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure is ever given
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["mean"] = torch.zeros_like(weight)
                    state["square"] = torch.zeros_like(weight)
                state["mean"].lerp_(weight.grad, 1 - beta1)
                state["square"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.addcdiv_(state["mean"], state["square"].sqrt().add_(group["eps"]), value=-group["lr"])
