"""Client optimisers: DeepSpeed gets them ready-made, so that each ZeRO stage and one plain process take the same step.

Under ZeRO an optimiser sees of each group of tensors one flat piece for each worker. Where a step depends on a whole
tensor, as in Lamb and Adafactor, each tensor is a group of its own, and the workers add up what they know of it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

Groups = list[dict[str, Any]]
Closure = Callable[[], float] | None  # torch's signature; none is ever given

FACTORED_FROM = 128  # Adafactor of T5 (mesh_tensorflow/optimize.py): both sides of a matrix whose moments are factored,
DECAY_POWER = 0.8  # 1 - step^-0.8 of the squares are kept,
LONGEST_UPDATE = 1.0  # root mean square of an update, above which it is shortened,
LEAST_SQUARE, LEAST_SIZE = 1e-30, 1e-3  # added to squared gradients; of the root mean square of weights


def one_by_one(groups: Iterable[dict[str, Any]]) -> Groups:
    """A group for each tensor, that knows its shape: under ZeRO the tensor itself is soon a flat piece."""
    return [
        group | {"params": [weight], "shape": tuple(weight.shape)} for group in groups for weight in group["params"]
    ]


class UncorrectedAdamW(torch.optim.Optimizer):
    """AdamW as the reference BERT has it: without bias correction (google-research/bert, optimization.py).

    weight -= rate * (mean / (sqrt(square) + eps) + weight_decay * weight)
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        for group, weight, gradient in _with_gradient(self.param_groups):
            mean, root = _moments(self.state[weight], gradient, group)
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.addcdiv_(mean, root, value=-group["lr"])


class ScaledAdamW(torch.optim.Optimizer):
    """LAMB (arXiv:1904.00962) as the reference ALBERT has it (google-research/albert, lamb_optimizer.py).

    weight -= rate * |weight| / |update| * update, where update = mean / (sqrt(square) + eps) + weight_decay * weight.
    The ratio is 1 where either norm is 0, and for norms and biases. A group holds one tensor (`one_by_one`).
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        for group, weight, gradient in _with_gradient(self.param_groups):
            mean, root = _moments(self.state[weight], gradient, group)
            update = (mean / root).add_(weight, alpha=group["weight_decay"])
            if len(group["shape"]) > 1:
                squares = torch.stack([weight.square().sum(), update.square().sum()])
                weight_norm, update_norm = _over_workers(squares, weight, group["shape"]).sqrt()
                update *= torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
            weight.add_(update, alpha=-group["lr"])


class FactoredUpdates(torch.optim.Optimizer):
    """Adafactor (arXiv:1804.04235) as T5 has it: no mean of gradients, the mean of their squares by rows and columns.

    weight -= rate * max(1e-3, rms(weight)) * update / max(1, rms(update)), where update = gradient / sqrt(square). The
    rms of the weight is left out where rates are not `relative` (rowanz/grover, optimization_adafactor.py). Of a large
    matrix only the mean squares of its rows and of its columns are kept; every worker has all of these, and of
    the matrix its piece. A group holds one tensor (`one_by_one`).
    """

    def __init__(self, groups: Groups, lr: float, relative: bool, square_decay: float) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.relative, self.square_decay = relative, square_decay

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        for group, weight, gradient in _with_gradient(self.param_groups):
            shape, state = group["shape"], self.state[weight]
            count, start = math.prod(shape), _start(weight, shape)
            mine = slice(0, max(0, count - start))  # DeepSpeed fills the last piece up
            weight_P, gradient_P = weight.view(-1)[mine], gradient.view(-1)[mine]
            state["step"] = state.get("step", 0) + 1
            new = 1 - self.square_decay if self.square_decay else state["step"] ** -DECAY_POWER
            if len(shape) == 2 and min(shape) >= FACTORED_FROM:
                update_P = _factored(state, gradient_P, min(start, count), weight, shape, new)
            else:
                square_P = state.setdefault("square", torch.zeros_like(gradient_P))
                square_P.lerp_(gradient_P.square() + LEAST_SQUARE, new)
                update_P = gradient_P * square_P.rsqrt()
            squares = torch.stack([weight_P.square().sum(), update_P.square().sum()])
            size, length = (_over_workers(squares, weight, shape) / count).sqrt()
            rate = group["lr"] / (length / LONGEST_UPDATE).clamp(min=1.0)
            if self.relative:
                rate *= size.clamp(min=LEAST_SIZE)
            weight_P -= rate * update_P + group["lr"] * group["weight_decay"] * weight_P


def _factored(
    state: dict[str, Any], gradient_P: Tensor, start: int, weight: Tensor, shape: tuple[int, ...], new: float
) -> Tensor:
    """Update of the P elements of a matrix [R, C] that begin at `start`: gradient / sqrt(row x column / mean(row))."""
    num_rows, num_columns = shape
    first, indent = divmod(start, num_columns)
    filling = (indent, -(indent + len(gradient_P)) % num_columns)  # makes whole rows of the piece
    square_QC = F.pad(gradient_P.square() + LEAST_SQUARE, filling).view(-1, num_columns)
    within = slice(first, first + len(square_QC))
    sums = gradient_P.new_zeros(num_rows + num_columns)
    sums[:num_rows][within] = square_QC.sum(1)
    sums[num_rows:] = square_QC.sum(0)
    row_R, column_C = _over_workers(sums, weight, shape).split([num_rows, num_columns])
    row_R = state.setdefault("row", torch.zeros_like(row_R)).lerp_(row_R / num_columns, new)
    column_C = state.setdefault("column", torch.zeros_like(column_C)).lerp_(column_C / num_rows, new)
    factor_QC = (row_R / row_R.mean()).rsqrt()[within, None] * column_C.rsqrt()
    return gradient_P * factor_QC.flatten()[indent : indent + len(gradient_P)]


def _with_gradient(groups: Groups) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Each tensor that has a gradient, with its group and that gradient."""
    for group in groups:
        for weight in group["params"]:
            if weight.grad is not None:
                yield group, weight, weight.grad


def _moments(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Running mean of the gradients, and root of that of their squares plus eps, after one more gradient."""
    beta1, beta2 = group["betas"]
    if not state:
        state["mean"] = torch.zeros_like(gradient)
        state["square"] = torch.zeros_like(gradient)
    state["mean"].lerp_(gradient, 1 - beta1)
    state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return state["mean"], state["square"].sqrt().add_(group["eps"])


def _over_workers(sums: Tensor, weight: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sums over the whole tensor of this shape, of which `weight` may be this worker's piece."""
    if tuple(weight.shape) != shape:
        distributed.all_reduce(sums)
    return sums


def _start(weight: Tensor, shape: tuple[int, ...]) -> int:
    """Where in the flat tensor of this shape this worker's piece begins; the pieces are of one length."""
    return 0 if tuple(weight.shape) == shape else distributed.get_rank() * weight.numel()
