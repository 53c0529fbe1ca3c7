"""Linear layers and the token table. Under tensor parallelism each worker has a fraction of their parameters.

The attributes `in_features`, `out_features` and `num_embeddings` are the sizes of the complete layer. The parameters
are only those of this worker.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures.tensor_parallel import WHOLE, Share


class SplitTable(NamedTuple):
    """A worker's rows of the token table. DeepSpeed's ZeRO-3 hooks find tensors only in tuples, so this is a tuple."""

    rows: Tensor
    size: int  # number of rows of the complete table
    share: Share

    @property
    def within(self) -> slice:
        """The range of `rows` in the complete table."""
        return self.share.within(self.size)

    @property
    def whole(self) -> Tensor:
        """The complete table [V, D], gathered from all workers."""
        return self.share.gather(self.rows, self.size)


Table = Tensor | SplitTable


def whole(table: Table) -> Tensor:
    """The complete token table [V, D], gathered from all workers if it is split."""
    return table.whole if isinstance(table, SplitTable) else table


Product = Callable[[Tensor, Tensor], Tensor]
"""Matrix product of states [..., K] and a weight [N, K] -> [..., N], with gradients."""


def multiply(product: Product | None, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The states [..., N] of a linear layer. Forward passes without a gradient use the plain product, as None does."""
    if product is None or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    y = product(x, weight)
    return y if bias is None else y + bias


class ColumnLinear(nn.Linear):
    """A linear layer whose outputs, such as heads or inner features, are split over workers.

    `out_features` counts the outputs of all workers.
    """

    share: Share = WHOLE
    product: Product | None = None  # instead of the plain one (float8.py)

    def split_axes(self) -> dict[str, int]:
        return {name: 0 for name, _ in self.named_parameters()}

    def forward(self, x: Tensor) -> Tensor:
        return multiply(self.product, self.share.enter(x), self.weight, self.bias)


class RowLinear(nn.Linear):
    """A linear layer whose inputs are split over workers; the bias is added once, after the sum over workers.

    `in_features` counts the inputs of all workers.
    """

    share: Share = WHOLE
    product: Product | None = None  # instead of the plain one (float8.py)

    def split_axes(self) -> dict[str, int]:
        return {"weight": 1}

    def forward(self, x: Tensor) -> Tensor:
        if self.share.of == 1:
            return multiply(self.product, x, self.weight, self.bias)
        y = self.share.leave(multiply(self.product, x, self.weight))
        return y if self.bias is None else y + self.bias


class Embedding(nn.Embedding):
    """An embedding table that does not initialize its weights; training/model.py initializes the whole model later.

    torch's class initializes the weights in its constructor. On the meta device, where all models are built, that
    imports torch's compiler, which takes 2.4 s.
    """

    def reset_parameters(self) -> None:
        """Do nothing, to leave the weights uninitialized."""


class TokenTable(Embedding):
    """The token table, whose rows are split over workers; `num_embeddings` counts the rows of all workers."""

    share: Share = WHOLE

    def split_axes(self) -> dict[str, int]:
        return {"weight": 0}

    @property
    def table(self) -> Table:
        """The table for the product with hidden states: a tensor, or a `SplitTable` if it is split."""
        return self.weight if self.share.of == 1 else SplitTable(self.weight, self.num_embeddings, self.share)

    def forward(self, ids: Tensor) -> Tensor:
        if self.share.of == 1:
            return F.embedding(ids, self.weight)
        within = self.share.within(self.num_embeddings)
        elsewhere = (ids < within.start) | (ids >= within.stop)
        x = F.embedding((ids - within.start).masked_fill(elsewhere, 0), self.weight)
        return self.share.leave(x.masked_fill(elsewhere[..., None], 0))
