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
    """`count` linear layers with the same input, each with `inner` output features.

    >>> FusedLinear(3, 8, 4, bias=False).list_fused()
    {'weight': (4, 4, 4)}
    """

    def __init__(self, count: int, width: int, inner: int, *, bias: bool = True) -> None:
        super().__init__(width, count * inner, bias=bias)
        self.count, self.inner = count, inner

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of this worker's output features in each of the linear layers."""
        local = self.share.within(self.inner)
        return (local.stop - local.start,) * self.count

    def list_fused(self) -> dict[str, tuple[int, ...]]:
        return {name: self.lengths for name, _ in self.named_parameters()}
