"""Relative attention and Transformer-XL. XLNet (two_stream.py) has the same attention with an additional term.

Axes: those of layout.py, Q query tokens of a sequence, C tokens of their context (the memory, then the sequence), R
distances. All functions work on padded tensors, because the sequences of a model with a memory have equal lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures.adaptive import AdaptiveTable, bounds
from training.architectures.backbone import Backbone, MaskHead, last_at
from training.architectures.cache import SLOTS_AT_ONCE, KVCache, KVCacheView, empty_cache
from training.architectures.dropout import Dropout
from training.architectures.fused import FusedLinear
from training.architectures.kinds import make_feed_forward
from training.architectures.layout import BatchLayout, layout, spread
from training.architectures.linears import ColumnLinear, RowLinear, Table, TokenTable
from training.architectures.made import add_modules, make, make_all, make_norm
from training.architectures.memory import RecalledMemory, SegmentMemory
from training.architectures.recompute import RecomputedBlocks, call_recomputed
from training.architectures.shift import shift
from training.architectures.tensor_parallel import WHOLE, Share
from training.specs import Architecture, Decoder, RelativeAttentionSpec, RelativePositions, TwoStream


@dataclass(frozen=True)
class AttentionView:
    """Attention mask and distances of queries and their context: computed once per forward pass, read by all blocks."""

    seen: Tensor  # bool [B or 1, 1, Q, C]: the attention mask
    # indices of the sequences that are read forward, then of those read backward; empty: all are read forward
    ways: tuple[Tensor, ...] = ()
    differs: Tensor | None = None  # bool [B, 1, Q, C]: query and key are in different segments; None: no segments
    # index, among all distances, of the distance from each query to the first context token; None: all tokens are
    # queries
    first_BQ: Tensor | None = None


class Context(NamedTuple):
    """Keys, values and projected distances, which all streams of a layer share."""

    key: Tensor  # [B, C, H, K]
    value: Tensor  # [B, C, H, K]
    distance: Tensor  # [W, R, H, K], in decreasing order; W is 2 if some sequences are read backward, else 1


class Biases(nn.Module):
    """Biases of the queries for content, distance and segment, for each head (arXiv:1901.02860, 3.3)."""

    share: Share = WHOLE

    def __init__(self, spec: RelativeAttentionSpec) -> None:
        super().__init__()
        for vectors in spec.biases:
            setattr(self, vectors.name.removeprefix("biases."), make(vectors))

    def split_axes(self) -> dict[str, int]:
        return {name: 0 for name, _ in self.named_parameters()}

    def forward(self, query_BQHK: Tensor) -> tuple[Tensor, ...]:
        """Return the query for each term of the score."""
        return tuple(query_BQHK + bias for bias in self.parameters())


class RelativeAttention(nn.Module):
    """Attention with score(i, j) = [(q_i + u) k_j + (q_i + v) W r_(i-j) + (q_i + w) g_(same segment?)] / sqrt(K).

    Only XLNet has the last term.
    """

    share: Share = WHOLE

    query: ColumnLinear
    key_value: FusedLinear
    distance: ColumnLinear
    out: RowLinear
    segments: nn.Parameter | None  # embeddings for the same and for another segment

    def __init__(self, spec: RelativeAttentionSpec, biases: Biases | None = None) -> None:
        """`biases` are those that all layers share; without them, the attention has its own."""
        super().__init__()
        self.head_dim, self.dropout, self.recompute_core = spec.head_dim, spec.dropout, False
        add_modules(self, spec.linears)
        self.biases = biases or Biases(spec)
        self.segments = None
        add_modules(self, spec.segments)

    def split_axes(self) -> dict[str, int]:
        return {} if self.segments is None else {"segments": 1}

    def context(self, content_BCD: Tensor, sinusoids_WRD: Tensor) -> Context:
        """Compute keys, values and projected distances, which do not depend on the queries."""
        key, value = self.keys_values(content_BCD).chunk(2, 2)
        return Context(key, value, self.distances(sinusoids_WRD))

    def keys_values(self, content_BCD: Tensor) -> Tensor:
        """Keys and values [B, C, 2 H, K]."""
        return self.key_value(content_BCD).unflatten(-1, (-1, self.head_dim))

    def distances(self, sinusoids: Tensor) -> Tensor:
        """Project the sinusoids of distances for each head: [..., D] -> [..., H, K]."""
        return self.distance(sinusoids).unflatten(-1, (-1, self.head_dim))

    def forward(self, x_BQD: Tensor, context: Context, view: AttentionView) -> Tensor:
        query = self.query(x_BQD).unflatten(-1, (-1, self.head_dim))
        for_content, for_distance, *for_segment = self.biases(query)
        by_segment_BHQ2 = None
        if self.segments is not None and view.differs is not None:
            by_segment_BHQ2 = torch.einsum("bqhk,shk->bhqs", self.head_dim**-0.5 * for_segment[0], self.segments)
        with self.share.noise(self.dropout if self.training else 0.0):
            mixed_BHQK = call_recomputed(
                self.recompute_core, self._mix, for_content, for_distance, by_segment_BHQ2, context, view
            )
        return self.out(mixed_BHQK.transpose(1, 2).flatten(-2))

    def _mix(
        self,
        for_content: Tensor,
        for_distance: Tensor,
        by_segment_BHQ2: Tensor | None,
        context: Context,
        view: AttentionView,
    ) -> Tensor:
        """Attention core, from the queries [B, Q, H, K] of each term and the scores of segments -> [B, H, Q, K]."""
        by_distance_BHQR = by_distance(self.head_dim**-0.5 * for_distance, context.distance, view.ways)
        score_BHQC = shift(by_distance_BHQR, context.key.shape[1], view.first_BQ)
        if by_segment_BHQ2 is not None and view.differs is not None:
            same_BHQ1, other_BHQ1 = by_segment_BHQ2.split(1, -1)
            score_BHQC = score_BHQC + torch.where(view.differs, other_BHQ1, same_BHQ1)
        return F.scaled_dot_product_attention(
            for_content.transpose(1, 2),
            context.key.transpose(1, 2),
            context.value.transpose(1, 2),
            attn_mask=score_BHQC.masked_fill(~view.seen, -torch.inf),
            dropout_p=self.dropout if self.training else 0.0,
        )


class RelativeBlock(nn.Module):
    """Post-norm block: attention to one context, then feed-forward, for one or several streams of states."""

    def __init__(self, trunk: Decoder | TwoStream, biases: Biases | None = None) -> None:
        super().__init__()
        assert isinstance(trunk.attention_layer, RelativeAttentionSpec)
        self.attention = RelativeAttention(trunk.attention_layer, biases)
        self.attention_norm = make_norm(trunk.norm("attention_norm"))
        self.feed_forward = make_feed_forward(trunk.feed_forward_layer)
        self.feed_forward_norm = make_norm(trunk.norm("feed_forward_norm"))
        self.dropout = Dropout(trunk.hidden_dropout)

    def forward(
        self,
        streams_BQD: tuple[Tensor, ...],
        views: tuple[AttentionView, ...],
        content_BCD: Tensor,
        sinusoids_WRD: Tensor,
    ) -> tuple[Tensor, ...]:
        context = self.attention.context(content_BCD, sinusoids_WRD)
        return tuple(self.read(x_BQD, context, view) for x_BQD, view in zip(streams_BQD, views, strict=True))

    def read(self, x_BQD: Tensor, context: Context, view: AttentionView) -> Tensor:
        """Apply attention and feed-forward to one stream."""
        x_BQD = self.attention_norm(x_BQD + self.dropout(self.attention(x_BQD, context, view)))
        return self.feed_forward_norm(x_BQD + self.dropout(self.feed_forward(x_BQD)))

    def holding(self, x_BSD: Tensor, held: KVCacheView, distance_RHK: Tensor) -> Context:
        """Append the keys and values of new tokens to the cache, and return their context."""
        key, value = held.put(self.attention.keys_values(x_BSD)).chunk(2, 2)
        return Context(key, value, distance_RHK[None])


class RelativeDecoder(Backbone):
    """Transformer-XL (arXiv:1901.02860): relative positions, and a memory of the states before the sequence.

    Embeddings are multiplied by sqrt(width). All layers share the two biases.
    """

    trunk: Decoder

    def __init__(self, trunk: Decoder, vocab_size: int) -> None:
        super().__init__()
        assert isinstance(trunk.position_embedding, RelativePositions)
        self.trunk, self.distances, self.vocab_size = trunk, trunk.position_embedding, vocab_size
        self.memory = SegmentMemory(trunk.mem_len)
        tables = make_all(trunk.tables(vocab_size))
        self.tokens = tables["tokens"] if "tokens" in tables else AdaptiveTable(trunk, vocab_size)
        assert isinstance(trunk.attention_layer, RelativeAttentionSpec)
        biases = Biases(trunk.attention_layer)
        self.blocks = RecomputedBlocks(RelativeBlock(trunk, biases) for _ in range(trunk.num_hidden_layers))
        self.dropout = Dropout(trunk.hidden_dropout)

    @classmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        return cls(trunk, vocab_size) if isinstance(trunk, Decoder) and trunk.position_embedding.relative else None

    @property
    def table(self) -> Table | tuple[Tensor, ...]:
        """The token table [V, D]; with clusters, the tensors of an adaptive softmax."""
        if isinstance(self.tokens, AdaptiveTable):
            return self.tokens.parts
        if isinstance(self.tokens, TokenTable):
            return self.tokens.table
        table_VD = self.tokens.weight  # accessed once, because ZeRO-3 gathers it at each access
        sizes = [stop - start for start, stop in bounds(self.trunk.cutoffs, self.vocab_size)]
        return table_VD.split(sizes)  # slices would have a gradient of the whole table each

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        return tuple(self.blocks)

    def as_batch(self, x: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        return as_given(x, batch, layout(batch, "causal"))

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        rows = layout(batch, "causal")
        self.memory.length, clamp, same_length = self.distances.reach(self.training)
        recalled = self.memory.recall(batch)
        x_BSD = self.dropout(self.tokens(rectangle(batch["input_ids"], rows)) * self.trunk.hidden_size**0.5)
        causal_SS = torch.ones(rows.shape[1], rows.shape[1], dtype=torch.bool, device=x_BSD.device).tril()
        seen = with_memory(causal_SS[None], recalled)
        view = AttentionView(seen.triu(1 + recalled.length - self.memory.length) if same_length else seen)
        # down to -1, because `shift` needs one more distance than the tokens have
        distance_R = torch.arange(recalled.length + rows.shape[1] - 1, -2, -1, device=x_BSD.device)
        if clamp:
            distance_R = distance_R.clamp(max=clamp)
        sinusoids_WRD = self.dropout(sinusoids(distance_R[None], self.trunk.hidden_size).to(x_BSD.dtype))
        inputs = []

        def read(block: nn.Module, number: int, x_BSD: Tensor) -> Tensor:
            return block((x_BSD,), (view,), recalled.before(number, x_BSD), sinusoids_WRD)[0]

        for number, block in enumerate(self.blocks):
            inputs.append(x_BSD)
            x_BSD = self.blocks.run(read, block, number, x_BSD)
        self.memory.keep(batch, inputs, recalled)
        return as_given(self.dropout(x_BSD), batch, rows)

    def begin(self, batch: Mapping[str, Tensor]) -> KVCache:
        like = next(self.tokens.parameters())
        return empty_cache(
            len(batch["lengths"]),
            self.trunk.num_hidden_layers,
            (self.trunk.num_attention_heads, self.trunk.width_of_head),
            like,
        )

    def forward_cached(self, batch: Mapping[str, Tensor], cache: KVCache) -> tuple[Tensor, KVCache]:
        """Return the states of new tokens and the next cache.

        Each token, also in the prompt, attends to the tokens that would be in its memory if tokens were read one at a
        time. Without a memory, it attends to its whole sequence.
        """
        new, (memory, clamp, same_length) = batch["input_ids"].shape[1], self.distances.reach(training=False)
        before = memory - same_length
        blocks = blocks_of(self.blocks)
        cache = with_distances(cache.with_room(new), new, clamp, blocks)
        x_BSD = self.tokens(batch["input_ids"]) * self.trunk.hidden_size**0.5
        for block, held, distance in zip(blocks, cache.view_layers(new), cache.distances, strict=True):
            held = held.within(before) if memory else held
            context = block.holding(x_BSD, held, distance)
            x_BSD = block.read(x_BSD, context, AttentionView(held.seen, first_BQ=cache.first_distances(new)))
        cache = cache.after(batch)
        return x_BSD, cache.forget(before) if memory else cache

    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The last token of each sequence, because only it attends to the whole sequence."""
        return last_at(batch)

    def std(self, name: str) -> float:
        """For the projections of adaptive tables, half of `init_std` (authors' code)."""
        return self.trunk.init_std / (2 if ".widen." in name or name.endswith(".project.weight") else 1)

    @property
    def gain_std(self) -> float:
        """The gains of norms are also random at the start (authors' code, weights_init)."""
        return self.trunk.init_std

    def memory_state(self) -> dict[str, Tensor]:
        return self.memory.state()

    def load_memory_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        self.memory.load(state, device)


