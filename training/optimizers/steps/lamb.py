"""The step of LAMB."""

from dataclasses import dataclass

import torch
from torch import Tensor

from training.optimizers.steps.loss_scale import read_loss_scale
from training.optimizers.steps.optimizer_shard import (
    Closure,
    Groups,
    LayoutCache,
    OptimizerShard,
    over_workers,
    stack,
    update_moments,
    with_gradient,
)


class ScaledAdamW(torch.optim.Optimizer):
    """LAMB (arXiv:1904.00962) as in the reference ALBERT (google-research/albert, lamb_optimizer.py).

    weight -= rate * |weight| / |update| * update, where update = mean / (sqrt(square) + eps) + weight_decay * weight.
    The ratio |weight| / |update| is 1 if one of them is 0, and for the parameters of norms and biases. Each group has
    one parameter (`is_one_by_one`), and each of its tensors has a separate ratio.
    """

    _step_supports_amp_scaling = True  # of torch.amp.GradScaler: see loss_scale.py

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.layouts = LayoutCache()

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        scale = read_loss_scale(self)
        batches: list[ScaledBatch] = []
        for group, weight, gradient in with_gradient(self.param_groups, scale):
            mean, root = update_moments(self.state[weight], gradient, group["betas"], scale)
            update = torch.div(mean, root.add_(group["eps"]), out=root).add_(weight, alpha=group["weight_decay"])
            layout = self.layouts.find(weight, group)
            weights, updates = layout.split(weight), layout.split(scale.clear(update))
            for numbers in layout.batches:
                members = [weights[number] for number in numbers], [updates[number] for number in numbers]
                batches.append(ScaledBatch(layout.pieces[numbers[0]], *members, group["lr"]))
        matrices = [batch for batch in batches if batch.is_scaled]
        sums = [batch.sum_squares() for batch in matrices]
        squares = iter(over_workers(sums, [batch.piece for batch in matrices]))
        for batch in batches:
            update_N = batch.scale_updates(next(squares)) if batch.is_scaled else batch.updates
            torch._foreach_add_(batch.weights, update_N, alpha=-batch.rate)


@dataclass(frozen=True)
class ScaledBatch:
    """Shards [P] of N tensors with equal shapes, and their updates in one step."""

    piece: OptimizerShard  # the first shard
    weights: list[Tensor]  # N views [P]
    updates: list[Tensor]  # N views [P]
    rate: float

    @property
    def is_scaled(self) -> bool:
        """Whether updates are scaled to the norm of the weights: not those of norms and biases."""
        return len(self.piece.shape) > 1

    def sum_squares(self) -> Tensor:
        """This worker's sums of the squares of weights and updates, [2, N]."""
        return torch.stack([stack(shards).square().sum(1) for shards in (self.weights, self.updates)])

    def scale_updates(self, squares_2N: Tensor) -> list[Tensor]:
        """Multiply the updates by |weight| / |update|, given the sums of squares of whole tensors."""
        weight_norm_N, update_norm_N = squares_2N.sqrt()
        is_positive_N = (weight_norm_N > 0) & (update_norm_N > 0)
        ratio_N = (weight_norm_N / update_norm_N).masked_fill_(~is_positive_N, 1.0)
        return list((stack(self.updates) * ratio_N[:, None]).unbind())
