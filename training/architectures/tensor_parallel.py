"""Tensor parallelism (Megatron-LM, arXiv:1909.08053, 3): each of several workers computes a share of a layer.

States between layers are whole on every worker. They `enter` a layer whose outputs are split (by heads or columns), and
`leave` one whose inputs are split (by rows), which adds up what the workers have. linears.py has these layers, and
parameter_slices.py cuts a net that is built.
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
    """The share of one worker: it is number `number` of the `of` workers of a group, counted from 0."""

    number: int = 0
    of: int = 1
    group: Any = None  # of torch.distributed; None: there is nobody to talk to, as where shapes alone are asked for

    def within(self, length: int) -> slice:
        """What is this worker's of so many heads, columns or rows, as even as possible.

        >>> [Share(number, 4).within(10) for number in range(4)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 7, None), slice(7, 10, None)]
        """
        return slice(self.number * length // self.of, (self.number + 1) * length // self.of)

    def enter(self, x: Tensor) -> Tensor:
        """`x`, which is whole on every worker and from here on read by each for its share: gradients are added up."""
        return x if self.of == 1 else _Enter.apply(x, self)

    def leave(self, x: Tensor) -> Tensor:
        """The sum of what the workers have; from here on each does the same with it."""
        return x if self.of == 1 else _Leave.apply(x, self)

    def gather(self, x: Tensor, length: int) -> Tensor:
        """Whole along the first axis, which has `length` places; from here on each worker does the same with it."""
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
        """Draw inside of the block what no other worker draws, where something drops out: there heads are others.

        Before and after it the workers' generators are alike. The seed comes from them, so that what is computed anew
        in a backward pass drops out as it did.
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
    """The workers' shares [., ...] of a tensor, one below the other, [length, ...]; without gradient."""
    slices = [Share(number, share.of).within(length) for number in range(share.of)]
    counts = [each.stop - each.start for each in slices]
    mine = x.new_zeros(max(counts), *x.shape[1:])  # collectives want one size
    mine[: len(x)] = x
    parts = [torch.empty_like(mine) for _ in counts]
    distributed.all_gather(parts, mine, group=share.group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
