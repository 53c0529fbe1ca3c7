"""The tensors of a model, stated once. Modules, counts, FLOPs and slices for tensor parallelism follow from them.

A part lists its tensors in this form, without torch. training/architectures/made.py creates the modules, and counts.py
adds up the numbers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

Cut = Literal["", "outputs", "inputs", "rows"]
"""How tensor parallelism splits a tensor (arXiv:1909.08053, 3). outputs: a linear layer by its outputs, and its bias,
too; inputs: a linear layer by its inputs, and its bias is whole; rows: a table by its rows; "": not at all."""

NormKind = Literal["layernorm", "rmsnorm"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a module: its name in the module, its shape, and how it is split."""

    name: str
    shape: tuple[int, ...]
    axis: int | None = None  # along which tensor parallelism splits it; None: every worker has the whole parameter
    fused: tuple[int, ...] = ()  # lengths along the first axis of the tensors in it; (): it is one tensor

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class LinearSpec:
    """A linear layer, or several with the same input whose outputs are concatenated.

    >>> [parameter.shape for parameter in LinearSpec("qkv", 8, (8, 2, 2), cut="outputs").parameters()]
    [(12, 8), (12,)]
    """

    name: str
    inputs: int
    outputs: tuple[int, ...]  # of each layer; they may differ
    bias: bool = True
    cut: Cut = ""
    per: Literal["token", "sequence", "batch"] = "token"  # inputs that it is computed for: each token, or once

    @property
    def products(self) -> int:
        """Multiplications per input vector."""
        return self.inputs * sum(self.outputs)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the matrix of each layer."""
        return tuple((rows, self.inputs) for rows in self.outputs)

    def parameters(self) -> Iterator[Parameter]:
        rows, fused = sum(self.outputs), self.outputs if len(self.outputs) > 1 else ()
        axis = {"outputs": 0, "inputs": 1}.get(self.cut)
        yield Parameter(f"{self.name}.weight", (rows, self.inputs), axis, fused)
        if self.bias:
            yield Parameter(f"{self.name}.bias", (rows,), 0 if self.cut == "outputs" else None, fused)


@dataclass(frozen=True)
class TableSpec:
    """An embedding table."""

    name: str
    rows: int
    width: int
    cut: Cut = ""

    def parameters(self) -> Iterator[Parameter]:
        yield Parameter(f"{self.name}.weight", (self.rows, self.width), 0 if self.cut == "rows" else None)


@dataclass(frozen=True)
class NormSpec:
    """A norm over the last axis: LayerNorm (arXiv:1607.06450), with or without bias, or RMSNorm (arXiv:1910.07467)."""

    name: str
    width: int
    kind: NormKind = "layernorm"
    eps: float = 1e-5
    bias: bool = True  # RMSNorm has none
    of_heads: bool = False  # each tensor-parallel worker normalizes its own heads, with the same weights

    def parameters(self) -> Iterator[Parameter]:
        yield Parameter(f"{self.name}.weight", (self.width,))
        if self.bias and self.kind == "layernorm":
            yield Parameter(f"{self.name}.bias", (self.width,))


@dataclass(frozen=True)
class VectorsSpec:
    """A parameter that belongs to no linear layer, such as the biases of relative attention."""

    name: str
    shape: tuple[int, ...]
    axis: int | None = None  # of the heads, which tensor parallelism splits

    def parameters(self) -> Iterator[Parameter]:
        yield Parameter(self.name, self.shape, self.axis)


Tensors = LinearSpec | TableSpec | NormSpec | VectorsSpec


@dataclass(frozen=True)
class Sublayer:
    """A layer of a block with a residual, such as attention: its tensors, and its norm."""

    name: str
    tensors: tuple[Tensors, ...]
    norm: NormSpec | None  # None: it reads the norm of another sublayer
    owners: tuple[int, ...] = ()  # number of the layer whose weights each layer uses; (): its own
    norm_from: int = 0  # first layer that has the norm

    @property
    def linears(self) -> tuple[LinearSpec, ...]:
        return tuple(tensor for tensor in self.tensors if isinstance(tensor, LinearSpec))


@dataclass(frozen=True)
class BlockTensors:
    """Equal blocks in a stack."""

    path: str  # of the list of blocks in the model: "blocks", "decoder.blocks"
    number: int
    sublayers: tuple[Sublayer, ...]

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of all blocks by their names in the model; shared ones once."""
        for layer in range(self.number):
            for sublayer in self.sublayers:
                if sublayer.owners and sublayer.owners[layer] != layer:
                    continue
                place = f"{self.path}.{layer}"
                for tensor in sublayer.tensors:
                    yield from _prefix_names(tensor, f"{place}.{sublayer.name}.")
                if sublayer.norm is not None and layer >= sublayer.norm_from:
                    yield from _prefix_names(sublayer.norm, f"{place}.")


@dataclass(frozen=True)
class ModelTensors:
    """The tensors of a model without its heads: those outside of blocks by their names, and the stacks of blocks."""

    outside: tuple[Tensors, ...]
    stacks: tuple[BlockTensors, ...]

    def __add__(self, more: "ModelTensors") -> "ModelTensors":
        return ModelTensors((*self.outside, *more.outside), (*self.stacks, *more.stacks))

    def inside(self, prefix: str) -> "ModelTensors":
        """The same tensors in a module of this name."""
        outside = (replace(tensor, name=f"{prefix}.{tensor.name}") for tensor in self.outside)
        stacks = (replace(stack, path=f"{prefix}.{stack.path}") for stack in self.stacks)
        return ModelTensors(tuple(outside), tuple(stacks))

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, by their names in the model."""
        for tensor in self.outside:
            yield from tensor.parameters()
        for stack in self.stacks:
            yield from stack.parameters()


def shapes_of(tensors: Iterable[Tensors]) -> tuple[tuple[int, int], ...]:
    """Rows and columns of the matrices of all linear layers."""
    return tuple(shape for tensor in tensors if isinstance(tensor, LinearSpec) for shape in tensor.shapes)


def _prefix_names(tensor: Tensors, prefix: str) -> Iterator[Parameter]:
    for one in tensor.parameters():
        yield Parameter(prefix + one.name, one.shape, one.axis, one.fused)
