"""Fused parameters, which contain several tensors: one matrix product computes queries, keys and values.

A fused parameter is the concatenation, along its first axis, of the tensors of the papers and of the library
transformers. An optimizer that needs whole tensors, such as LAMB, treats each tensor separately: training/model.py
gives it their shapes. Tensor parallelism splits each tensor separately (parameter_slices.py).
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from training.architectures.linears import ColumnLinear


@runtime_checkable
class FusedModule(Protocol):
    """A module with fused parameters."""

    def list_fused(self) -> Mapping[str, tuple[int, ...]]:
        """Lengths along the first axis of the tensors in each fused parameter, by the parameter's name."""


class FusedLinear(ColumnLinear):
    """Linear layers with the same input, whose outputs may differ in length.

    >>> FusedLinear(8, (4, 2, 2), bias=False).list_fused()
    {'weight': (4, 2, 2)}
    """

    def __init__(self, width: int, outputs: tuple[int, ...], *, bias: bool = True) -> None:
        super().__init__(width, sum(outputs), bias=bias)
        self.outputs = outputs

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of this worker's output features in each of the linear layers."""
        local = map(self.share.within, self.outputs)
        return tuple(each.stop - each.start for each in local)

    def list_fused(self) -> dict[str, tuple[int, ...]]:
        return {name: self.lengths for name, _ in self.named_parameters()}
