"""Functions that all optimizers share: parameters with a gradient, running means, and sums over the shards of a tensor.

Under ZeRO, the optimizer of each worker gets one flat shard of each parameter group. If a step depends on whole
tensors, as in LAMB and Adafactor, each parameter forms a separate group, and the workers sum over their shards. A
parameter contains one tensor, or several concatenated tensors: the fused tensors of a module
(training/architectures/fused.py), or all tensors of a group, if an engine concatenates them. Of each tensor, a worker
has all elements, some contiguous elements, or none. Under tensor parallelism, ZeRO divides a slice of each tensor, and
the sums are also added up over the slices.

On a GPU, the time of many small operations is that of their launches. Work on single elements is therefore done on the
whole parameter, and work on tensors on batches of tensors with equal shapes (`ShardLayout`): the number of operations
depends on the number of different shapes, not on the number of tensors.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import torch
from torch import Tensor, distributed

from preprocessing.errors import BadInput
from training.optimizers.steps.loss_scale import LossScale

LARGEST_BATCH: Final = 1 << 26
"""Maximum number of elements of a batch of several tensors: 256 MiB in float32, of which a step has a few copies.

A GPU is busy with far fewer elements, and the temporary memory of a large model stays small."""
LARGEST_BATCH_ON_CPU: Final = 1 << 20
"""The same on a CPU, where operations need no launch, and are fast if their temporary tensors stay in the caches.

With 2^26, a step of LAMB or Adafactor took 2.5 times as long for BERT base."""

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


def with_gradient(groups: Groups, scale: LossScale) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Iterate over the parameters with a gradient: group, parameter, and gradient divided by the loss scale."""
    for group in groups:
        for weight in group["params"]:
            if weight.grad is not None:
                scale.unscale(weight.grad)
                yield group, weight, weight.grad


