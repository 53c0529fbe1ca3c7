"""The steps of AdamW: torch's, and a step without bias correction."""

import torch

from training.optimizers.steps.optimizer_shard import Closure, Groups, moments, with_gradient


class CorrectedAdamW(torch.optim.AdamW):
    """torch's AdamW. Its step does not import torch's compiler, which takes a second (see compiler_import.py)."""

    step = torch.no_grad()(torch.optim.Adam.step.__wrapped__)  # type: ignore[attr-defined]  # set by update_wrapper


class UncorrectedAdamW(torch.optim.Optimizer):
    """AdamW without bias correction, as in the reference BERT (google-research/bert, optimization.py).

    weight -= rate * (mean / (sqrt(square) + eps) + weight_decay * weight)
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        for group, weight, gradient in with_gradient(self.param_groups):
            mean, root = moments(self.state[weight], gradient, group)
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.addcdiv_(mean, root, value=-group["lr"])
