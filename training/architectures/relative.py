"""Relative attention, its memory, and Transformer-XL. XLNet (two_stream.py) has the same attention, and one term more.

Axes beside those of layers.py: Q tokens of a row that are queries, C tokens of their context (the memory, then the
row), R distances. All of it works on rectangles: a net with a memory has rows of one length.
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
from training.architectures.fused import FusedLinear
from training.architectures.layers import BatchLayout, FeedForward, layout, norm, spread
from training.architectures.linears import ColumnLinear, Embedding, RowLinear, Table, TokenTable
from training.architectures.memory import RecalledMemory, SegmentMemory
from training.architectures.recompute import RecomputedBlocks, call_recomputed
from training.architectures.tensor_parallel import WHOLE, Share
from training.specs import Architecture, Decoder, RelativePositions, Stack


@dataclass(frozen=True)
class AttentionView:
    """The attention mask of queries and their context: made once per forward pass, read by every block."""

    seen: Tensor  # bool [B or 1, 1, Q, C]
    ways: tuple[Tensor, ...] = ()  # numbers of the rows whose distances are those of each way; none: there is one way
    differs: Tensor | None = None  # bool [B, 1, Q, C]: the two are of different segments; None: no segments
    # index among all distances of that of each query to the first of its context; None: the whole row are queries
    first_BQ: Tensor | None = None


class Context(NamedTuple):
    """Keys, values and distances: the same for all streams of a layer."""

    key: Tensor  # [B, C, H, K]
    value: Tensor  # [B, C, H, K]
    distance: Tensor  # [W, R, H, K], from the longest one down; W is 2 where some rows are read backward, else 1


class Biases(nn.Module):
    """Biases of the queries of each head: for content, for distance, for segment (arXiv:1901.02860, 3.3)."""

    share: Share = WHOLE

    def __init__(self, trunk: Stack, segments: bool = False) -> None:
        super().__init__()
        shape = trunk.num_attention_heads, trunk.width_of_head
        self.content = nn.Parameter(torch.empty(shape))
        self.distance = nn.Parameter(torch.empty(shape))
        self.segment = nn.Parameter(torch.empty(shape)) if segments else None

    def split_axes(self) -> dict[str, int]:
        return {name: 0 for name, _ in self.named_parameters()}

    def forward(self, query_BQHK: Tensor) -> tuple[Tensor, ...]:
        """The query of each term of the score."""
        return tuple(query_BQHK + bias for bias in self.parameters())


class RelativeAttention(nn.Module):
    """score(i, j) = [(q_i + u) k_j + (q_i + v) W r_(i-j) + (q_i + w) g_(same segment?)] / sqrt(K); the last: XLNet."""

    share: Share = WHOLE

    def __init__(self, trunk: Stack, biases: Biases) -> None:
        super().__init__()
        self.head_width, self.dropout, self.recompute_core = trunk.width_of_head, trunk.attention_dropout, False
        inside = trunk.width_of_heads
        self.query = ColumnLinear(trunk.hidden_size, inside, bias=False)
        self.key_value = FusedLinear(2, trunk.hidden_size, inside, bias=False)
        self.distance = ColumnLinear(trunk.hidden_size, inside, bias=False)
        self.out = RowLinear(inside, trunk.hidden_size, bias=False)
        self.biases = biases
        segments = biases.segment is not None
        self.segments = (
            nn.Parameter(torch.empty(2, trunk.num_attention_heads, self.head_width)) if segments else None
        )  # same, other

    def split_axes(self) -> dict[str, int]:
        return {} if self.segments is None else {"segments": 1}

    def context(self, content_BCD: Tensor, sinusoids_WRD: Tensor) -> Context:
        """Keys, values and distances, which do not depend on the queries."""
        key, value = self.keys_values(content_BCD).unbind(2)
        return Context(key, value, self.distances(sinusoids_WRD))

    def keys_values(self, content_BCD: Tensor) -> Tensor:
        """Keys and values [B, C, 2, H, K]."""
        return self.key_value(content_BCD).unflatten(-1, (2, -1, self.head_width))

    def distances(self, sinusoids: Tensor) -> Tensor:
        """What the scores of distances are made of: [..., D] -> [..., H, K]."""
        return self.distance(sinusoids).unflatten(-1, (-1, self.head_width))

    def forward(self, x_BQD: Tensor, context: Context, view: AttentionView) -> Tensor:
        query = self.query(x_BQD).unflatten(-1, (-1, self.head_width))
        for_content, for_distance, *for_segment = self.biases(query)
        by_segment_BHQ2 = None
        if self.segments is not None and view.differs is not None:
            by_segment_BHQ2 = torch.einsum("bqhk,shk->bhqs", self.head_width**-0.5 * for_segment[0], self.segments)
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
        """The core: queries [B, Q, H, K] of each term, scores of segments (same, other) -> [B, H, Q, K]."""
        by_distance_BHQR = by_distance(self.head_width**-0.5 * for_distance, context.distance, view.ways)
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
    """Attention to one context, then feed-forward, for one stream of tokens or for several; post-norm."""

    def __init__(self, trunk: Stack, biases: Biases) -> None:
        super().__init__()
        self.attention = RelativeAttention(trunk, biases)
        self.attention_norm = norm(trunk, trunk.hidden_size)
        self.feed_forward = FeedForward(trunk, dropout=trunk.hidden_dropout)
        self.feed_forward_norm = norm(trunk, trunk.hidden_size)
        self.dropout = nn.Dropout(trunk.hidden_dropout)

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
        """One stream of tokens after attention and feed-forward."""
        x_BQD = self.attention_norm(x_BQD + self.dropout(self.attention(x_BQD, context, view)))
        return self.feed_forward_norm(x_BQD + self.dropout(self.feed_forward(x_BQD)))

    def holding(self, x_BSD: Tensor, held: KVCacheView, distance_RHK: Tensor) -> Context:
        """The context of new tokens, whose keys and values are put behind those that are held."""
        key, value = held.put(self.attention.keys_values(x_BSD)).unbind(2)
        return Context(key, value, distance_RHK[None])


class RelativeDecoder(Backbone):
    """Transformer-XL (arXiv:1901.02860): no absolute positions, but a memory of the states before the row.

    Embeddings are multiplied by sqrt(width); the two biases are those of all layers.
    """

    trunk: Decoder

    def __init__(self, trunk: Decoder, vocab_size: int) -> None:
        super().__init__()
        assert isinstance(trunk.position_embedding, RelativePositions)
        self.trunk, self.distances, self.vocab_size = trunk, trunk.position_embedding, vocab_size
        self.memory = SegmentMemory(trunk.mem_len)
        narrowing = trunk.token_embedding.div_val > 1
        table = Embedding if trunk.cutoffs else TokenTable  # clusters are parts of a whole table
        self.tokens = AdaptiveTable(trunk, vocab_size) if narrowing else table(vocab_size, trunk.hidden_size)
        biases = Biases(trunk)
        self.blocks = RecomputedBlocks(RelativeBlock(trunk, biases) for _ in range(trunk.num_hidden_layers))
        self.dropout = nn.Dropout(trunk.hidden_dropout)

    @classmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        return cls(trunk, vocab_size) if isinstance(trunk, Decoder) and trunk.position_embedding.relative else None

    @property
    def table(self) -> Table | tuple[Tensor, ...]:
        """The token table [V, D]; what an AdaptiveHead needs where there are clusters."""
        if isinstance(self.tokens, AdaptiveTable):
            return self.tokens.parts
        if isinstance(self.tokens, TokenTable):
            return self.tokens.table
        table_VD = self.tokens.weight  # looked up once: ZeRO-3 gathers it at each access
        return tuple(table_VD[start:stop] for start, stop in bounds(self.trunk.cutoffs, self.vocab_size))

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
        # down to -1, since `shift` wants one distance more than there are
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

    def go_on(self, batch: Mapping[str, Tensor], cache: KVCache) -> tuple[Tensor, KVCache]:
        """Each token attends to those that its memory would have if tokens were read one by one, in the prompt too;
        without a memory to its whole row."""
        new, (memory, clamp, same_length) = batch["input_ids"].shape[1], self.distances.reach(training=False)
        before = memory - same_length
        blocks = blocks_of(self.blocks)
        cache = with_distances(cache.with_room(new), new, clamp, blocks)
        x_BSD = self.tokens(batch["input_ids"]) * self.trunk.hidden_size**0.5
        for block, held, distance in zip(blocks, cache.holding(new), cache.distances, strict=True):
            held = held.within(before) if memory else held
            context = block.holding(x_BSD, held, distance)
            x_BSD = block.read(x_BSD, context, AttentionView(held.seen, first_BQ=cache.first_distances(new)))
        cache = cache.after(batch)
        return x_BSD, cache.forget(before) if memory else cache

    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Each row's last token, the only one that attends to the whole row."""
        return last_at(batch)

    def std(self, name: str) -> float:
        """Half as much for the projections of adaptive tables (authors' code)."""
        return self.trunk.init_std / (2 if ".widen." in name or name.endswith(".project.weight") else 1)

    @property
    def gain_std(self) -> float:
        """The gains of norms are drawn too (authors' code, weights_init)."""
        return self.trunk.init_std

    def memory_state(self) -> dict[str, Tensor]:
        return self.memory.state()

    def load_memory_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        self.memory.load(state, device)


