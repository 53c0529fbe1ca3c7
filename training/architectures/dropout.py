"""Dropout, with a fast generator on CPUs.

torch draws the random numbers of a CPU one after another, 8 ns each, so that they take longer than the matrix products
of an attention. Here, one draw of 64 bits decides on four elements. The numbers depend on torch's generator only, and
not on the number of threads.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

STEPS = 1 << 16  # a probability is rounded to a multiple of 1 / STEPS


class Dropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014); on GPUs and in compiled code it is torch's."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return _Dropout.apply(x, self.p)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        noise = draw_noise(x.shape)
        ctx.save_for_backward(noise)
        ctx.p = p
        return _drop(x, noise, p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, None]:
        (noise,) = ctx.saved_tensors
        return _drop(d_y, noise, ctx.p), None


def _drop(x: Tensor, noise: Tensor, p: float) -> Tensor:
    kept = keep_positive(x.float(), noise.float().sub_(find_limit(p)))
    return kept.mul_(1 / find_keep_rate(p)).to(x.dtype)


def draw_noise(shape: tuple[int, ...]) -> Tensor:
    """Random integers int16 on the CPU, uniform in their whole range. Dropout drops those below `find_limit(p)`."""
    size = math.prod(shape)
    draw = torch.empty(-(-size // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    return draw.view(torch.int16)[:size].view(shape)


def find_limit(p: float) -> float:
    """The number below which noise drops an element; it is between two integers.

    >>> find_limit(0.5), find_limit(0)
    (-0.5, -32768.5)
    """
    return round(p * STEPS) - STEPS / 2 - 0.5


def find_keep_rate(p: float) -> float:
    """The probability that an element is kept: 1 - p, rounded."""
    return 1 - round(p * STEPS) / STEPS


def keep_positive(x: Tensor, sign: Tensor, out: Tensor | None = None) -> Tensor:
    """The elements of `x` where `sign` is positive, and 0 elsewhere, in one pass.

    >>> keep_positive(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, -0.5, 0.0]))
    tensor([1., 0., 0.])
    """
    if out is None:
        return torch.ops.aten.threshold_backward(x, sign, 0)
    return torch.ops.aten.threshold_backward.grad_input(x, sign, 0, grad_input=out)
