"""The step of Adafactor."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from training.optimizers.sharded_state import ShardedState
from training.optimizers.steps.loss_scale import LossScale, read_loss_scale
from training.optimizers.steps.optimizer_shard import (
    Closure,
    Groups,
    LayoutCache,
    OptimizerShard,
    find_largest_batch,
    over_workers,
    stack,
    with_gradient,
)

# Constants of T5 (mesh_tensorflow/optimize.py)
DECAY_POWER = 0.8  # the decay rate of the mean squares is 1 - step^-0.8
LONGEST_UPDATE = 1.0  # root mean square to which a larger update is scaled down
LEAST_SQUARE = 1e-30  # added to squared gradients
LEAST_SIZE = 1e-3  # minimum of the root mean square of weights


@dataclass
class FactoredBatch:
    """Shards [P] of N tensors with equal shapes in one step, and their updates."""

    piece: OptimizerShard  # the first shard; the others differ only in their position
    state: dict[str, Tensor]  # "square" [N, P], or "row" [N, R] and "column" [N, C]
    weights: list[Tensor]  # N views [P]
    gradient_NP: Tensor
    new: float | Tensor  # weight of the gradient of this step in the mean squares
    group: dict[str, Any]
    update_NP: Tensor | None = None


class FactoredUpdates(torch.optim.Optimizer):
    """Adafactor (arXiv:1804.04235) as in T5: no mean of the gradients, and factored mean squares of the gradients.

    weight -= rate * max(1e-3, rms(weight)) * update / max(1, rms(update)), where update = gradient / sqrt(square).
    Without `relative`, the factor with rms(weight) is omitted (rowanz/grover, optimization_adafactor.py). The state of
    a large matrix contains only the mean squares of its rows and columns. Every worker has all of them, but only its
    shard of the matrix. Each group has one parameter (`is_one_by_one`). Tensors with equal shapes are updated together:
    the state of a parameter has "step", and by the number of each batch the mean squares of its N tensors.
    """

    _step_supports_amp_scaling = True  # of torch.amp.GradScaler: see loss_scale.py

    def __init__(self, groups: Groups, lr: float, relative: bool, square_decay: float, factored_from: int) -> None:
        """`factored_from` is the minimum size of both sides of a large matrix."""
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.relative, self.square_decay, self.factored_from = relative, square_decay, factored_from
        self.layouts = LayoutCache()

    @torch.no_grad()
    def step(self, closure: Closure = None) -> None:  # type: ignore[override]
        scale = read_loss_scale(self)
        waiting: list[FactoredBatch] = []
        num_waiting = 0
        for batch in self._batches(scale):
            # the sums of small batches are exchanged together, and the updates of a large model do not exist together
            count = len(batch.weights) * math.prod(batch.piece.whole)  # equal on all workers
            if num_waiting + count > find_largest_batch(batch.gradient_NP):
                self._finish(waiting, scale)
                waiting, num_waiting = [], 0
            waiting.append(batch)
            num_waiting += count
        self._finish(waiting, scale)

    def _batches(self, scale: LossScale) -> Iterator[FactoredBatch]:
        """Iterate over batches of shards of all parameters with a gradient."""
        for group, weight, gradient in with_gradient(self.param_groups, scale):
            state = self.state[weight]
            step = scale.count_step(state, weight)
            new = scale.choose(
                1 - self.square_decay if self.square_decay else step.double() ** -DECAY_POWER, 0.0, weight
            )
            layout = self.layouts.find(weight, group)
            weights, gradients = layout.split(weight), layout.split(gradient)
            for number, batch in enumerate(layout.batches):
                piece, gradient_NP = layout.pieces[batch[0]], stack([gradients[each] for each in batch])
                if number not in state:
                    state[number] = self._create_state(piece, len(batch), weight)
                yield FactoredBatch(piece, state[number], [weights[each] for each in batch], gradient_NP, new, group)

    def _finish(self, batches: Sequence[FactoredBatch], scale: LossScale) -> None:
        """Update states and weights of batches; sums over the workers are exchanged for all of them together."""
        factored = [batch for batch in batches if "row" in batch.state]
        sums = [_sum_rows_and_columns(batch.gradient_NP, batch.piece) for batch in factored]
        for batch, sums_NX in zip(factored, over_workers(sums, [batch.piece for batch in factored]), strict=True):
            batch.update_NP = _update_factored(batch, sums_NX)
        squares = []
        for batch in batches:
            if batch.update_NP is None:
                square_NP = batch.state["square"].lerp_(batch.gradient_NP.square() + LEAST_SQUARE, batch.new)
                batch.update_NP = batch.gradient_NP * square_NP.rsqrt()
            both = (stack(batch.weights), batch.update_NP)
            squares.append(torch.stack([values_NP.square().sum(1) for values_NP in both]))
        for batch, sums_2N in zip(batches, over_workers(squares, [batch.piece for batch in batches]), strict=True):
            self._apply(batch, sums_2N, scale)

    def _apply(self, batch: FactoredBatch, sums_2N: Tensor, scale: LossScale) -> None:
        """Subtract the updates from the weights, given the sums of squares of whole weights and updates."""
        assert batch.update_NP is not None
        size_N, length_N = (sums_2N / math.prod(batch.piece.whole)).sqrt()
        rate, decay = batch.group["lr"], batch.group["weight_decay"]
        rate_N = rate / (length_N / LONGEST_UPDATE).clamp(min=1.0)
        if self.relative:
            rate_N *= size_N.clamp(min=LEAST_SIZE)
        batch.update_NP *= rate_N[:, None]
        if decay:
            batch.update_NP += rate * decay * stack(batch.weights)
        torch._foreach_sub_(batch.weights, list(scale.clear(batch.update_NP).unbind()))
        batch.update_NP = None

    def _create_state(self, piece: OptimizerShard, count: int, weight: Tensor) -> dict[str, Tensor]:
        """The state of `count` tensors with equal shapes before the first step, in zeros."""
        sizes = dict(zip(("row", "column"), piece.whole, strict=True)) if self._is_factored(piece) else {}
        sizes = sizes or {"square": piece.at.stop - piece.at.start}
        return {name: weight.new_zeros((count, size), requires_grad=False) for name, size in sizes.items()}

    def _is_factored(self, piece: OptimizerShard) -> bool:
        """Whether the state contains only mean squares of the rows and columns of the tensor."""
        return len(piece.whole) == 2 and min(piece.whole) >= self.factored_from

    def stretches(self, weight: Tensor, group: Mapping[str, Any]) -> Iterator[ShardedState]:
        """Iterate over the state: mean squares of elements, and of the rows and columns of whole tensors."""
        layout = self.layouts.find(weight, group)
        for number, batch in enumerate(layout.batches):
            for state, values in self.state[weight][number].items():
                for tensor, values_of_tensor in zip(batch, values, strict=True):
                    piece = layout.pieces[tensor]
                    start, is_own = (piece.start, True) if state == "square" else (None, piece.has_first)
                    yield ShardedState(state, values_of_tensor, tensor, start, is_own)

    def numbers(self, weight: Tensor) -> dict[str, float]:
        return {"step": int(self.state[weight]["step"])}

    def begin(self, weight: Tensor, group: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        state = self.state[weight] = {"step": int(numbers["step"])}
        layout = self.layouts.find(weight, group)
        for number, batch in enumerate(layout.batches):
            state[number] = self._create_state(layout.pieces[batch[0]], len(batch), weight)


def _sum_rows_and_columns(gradient_NP: Tensor, piece: OptimizerShard) -> Tensor:
    """This worker's sums of squared gradients over the rows and columns of N matrices [R, C]: [N, R + C]."""
    num_rows, num_columns = piece.whole
    width, _, indent = _measure_rows(piece)
    padding = (indent, -(indent + gradient_NP.shape[1]) % width)  # extends the shard to Q whole rows
    square_NQC = F.pad(gradient_NP.square() + LEAST_SQUARE, padding).view(len(gradient_NP), -1, width)
    rows, columns = _ranges_of(piece)
    sums_NX = gradient_NP.new_zeros(len(gradient_NP), num_rows + num_columns)
    sums_NX[:, :num_rows][:, rows] = square_NQC.sum(2)
    sums_NX[:, num_rows:][:, columns] = square_NQC.sum(1)
    return sums_NX


