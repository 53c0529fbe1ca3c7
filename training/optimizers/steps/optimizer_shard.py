"""Functions that all optimizers share: parameters with a gradient, running means, and sums over the shards of a tensor.

Under ZeRO, the optimizer of each worker gets one flat shard of each parameter group. If a step depends on whole
tensors, as in LAMB and Adafactor, each parameter forms a separate group, and the workers sum over their shards. A
parameter contains one tensor, or several concatenated tensors (training/architectures/fused.py). Of each tensor, a
worker has all elements, some contiguous elements, or none. Under tensor parallelism, ZeRO divides a slice of each
tensor, and the sums are also added up over the slices.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, distributed

from preprocessing.errors import BadInput

Groups = list[dict[str, Any]]
Shape = tuple[int, ...]
Closure = Callable[[], float] | None  # part of torch's signature; always None


class TensorSlices(Protocol):
    """The slices of a tensor under tensor parallelism (training/architectures/parameter_slices.py)."""

    @property
    def shape(self) -> Shape:
        """The shape of the whole tensor."""

    @property
    def axis(self) -> int:
        """The axis along which the tensor is sliced."""

    @property
    def start(self) -> int:
        """The start of this worker's slice along the axis."""

    def add(self, sums: Tensor) -> Tensor:
        """Add the workers' sums over their slices, in place; all workers call it."""

    def join(self, mine: Tensor) -> Tensor:
        """Gather the whole tensor from the slices of all workers; all workers call it."""

    def of(self, whole: Tensor) -> Tensor:
        """This worker's slice of the whole tensor."""


def split_groups(groups: Iterable[dict[str, Any]]) -> Groups:
    """Split parameter groups into groups with one parameter, which contain the shapes of its tensors.

    The shapes are necessary because ZeRO replaces a parameter with a flat shard. `is_hidden` is the parameter's item of
    `hidden`; without `hidden`, it is True for matrices. `slices` are the slices of its tensors, if any.
    """
    single = []
    for group in groups:
        shapes = group.get("shapes") or [[tuple(weight.shape)] for weight in group["params"]]
        hidden = group.get("hidden") or [weight.ndim == 2 for weight in group["params"]]
        slices = group.get("slices") or [()] * len(shapes)
        common = {key: value for key, value in group.items() if key != "hidden"}
        single += [
            common | {"params": [weight], "shapes": its_shapes, "is_hidden": is_hidden, "slices": its_slices}
            for weight, its_shapes, is_hidden, its_slices in zip(group["params"], shapes, hidden, slices, strict=True)
        ]
    return single


def with_gradient(groups: Groups) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Iterate over the parameters with a gradient: group, parameter and gradient."""
    for group in groups:
        for weight in group["params"]:
            if weight.grad is not None:
                yield group, weight, weight.grad


def moments(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Update the running means with a gradient; return the mean, and the root of the mean square plus eps."""
    beta1, beta2 = group["betas"]
    if "mean" not in state:
        state["mean"] = torch.zeros_like(gradient)
        state["square"] = torch.zeros_like(gradient)
    state["mean"].lerp_(gradient, 1 - beta1)
    state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return state["mean"], state["square"].sqrt().add_(group["eps"])


@dataclass(frozen=True)
class OptimizerShard:
    """A worker's shard of a tensor, or of its slice of a tensor: P contiguous elements; under ZeRO possibly none."""

    shape: Shape  # shape of the tensor or slice
    begin: int  # number of elements of the parameter before the tensor
    held: int  # number of elements of the parameter on each worker
    start: int  # number of elements of the tensor before the shard
    at: slice  # range of the shard in the worker's elements of the parameter
    is_all: bool  # True: the shard contains the complete tensor or slice
    slices: TensorSlices | None = None  # the slices of the tensor under tensor parallelism, if it is sliced
    workers: Any = None  # group of torch.distributed over which ZeRO divides the parameter; None: all workers

    @property
    def whole(self) -> Shape:
        """The shape of the whole tensor."""
        return self.slices.shape if self.slices else self.shape

    def before(self, axis: int) -> int:
        """Number of rows (axis 0) or columns (axis 1) of the whole tensor before the slice."""
        return self.slices.start if self.slices and self.slices.axis == axis else 0

    @property
    def has_first(self) -> bool:
        """Whether the shard contains the first element of the whole tensor; True on one worker."""
        return self.start == 0 and self.at.stop > self.at.start and not (self.slices and self.slices.start)

    def of(self, held: Tensor) -> Tensor:
        """The shard [P] as a view of the worker's elements of the parameter, or of a tensor with the same shape."""
        return held.view(-1)[self.at]

    def length_on(self, rank: int) -> int:
        """Number of elements of the tensor on the worker with this rank."""
        start, stop = _within(self.begin - rank * self.held, self.held, math.prod(self.shape))
        return stop - start