def blocks_of(modules: RecomputedBlocks) -> list[RelativeBlock]:
    """The blocks of a net."""
    return [block for block in modules if isinstance(block, RelativeBlock)]


def with_distances(cache: KVCache, new: int, clamp: int, blocks: list[RelativeBlock]) -> KVCache:
    """The cache with what each layer makes of all distances between its tokens and `new` more, each of them once.

    0 in `clamp`: no distance is cut.
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
    """Score of each query and each distance [B, H, Q, R], of the distances of its row's way."""
    if not ways:
        return torch.einsum("bqhk,rhk->bhqr", query_BQHK, distance_WRHK[0])
    rows, asking, heads, _ = query_BQHK.shape
    score_BHQR = query_BQHK.new_empty(rows, heads, asking, distance_WRHK.shape[1])
    for mine, distance_RHK in zip(ways, distance_WRHK, strict=True):
        score_BHQR[mine] = torch.einsum("bqhk,rhk->bhqr", query_BQHK[mine], distance_RHK)
    return score_BHQR


def shift(by_distance_BHQR: Tensor, context: int, first_BQ: Tensor | None) -> Tensor:
    """Scores by distance, the longest first, to scores by token of the context: [B, H, Q, R] -> [B, H, Q, C].

    Where the whole row are queries, the distances of each token begin one later than those of the next one, and there
    is at least one more than needed: so the scores are a part of the memory that they lie in, cut into shorter lines.

    >>> shift(torch.tensor([[[[2, 1, 0, -1], [2, 1, 0, -1]]]]), 3, None)  # one token of memory, a row of two
    tensor([[[[ 1,  0, -1],
              [ 2,  1,  0]]]])
    """
    if first_BQ is None:
        asking, reach = by_distance_BHQR.shape[-2:]
        lines = by_distance_BHQR.flatten(-2)[..., asking - 1 : asking * reach - 1].unflatten(-1, (asking, reach - 1))
        return lines[..., :context]
    at_BQC = first_BQ[..., None] + torch.arange(context, device=first_BQ.device)
    at_BQC = at_BQC.clamp(max=by_distance_BHQR.shape[-1] - 1)  # of tokens ahead, which are masked, there may be none
    return by_distance_BHQR.gather(-1, at_BQC[:, None].expand(-1, by_distance_BHQR.shape[1], -1, -1))


