"""SpanBERT's second loss (arXiv:1907.10529, 3.2): each token of a chosen span from the two tokens around the span.

Targets that follow each other are one span, as the reference merges spans that overlap or touch. The tokens around it
must be ordinary ones: nothing is asked of a span beside [CLS] or [SEP], the first and the last token of its row.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.schema import Batch
from training.losses.heads.cross_entropy import token_score, tokens_at
from training.losses.span_boundary import SpanBoundary
from training.score import Score
from training.specs import Trunk


class Asked(NamedTuple):
    """The targets that are asked, int64 [N] each."""

    target: Tensor  # which of the batch's M targets
    before: Tensor  # flat index of the token before its span
    after: Tensor  # flat index of the token behind its span
    offset: Tensor  # its place in the span, from 0


def count(loss: SpanBoundary, batch: Batch | Mapping[str, Tensor]) -> int:
    """Number of targets of the loss in a batch of arrays or tensors.

    >>> import numpy as np
    >>> row = {"first_at": np.array([0]), "lengths": np.array([9])}
    >>> [count(SpanBoundary(), row | {"targets_at": np.array(at)}) for at in ([2, 3, 5], [1, 2, 5], [4, 5, 6], [])]
    [3, 1, 3, 0]
    """
    return len(
        asked(loss, {name: torch.as_tensor(batch[name]) for name in ("targets_at", "first_at", "lengths")}).target
    )


def asked(loss: SpanBoundary, batch: Mapping[str, Tensor]) -> Asked:
    """Which targets are asked, and from where; a span has at most `loss.positions` of them, from its first on."""
    at_M, first_at_B = batch["targets_at"], batch["first_at"]
    row_M = torch.searchsorted(first_at_B, at_M, right=True) - 1
    last_at_B = first_at_B + batch["lengths"].to(at_M.device) - 1
    number_M = torch.arange(len(at_M), device=at_M.device)
    begins_M = (at_M.diff(prepend=at_M[:1] - 2) != 1) | (row_M.diff(prepend=row_M[:1]) != 0)
    ends_M = F.pad(begins_M, (0, 1), value=True)[1:]
    start_M = number_M.where(begins_M, 0).cummax(0).values
    stop_M = number_M.where(ends_M, len(at_M)).flip(0).cummin(0).values.flip(0)
    before_M, after_M, offset_M = at_M[start_M] - 1, at_M[stop_M] + 1, number_M - start_M
    ordinary_M = (before_M > first_at_B[row_M]) & (after_M < last_at_B[row_M])
    target_N = (ordinary_M & (offset_M < loss.positions)).nonzero().squeeze(1)
    return Asked(target_N, before_M[target_N], after_M[target_N], offset_M[target_N])


class SpanBoundaryHead(nn.Module):
    """Two layers, each a linear, gelu and a norm, over the tokens around a span and a place in it; then the tied table
    with a bias of its own."""

    def __init__(self, loss: SpanBoundary, trunk: Trunk, vocab_size: int) -> None:
        super().__init__()
        self.loss = loss
        self.offsets = nn.Embedding(loss.positions, loss.position_width)
        self.first = nn.Linear(2 * trunk.width + loss.position_width, trunk.width)
        self.first_norm = nn.LayerNorm(trunk.width, eps=trunk.norm_eps)
        self.second = nn.Linear(trunk.width, trunk.table_width)
        self.second_norm = nn.LayerNorm(trunk.table_width, eps=trunk.norm_eps)
        self.bias = nn.Parameter(torch.empty(vocab_size))

    def features(self, hidden: Tensor, asked: Asked) -> Tensor:
        """What the token table is compared with, [N, E]."""
        around = tokens_at(hidden, asked.before), tokens_at(hidden, asked.after)
        x = self.first_norm(F.gelu(self.first(torch.cat([*around, self.offsets(asked.offset)], dim=-1))))
        return self.second_norm(F.gelu(self.second(x)))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Tensor) -> Score:
        here = asked(self.loss, batch)
        return token_score(self.features(hidden, here), table_VD, self.bias, batch["targets"][here.target])
