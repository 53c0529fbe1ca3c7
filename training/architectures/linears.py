"""Linears and the token table, each of which may be a worker's share of a whole one.

Sizes that they say (`in_features`, `out_features`, `num_embeddings`) are those of the whole; their parameters are what
the worker has.
"""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures.tensor_parallel import WHOLE, Share


class SplitTable(NamedTuple):
    """A worker's rows of the token table; a tuple, since DeepSpeed's ZeRO-3 hooks find tensors in tuples only."""

    rows: Tensor
    size: int  # rows of the whole table
    share: Share

    @property
    def within(self) -> slice:
        """Which rows of the whole table these are."""
        return self.share.within(self.size)

    @property
    def whole(self) -> Tensor:
        """The table [V, D] with the rows of all workers."""
        return self.share.gather(self.rows, self.size)


Table = Tensor | SplitTable


def whole(table: Table) -> Tensor:
    """The token table [V, D], with the rows of all workers."""
    return table.whole if isinstance(table, SplitTable) else table


class ColumnLinear(nn.Linear):
    """A linear whose outputs are split: of heads, or of the inner features. `out_features` are those of all workers."""

    share: Share = WHOLE

    def split_axes(self) -> dict[str, int]:
        return {name: 0 for name, _ in self.named_parameters()}

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.share.enter(x), self.weight, self.bias)


class RowLinear(nn.Linear):
    """A linear whose inputs are split, and whose bias is added once. `in_features` are those of all workers."""

    share: Share = WHOLE

    def split_axes(self) -> dict[str, int]:
        return {"weight": 1}

    def forward(self, x: Tensor) -> Tensor:
        if self.share.of == 1:
            return F.linear(x, self.weight, self.bias)
        y = self.share.leave(F.linear(x, self.weight))
        return y if self.bias is None else y + self.bias


class Embedding(nn.Embedding):
    """An embedding table whose weights are drawn after it is made, as those of the whole net (training/model.py).

    torch draws them at once; on the meta device, where all nets are made, it imports its compiler for that: 2.4 s.
    """

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class TokenTable(Embedding):
    """The token table, split by rows; `num_embeddings` are those of all workers."""

    share: Share = WHOLE

    def split_axes(self) -> dict[str, int]:
        return {"weight": 0}

    @property
    def table(self) -> Table:
        """What states are compared with."""
        return self.weight if self.share.of == 1 else SplitTable(self.weight, self.num_embeddings, self.share)

    def forward(self, ids: Tensor) -> Tensor:
        if self.share.of == 1:
            return F.embedding(ids, self.weight)
        within = self.share.within(self.num_embeddings)
        elsewhere = (ids < within.start) | (ids >= within.stop)
        x = F.embedding((ids - within.start).masked_fill(elsewhere, 0), self.weight)
        return self.share.leave(x.masked_fill(elsewhere[..., None], 0))