def sinusoids(distance: Tensor, width: int) -> Tensor:
    """Sines, then cosines [..., width] of distances: not interleaved, as those of transformer.py are (authors' code).

    >>> sinusoids(torch.arange(2), 4)
    tensor([[0.0000, 0.0000, 1.0000, 1.0000],
            [0.8415, 0.0100, 0.5403, 0.9999]])
    """
    frequency = 10_000.0 ** (-torch.arange(0, width, 2, device=distance.device) / width)
    angle = distance[..., None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def with_memory(seen_BQS: Tensor, recalled: RecalledMemory) -> Tensor:
    """The attention mask [B or 1, 1, Q, C] of a row and of its memory, all of which is seen."""
    if recalled.seen_BM is None:
        return seen_BQS[:, None]
    rows = len(recalled.seen_BM)
    before = recalled.seen_BM[:, None].expand(-1, seen_BQS.shape[1], -1)
    return torch.cat([before, seen_BQS.expand(rows, -1, -1)], dim=-1)[:, None]


def rectangle(ids: Tensor, rows: BatchLayout) -> Tensor:
    """A column of a batch, padded or not, as [B, S]."""
    return spread(ids, rows.token_at).view(rows.shape)


def as_given(x_BSD: Tensor, batch: Mapping[str, Tensor], rows: BatchLayout) -> Tensor:
    """States in the layout of their batch."""
    if batch["input_ids"].ndim == 2:
        return x_BSD
    return x_BSD.flatten(0, 1) if rows.place_T is None else x_BSD.flatten(0, 1).index_select(0, rows.place_T)
