"""Disentangled attention (DeBERTa, arXiv:2006.03654, 3.1): scores of content and of relative position.

Axes as in layout.py; P rows of the table of distances, R distances of the tokens of a sequence.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures.attention import Attention, attend, to_padded
from training.architectures.constants import constant
from training.architectures.dropout import Dropout
from training.architectures.layout import BatchLayout
from training.architectures.made import add_modules
from training.architectures.recompute import call_recomputed
from training.architectures.shift import shift
from training.specs import DisentangledAttentionSpec, DisentangledPositions


class RelativeEmbeddings(nn.Module):
    """The normalized embeddings of all distances, which are computed once per forward pass and read by all layers."""

    rel_embeddings: nn.Embedding
    norm: nn.Module

    def __init__(self, attention: DisentangledAttentionSpec, positions: DisentangledPositions) -> None:
        super().__init__()
        self.norm = nn.Identity()
        add_modules(self, attention.shared)
        self.first_distances = positions.first_distances

    def forward(self, device: torch.device) -> Tensor:
        """The states [P, D] of all rows of the table."""
        states: Tensor = self.norm(self.rel_embeddings(torch.arange(2 * len(self.first_distances), device=device)))
        return states

    def add_to(self, rows: BatchLayout, device: torch.device) -> BatchLayout:
        """The layout with the states, and with the row of each distance."""
        distance_R = torch.arange(1 - rows.shape[1], 1 + rows.shape[1], device=device)
        # Queries are compared with keys of decreasing distance i - j, and keys with queries of increasing distance.
        row_2R = torch.stack([self.row_at(-distance_R), self.row_at(distance_R)])
        return replace(rows, relative=(self(device), row_2R))

    def row_at(self, distance: Tensor) -> Tensor:
        """The row of the table for each distance of a query from its key.

        >>> positions = DisentangledPositions(position_buckets=4, max_relative_positions=8)
        >>> attention = DisentangledAttentionSpec(8, 2, 4, rel_rows=positions.relative_rows)
        >>> RelativeEmbeddings(attention, positions).row_at(torch.tensor([-9, -2, -1, 0, 1, 2, 3, 9]))
        tensor([0, 2, 3, 4, 5, 6, 7, 7])
        """
        first = constant(self.first_distances, distance.device)
        bucket = distance.sign() * torch.bucketize(distance.abs(), first, right=True)
        return (bucket + len(first)).clamp(max=2 * len(first) - 1)


class DisentangledAttention(Attention):
    """Attention with score(i, j) = (q_i k_j + q_i kr_(i-j) + k_j qr_(i-j)) / sqrt(3 K).

    Queries qr and keys kr of distances are computed from the states of distances, with the weights of the content.
    """

    kind: ClassVar[str] = "disentangled"
    scale: float

    def __init__(self, spec: DisentangledAttentionSpec) -> None:
        super().__init__(spec)
        self.scale, self.rel_dropout = spec.scale, Dropout(spec.rel_dropout)

    def forward(
        self, x: Tensor, rows: BatchLayout, read: Tensor | None = None, source: BatchLayout | None = None
    ) -> Tensor:
        assert rows.relative is not None
        states_PD, row_2R = rows.relative
        relative_P3HK = self.qkv(self.rel_dropout(states_PD)).unflatten(-1, (-1, self.head_dim))
        query, key_value = self._project(x, rows, x, rows)
        dropout = self.dropout if self.training else 0.0
        with self.share.noise(dropout):
            mixed = call_recomputed(
                self.recompute_core, self._attend, query, key_value, rows, relative_P3HK, row_2R, dropout
            )
        return self.finish(mixed.flatten(-2), x)

    def _attend(
        self,
        query: Tensor,
        key_value: Tensor,
        rows: BatchLayout,
        relative_P3HK: Tensor,
        row_2R: Tensor,
        dropout: float,
    ) -> Tensor:
        """Attention core, with the scores of positions as a bias."""
        query_BSHK, (key_BSHK, _) = to_padded(query, rows), to_padded(key_value, rows).chunk(2, -2)
        bias_BHSS = self._score_positions(query_BSHK, key_BSHK, relative_P3HK, row_2R)
        if rows.seen is not None:
            bias_BHSS = bias_BHSS.masked_fill(~rows.seen, -torch.inf)
        masked = replace(rows, ends_B1=None, seen=bias_BHSS)
        return attend(query, key_value, masked, masked, dropout, scale=self.scale)

    def _score_positions(self, query_BSHK: Tensor, key_BSHK: Tensor, relative_P3HK: Tensor, row_2R: Tensor) -> Tensor:
        """The scaled scores [B, H, S, S] of content and position: each row of queries, each column of keys.

        The products with all distances are shifted, because an index per pair would need much memory.
        """
        length, (to_query_PHK, to_key_PHK, _) = query_BSHK.shape[1], (self.scale * relative_P3HK).chunk(3, -2)
        key_RHK, query_RHK = (
            F.embedding(row_R, heads_PHK.flatten(1)).unflatten(-1, (-1, self.head_dim))
            for row_R, heads_PHK in zip(row_2R, (to_key_PHK, to_query_PHK), strict=True)
        )
        of_query_BHSS = shift(torch.einsum("bshk,rhk->bhsr", query_BSHK, key_RHK), length, None)
        of_key_BHSS = shift(torch.einsum("bshk,rhk->bhsr", key_BSHK, query_RHK), length, None)
        return of_query_BHSS + of_key_BHSS.transpose(-1, -2)
