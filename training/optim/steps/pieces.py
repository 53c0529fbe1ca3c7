"""What the optimisers share: parameters with a gradient, running means, and sums over the pieces of a tensor.

Under ZeRO an optimiser is given one flat piece of each group of parameters per worker. Where a step depends on whole
tensors, as in LAMB and Adafactor, each parameter is a group of its own, and the workers add up the sums over their
pieces. A parameter is one tensor, or several one below the other (training/trunks/fused.py): of each of these a worker
has all, some elements that lie together, or none.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from preprocessing.errors import BadInput

Groups = list[dict[str, Any]]
Shape = tuple[int, ...]
Closure = Callable[[], float] | None  # torch's signature; none is ever given


def one_by_one(groups: Iterable[dict[str, Any]]) -> Groups:
    """A group for each parameter, with the shapes of its tensors: under ZeRO the parameter becomes a flat piece.

    `is_hidden` says of it what `hidden` says of each; where that is not given, whether it is a matrix.
    """
    made = []
    for group in groups:
        shapes = group.get("shapes") or [[tuple(weight.shape)] for weight in group["params"]]
        hidden = group.get("hidden") or [weight.ndim == 2 for weight in group["params"]]
        common = {key: value for key, value in group.items() if key != "hidden"}
        made += [
            common | {"params": [weight], "shapes": its_shapes, "is_hidden": is_hidden}
            for weight, its_shapes, is_hidden in zip(group["params"], shapes, hidden, strict=True)
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
class Piece:
    """What a worker has of a tensor: P of its elements, which lie together; under ZeRO it may be none."""

    shape: Shape  # of the whole tensor
    begin: int  # elements of the parameter before the tensor
    held: int  # elements of the parameter that each worker has
    start: int  # elements of the tensor before the piece
    at: slice  # where it lies in what the worker has of the parameter
    is_all: bool  # True: it is the whole tensor

    @property
    def has_first(self) -> bool:
        """Whether it has the first element of the tensor, which one worker has."""
        return self.start == 0 and self.at.stop > self.at.start

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


def pieces_of(weight: Tensor, shapes: Sequence[Shape]) -> Iterator[Piece]:
    """What this worker has of each tensor of a parameter; `weight` is what it has of the parameter.

    The workers' pieces of a parameter are of one length: DeepSpeed fills the last ones up.
    """
    held, counts = weight.numel(), [math.prod(shape) for shape in shapes]
    is_all = held == sum(counts)
    before = 0 if is_all else distributed.get_rank() * held
    begin = 0
    for shape, count in zip(shapes, counts, strict=True):
        first = begin - before  # of the tensor, counted from the start of what is held
        start, stop = _within(first, held, count)
        yield Piece(shape, begin, held, start, slice(first + start, first + stop), is_all)
        begin += count


def _within(first: int, held: int, count: int) -> tuple[int, int]:
    """Which elements of a tensor of `count` are held, where its first one would be element `first` of those held."""
    start, stop = (min(max(0, end - first), count) for end in (0, held))
    return start, stop


def over_workers(sums: Tensor, piece: Piece) -> Tensor:
    """Sums over a whole tensor, from those over this worker's piece of it."""
    if piece.is_all:
        return sums
    # those of an offloaded optimiser are on the CPU
    on_group = sums.cuda() if distributed.get_backend() == "nccl" else sums
    distributed.all_reduce(on_group)
    return on_group.to(sums.device)


def of_whole_tensors(pieces: Sequence[tuple[Piece, Tensor]], rule: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """This worker's pieces of `rule` of whole tensors, from its pieces of the tensors; rule keeps the shape.

    Of as many tensors as there are workers each worker is sent one, and sends back the pieces of what it makes of it:
    all pieces of a worker travel twice, and no two workers do the same.
    """
    if all(piece.is_all for piece, _ in pieces):
        yield from (rule(held_P.view(piece.shape)).flatten() for piece, held_P in pieces)
        return
    rank, world = distributed.get_rank(), distributed.get_world_size()
    for first in range(0, len(pieces), world):
        turn = pieces[first : first + world]
        lengths = [len(held_P) for _, held_P in turn] + [0] * (world - len(turn))
        mine = turn[rank][0] if rank < len(turn) else None
        parts = [mine.length_on(other) for other in range(world)] if mine else [0] * world
        sent = torch.cat([held_P for _, held_P in turn])
        whole = sent.new_empty(sum(parts))
        distributed.all_to_all_single(whole, sent, parts, lengths)
        made = rule(whole.view(mine.shape)).flatten() if mine else whole
        distributed.all_to_all_single(sent, made.contiguous(), lengths, parts)
        yield from sent.split(lengths[: len(turn)])
