"""What the optimisers share: parameters with a gradient, running means, and sums over the pieces of a tensor.

Under ZeRO an optimiser is given one flat piece of each group of parameters per worker. Where a step depends on whole
tensors, as in LAMB and Adafactor, each parameter is a group of its own, and the workers add up the sums over their
pieces. A parameter is one tensor, or several one below the other (training/architectures/fused.py): of each of these a
worker has all, some elements that lie together, or none. Under tensor parallelism what ZeRO divides is a slice of each
tensor, and the sums over slices are added up too.
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
Closure = Callable[[], float] | None  # torch's signature; none is ever given


class TensorSlices(Protocol):
    """How tensor parallelism cuts a tensor, of which each of several workers has a slice
    (training/architectures/parameter_slices.py).
    """

    @property
    def shape(self) -> Shape:
        """Of the whole tensor."""

    @property
    def axis(self) -> int:
        """Along which it is cut."""

    @property
    def start(self) -> int:
        """Where this worker's slice begins along the axis."""

    def add(self, sums: Tensor) -> Tensor:
        """Sums over the slices of all workers, in place."""

    def joined(self, mine: Tensor) -> Tensor:
        """The whole tensor from this worker's slice; all of them call it."""

    def of(self, whole: Tensor) -> Tensor:
        """This worker's slice of the whole tensor."""


def split_groups(groups: Iterable[dict[str, Any]]) -> Groups:
    """A group for each parameter, with the shapes of its tensors: under ZeRO the parameter becomes a flat piece.

    `is_hidden` says of it what `hidden` says of each; where that is not given, whether it is a matrix. `slices` is how
    each of its tensors is cut, where it is.
    """
    made = []
    for group in groups:
        shapes = group.get("shapes") or [[tuple(weight.shape)] for weight in group["params"]]
        hidden = group.get("hidden") or [weight.ndim == 2 for weight in group["params"]]
        slices = group.get("slices") or [()] * len(shapes)
        common = {key: value for key, value in group.items() if key != "hidden"}
        made += [
            common | {"params": [weight], "shapes": its_shapes, "is_hidden": is_hidden, "slices": its_slices}
            for weight, its_shapes, is_hidden, its_slices in zip(group["params"], shapes, hidden, slices, strict=True)
        ]
    return made


def with_gradient(groups: Groups) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Each parameter that has a gradient, with its group and that gradient."""
    for group in groups:
        for weight in group["params"]:
            if weight.grad is not None:
                yield group, weight, weight.grad


def moments(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Running mean of the gradients, and root of that of their squares plus eps, after one more gradient."""
    beta1, beta2 = group["betas"]
    if "mean" not in state:
        state["mean"] = torch.zeros_like(gradient)
        state["square"] = torch.zeros_like(gradient)
    state["mean"].lerp_(gradient, 1 - beta1)
    state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return state["mean"], state["square"].sqrt().add_(group["eps"])


@dataclass(frozen=True)
class OptimizerShard:
    """What a worker has of a tensor, or of a slice of it: P elements, which lie together; under ZeRO it may be none."""

    shape: Shape  # of the tensor, or of the slice
    begin: int  # elements of the parameter before the tensor
    held: int  # elements of the parameter that each worker has
    start: int  # elements of the tensor before the piece
    at: slice  # where it lies in what the worker has of the parameter
    is_all: bool  # True: it is all of the shape
    slices: TensorSlices | None = None  # how the tensor is cut, where it is
    workers: Any = None  # group of torch.distributed: those over which ZeRO divides the parameter; None: all

    @property
    def whole(self) -> Shape:
        """The shape of the whole tensor."""
        return self.slices.shape if self.slices else self.shape

    def before(self, axis: int) -> int:
        """Rows or columns of the whole tensor before those of the slice."""
        return self.slices.start if self.slices and self.slices.axis == axis else 0

    @property
    def has_first(self) -> bool:
        """Whether it has the first element of the whole tensor, which one worker has."""
        return self.start == 0 and self.at.stop > self.at.start and not (self.slices and self.slices.start)

    def of(self, held: Tensor) -> Tensor:
        """[P] of what the worker has of the parameter, or of something of the same shape; in the same memory."""
        return held.view(-1)[self.at]

    def length_on(self, rank: int) -> int:
        """How many elements of the tensor a worker has."""
        start, stop = _within(self.begin - rank * self.held, self.held, math.prod(self.shape))
        return stop - start


