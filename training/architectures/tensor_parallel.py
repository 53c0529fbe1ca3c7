"""Tensor parallelism (Megatron-LM, arXiv:1909.08053, 3): each worker computes a fraction of every layer.

Between layers, each worker has the complete states. They `enter` a layer whose outputs are split (by heads or columns)
and `leave` a layer whose inputs are split (by rows), which sums the results of all workers. linears.py contains these
layers, and parameter_slices.py splits the parameters of a model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Share:
    """A worker's place in a group: its `number`, counted from 0, and `of`, the number of workers of the group."""

    number: int = 0
    of: int = 1
    group: Any = None  # group of torch.distributed; None: no communication, for example to compute only shapes

    def within(self, length: int) -> slice:
        """This worker's range of `length` heads, columns or rows, which are divided as evenly as possible.

        >>> [Share(number, 4).within(10) for number in range(4)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 7, None), slice(7, 10, None)]
        """
        return slice(self.number * length // self.of, (self.number + 1) * length // self.of)

    def enter(self, x: Tensor) -> Tensor:
        """Return `x`, which is equal on all workers; the backward pass sums the workers' gradients."""
        return x if self.of == 1 else _Enter.apply(x, self)

    def leave(self, x: Tensor) -> Tensor:
        """Sum `x` over the workers. All workers must compute the same from the result: its gradient is not summed."""
        return x if self.of == 1 else _Leave.apply(x, self)

    def gather(self, x: Tensor, length: int) -> Tensor:
        """Concatenate the workers' parts along the first axis, which then has the size `length`.

        All workers must compute the same from the result: its gradient is not summed.
        """
        return x if self.of == 1 else _Gather.apply(x, self, length)

    def add(self, x: Tensor) -> Tensor:
        """Sum over the workers, in place and without gradient."""
        if self.of > 1:
            distributed.all_reduce(x, group=self.group)
        return x

    def greatest(self, x: Tensor) -> Tensor:
        """Maximum over the workers, in place and without gradient."""
        if self.of > 1:
            distributed.all_reduce(x, distributed.ReduceOp.MAX, group=self.group)
        return x

    @contextmanager
    def noise(self, dropout: float) -> Iterator[None]:
        """Use different random numbers on each worker inside the block, if the dropout rate is not 0.

        Workers have different heads or features there. Outside the block, the random generators of all workers are in
        the same state. The seed is drawn from them, so that a recomputation in the backward pass has the same dropout.
        """
        if self.of == 1 or dropout == 0:
            yield
            return
        seed = int(torch.randint(2**53, ()))
        with torch.random.fork_rng():
            torch.manual_seed(seed * self.of + self.number)
            yield


WHOLE: Final = Share()


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: Share) -> Tensor:
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor, None]:
        return ctx.share.add(d_x.clone(memory_format=torch.contiguous_format)), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: Share) -> Tensor:
        return share.add(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor, None]:
        return d_x, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: Share, length: int) -> Tensor:
        ctx.within = share.within(length)
        return gather(x, share, length)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor, None, None]:
        return d_x[ctx.within], None, None


def gather(x: Tensor, share: Share, length: int) -> Tensor:
    """Concatenate the workers' parts of a tensor along the first axis, [length, ...], without gradient."""
    slices = [Share(number, share.of).within(length) for number in range(share.of)]
    counts = [each.stop - each.start for each in slices]
    padded = x.new_zeros(max(counts), *x.shape[1:])  # all_gather needs equal sizes
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in counts]
    distributed.all_gather(parts, padded, group=share.group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
