"""The span boundary objective of SpanBERT (arXiv:1907.10529, 3.2).

Each token of a span is predicted from the two tokens around the span.

Consecutive targets are one span, because the reference code merges spans that overlap or touch. The tokens around a
span must be ordinary tokens: a span next to [CLS] or [SEP], the first or last token of a sequence, has no targets.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures import Table
from training.losses.heads.cross_entropy import token_score, tokens_at
from training.score import Score


class BoundaryTargets(NamedTuple):
    """The targets of the loss, int64 [N] each."""

    target: Tensor  # index among the M targets of the batch
    before: Tensor  # flat index of the token before its span
    after: Tensor  # flat index of the token after its span
    offset: Tensor  # position in the span, counted from 0


def boundary_targets(batch: Mapping[str, np.ndarray | Tensor], positions: int) -> BoundaryTargets:
    """The first `positions` targets of each span in a batch of arrays or tensors, and their boundary tokens."""
    at_M, first_at_B, lengths_B = (torch.as_tensor(batch[name]) for name in ("targets_at", "first_at", "lengths"))
    row_M = torch.searchsorted(first_at_B, at_M, right=True) - 1
    last_at_B = first_at_B + lengths_B.to(at_M.device) - 1
    number_M = torch.arange(len(at_M), device=at_M.device)
    begins_M = (at_M.diff(prepend=at_M[:1] - 2) != 1) | (row_M.diff(prepend=row_M[:1]) != 0)
    ends_M = F.pad(begins_M, (0, 1), value=True)[1:]
    start_M = number_M.where(begins_M, 0).cummax(0).values
    stop_M = number_M.where(ends_M, len(at_M)).flip(0).cummin(0).values.flip(0)
    before_M, after_M, offset_M = at_M[start_M] - 1, at_M[stop_M] + 1, number_M - start_M
    ordinary_M = (before_M > first_at_B[row_M]) & (after_M < last_at_B[row_M])
    target_N = (ordinary_M & (offset_M < positions)).nonzero().squeeze(1)
    return BoundaryTargets(target_N, before_M[target_N], after_M[target_N], offset_M[target_N])


class SpanBoundaryHead(nn.Module):
    """Two layers of linear, gelu and norm, then the tied token table with a separate bias.

    The inputs are the states of the two boundary tokens and an embedding of the position in the span.
    """

    offsets: nn.Module
    first: nn.Module
    first_norm: nn.Module
    second: nn.Module
    second_norm: nn.Module
    bias: nn.Parameter

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.positions = positions

    def features(self, hidden: Tensor, targets: BoundaryTargets) -> Tensor:
        """Inputs [N, E] of the token table."""
        around = tokens_at(hidden, targets.before), tokens_at(hidden, targets.after)
        x = self.first_norm(F.gelu(self.first(torch.cat([*around, self.offsets(targets.offset)], dim=-1))))
        return self.second_norm(F.gelu(self.second(x)))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        targets = boundary_targets(batch, self.positions)
        return token_score(self.features(hidden, targets), table_VD, self.bias, batch["targets"][targets.target])
