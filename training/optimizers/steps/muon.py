"""The step of Muon."""

import math
from typing import Any, Final

import torch
from torch import Tensor

from training.optimizers.steps.optimizer_shard import (
    Closure,
    Groups,
    OptimizerShard,
    Shape,
    moments,
    of_whole_tensors,
    pieces_of,
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
    separately; under ZeRO, the tensors are distributed over the workers. The engine clips the norm of the gradient,
    because the norm of an orthogonalized update is nearly constant.
    """

    def __init__(self, groups: Groups, lr: float, keys: dict[str, Any]) -> None:
        """`keys` are values of the recipe: betas, eps, momentum, scaling, newton_schulz."""
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, **keys})
        self.dtype = torch.bfloat16 if keys["newton_schulz"] == "bf16" else torch.float32

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        pieces: list[tuple[OptimizerShard, Tensor]] = []
        weights: list[tuple[Tensor, float]] = []
        for group, weight, gradient in with_gradient(self.param_groups):
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            if not group["is_hidden"]:
                weight.sub_(_adam(self.state[weight], gradient, group), alpha=group["lr"])
                continue
            mean = self.state[weight].setdefault("mean", torch.zeros_like(gradient))
            mean.lerp_(gradient, 1 - group["momentum"])
            update = gradient.lerp(mean, group["momentum"])
            for piece in pieces_of(weight, group):
                pieces.append((piece, piece.of(update)))
                weights.append((piece.of(weight), group["lr"] * _scale(piece.whole, group["scaling"])))
        for (weight_P, rate), update_P in zip(weights, of_whole_tensors(pieces, self._orthogonalize), strict=True):
            weight_P.sub_(update_P, alpha=rate)

    def _orthogonalize(self, update_RC: Tensor) -> Tensor:
        """Replace the singular values of a matrix with values of about 1, by a Newton-Schulz iteration."""
        x = update_RC if self.dtype == torch.float32 else update_RC.to(self.dtype)
        x = x.T if x.shape[0] > x.shape[1] else x
        x = x / x.norm().clamp(min=LEAST_NORM)
        first, third, fifth = QUINTIC
        for _ in range(ITERATIONS):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
        x = x.T if update_RC.shape[0] > update_RC.shape[1] else x
        return x.to(update_RC.dtype)


def _adam(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> Tensor:
    """Adam's update, with bias correction of both moments (arXiv:1412.6980, algorithm 1)."""
    beta1, beta2 = group["betas"]
    state["step"] = state.get("step", 0) + 1
    fix = math.sqrt(1 - beta2 ** state["step"])
    mean, root = moments(state, gradient, group | {"eps": group["eps"] * fix})
    return mean / root * (fix / (1 - beta1 ** state["step"]))


def _scale(shape: Shape, scaling: str) -> float:
    """The factor of the update of a matrix [R, C]."""
    rows, columns = shape
    return 0.2 * math.sqrt(max(rows, columns)) if scaling == "match_rms_adamw" else math.sqrt(max(1.0, rows / columns))
