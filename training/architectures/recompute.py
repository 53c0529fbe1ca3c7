"""Activation checkpointing (arXiv:1604.06174): memory for time, and not one bit of what is learned.

What a part of a net would keep for its backward pass is dropped, and made anew when that needs it, from what it was
given and with the random numbers that it drew. Two sorts of parts can do so: the blocks of a stack (`full`), and the
core of an attention, its scores, softmax, dropout and mean, which takes much room and little time (`selective`,
arXiv:2205.05198, section 5). The core is a call of `recomputed`, not one of torch's policies by operator: these name
kernels, which differ by device, mask and dropout.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from training.specs import ActivationCheckpointing

T = TypeVar("T")


class RecomputedBlocks(nn.ModuleList):
    """The blocks of a stack, one above the other. A net runs each by `run`, when it trains."""

    recompute = False

    def run(self, part: Callable[..., T], *given: object) -> T:
        """What `part`, a block or what calls one, makes of what it is given; all else that it reads must stay."""
        return call_recomputed(self.recompute, part, *given)


@runtime_checkable
class AttentionCore(Protocol):
    """A module that has the core of an attention in it."""

    recompute_core: bool


def call_recomputed(recompute: bool, part: Callable[..., T], *given: object) -> T:
    """part(*given), which with `recompute` is called a second time when the gradient goes through it."""
    if not (recompute and torch.is_grad_enabled()):
        return part(*given)
    made: T = checkpoint(part, *given, use_reentrant=False)
    return made


def set_recompute(net: nn.Module, which: ActivationCheckpointing) -> None:
    """Say which parts of a net are recomputed from now on."""
    for module in net.modules():
        if isinstance(module, RecomputedBlocks):
            module.recompute = which == "full"
        elif isinstance(module, AttentionCore):
            module.recompute_core = which == "selective"
