"""Activation checkpointing (arXiv:1604.06174), which saves memory, costs time and gives bit-identical weights.

The activations of a part of the model are dropped after the forward pass. The backward pass recomputes them from the
inputs of the part, with the same random numbers. Two kinds of parts can be recomputed: the blocks of a stack (`full`),
and the core of an attention (`selective`, arXiv:2205.05198, section 5). The core consists of scores, softmax, dropout
and weighted mean, and takes much memory and little time. `call_recomputed` calls the core. The
selective policies of torch are not used: they name kernels, and the kernels depend on device, mask and dropout.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from training.specs import ActivationCheckpointing

T = TypeVar("T")


class Compiler(Protocol):
    """Calls parts of a model, compiled (compiled.py)."""

    def __call__(self, part: Callable[..., Any], inputs: tuple[object, ...]) -> Any:
        """Return part(*inputs)."""


class RecomputedBlocks(nn.ModuleList):
    """The blocks of a stack, from the lowest to the highest. A model in training calls each block with `run`."""

    recompute = False
    compiler: "Compiler | None" = None

    def run(self, part: Callable[..., T], *inputs: object) -> T:
        """Call `part`, which is a block or calls one, and recompute it in the backward pass if `recompute` is set.

        Whatever else `part` reads must not change before the backward pass. With a `compiler`, `part` is compiled.
        """
        if self.compiler is None:
            return call_recomputed(self.recompute, part, *inputs)
        result: T = call_recomputed(self.recompute, self.compiler, part, inputs)
        return result


@runtime_checkable
class AttentionCore(Protocol):
    """A module that contains the core of an attention."""

    recompute_core: bool


def call_recomputed(recompute: bool, part: Callable[..., T], *inputs: object) -> T:
    """Return part(*inputs). With `recompute`, the backward pass calls `part` a second time."""
    if not (recompute and torch.is_grad_enabled()):
        return part(*inputs)
    result: T = checkpoint(part, *inputs, use_reentrant=False)
    return result


def set_recompute(net: nn.Module, parts: ActivationCheckpointing) -> None:
    """Set which parts of a model are recomputed."""
    for module in net.modules():
        if isinstance(module, RecomputedBlocks):
            module.recompute = parts == "full"
        elif isinstance(module, AttentionCore):
            module.recompute_core = parts == "selective"
