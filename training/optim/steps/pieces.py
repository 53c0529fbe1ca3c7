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
    """A group for each parameter, with the shapes of its tensors: under ZeRO the parameter becomes a flat piece."""
    return [
        group | {"params": [weight], "shapes": shapes}
        for group in groups
        for weight, shapes in zip(group["params"], _shapes_in(group), strict=True)
    ]


def _shapes_in(group: dict[str, Any]) -> list[list[Shape]]:
    """For each parameter of a group the shapes of its tensors; one tensor where they are not given."""
    return group.get("shapes") or [[tuple(weight.shape)] for weight in group["params"]]


def with_gradient(groups: Groups) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Each parameter that has a gradient, with its group and that gradient."""
    for group in groups:
        for weight in group["params"]:
            if weight.grad is not None:
                yield group, weight, weight.grad


def moments(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Running mean of the gradients, and root of that of their squares plus eps, after one more gradient."""
    beta1, beta2 = group["betas"]
    if not state:
        state["mean"] = torch.zeros_like(gradient)
        state["square"] = torch.zeros_like(gradient)
    state["mean"].lerp_(gradient, 1 - beta1)
    state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return state["mean"], state["square"].sqrt().add_(group["eps"])


@dataclass(frozen=True)
class Piece:
    """What a worker has of a tensor: P of its elements, which lie together; under ZeRO it may be none."""

    shape: Shape  # of the whole tensor
    start: int  # elements of the tensor before it
    at: slice  # where it lies in what the worker has of the parameter
    is_all: bool  # True: it is the whole tensor

    @property
    def has_first(self) -> bool:
        """Whether it has the first element of the tensor, which one worker has."""
        return self.start == 0 and self.at.stop > self.at.start

    def of(self, held: Tensor) -> Tensor:
        """[P] of what the worker has of the parameter, or of something of the same shape; in the same memory."""
        return held.view(-1)[self.at]


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
    first = 0 if is_all else -distributed.get_rank() * held  # of the tensor, counted from the start of the piece
    for shape, count in zip(shapes, counts, strict=True):
        start, stop = (min(max(0, end - first), count) for end in (0, held))
        yield Piece(shape, start, slice(first + start, first + stop), is_all)
        first += count


def over_workers(sums: Tensor, piece: Piece) -> Tensor:
    """Sums over a whole tensor, from those over this worker's piece of it."""
    if piece.is_all:
        return sums
    # those of an offloaded optimiser are on the CPU
    on_group = sums.cuda() if distributed.get_backend() == "nccl" else sums
    distributed.all_reduce(on_group)
    return on_group.to(sums.device)
