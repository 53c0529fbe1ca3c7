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

from preprocessing.schema import IGNORE
from training.architectures import Table
from training.losses.heads.cross_entropy import token_score, tokens_at
from training.score import Score


class BoundaryTargets(NamedTuple):
    """The M targets of a batch, and which of them count."""

    counts: Tensor  # bool [M]: False for a span without ordinary tokens around it, and for later tokens of a long span
    before: Tensor  # int64 [M]: flat index of the token before its span; 0 if it does not count
    after: Tensor  # int64 [M]: flat index of the token after its span; 0 if it does not count
    offset: Tensor  # int64 [M]: position in the span, counted from 0; 0 if it does not count


def boundary_targets(batch: Mapping[str, np.ndarray | Tensor], positions: int) -> BoundaryTargets:
    """The targets of a batch of arrays or tensors: the first `positions` of each span count."""
    at_M, first_at_B, lengths_B = (torch.as_tensor(batch[name]) for name in ("targets_at", "first_at", "lengths"))
    row_M = torch.searchsorted(first_at_B, at_M, right=True) - 1  # no sequence is empty
    last_at_B = first_at_B + lengths_B.to(at_M.device) - 1
    number_M = torch.arange(len(at_M), device=at_M.device)
    begins_M = (at_M.diff(prepend=at_M[:1] - 2) != 1) | (row_M.diff(prepend=row_M[:1]) != 0)
    ends_M = F.pad(begins_M, (0, 1), value=True)[1:]
    start_M = number_M.where(begins_M, 0).cummax(0).values
    stop_M = number_M.where(ends_M, len(at_M)).flip(0).cummin(0).values.flip(0)
    before_M, after_M, offset_M = at_M[start_M] - 1, at_M[stop_M] + 1, number_M - start_M
    ordinary_M = (before_M > first_at_B[row_M]) & (after_M < last_at_B[row_M])
    counts_M = ordinary_M & (offset_M < positions)
    if "targets" in batch:
        counts_M = counts_M & (torch.as_tensor(batch["targets"]) != IGNORE)  # filler
    return BoundaryTargets(counts_M, *(index_M.where(counts_M, 0) for index_M in (before_M, after_M, offset_M)))


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
        """Inputs [M, E] of the token table."""
        around = tokens_at(hidden, targets.before), tokens_at(hidden, targets.after)
        x = self.first_norm(F.gelu(self.first(torch.cat([*around, self.offsets(targets.offset)], dim=-1))))
        return self.second_norm(F.gelu(self.second(x)))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        targets = boundary_targets(batch, self.positions)
        return token_score(self.features(hidden, targets), table_VD, self.bias, batch["targets"], real_M=targets.counts)