def create_moments(state: dict[str, Any], gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The running means of the gradient and of its square, which are zeros at first."""
    for name in ("mean", "square"):
        if name not in state:
            state[name] = torch.zeros_like(gradient)
    return state["mean"], state["square"]


def update_moments(
    state: dict[str, Any], gradient: Tensor, betas: tuple[float, float], scale: LossScale
) -> tuple[Tensor, Tensor]:
    """Update the running means with a gradient; return the mean, and the root of the mean square in a new tensor."""
    beta1, beta2 = betas
    mean, square = create_moments(state, gradient)
    mean.lerp_(gradient, scale.choose(1 - beta1, 0.0, mean))
    square.mul_(scale.choose(beta2, 1.0, square)).addcmul_(gradient, gradient, value=1 - beta2)
    return mean, square.sqrt()


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


@dataclass(frozen=True)
class ShardLayout:
    """A worker's shards of the tensors in a parameter, in their order, and batches of shards that are alike."""

    pieces: tuple[OptimizerShard, ...]
    batches: tuple[tuple[int, ...], ...]  # numbers of the tensors in each batch

    def split(self, held: Tensor) -> list[Tensor]:
        """Views [P] of the shards in the worker's elements of the parameter, or in a tensor with the same shape.

        One operation creates the views of any number of tensors.
        """
        lengths = [piece.at.stop - piece.at.start for piece in self.pieces]
        rest = held.numel() - sum(lengths)  # padding of DeepSpeed
        return list(held.view(-1).split([*lengths, rest]))[: len(lengths)]


class LayoutCache:
    """The layouts of the parameters of an optimizer. Each step needs all of them, and they do not change."""

    def __init__(self) -> None:
        self._layouts: dict[Tensor, ShardLayout] = {}

    def find(self, weight: Tensor, group: Mapping[str, Any]) -> ShardLayout:
        """The layout of a parameter (`layout_of`)."""
        if weight not in self._layouts:
            self._layouts[weight] = layout_of(weight, group)
        return self._layouts[weight]


def layout_of(weight: Tensor, group: Mapping[str, Any]) -> ShardLayout:
    """This worker's shards of the tensors in a parameter. `weight` contains its elements of the parameter.

    All workers have the same number of elements, because DeepSpeed pads the last ones.
    """
    shapes, workers = shapes_in(group), group.get("workers")
    slices = group.get("slices") or [None] * len(shapes)
    held, counts = weight.numel(), [math.prod(shape) for shape in shapes]
    is_all = held == sum(counts)
    before = 0 if is_all else distributed.get_rank(workers) * held
    begin, pieces = 0, []
    for shape, count, its_slices in zip(shapes, counts, slices, strict=True):
        first = begin - before  # index of the tensor's first element, relative to this worker's first element
        start, stop = _within(first, held, count)
        at = slice(first + start, first + stop)
        pieces.append(OptimizerShard(shape, begin, held, start, at, is_all, its_slices, workers))
        begin += count
    return ShardLayout(tuple(pieces), tuple(map(tuple, batches_of(pieces, find_largest_batch(weight)))))


def find_largest_batch(like: Tensor) -> int:
    """Maximum number of elements of a batch of tensors on the device of `like`."""
    return LARGEST_BATCH_ON_CPU if like.device.type == "cpu" else LARGEST_BATCH


def batches_of(pieces: Sequence[OptimizerShard], largest: int, keys: Sequence[object] = ()) -> list[list[int]]:
    """Divide tensors into batches of equal shapes, and of equal `keys` if given; return their numbers in `pieces`.

    A batch has at most `largest` elements, or one tensor. If ZeRO divides a parameter, each of its tensors forms
    a batch, because the batches of all workers must be equal: `over_workers` adds up their sums.
    """
    alike: dict[object, list[list[int]]] = {}
    for number, piece in enumerate(pieces):
        kind = piece.shape, piece.whole, piece.slices and piece.slices.axis, keys[number] if keys else None
        batches = alike.setdefault(kind if piece.is_all else number, [[]])
        if batches[-1] and (len(batches[-1]) + 1) * math.prod(piece.whole) > largest:
            batches.append([])
        batches[-1].append(number)
    return [batch for batches in alike.values() for batch in batches]


def stack(shards: Sequence[Tensor]) -> Tensor:
    """Stack N shards [P] to [N, P]. A single shard is not copied, so the result must not be changed."""
    return torch.stack(tuple(shards)) if len(shards) > 1 else shards[0][None]


def _within(first: int, held: int, count: int) -> tuple[int, int]:
    """Range of the elements of a tensor with `count` elements that a worker with `held` elements has.

    `first` is the index of the tensor's first element, relative to the worker's first element.
    """
    start, stop = (min(max(0, end - first), count) for end in (0, held))
    return start, stop


def over_workers(sums: Sequence[Tensor], pieces: Sequence[OptimizerShard]) -> list[Tensor]:
    """Add the workers' sums over their shards, which gives sums over whole tensors.

    `sums` has one tensor of any shape for each of `pieces`, or for each batch with this piece. All tensors are sent
    together: a step needs one call for each process group.
    """
    totals, groups = list(sums), dict[int, list[int]]()
    for number, piece in enumerate(pieces):
        if not piece.is_all:
            groups.setdefault(id(piece.workers), []).append(number)
    for numbers in groups.values():
        workers = pieces[numbers[0]].workers
        _add_together(totals, numbers, partial(distributed.all_reduce, group=workers))
    # all slices of a model are those of the same workers
    cut = [(number, piece.slices) for number, piece in enumerate(pieces) if piece.slices is not None]
    if cut:
        _add_together(totals, [number for number, _ in cut], cut[0][1].add)
    return totals


def _add_together(totals: list[Tensor], numbers: Sequence[int], add: Callable[[Tensor], object]) -> None:
    """Replace the totals with these numbers by sums over workers; `add` adds one tensor, in place."""
    mine = torch.cat([totals[number].flatten() for number in numbers])
    sent = _on_communication_device(mine)
    add(sent)
    parts = sent.to(mine.device).split([totals[number].numel() for number in numbers])
    for number, part in zip(numbers, parts, strict=True):
        totals[number] = part.view(totals[number].shape)


def _on_communication_device(tensor: Tensor) -> Tensor:
    """Move a tensor to a GPU if the backend is NCCL, which cannot send the CPU tensors of an offloaded optimizer."""
    return tensor.cuda() if distributed.get_backend() == "nccl" else tensor


def of_whole_tensors(
    pieces: Sequence[OptimizerShard],
    shards: Sequence[Tensor],
    rule: Callable[[Tensor], Tensor],
    keys: Sequence[object] = (),
) -> Iterator[tuple[list[int], list[Tensor]]]:
    """Apply `rule` to whole tensors, given this worker's `shards` [P] of them.

    Iterate over batches: the numbers of the tensors, which have the same of `keys`, and the shards [P] of the results.
    `rule` maps [N, ...] to results of N tensors with the same shape. A worker that has all elements of all tensors
    applies it to batches. Otherwise, in each round, every worker receives one whole tensor, applies the rule and sends
    the shards of the result back: each shard is sent twice, and no work is repeated. Workers with slices of a tensor
    gather it first, and each of them applies the rule to the whole tensor.
    """
    if not pieces:
        return
    if all(piece.is_all for piece in pieces):
        for batch in batches_of(pieces, find_largest_batch(shards[0]), keys):
            yield batch, _apply_to_whole([shards[number] for number in batch], [pieces[n] for n in batch], rule)
        return
    workers = pieces[0].workers
    rank, world = distributed.get_rank(workers), distributed.get_world_size(workers)
    for first in range(0, len(pieces), world):
        turn = range(first, min(first + world, len(pieces)))
        lengths = [len(shards[number]) for number in turn] + [0] * (world - len(turn))
        assigned = pieces[turn[rank]] if rank < len(turn) else None
        parts = [assigned.length_on(other) for other in range(world)] if assigned else [0] * world
        mine = torch.cat([shards[number] for number in turn])
        sent = _on_communication_device(mine)
        whole = sent.new_empty(sum(parts))
        distributed.all_to_all_single(whole, sent, parts, lengths, group=workers)
        result = _apply_to_whole([whole], [assigned], rule)[0] if assigned else whole
        distributed.all_to_all_single(sent, result.contiguous(), lengths, parts, group=workers)
        for number, result in zip(turn, sent.to(mine.device).split(lengths[: len(turn)]), strict=True):
            yield [number], [result]


def _apply_to_whole(
    flats: Sequence[Tensor], pieces: Sequence[OptimizerShard], rule: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Apply `rule` to whole tensors of equal shape, given all elements of them or of slices, in flat tensors.

    Returns the same elements of the results, in flat tensors.
    """
    tensors = stack(flats).view(-1, *pieces[0].shape)
    if pieces[0].slices is None:
        return list(rule(tensors).flatten(1).unbind())
    on_device = _on_communication_device(tensors)
    slices = [piece.slices for piece in pieces if piece.slices is not None]
    wholes = [each.join(mine) for each, mine in zip(slices, on_device, strict=True)]
    results = rule(torch.stack(wholes))
    return [each.of(result).flatten().to(tensors.device) for each, result in zip(slices, results, strict=True)]