def blocks_of(modules: RecomputedBlocks) -> list[RelativeBlock]:
    """The blocks as a list with their exact type, for the type checker."""
    return [block for block in modules if isinstance(block, RelativeBlock)]


def with_distances(cache: KVCache, new: int, clamp: int, blocks: list[RelativeBlock]) -> KVCache:
    """Add to the cache the projected distances that `new` tokens need in each layer; each is computed once.

    Distances are cut at `clamp`; 0: no limit.
    """
    done = len(cache.distances[0]) if cache.distances else 0
    if done >= cache.in_use + new:
        return cache
    weight = blocks[0].attention.distance.weight
    distance_R = torch.arange(cache.in_use + new + SLOTS_AT_ONCE - 1, done - 1, -1, device=weight.device)
    sinusoids_RD = sinusoids(distance_R.clamp(max=clamp) if clamp else distance_R, weight.shape[1]).to(weight.dtype)
    more = [block.attention.distances(sinusoids_RD) for block in blocks]
    before = cache.distances or (more[0][:0],) * len(more)
    return replace(cache, distances=tuple(map(torch.cat, zip(more, before, strict=True))))


def by_distance(query_BQHK: Tensor, distance_WRHK: Tensor, ways: tuple[Tensor, ...]) -> Tensor:
    """Scores [B, H, Q, R] of each query and each distance; `ways` selects the distances of each sequence."""
    if not ways:
        return torch.einsum("bqhk,rhk->bhqr", query_BQHK, distance_WRHK[0])
    rows, queries, heads, _ = query_BQHK.shape
    score_BHQR = query_BQHK.new_empty(rows, heads, queries, distance_WRHK.shape[1])
    for rows_of_way, distance_RHK in zip(ways, distance_WRHK, strict=True):
        score_BHQR[rows_of_way] = torch.einsum("bqhk,rhk->bhqr", query_BQHK[rows_of_way], distance_RHK)
    return score_BHQR