def shapes_in(group: Mapping[str, Any]) -> Sequence[Shape]:
    """The shapes of the tensors of a group of one parameter; BadInput where an old checkpoint has taken them away."""
    if "shapes" not in group:
        raise BadInput(
            "this checkpoint is of an earlier version of Sesame, which took queries, keys and values for one tensor; "
            "start again with --resume never"
        )
    return group["shapes"]


def pieces_of(weight: Tensor, group: Mapping[str, Any]) -> Iterator[OptimizerShard]:
    """What this worker has of each tensor of the parameter of a group; `weight` is what it has of the parameter.

    The workers' pieces of a parameter are of one length: DeepSpeed fills the last ones up.
    """
    shapes, workers = shapes_in(group), group.get("workers")
    slices = group.get("slices") or [None] * len(shapes)
    held, counts = weight.numel(), [math.prod(shape) for shape in shapes]
    is_all = held == sum(counts)
    before = 0 if is_all else distributed.get_rank(workers) * held
    begin = 0
    for shape, count, its_slices in zip(shapes, counts, slices, strict=True):
        first = begin - before  # of the tensor, counted from the start of what is held
        start, stop = _within(first, held, count)
        yield OptimizerShard(shape, begin, held, start, slice(first + start, first + stop), is_all, its_slices, workers)
        begin += count


def _within(first: int, held: int, count: int) -> tuple[int, int]:
    """Which elements of a tensor of `count` are held, where its first one would be element `first` of those held."""
    start, stop = (min(max(0, end - first), count) for end in (0, held))
    return start, stop


def over_workers(sums: Tensor, piece: OptimizerShard) -> Tensor:
    """Sums over a whole tensor, from those over this worker's piece of it."""
    if piece.is_all and piece.slices is None:
        return sums
    on_group = _in_reach(sums)
    if not piece.is_all:
        distributed.all_reduce(on_group, group=piece.workers)
    if piece.slices is not None:
        piece.slices.add(on_group)
    return on_group.to(sums.device)


def _in_reach(tensor: Tensor) -> Tensor:
    """The tensor where workers can exchange it: NCCL reaches GPUs alone, and an offloaded optimiser is on the CPU."""
    return tensor.cuda() if distributed.get_backend() == "nccl" else tensor


def of_whole_tensors(
    pieces: Sequence[tuple[OptimizerShard, Tensor]], rule: Callable[[Tensor], Tensor]
) -> Iterator[Tensor]:
    """This worker's pieces of `rule` of whole tensors, from its pieces of the tensors; rule keeps the shape.

    Of as many tensors as there are workers each worker is sent one, and sends back the pieces of what it makes of it:
    all pieces of a worker travel twice, and no two workers do the same; but those that have slices of a tensor gather
    it, and each makes the whole.
    """
    if all(piece.is_all for piece, _ in pieces):
        yield from (_of_whole(held_P, piece, rule) for piece, held_P in pieces)
        return
    workers = pieces[0][0].workers
    rank, world = distributed.get_rank(workers), distributed.get_world_size(workers)
    for first in range(0, len(pieces), world):
        turn = pieces[first : first + world]
        lengths = [len(held_P) for _, held_P in turn] + [0] * (world - len(turn))
        mine = turn[rank][0] if rank < len(turn) else None
        parts = [mine.length_on(other) for other in range(world)] if mine else [0] * world
        held = torch.cat([held_P for _, held_P in turn])
        sent = _in_reach(held)
        whole = sent.new_empty(sum(parts))
        distributed.all_to_all_single(whole, sent, parts, lengths, group=workers)
        made = _of_whole(whole, mine, rule) if mine else whole
        distributed.all_to_all_single(sent, made.contiguous(), lengths, parts, group=workers)
        yield from sent.to(held.device).split(lengths[: len(turn)])


def _of_whole(flat: Tensor, piece: OptimizerShard, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """`rule` of a whole tensor, from all elements of it or of a slice; of these, flat."""
    tensor = flat.view(piece.shape)
    if piece.slices is None:
        return rule(tensor).flatten()
    made = piece.slices.of(rule(piece.slices.joined(_in_reach(tensor))))
    return made.flatten().to(flat.device)
