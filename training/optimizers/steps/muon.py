"""The step of Muon."""

import math
from typing import Any, Final

import torch
from torch import Tensor

from training.optimizers.steps.loss_scale import LossScale, read_loss_scale
from training.optimizers.steps.optimizer_shard import (
    Closure,
    Groups,
    LayoutCache,
    OptimizerShard,
    Shape,
    of_whole_tensors,
    update_moments,
    with_gradient,
)

ITERATIONS: Final = 5
# coefficients of x, x^3 and x^5; five iterations move singular values between 0 and 1 to about 1
QUINTIC: Final = (3.4445, -4.7750, 2.0315)
LEAST_NORM: Final = 1e-7


class OrthogonalUpdates(torch.optim.Optimizer):
    """Muon (Keller Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024) as in torch.optim.Muon.

    For matrices of layers (`is_hidden` of a group):
    weight -= rate * (scale * orthogonal(gradient + momentum * (mean - gradient)) + weight_decay * weight).
    Other parameters get AdamW's step. Each group has one parameter (`is_one_by_one`). Each tensor is orthogonalized
    separately, in batches of tensors with equal shapes; under ZeRO, the tensors are distributed over the workers. The
    engine clips the norm of the gradient, because the norm of an orthogonalized update is nearly constant.
    """

    _step_supports_amp_scaling = True  # of torch.amp.GradScaler: see loss_scale.py

    def __init__(self, groups: Groups, lr: float, keys: dict[str, Any]) -> None:
        """`keys` are values of the recipe: betas, eps, momentum, scaling, newton_schulz."""
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, **keys})
        self.dtype = torch.bfloat16 if keys["newton_schulz"] == "bf16" else torch.float32
        self.layouts = LayoutCache()

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        scale = read_loss_scale(self)
        pieces: list[OptimizerShard] = []
        weights: list[Tensor] = []
        updates: list[Tensor] = []
        rates: list[float] = []
        for group, weight, gradient in with_gradient(self.param_groups, scale):
            weight.mul_(scale.choose(1 - group["lr"] * group["weight_decay"], 1.0, weight))
            if not group["is_hidden"]:
                update = scale.clear(_adam(self.state[weight], gradient, group, scale))
                weight.sub_(update, alpha=group["lr"])
                continue
            state = self.state[weight]
            if "mean" not in state:
                state["mean"] = torch.zeros_like(gradient)
            mean = state["mean"]
            mean.lerp_(gradient, scale.choose(1 - group["momentum"], 0.0, mean))
            update = scale.clear(gradient.lerp(mean, group["momentum"]))  # the result for a matrix of zeros is zeros
            layout = self.layouts.find(weight, group)
            pieces += layout.pieces
            weights += layout.split(weight)
            updates += layout.split(update)
            rates += [group["lr"] * _scale(piece.whole, group["scaling"]) for piece in layout.pieces]
        for numbers, results in of_whole_tensors(pieces, updates, self._orthogonalize, rates):
            torch._foreach_sub_([weights[number] for number in numbers], results, alpha=rates[numbers[0]])

    def _orthogonalize(self, update_NRC: Tensor) -> Tensor:
        """Replace the singular values of N matrices with values of about 1, by a Newton-Schulz iteration."""
        x = update_NRC if self.dtype == torch.float32 else update_NRC.to(self.dtype)
        is_tall = x.shape[1] > x.shape[2]
        x = x.mT if is_tall else x
        x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=LEAST_NORM)
        first, third, fifth = QUINTIC
        for _ in range(ITERATIONS):
            gram = torch.bmm(x, x.mT)
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
        x = x.mT if is_tall else x
        return x.to(update_NRC.dtype)


def _adam(state: dict[str, Any], gradient: Tensor, group: dict[str, Any], scale: LossScale) -> Tensor:
    """Adam's update, with bias correction of both moments (arXiv:1412.6980, algorithm 1).

    The corrections are computed on the device in float64, because a skipped step leaves the count there unchanged.
    """
    beta1, beta2 = group["betas"]
    step = scale.count_step(state, gradient).double()
    fix = (1 - beta2**step).sqrt()
    mean, root = update_moments(state, gradient, group["betas"], scale)
    root.add_(fix * group["eps"])
    return torch.div(mean, root, out=root).mul_(fix / (1 - beta1**step))


def _scale(shape: Shape, scaling: str) -> float:
    """The factor of the update of a matrix [R, C]."""
    rows, columns = shape
    return 0.2 * math.sqrt(max(rows, columns)) if scaling == "match_rms_adamw" else math.sqrt(max(1.0, rows / columns))