def shapes_in(group: Mapping[str, Any]) -> Sequence[Shape]:
    """The shapes of the tensors in a group with one parameter.

    Raises BadInput if they are missing because a checkpoint of an early version of Sesame was loaded.
    """
    if "shapes" not in group:
        raise BadInput(
            "invalid checkpoint: it is from an earlier version of Sesame, which treated queries, keys and values as "
            "one tensor; start the run again with --resume never"
        )
    return group["shapes"]


def pieces_of(weight: Tensor, group: Mapping[str, Any]) -> Iterator[OptimizerShard]:
    """Iterate over this worker's shards of the tensors in a parameter. `weight` contains its elements of the parameter.

    All workers have the same number of elements, because DeepSpeed pads the last ones.
    """
    shapes, workers = shapes_in(group), group.get("workers")
    slices = group.get("slices") or [None] * len(shapes)
    held, counts = weight.numel(), [math.prod(shape) for shape in shapes]
    is_all = held == sum(counts)
    before = 0 if is_all else distributed.get_rank(workers) * held
    begin = 0
    for shape, count, its_slices in zip(shapes, counts, slices, strict=True):
        first = begin - before  # index of the tensor's first element, relative to this worker's first element
        start, stop = _within(first, held, count)
        yield OptimizerShard(shape, begin, held, start, slice(first + start, first + stop), is_all, its_slices, workers)
        begin += count


def _within(first: int, held: int, count: int) -> tuple[int, int]:
    """Range of the elements of a tensor with `count` elements that a worker with `held` elements has.

    `first` is the index of the tensor's first element, relative to the worker's first element.
    """
    start, stop = (min(max(0, end - first), count) for end in (0, held))
    return start, stop


def over_workers(sums: Tensor, piece: OptimizerShard) -> Tensor:
    """Add the workers' sums over their shards, which gives sums over the whole tensor."""
    if piece.is_all and piece.slices is None:
        return sums
    total = _on_communication_device(sums)
    if not piece.is_all:
        distributed.all_reduce(total, group=piece.workers)
    if piece.slices is not None:
        piece.slices.add(total)
    return total.to(sums.device)


def _on_communication_device(tensor: Tensor) -> Tensor:
    """Move a tensor to a GPU if the backend is NCCL, which cannot send the CPU tensors of an offloaded optimizer."""
    return tensor.cuda() if distributed.get_backend() == "nccl" else tensor


def of_whole_tensors(
    pieces: Sequence[tuple[OptimizerShard, Tensor]], rule: Callable[[Tensor], Tensor]
) -> Iterator[Tensor]:
    """Apply `rule` to whole tensors, given this worker's shards; iterate over the shards of the results.

    `rule` preserves the shape. In each round, every worker receives one whole tensor, applies the rule and sends the
    shards of the result back: each shard is sent twice, and no work is repeated. Workers with slices of a tensor gather
    it first, and each of them applies the rule to the whole tensor.
    """
    if all(piece.is_all for piece, _ in pieces):
        yield from (_apply_to_whole(shard_P, piece, rule) for piece, shard_P in pieces)
        return
    workers = pieces[0][0].workers
    rank, world = distributed.get_rank(workers), distributed.get_world_size(workers)
    for first in range(0, len(pieces), world):
        turn = pieces[first : first + world]
        lengths = [len(shard_P) for _, shard_P in turn] + [0] * (world - len(turn))
        assigned = turn[rank][0] if rank < len(turn) else None
        parts = [assigned.length_on(other) for other in range(world)] if assigned else [0] * world
        shards = torch.cat([shard_P for _, shard_P in turn])
        sent = _on_communication_device(shards)
        whole = sent.new_empty(sum(parts))
        distributed.all_to_all_single(whole, sent, parts, lengths, group=workers)
        result = _apply_to_whole(whole, assigned, rule) if assigned else whole
        distributed.all_to_all_single(sent, result.contiguous(), lengths, parts, group=workers)
        yield from sent.to(shards.device).split(lengths[: len(turn)])


def _apply_to_whole(flat: Tensor, piece: OptimizerShard, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `rule` to a whole tensor, given all elements of it or of a slice; return the same elements of the result.

    All elements are in flat tensors.
    """
    tensor = flat.view(piece.shape)
    if piece.slices is None:
        return rule(tensor).flatten()
    result = piece.slices.of(rule(piece.slices.join(_on_communication_device(tensor))))
    return result.flatten().to(flat.device)
