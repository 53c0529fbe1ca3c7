"""The step of Adafactor."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from training.optimizers.sharded_state import ShardedState
from training.optimizers.steps.optimizer_shard import (
    Closure,
    Groups,
    OptimizerShard,
    over_workers,
    pieces_of,
    with_gradient,
)

# Constants of T5 (mesh_tensorflow/optimize.py)
DECAY_POWER = 0.8  # the decay rate of the mean squares is 1 - step^-0.8
LONGEST_UPDATE = 1.0  # root mean square to which a larger update is scaled down
LEAST_SQUARE = 1e-30  # added to squared gradients
LEAST_SIZE = 1e-3  # minimum of the root mean square of weights


class FactoredUpdates(torch.optim.Optimizer):
    """Adafactor (arXiv:1804.04235) as in T5: no mean of the gradients, and factored mean squares of the gradients.

    weight -= rate * max(1e-3, rms(weight)) * update / max(1, rms(update)), where update = gradient / sqrt(square).
    Without `relative`, the factor with rms(weight) is omitted (rowanz/grover, optimization_adafactor.py). The state of
    a large matrix contains only the mean squares of its rows and columns. Every worker has all of them, but only its
    shard of the matrix. Each group has one parameter (`is_one_by_one`), whose tensors are numbered in its state.
    """

    def __init__(self, groups: Groups, lr: float, relative: bool, square_decay: float, factored_from: int) -> None:
        """`factored_from` is the minimum size of both sides of a large matrix."""
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.relative, self.square_decay, self.factored_from = relative, square_decay, factored_from

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        for group, weight, gradient in with_gradient(self.param_groups):
            state = self.state[weight]
            state["step"] = state.get("step", 0) + 1
            new = 1 - self.square_decay if self.square_decay else state["step"] ** -DECAY_POWER
            for number, piece in enumerate(pieces_of(weight, group)):
                squares_of, weight_P, gradient_P = state.setdefault(number, {}), piece.of(weight), piece.of(gradient)
                update_P = self._update(squares_of, gradient_P, piece, new)
                squares = torch.stack([weight_P.square().sum(), update_P.square().sum()])
                size, length = (over_workers(squares, piece) / math.prod(piece.whole)).sqrt()
                rate = group["lr"] / (length / LONGEST_UPDATE).clamp(min=1.0)
                if self.relative:
                    rate *= size.clamp(min=LEAST_SIZE)
                weight_P -= rate * update_P + group["lr"] * group["weight_decay"] * weight_P

    def stretches(self, weight: Tensor, group: Mapping[str, Any]) -> Iterator[ShardedState]:
        """Iterate over the state: mean squares of elements, and of the rows and columns of whole tensors."""
        states, before = self.state[weight], 0
        for number, piece in enumerate(pieces_of(weight, group)):
            for state, values in states[number].items():
                if state == "square":
                    yield ShardedState(state, values, before + piece.start)
                else:
                    yield ShardedState(f"{state}.{number}", values, None, is_own=piece.has_first)
            before += math.prod(piece.shape)

    def numbers(self, weight: Tensor) -> dict[str, float]:
        return {"step": self.state[weight]["step"]}

    def begin(self, weight: Tensor, group: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        states = self.state[weight] = {"step": int(numbers["step"])}
        for number, piece in enumerate(pieces_of(weight, group)):
            sizes = dict(zip(("row", "column"), piece.whole, strict=True)) if self._is_factored(piece) else {}
            sizes = sizes or {"square": len(piece.of(weight))}
            states[number] = {name: weight.new_zeros(size, requires_grad=False) for name, size in sizes.items()}

    def _update(self, state: dict[str, Tensor], gradient_P: Tensor, piece: OptimizerShard, new: float) -> Tensor:
        """Update the mean squares of a shard, with the weight `new` for this step; return gradient / sqrt(square)."""
        if self._is_factored(piece):
            return _update_factored(state, gradient_P, piece, new)
        square_P = state.setdefault("square", torch.zeros_like(gradient_P))
        square_P.lerp_(gradient_P.square() + LEAST_SQUARE, new)
        return gradient_P * square_P.rsqrt()

    def _is_factored(self, piece: OptimizerShard) -> bool:
        """Whether the state contains only mean squares of the rows and columns of the tensor."""
        return len(piece.whole) == 2 and min(piece.whole) >= self.factored_from


def _update_factored(state: dict[str, Tensor], gradient_P: Tensor, piece: OptimizerShard, new: float) -> Tensor:
    """`_update` of a shard of a matrix [R, C], whose mean square is row x column / mean(row)."""
    num_rows, num_columns = piece.whole
    width = piece.shape[1]  # number of columns of the matrix, or of the worker's slice
    first, indent = divmod(piece.start, width)
    padding = (indent, -(indent + len(gradient_P)) % width)  # extends the shard to Q whole rows
    square_QC = F.pad(gradient_P.square() + LEAST_SQUARE, padding).view(-1, width)
    first += piece.before(0)
    within = slice(first, first + len(square_QC))
    columns = slice(piece.before(1), piece.before(1) + width)
    sums = gradient_P.new_zeros(num_rows + num_columns)
    sums[:num_rows][within] = square_QC.sum(1)
    sums[num_rows:][columns] = square_QC.sum(0)
    row_R, column_C = over_workers(sums, piece).split([num_rows, num_columns])
    row_R = state.setdefault("row", torch.zeros_like(row_R)).lerp_(row_R / num_columns, new)
    column_C = state.setdefault("column", torch.zeros_like(column_C)).lerp_(column_C / num_rows, new)
    factor_QC = (row_R / row_R.mean()).rsqrt()[within, None] * column_C[columns].rsqrt()
    return gradient_P * factor_QC.flatten()[indent : indent + len(gradient_P)]
