"""Modules from the tensors that a part declares (training/specs/tensors.py)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures.fused import FusedLinear
from training.architectures.linears import ColumnLinear, Embedding, RowLinear, TokenTable
from training.architectures.tensor_parallel import WHOLE, Share
from training.specs import LinearSpec, NormSpec, TableSpec, Tensors


def make_all(tensors: Iterable[Tensors]) -> dict[str, Any]:
    """A module for each of the tensors, by its name; a parameter for vectors."""
    return {tensor.name: make(tensor) for tensor in tensors}


def add_modules(module: nn.Module, tensors: Iterable[Tensors]) -> None:
    """Add the modules of these tensors to a module, by their names."""
    for name, made in make_all(tensors).items():
        setattr(module, name, made)


def make(tensor: Tensors) -> Any:
    """The module of a tensor, without values."""
    match tensor:
        case LinearSpec():
            return make_linear(tensor)
        case TableSpec():
            return (TokenTable if tensor.cut == "rows" else Embedding)(tensor.rows, tensor.width)
        case NormSpec():
            return make_norm(tensor)
        case _:
            return nn.Parameter(torch.empty(tensor.shape))


def make_linear(linear: LinearSpec) -> nn.Linear:
    """A linear layer, which is split over workers as it declares; several fused ones if it has several outputs."""
    if len(linear.outputs) > 1:
        return FusedLinear(linear.inputs, linear.outputs, bias=linear.bias)
    kind = {"": nn.Linear, "outputs": ColumnLinear, "inputs": RowLinear}[linear.cut]
    return kind(linear.inputs, linear.outputs[0], bias=linear.bias)


def make_norm(norm: NormSpec) -> nn.Module:
    """LayerNorm (arXiv:1607.06450) or RMSNorm (arXiv:1910.07467) over the last axis."""
    if norm.kind == "rmsnorm":
        return (HeadRMSNorm if norm.of_heads else nn.RMSNorm)(norm.width, eps=norm.eps)
    return (HeadLayerNorm if norm.of_heads else nn.LayerNorm)(norm.width, eps=norm.eps, bias=norm.bias)


class HeadRMSNorm(nn.RMSNorm):
    """RMSNorm of each head. The gradient of its weights is summed over the workers, which have different heads."""

    share: Share = WHOLE

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.share.enter(self.weight), self.eps)


class HeadLayerNorm(nn.LayerNorm):
    """LayerNorm of each head. The gradient of its weights is summed over the workers, which have different heads."""

    share: Share = WHOLE

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.share.enter(self.bias)
        return F.layer_norm(x, self.normalized_shape, self.share.enter(self.weight), bias, self.eps)