def _update_factored(batch: FactoredBatch, sums_NX: Tensor) -> Tensor:
    """Update the mean squares of rows and columns; return the update [N, P], gradient / sqrt(square).

    The mean square of a matrix [R, C] is row x column / mean(row). `sums_NX` are the sums over whole matrices.
    """
    num_rows, num_columns = batch.piece.whole
    row_NR, column_NC = sums_NX.split([num_rows, num_columns], 1)
    row_NR = batch.state["row"].lerp_(row_NR / num_columns, batch.new)
    column_NC = batch.state["column"].lerp_(column_NC / num_rows, batch.new)
    rows, columns = _ranges_of(batch.piece)
    factor_NQ1 = (row_NR / row_NR.mean(1, keepdim=True)).rsqrt()[:, rows, None]
    factor_NQC = factor_NQ1 * column_NC[:, None, columns].rsqrt()
    _, _, indent = _measure_rows(batch.piece)
    return batch.gradient_NP * factor_NQC.flatten(1)[:, indent : indent + batch.gradient_NP.shape[1]]


def _measure_rows(piece: OptimizerShard) -> tuple[int, int, int]:
    """Length of the rows of the matrix or slice; the shard's first row, and the position of its start in this row."""
    width = piece.shape[1]
    return width, *divmod(piece.start, width)


def _ranges_of(piece: OptimizerShard) -> tuple[slice, slice]:
    """The rows and columns of the whole matrix of which the shard has elements."""
    width, first, indent = _measure_rows(piece)
    count = -(-(indent + piece.at.stop - piece.at.start) // width)
    first += piece.before(0)
    return slice(first, first + count), slice(piece.before(1), piece.before(1) + width)
