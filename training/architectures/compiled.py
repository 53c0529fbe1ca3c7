"""Compilation of blocks by torch.compile: one compilation for all layers of a stack, because their shapes are equal.

The whole model would take minutes to compile. A block is compiled for one shape of its inputs: only batches of a fixed
shape (preprocessing/fixed_shapes.py) run compiled; others, such as a rare batch of one short sequence, do not. Forward
passes without a gradient are not compiled, because that would be another compilation.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from training.architectures.layout import BatchLayout

T = TypeVar("T")
log = logging.getLogger(__name__)


class BlockCompiler:
    """Calls parts of a model, compiled. If the compiler fails, it says so once, and calls them uncompiled from then on.

    `dynamic`: batches have no fixed shape, and the code is compiled for all shapes. `backend` is one of torch.compile.
    """

    def __init__(self, *, dynamic: bool = False, backend: str | Callable[..., Any] = "inductor") -> None:
        self.dynamic, self.backend, self.failure = dynamic, backend, ""
        self._compiled = dict[Callable[..., Any], Callable[..., Any]]()

    def __call__(self, part: Callable[..., T], inputs: Sequence[object]) -> T:
        """Return part(*inputs)."""
        is_fixed = any(isinstance(each, BatchLayout) and each.is_fixed for each in inputs)
        if not torch.is_grad_enabled() or not (is_fixed or self.dynamic):
            return part(*inputs)
        return self.call(_call, part, *inputs)

    def call(self, function: Callable[..., T], *inputs: object) -> T:
        """Return function(*inputs), with a function that is compiled for each shape of its inputs."""
        if self.failure:
            return function(*inputs)
        if function not in self._compiled:  # torch.compile imports the compiler, which takes seconds
            self._compiled[function] = torch.compile(
                function, fullgraph=True, dynamic=self.dynamic, backend=self.backend
            )
        try:
            result: T = self._compiled[function](*inputs)
        except Exception as error:
            if not is_of_compiler(error):
                raise
            self.failure = " ".join(str(error).split("\n")[:2]).strip()
            log.warning("engine.torch_compile: no compiled blocks, because the compiler failed: %s", self.failure)
            return function(*inputs)
        return result


def _call(part: Callable[..., T], *inputs: object) -> T:
    return part(*inputs)


def has_compiled_blocks(net: nn.Module) -> bool:
    """Whether `compile_blocks` has set a compiler for this model."""
    return any(getattr(module, "compiler", None) is not None for module in net.modules())


def is_of_compiler(error: Exception) -> bool:
    """Whether torch's compiler raised an error, and not the compiled code."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "torch._functorch", "triton"))


def compile_blocks(net: nn.Module, compiler: BlockCompiler | None) -> None:
    """Compile the blocks of all stacks of a model, and the losses of its heads; None: do not compile them."""
    for module in net.modules():
        if hasattr(type(module), "compiler"):
            setattr(module, "compiler", compiler)  # noqa: B010  # mypy knows no such attribute of a module