def sinusoids(distance: Tensor, width: int) -> Tensor:
    """Sinusoidal embeddings [..., width] of distances: all sines, then all cosines, as in the authors' code.

    In transformer.py, sines and cosines are interleaved.

    >>> sinusoids(torch.arange(2), 4)
    tensor([[0.0000, 0.0000, 1.0000, 1.0000],
            [0.8415, 0.0100, 0.5403, 0.9999]])
    """
    frequency = 10_000.0 ** (-torch.arange(0, width, 2, device=distance.device) / width)
    angle = distance[..., None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def with_memory(seen_BQS: Tensor, recalled: RecalledMemory) -> Tensor:
    """Extend the attention mask of a sequence by its memory, which is visible to all queries: [B or 1, 1, Q, C]."""
    if recalled.seen_BM is None:
        return seen_BQS[:, None]
    rows = len(recalled.seen_BM)
    before = recalled.seen_BM[:, None].expand(-1, seen_BQS.shape[1], -1)
    return torch.cat([before, seen_BQS.expand(rows, -1, -1)], dim=-1)[:, None]


def rectangle(ids: Tensor, rows: BatchLayout) -> Tensor:
    """Convert a column of a padded or unpadded batch to [B, S]."""
    return spread(ids, rows.token_at).view(rows.shape)


def as_given(x_BSD: Tensor, batch: Mapping[str, Tensor], rows: BatchLayout) -> Tensor:
    """Convert states [B, S, D] to the layout of their batch."""
    if batch["input_ids"].ndim == 2:
        return x_BSD
    return x_BSD.flatten(0, 1) if rows.place_T is None else x_BSD.flatten(0, 1).index_select(0, rows.place_T)
