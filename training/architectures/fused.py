"""Several tensors in one parameter: one matrix product makes queries, keys and values.

They are the tensors of the papers and of transformers, one below the other. A rule that looks at whole tensors, as
LAMB's, looks at each of them: training/model.py tells the optimisers. Each is split by itself (parameter_slices.py).
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from training.architectures.linears import ColumnLinear


@runtime_checkable
class FusedModule(Protocol):
    """A module that has parameters of several tensors."""

    def fused(self) -> Mapping[str, tuple[int, ...]]:
        """By the name of each such parameter, the lengths of its tensors along the first axis."""


class FusedLinear(ColumnLinear):
    """So many linears of the same input, each to `inner` features.

    >>> FusedLinear(3, 8, 4, bias=False).fused()
    {'weight': (4, 4, 4)}
    """

    def __init__(self, count: int, width: int, inner: int, *, bias: bool = True) -> None:
        super().__init__(width, count * inner, bias=bias)
        self.count, self.inner = count, inner

    @property
    def lengths(self) -> tuple[int, ...]:
        """The features of each that this worker has."""
        mine = self.share.within(self.inner)
        return (mine.stop - mine.start,) * self.count

    def fused(self) -> dict[str, tuple[int, ...]]:
        return {name: self.lengths for name, _ in self.named_parameters()}
