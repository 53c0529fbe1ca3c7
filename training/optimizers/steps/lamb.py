"""The step of LAMB."""

import torch

from training.optimizers.steps.optimizer_shard import Closure, Groups, moments, over_workers, pieces_of, with_gradient


class ScaledAdamW(torch.optim.Optimizer):
    """LAMB (arXiv:1904.00962) as in the reference ALBERT (google-research/albert, lamb_optimizer.py).

    weight -= rate * |weight| / |update| * update, where update = mean / (sqrt(square) + eps) + weight_decay * weight.
    The ratio |weight| / |update| is 1 if one of them is 0, and for the parameters of norms and biases. Each group has
    one parameter (`is_one_by_one`), and each of its tensors has a separate ratio.
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        for group, weight, gradient in with_gradient(self.param_groups):
            mean, root = moments(self.state[weight], gradient, group)
            update = (mean / root).add_(weight, alpha=group["weight_decay"])
            for piece in pieces_of(weight, group):
                if len(piece.shape) > 1:
                    update_P = piece.of(update)
                    squares = torch.stack([piece.of(weight).square().sum(), update_P.square().sum()])
                    weight_norm, update_norm = over_workers(squares, piece).sqrt()
                    update_P *= torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
            weight.add_(update, alpha=-group["lr"])
