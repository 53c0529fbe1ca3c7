"""Encoder-decoder models, such as BART, T5 and MASS: two stacks that share one token table.

The decoder also attends to the states of the encoder. The columns of a batch belong to the decoder, except for the
`source_*` columns, which belong to the encoder. Axes as in layout.py, and U tokens of a source sequence. In an unpadded
batch, the tokens of each side are contiguous.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from training.architectures.attention import Attention
from training.architectures.backbone import Backbone, MaskHead, last_at
from training.architectures.block import TransformerBlock
from training.architectures.cache import KVCache, KVCacheView, empty_cache
from training.architectures.dropout import Dropout
from training.architectures.host_columns import DeviceBatch
from training.architectures.kinds import make_attention
from training.architectures.layout import BatchLayout, incremental_layout, layout, spread
from training.architectures.linears import Table, TokenTable
from training.architectures.made import add_modules, make_all
from training.architectures.recompute import RecomputedBlocks
from training.architectures.relative import sinusoids
from training.architectures.tensor_parallel import WHOLE, Share
from training.specs import Architecture, EncoderDecoder, Init

T = TypeVar("T")  # a tensor or an array


class EncoderDecoderModel(Backbone):
    """BART (arXiv:1910.13461), T5 (arXiv:1910.10683), MASS (arXiv:1905.02450): encoder, decoder and token table."""

    trunk: EncoderDecoder
    tokens: TokenTable
    output: TokenTable  # with tie_word_embeddings false

    def __init__(self, trunk: EncoderDecoder, vocab_size: int) -> None:
        super().__init__()
        self.trunk = trunk
        add_modules(self, trunk.tables(vocab_size))
        self.encoder = Seq2SeqStack(trunk, decodes=False)
        self.decoder = Seq2SeqStack(trunk, decodes=True)

    @classmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        return cls(trunk, vocab_size) if isinstance(trunk, EncoderDecoder) else None

    @property
    def table(self) -> Table:
        return self.output.table if "output" in self._modules else self.tokens.table

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        return (*self.encoder.blocks, *self.decoder.blocks)

    @property
    def above_layers(self) -> Mapping[str, int]:
        return {"encoder.final_norm": len(self.encoder.blocks), "decoder.final_norm": len(self.layers)}

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """States of the decoder for the product with the token table: [B, S] -> [B, S, D], unpadded [T] -> [T, D].

        T5 scales them down, because its table is initialized with a standard deviation of 1.
        """
        return self._scale(self.states(batch))

    def _scale(self, hidden: Tensor) -> Tensor:
        return hidden * self.trunk.hidden_size**-0.5 if self.trunk.scale_decoder_outputs else hidden

    def states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Last states of the decoder. If a batch has no source, both stacks read the same sequence (BART 3.3)."""
        source = source_of(batch) or batch
        source_rows = layout(source, "bidirectional")
        # one lookup for both, because the gradient of each lookup has the size of the whole table
        source_ids, ids = source["input_ids"], batch["input_ids"]
        x, y = self.tokens(torch.cat([source_ids.flatten(), ids.flatten()])).split([source_ids.numel(), ids.numel()])
        read = self.encoder(x.unflatten(0, source_ids.shape), source, source_rows)
        if "seen" in source:
            source_rows = mask_source(source_rows, source["seen"])
        return self.decoder(y.unflatten(0, ids.shape), batch, layout(batch, "causal"), (read, source_rows))

    def begin(self, batch: Mapping[str, Tensor]) -> KVCache:
        source, trunk = source_of(batch), self.trunk
        rows = layout(source, "bidirectional")
        read = self.encoder(self.tokens(source["input_ids"]), source, rows)
        if "seen" in source:
            rows = mask_source(rows, source["seen"])
        crosses = (block.cross for block in self.decoder.blocks if isinstance(block, TransformerBlock))
        held = tuple(cross.keys_values(read) for cross in crosses if isinstance(cross, Attention))
        cache = empty_cache(
            len(source["input_ids"]), trunk.num_hidden_layers, (trunk.num_attention_heads, trunk.width_of_head), read
        )
        return replace(cache, source=held, source_seen=rows.seen)

    def forward_cached(self, batch: Mapping[str, Tensor], cache: KVCache) -> tuple[Tensor, KVCache]:
        cache = cache.with_room(batch["input_ids"].shape[1])
        hidden = self.decoder.forward_cached(self.tokens(batch["input_ids"]), batch, cache)
        return self._scale(hidden), cache.after(batch)

    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The last token of the decoder, which attends to its whole sequence (BART 3.3)."""
        return last_at(batch)

    def init(self, name: str) -> Init:
        return self.trunk.init_method if self.trunk.scale_attention else "normal"

    def std(self, name: str) -> float:
        """With unscaled attention, use T5's initialization.

        The token table has a standard deviation of 1. The query projections start smaller, which replaces the scale of
        the scores. The other matrices preserve the variance of their inputs.
        """
        trunk = self.trunk
        if trunk.scale_attention or not name.startswith("trunk."):
            return trunk.init_std
        fan_in = {
            "tokens": 1,
            "query": trunk.hidden_size * trunk.width_of_head,
            "out": trunk.num_attention_heads * trunk.width_of_head,
            "down": trunk.inner_width,
        }
        return float(fan_in.get(name.split(".")[-2], trunk.hidden_size) ** -0.5)


class Seq2SeqStack(nn.Module):
    """The encoder or the decoder: positions, languages, norm and blocks. T5's blocks share one table of distances."""

    share: Share = WHOLE

    def __init__(self, trunk: EncoderDecoder, *, decodes: bool) -> None:
        super().__init__()
        self.trunk, self.decodes = trunk, decodes
        around = make_all(trunk.side("decoder" if decodes else "encoder").outside)
        self.positions, self.distances, self.languages = map(around.get, ("positions", "distances", "languages"))
        self.embedding_norm = around.get("embedding_norm", nn.Identity())
        attentions = (trunk.attention_layer,) * (2 if decodes else 1)
        self.blocks = RecomputedBlocks(
            TransformerBlock(trunk, *map(make_attention, attentions)) for _ in range(trunk.num_hidden_layers)
        )
        self.final_norm = around.get("final_norm", nn.Identity())
        self.dropout = Dropout(trunk.hidden_dropout)

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(
        self,
        x: Tensor,
        batch: Mapping[str, Tensor],
        rows: BatchLayout,
        source: tuple[Tensor, BatchLayout] | None = None,
    ) -> Tensor:
        """States of the embedded tokens `x`. A decoder attends to `source`: the encoder's states and their layout."""
        x = self.embed(x, batch)
        if self.distances is not None:
            bias = self.bias(rows.shape[1], x.device)
            bias = bias if rows.seen is None else bias.masked_fill(~rows.seen, -torch.inf)
            rows = replace(rows, ends_B1=None, causal=False, seen=bias)
        for block in self.blocks:
            x = self.blocks.run(block, x, rows, source)
        return self.finish(x)

    def forward_cached(self, x: Tensor, batch: Mapping[str, Tensor], cache: KVCache) -> Tensor:
        """States of new tokens in the decoder. The cache contains the previous tokens and the source."""
        x, holding = self.embed(x, batch), cache.view_layers(batch["input_ids"].shape[1])
        if self.distances is not None:
            bias = self.bias_of(holding[0])
            holding = [replace(held, seen=bias) for held in holding]
        for block, held, source in zip(self.blocks, holding, cache.view_source(), strict=True):
            rows = incremental_layout(held)
            x = block(x, rows, (x, replace(rows, held=source)))
        return self.finish(x)

    def embed(self, x: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Add positions and languages to embedded tokens."""
        if self.trunk.scale_embedding:
            x = x * self.trunk.hidden_size**0.5
        if self.positions is not None:
            x = x + self.positions(batch["positions"] + self.trunk.position_embedding.offset)
        elif self.distances is None:
            x = x + sinusoids(batch["positions"], self.trunk.hidden_size).to(x.dtype)
        if self.languages is not None:
            languages = batch.get("languages")  # a corpus with one language has no such column
            x = x + (self.languages.weight[0] if languages is None else self.languages(languages))
        return self.dropout(self.embedding_norm(x))

    def finish(self, x: Tensor) -> Tensor:
        """Apply the norm after the last block, and T5's dropout."""
        x = self.final_norm(x)
        # T5 applies dropout after its last norm, PEGASUS does not (its code, models/transformer.py)
        return self.dropout(x) if (self.trunk.norm_position, self.trunk.norm_type) == ("pre", "rmsnorm") else x

    def bias(self, length: int, device: torch.device) -> Tensor:
        """T5's scores for the distance from query to key, [1, H, S, S]; minus infinity if the key is masked.

        Each worker has the complete table, which is small, and reads the columns of its heads.
        """
        assert self.distances is not None
        positions, offset_N = self.trunk.position_embedding, torch.arange(1 - length, length, device=device)
        bucket_N = bucket(offset_N, positions.num_buckets, positions.max_distance, both_sides=not self.decodes)
        local = self.share.within(self.trunk.num_attention_heads)
        bias_HN = self.share.enter(self.distances(bucket_N)).T[local]
        if self.decodes:
            bias_HN = bias_HN.masked_fill(offset_N > 0, -torch.inf)
        return bias_HN.unfold(1, length, 1).flip(1)[None]  # query i uses the offsets -i to S - 1 - i

    def bias_of(self, held: KVCacheView) -> Tensor:
        """T5's scores for the distance from each new token to all cached tokens, [B, H, S, C]."""
        assert self.distances is not None
        assert held.slot_BS is not None
        positions, slot_C = self.trunk.position_embedding, torch.arange(held.seen.shape[-1], device=held.seen.device)
        offset_BSC = slot_C - held.slot_BS[..., None]
        bucket_BSC = bucket(offset_BSC, positions.num_buckets, positions.max_distance, both_sides=False)
        return self.distances(bucket_BSC).permute(0, 3, 1, 2).masked_fill(~held.seen, -torch.inf)


def source_of(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The encoder's columns of a batch, without the prefix `source_`; empty if the batch has no source."""
    columns = _without_prefix(batch)
    return DeviceBatch(columns, _without_prefix(batch.host)) if isinstance(batch, DeviceBatch) else columns


def _without_prefix(columns: Mapping[str, T]) -> dict[str, T]:
    return {name.removeprefix("source_"): x for name, x in columns.items() if name.startswith("source_")}


def mask_source(rows: BatchLayout, seen: Tensor) -> BatchLayout:
    """Restrict attention to the tokens for which `seen` is True."""
    seen = spread(seen, rows.token_at).view(rows.shape)[:, None, None, :]
    return replace(rows, ends_B1=None, seen=seen if rows.seen is None else seen & rows.seen)


def bucket(offset: Tensor, buckets: int, max_distance: int, *, both_sides: bool) -> Tensor:
    """T5's bucket number of the distance from query to key (arXiv:1910.10683, 2.1).

    Each small distance has its own bucket; the buckets of larger distances widen logarithmically, and the last bucket
    contains all distances from `max_distance`. With `both_sides`, half of the buckets are for keys after the query.

    >>> bucket(torch.tensor([-200, -16, -1, 0, 1, 16]), 32, 128, both_sides=True)
    tensor([15, 10,  1,  0, 17, 26])
    """
    first = torch.zeros_like(offset)
    if both_sides:
        buckets //= 2
        first, offset = buckets * (offset > 0), -offset.abs()
    distance, near = (-offset).clamp(min=0), buckets // 2
    steps = (distance.clamp(min=near) / near).log() / math.log(max_distance / near) * (buckets - near)
    far = (near + steps.long()).clamp(max=buckets - 1)
    return first + torch.where(distance < near, distance, far)
