"""The step of Adafactor."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from training.optim.steps.pieces import Closure, Groups, over_workers, start_of, with_gradient

FACTORED_FROM = 128  # Adafactor of T5 (mesh_tensorflow/optimize.py): both sides of a matrix whose moments are factored,
DECAY_POWER = 0.8  # 1 - step^-0.8 of the squares are kept,
LONGEST_UPDATE = 1.0  # root mean square of an update, above which it is shortened,
LEAST_SQUARE, LEAST_SIZE = 1e-30, 1e-3  # added to squared gradients; of the root mean square of weights


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
        for group, weight, gradient in with_gradient(self.param_groups):
            shape, state = group["shape"], self.state[weight]
            count, start = math.prod(shape), start_of(weight, shape)
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
            size, length = (over_workers(squares, weight, shape) / count).sqrt()
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
    row_R, column_C = over_workers(sums, weight, shape).split([num_rows, num_columns])
    row_R = state.setdefault("row", torch.zeros_like(row_R)).lerp_(row_R / num_columns, new)
    column_C = state.setdefault("column", torch.zeros_like(column_C)).lerp_(column_C / num_rows, new)
    factor_QC = (row_R / row_R.mean()).rsqrt()[within, None] * column_C.rsqrt()
    return gradient_P * factor_QC.flatten()[indent : indent + len(gradient_P)]
