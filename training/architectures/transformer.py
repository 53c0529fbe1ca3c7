"""The transformer of the architectures `encoder` and `decoder`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from training.architectures.alibi import AlibiBias
from training.architectures.backbone import Backbone, MaskHead, last_at, no_writer
from training.architectures.block import TransformerBlock
from training.architectures.cache import KVCache, KVCacheView, empty_cache
from training.architectures.disentangled import RelativeEmbeddings
from training.architectures.dropout import Dropout
from training.architectures.kinds import make_attention
from training.architectures.layout import BatchLayout, incremental_layout, layout
from training.architectures.linears import Embedding, Table, TokenTable
from training.architectures.made import make_all
from training.architectures.pipeline_stages import ONLY, PipelineStage, RemoteLayer, StageInputs, stage_of_layer
from training.architectures.recompute import RecomputedBlocks
from training.architectures.rotary import rotations_of
from training.architectures.tensor_parallel import WHOLE, Share
from training.architectures.ulysses import gather_sequence, split_sequence
from training.specs import (
    Architecture,
    Decoder,
    DisentangledAttentionSpec,
    DisentangledPositions,
    Encoder,
    RotaryPositions,
)


class EmbeddingTables(nn.Module):
    """Sum of the embeddings of token, position, segment and language, followed by a norm and dropout."""

    tokens: TokenTable
    positions: Embedding | None
    segments: Embedding | None
    languages: Embedding | None
    embedding_norm: nn.Module
    output: TokenTable | None

    def __init__(self, trunk: Encoder | Decoder, vocab_size: int) -> None:
        super().__init__()
        self.position_offset = trunk.position_embedding.offset
        self.has_sinusoids = trunk.position_embedding.kind == "sinusoidal"
        made = make_all(trunk.embeddings(vocab_size))
        self.tokens, self.positions = made["tokens"], made.get("positions")
        self.segments, self.languages = made.get("segments"), made.get("languages")
        self.embedding_norm = made.get("embedding_norm", nn.Identity())
        self.dropout = Dropout(trunk.hidden_dropout)
        self.output = made.get("output")

    def embed(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Embed a batch: `input_ids`, `positions`, `token_type_ids` and `languages`, [B, S] or [T] -> [..., E].

        E is the width of the tables.
        """
        return self.finish(self.look_up(batch))

    def finish(self, x: Tensor) -> Tensor:
        """Apply norm and dropout to the sum of the embeddings."""
        return self.dropout(self.embedding_norm(x))

    def look_up(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The sum of the embeddings of each token, [..., E]."""
        x = self.tokens(batch["input_ids"])
        if self.positions is not None:
            x = x + self.positions(batch["positions"] + self.position_offset)
        elif self.has_sinusoids:
            x = x + sinusoids_at(batch["positions"] + self.position_offset, x.shape[-1]).to(x.dtype)
        if self.segments is not None:
            # RoBERTa's table has one row, which both segments of a downstream pair use
            x = x + self.segments(batch["token_type_ids"].clamp(max=self.segments.num_embeddings - 1))
        if self.languages is not None:
            languages = batch.get("languages")  # a corpus with one language has no such column
            x = x + (self.languages.weight[0] if languages is None else self.languages(languages))
        return x


class InputEmbeddings(EmbeddingTables, Backbone):
    """A backbone with embeddings, whose token table also predicts tokens unless there is another table for that."""

    @property
    def table(self) -> Table:
        return self.tokens.table if self.output is None else self.output.table


class TransformerStack(nn.Module):
    """Transformer blocks, after a linear layer that widens the embeddings if the tables are narrower (ALBERT 3.1)."""

    chunk: Share = WHOLE

    def __init__(self, trunk: Encoder | Decoder) -> None:
        super().__init__()
        around = make_all(trunk.tower().outside)
        self.widen = around.get("widen", nn.Identity())
        self.blocks = blocks(trunk)
        self.final_norm = around.get("final_norm", nn.Identity())
        self.relative = relative_embeddings(trunk)

    def forward(self, x: Tensor, rows: BatchLayout) -> Tensor:
        rows = rows if self.relative is None else self.relative.add_to(rows, x.device)
        return through(self.blocks, self.widen, self.final_norm, x, rows, self.chunk)


class Transformer(InputEmbeddings):
    """BERT (arXiv:1810.04805), RoBERTa (arXiv:1907.11692), ALBERT (arXiv:1909.11942), XLM, GPT-1, GPT-2, GPT-3, ...

    A post-norm encoder normalizes the summed embeddings; a pre-norm stack ends with a norm.
    """

    trunk: Encoder | Decoder
    chunk: Share = WHOLE

    def __init__(self, trunk: Encoder | Decoder, vocab_size: int) -> None:
        super().__init__(trunk, vocab_size)
        self.trunk, self.visibility = trunk, trunk.attention_mask
        tower = TransformerStack(trunk)
        self.widen, self.blocks, self.final_norm = tower.widen, tower.blocks, tower.final_norm
        self.relative = tower.relative
        self.alibi = AlibiBias(trunk.num_attention_heads) if trunk.position_embedding.kind == "alibi" else None

    @classmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        if isinstance(trunk, Encoder | Decoder) and not trunk.position_embedding.relative:
            return cls(trunk, vocab_size)
        return None

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        return tuple(self.blocks)

    @property
    def above_layers(self) -> Mapping[str, int]:
        return {"final_norm": len(self.blocks)}

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self._through(batch, self._layout(batch))

    def _layout(self, batch: Mapping[str, Tensor]) -> BatchLayout:
        dropout, dense = self.trunk.attention_dropout if self.training else 0.0, self.alibi is not None
        rows = layout(batch, self.visibility, dropout, dense=dense)
        return self._with_positions(batch, rows)

    def _with_positions(self, batch: Mapping[str, Tensor], rows: BatchLayout) -> BatchLayout:
        """Add what attention reads of the positions: rotations, states of distances, or a bias."""
        spec = self.trunk.position_embedding
        if self.relative is not None:
            return self.relative.add_to(rows, batch["input_ids"].device)
        if isinstance(spec, RotaryPositions):
            rotations = rotations_of(batch["positions"], spec, self.trunk.width_of_head)
            return replace(rows, rotations=rotations)
        dtype, device = next(self.parameters()).dtype, batch["input_ids"].device
        return rows if self.alibi is None else self.alibi(rows, dtype, device)

    def owners(self, stages: int) -> Mapping[str, int]:
        """The tables are on the first stage, the norm above the blocks and an untied output table on the last."""
        layers, children = len(self.blocks), dict(self.named_children())
        owners = dict.fromkeys(children.keys() - {"blocks", "alibi"}, 0)
        owners |= dict.fromkeys({"final_norm", "output"} & children.keys(), stages - 1)
        return owners | {f"blocks.{layer}": stage_of_layer(layer, layers, stages) for layer in range(layers)}

    def run_stage(self, batch: Mapping[str, Tensor], inputs: StageInputs) -> Tensor:
        x = self.embed(batch) if inputs.states is None else inputs.states
        return through(self.blocks, self.widen, self.final_norm, x, self._layout(batch), self.chunk, self.stage)

    @property
    def takes_mask(self) -> bool:
        """Whether no layer has windowed attention or scores of distances, which need their own masks."""
        return not self.trunk.has_window and self.alibi is None and self.relative is None

    def compute_masked_states(self, batch: Mapping[str, Tensor], seen_BSS: Tensor) -> Tensor:
        rows, longest = batch["input_ids"].shape
        mask = BatchLayout((rows, longest), False, None, None, None, seen_BSS[:, None])
        return self._through(batch, self._with_positions(batch, mask))

    def _through(self, batch: Mapping[str, Tensor], rows: BatchLayout) -> Tensor:
        return through(self.blocks, self.widen, self.final_norm, self.embed(batch), rows, self.chunk)

    def begin(self, batch: Mapping[str, Tensor]) -> KVCache:
        if self.visibility != "causal":
            raise no_writer(self.trunk)
        return self._empty_cache(batch)

    def forward_cached(self, batch: Mapping[str, Tensor], cache: KVCache) -> tuple[Tensor, KVCache]:
        new = batch["input_ids"].shape[1]
        cache = cache.with_room(new)
        return self._states_of_new(batch, cache.view_layers(new)), cache.after(batch)

    def begin_seeing(self, batch: Mapping[str, Tensor]) -> KVCache | None:
        return self._empty_cache(batch) if self.takes_mask else None

    def _empty_cache(self, batch: Mapping[str, Tensor]) -> KVCache:
        trunk = self.trunk
        heads = trunk.groups, trunk.width_of_head
        return empty_cache(len(batch["lengths"]), trunk.num_hidden_layers, heads, self.tokens.weight)

    def go_on_seeing(self, batch: Mapping[str, Tensor], cache: KVCache, seen_BSC: Tensor) -> tuple[Tensor, KVCache]:
        cache = cache.with_room(batch["input_ids"].shape[1])
        slot_BS = cache.positions(batch["input_ids"].shape[1])
        views = [KVCacheView(held, slot_BS, seen_BSC[:, None]) for held in cache.layers]
        return self._states_of_new(batch, views), cache

    def _states_of_new(self, batch: Mapping[str, Tensor], views: Sequence[KVCacheView]) -> Tensor:
        """The states of new tokens, given the cache view of each layer."""
        x = self.widen(self.embed(batch))
        for block, rows in zip(self.blocks, self._incremental_layouts(batch, views), strict=True):
            x = block(x, rows)
        return self.final_norm(x)

    def _incremental_layouts(self, batch: Mapping[str, Tensor], views: Sequence[KVCacheView]) -> list[BatchLayout]:
        """The layout of the new tokens for each layer."""
        spec, first = self.trunk.position_embedding, views[0]
        if self.alibi is not None and first.slot_BS is not None:
            bias = self.alibi.of_new_tokens(first.slot_BS, first.seen, first.key_value.dtype)
            views = [replace(view, seen=bias) for view in views]
        rows = [incremental_layout(view) for view in views]
        if isinstance(spec, RotaryPositions):
            rotations = rotations_of(batch["positions"], spec, self.trunk.width_of_head)
            rows = [replace(each, rotations=rotations) for each in rows]
        return rows

    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The first token in an encoder; the last in a decoder, because only it attends to all tokens (GPT-1 3.2)."""
        return last_at(batch) if self.visibility == "causal" else batch["first_at"]

    def std(self, name: str) -> float:
        """`init_std`, divided by sqrt(2 * layers) for pre-norm residual projections (GPT-2 2.3, Megatron-LM 4.2)."""
        scaled = self.trunk.norm_position == "pre" and self.trunk.scale_residual_init
        residual = scaled and name.endswith(("attention.out.weight", "down.weight"))
        return self.trunk.init_std / (math.sqrt(2 * self.trunk.num_hidden_layers) if residual else 1.0)


def through(
    blocks: RecomputedBlocks,
    widen: nn.Module,
    final_norm: nn.Module,
    x: Tensor,
    rows: BatchLayout,
    chunk: Share,
    stage: PipelineStage = ONLY,
) -> Tensor:
    """Apply the blocks of a stack to embedded tokens.

    With sequence parallelism, each worker processes a chunk of the tokens. The first pipeline stage splits the tokens
    into chunks, and the last stage gathers them.
    """
    x = split_sequence(x, chunk) if stage.is_first else x
    dropout_rates = [block.dropout.p for block in blocks if isinstance(block, TransformerBlock) and block.training]
    with chunk.noise(max(dropout_rates, default=0.0)):
        x = widen(x)
        for block in blocks:
            x = x if isinstance(block, RemoteLayer) else blocks.run(block, x, rows)
        x = final_norm(x)
    return gather_sequence(x, chunk, rows.token_shape) if stage.is_last else x


def blocks(trunk: Encoder | Decoder) -> RecomputedBlocks:
    """Build the blocks of a stack. Layers of a group share modules, so that their weights exist once (ALBERT 3.1).

    A shared sub-layer includes its norm. With `parameter_sharing: all`, all blocks of a group have the same modules.
    """
    result, owners = list[TransformerBlock](), dict[int, TransformerBlock]()
    for number in range(trunk.num_hidden_layers):
        attention = make_attention(trunk.attention_at(number))
        block = TransformerBlock(trunk, attention, is_normed=trunk.first_is_normed and number == 0)
        owner = owners.setdefault(number * trunk.num_hidden_groups // trunk.num_hidden_layers, block)
        if trunk.parameter_sharing in ("attention", "all"):
            block.attention, block.attention_norm = owner.attention, owner.attention_norm
        if trunk.parameter_sharing in ("feed_forward", "all"):
            block.feed_forward, block.feed_forward_norm = owner.feed_forward, owner.feed_forward_norm
        result.append(block)
    return RecomputedBlocks(result)


def relative_embeddings(trunk: Encoder | Decoder) -> RelativeEmbeddings | None:
    """The embeddings of distances that the layers of disentangled attention share; None for other attention."""
    attention, positions = trunk.attention_layer, trunk.position_embedding
    if isinstance(attention, DisentangledAttentionSpec) and isinstance(positions, DisentangledPositions):
        return RelativeEmbeddings(attention, positions)
    return None


def sinusoids_at(position: Tensor, width: int) -> Tensor:
    """Sinusoidal position embeddings [..., width] with interleaved sines and cosines (arXiv:1706.03762, 3.5).

    >>> sinusoids_at(torch.arange(2), 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    # float64, because in float32 the angles of position 500 have an error of 3e-5
    frequency = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=position.device) / width)
    angle = position[..., None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :width].float()
