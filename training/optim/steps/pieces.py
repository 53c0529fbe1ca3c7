"""What the optimisers share: tensors with a gradient, running means, and sums over the pieces of a tensor.

Under ZeRO an optimiser is given one flat piece of each group of tensors per worker. Where a step depends on a whole
tensor, as in LAMB and Adafactor, each tensor is a group of its own, and the workers add up the sums over their pieces.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed

Groups = list[dict[str, Any]]
Closure = Callable[[], float] | None  # torch's signature; none is ever given


def one_by_one(groups: Iterable[dict[str, Any]]) -> Groups:
    """A group for each tensor, with its shape: under ZeRO the tensor itself becomes a flat piece."""
    return [
        group | {"params": [weight], "shape": tuple(weight.shape)} for group in groups for weight in group["params"]
    ]


def with_gradient(groups: Groups) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Each tensor that has a gradient, with its group and that gradient."""
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


def over_workers(sums: Tensor, weight: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sums over the whole tensor of this shape, of which `weight` may be this worker's piece."""
    if tuple(weight.shape) != shape:
        distributed.all_reduce(sums)
    return sums


def start_of(weight: Tensor, shape: tuple[int, ...]) -> int:
    """Where in the flat tensor of this shape this worker's piece begins; the pieces are of one length."""
    return 0 if tuple(weight.shape) == shape else distributed.get_rank() * weight.numel()
