"""XLNet (arXiv:1906.08237): a content stream, which reads the tokens, and a query stream, which predicts them."""

import math
from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures.backbone import Backbone, MaskHead, last_at
from training.architectures.cache import KVCache, empty_cache
from training.architectures.dropout import Dropout
from training.architectures.host_columns import copy_to_device, host_of
from training.architectures.layout import BatchLayout, layout
from training.architectures.linears import Table, TokenTable
from training.architectures.made import add_modules
from training.architectures.memory import RecalledMemory, SegmentMemory
from training.architectures.recompute import RecomputedBlocks
from training.architectures.relative import (
    AttentionView,
    RelativeBlock,
    as_given,
    blocks_of,
    rectangle,
    sinusoids,
    with_distances,
    with_memory,
)
from training.specs import Architecture, TwoStream


class Queries(NamedTuple):
    """Positions of the M targets of a batch. Sequences with fewer than Q targets are padded with position 0."""

    row_M: Tensor  # index of the sequence
    column_M: Tensor  # index among the targets of the sequence
    place_BQ: Tensor  # position in the sequence


class TwoStreamModel(Backbone):
    """Bidirectional relative attention with the attention mask of each sequence (2.2); all tokens attend to the memory.

    The query stream contains only the targets. A query attends to the tokens that its target attends to, except for the
    target itself. A sequence with decreasing positions is read backward (3.1): its distances have the opposite sign.
    """

    trunk: TwoStream
    tokens: TokenTable
    unknown: nn.Parameter  # initial state of all queries

    def __init__(self, trunk: TwoStream, vocab_size: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.memory = SegmentMemory(trunk.mem_len)
        add_modules(self, trunk.tensors(vocab_size).outside)
        self.blocks = RecomputedBlocks(RelativeBlock(trunk) for _ in range(trunk.num_hidden_layers))
        self.dropout = Dropout(trunk.hidden_dropout)

    @classmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        return cls(trunk, vocab_size) if isinstance(trunk, TwoStream) else None

    @property
    def table(self) -> Table:
        return self.tokens.table

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        return tuple(self.blocks)

    def as_batch(self, x: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        return as_given(x, batch, layout(batch, "bidirectional"))

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """States [B, S, D] or [T, D] of the queries at `targets_at`, and zeros at other positions.

        For a batch without `rank`, such as a downstream batch, return the states of the content stream.
        """
        rows, recalled = layout(batch, "bidirectional"), self.memory.recall(batch)
        visible_BSS, differs_BSC = attention_mask(batch, rows), of_other_segments(batch, rows, recalled)
        content_BSD = self.dropout(self.tokens(rectangle(batch["input_ids"], rows)))
        sees_itself = torch.eye(rows.shape[1], dtype=torch.bool, device=content_BSD.device)
        ways = ways_of(batch, rows)
        content_view = AttentionView(with_memory(visible_BSS | sees_itself, recalled), ways, differs_BSC[:, None])
        streams: tuple[Tensor, ...] = (content_BSD,)
        views: tuple[AttentionView, ...] = (content_view,)
        queries = queries_at(batch, rows) if "rank" in batch else None
        if queries is not None:
            streams += (self.dropout(self.unknown).expand(*queries.place_BQ.shape, -1),)
            views += (_view_of_queries(visible_BSS & ~sees_itself, ways, differs_BSC, queries, recalled),)
        streams = self._blocks(streams, views, recalled, batch)
        hidden = self.dropout(streams[-1])
        if queries is None:
            return as_given(hidden, batch, rows)
        predicted_MD = hidden[queries.row_M, queries.column_M]
        zeros = hidden.new_zeros(batch["input_ids"].numel(), self.trunk.hidden_size)
        return zeros.index_copy(0, batch["targets_at"], predicted_MD).view(*batch["input_ids"].shape, -1)

    def next_states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """States [B, D] of a query after each sequence, with tokens predicted in the order of the text.

        Each token attends to itself and to earlier tokens, and the query attends to all tokens of the sequence.
        """
        ids_BS, length_B = batch["input_ids"], batch["lengths"].to(batch["input_ids"].device).long()
        rows, longest = ids_BS.shape[0], ids_BS.shape[1] + 1
        place_BS = torch.arange(longest, device=ids_BS.device).expand(rows, -1)
        at_B = torch.arange(rows, device=ids_BS.device) * longest + length_B
        ids_BS = F.pad(ids_BS, (0, 1))  # a place for the query; no token attends to the 0 there
        columns = {"input_ids": ids_BS, "positions": place_BS, "token_type_ids": torch.zeros_like(ids_BS)}
        columns |= {"rank": place_BS, "reach": place_BS - 1, "targets_at": at_B, "lengths": batch["lengths"] + 1}
        return self(columns).flatten(0, 1)[at_B]

    def begin(self, batch: Mapping[str, Tensor]) -> KVCache:
        heads = self.trunk.num_attention_heads, self.trunk.width_of_head
        return empty_cache(len(batch["lengths"]), self.trunk.num_hidden_layers, heads, self.tokens.weight)

    def forward_cached(self, batch: Mapping[str, Tensor], cache: KVCache) -> tuple[Tensor, KVCache]:
        """Return a query state after each new token, as in `next_states`, and the cache with the new tokens.

        A query attends to the cached keys and values of the content stream.
        """
        new, blocks = batch["input_ids"].shape[1], blocks_of(self.blocks)
        cache = with_distances(cache.with_room(new), new + 1, 0, blocks)
        content_BSD = self.tokens(batch["input_ids"])
        query_BSD = self.unknown.expand_as(content_BSD)
        holding, first_BS = cache.view_layers(new), cache.first_distances(new)
        differs = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=content_BSD.device)  # False: there is one segment
        of_content, of_query = (
            AttentionView(holding[0].seen, (), differs, first) for first in (first_BS, first_BS - 1)
        )
        for block, held, distance in zip(blocks, holding, cache.distances, strict=True):
            context = block.holding(content_BSD, held, distance)
            query_BSD = block.read(query_BSD, context, of_query)
            content_BSD = block.read(content_BSD, context, of_content)
        return query_BSD, cache.after(batch)

    def _blocks(
        self,
        streams: tuple[Tensor, ...],
        views: tuple[AttentionView, ...],
        recalled: RecalledMemory,
        batch: Mapping[str, Tensor],
    ) -> tuple[Tensor, ...]:
        """Apply all blocks to the streams; the content stream is the first.

        If there are queries, the last block omits the content stream, because no later layer reads it.
        """
        longest, inputs = streams[0].shape[1], []
        # down to -longest, because `shift` needs one more distance than the tokens have
        distance_R = torch.arange(recalled.length + longest - 1, -longest - 1, -1, device=streams[0].device)
        distance_WR = torch.stack([distance_R, -distance_R]) if views[0].ways else distance_R[None]
        sinusoids_WRD = self.dropout(sinusoids(distance_WR, self.trunk.hidden_size).to(streams[0].dtype))

        def read(block: nn.Module, number: int, streams: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            needed = slice(-1 if number == self.trunk.num_hidden_layers - 1 else 0, None)
            return block(streams[needed], views[needed], recalled.before(number, streams[0]), sinusoids_WRD)

        for number, block in enumerate(self.blocks):
            inputs.append(streams[0])
            streams = self.blocks.run(read, block, number, streams)
        self.memory.keep(batch, inputs, recalled, self.trunk.reuse_len)
        return streams

    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The last token of each sequence."""
        return last_at(batch)

    def memory_state(self) -> dict[str, Tensor]:
        return self.memory.state()

    def load_memory_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        self.memory.load(state, device)


def attention_mask(batch: Mapping[str, Tensor], rows: BatchLayout) -> Tensor:
    """bool [B, S, S]: True if a token (second axis) attends to another (third), by `rank` and `reach` of the batch.

    In the content stream, each token also attends to itself; the caller adds these pairs.
    """
    longest, device = rows.shape[1], batch["input_ids"].device
    exists_B1S = torch.ones(1, 1, longest, dtype=torch.bool, device=device) if rows.seen is None else rows.seen[:, 0]
    if "rank" not in batch:
        return exists_B1S.expand(-1, longest, -1)
    rank_BS, reach_BS = (rectangle(batch[name], rows) for name in ("rank", "reach"))
    return (rank_BS[:, None, :] <= reach_BS[:, :, None]) & exists_B1S


def ways_of(batch: Mapping[str, Tensor], rows: BatchLayout) -> tuple[Tensor, ...]:
    """Indices of the sequences with increasing positions, then of those with decreasing ones; empty if all increase."""
    position, device = host_of(batch, "positions").ravel(), batch["positions"].device
    first_at_B, second_B = starts_of(batch, rows), (host_of(batch, "lengths") > 1).astype(np.int64)
    is_down_B = position[first_at_B + second_B] < position[first_at_B]
    if not is_down_B.any():
        return ()
    return tuple(copy_to_device(np.flatnonzero(way_B), device) for way_B in (~is_down_B, is_down_B))


def starts_of(batch: Mapping[str, Tensor], rows: BatchLayout) -> np.ndarray:
    """Flat index [B] of the first token of each sequence, on the host."""
    if batch["input_ids"].ndim == 2:
        return np.arange(rows.shape[0]) * rows.shape[1]
    lengths_B = host_of(batch, "lengths").astype(np.int64)
    return np.cumsum(lengths_B) - lengths_B


def of_other_segments(batch: Mapping[str, Tensor], rows: BatchLayout, recalled: RecalledMemory) -> Tensor:
    """bool [B, S, C]: True if a token and a context token are in different segments; the memory is in segment 0."""
    segments_BS = rectangle(batch["token_type_ids"], rows)
    return segments_BS[:, :, None] != F.pad(segments_BS, (recalled.length, 0))[:, None, :]


def queries_at(batch: Mapping[str, Tensor], rows: BatchLayout) -> Queries:
    """Group the targets of a batch by sequence."""
    (count, longest), targets_at_M = rows.shape, batch["targets_at"]
    ends_B = np.append(starts_of(batch, rows)[1:], math.inf)
    most = np.bincount(np.searchsorted(ends_B, host_of(batch, "targets_at"), side="right"), minlength=1).max()
    at_M = targets_at_M if rows.place_T is None else rows.place_T[targets_at_M]
    row_M, place_M = at_M // longest, at_M % longest
    count_B = torch.bincount(row_M, minlength=count)
    column_M = torch.arange(len(at_M), device=at_M.device) - (count_B.cumsum(0) - count_B)[row_M]
    place_BQ = at_M.new_zeros(count, max(1, int(most)))
    return Queries(row_M, column_M, place_BQ.index_put((row_M, column_M), place_M))


def _view_of_queries(
    visible_BSS: Tensor, ways: tuple[Tensor, ...], differs_BSC: Tensor, queries: Queries, recalled: RecalledMemory
) -> AttentionView:
    row_B1 = torch.arange(len(queries.place_BQ), device=visible_BSS.device)[:, None]
    seen_BQS, differs_BQC = (pairs[row_B1, queries.place_BQ] for pairs in (visible_BSS, differs_BSC))
    first_BQ = visible_BSS.shape[1] - 1 - queries.place_BQ
    return AttentionView(with_memory(seen_BQS, recalled), ways, differs_BQC[:, None], first_BQ)
