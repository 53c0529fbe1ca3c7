"""Multi-head attention, with one linear layer for queries, keys and values or with two, and its kernels.

Axes as in layout.py. The heads of a token are one tensor [H + 2 G, K]: its queries, then its keys, then its values.
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures import flex
from training.architectures.banded import attend_to_band
from training.architectures.dropout_attention import DropoutAttention
from training.architectures.fused import FusedLinear
from training.architectures.kernels import AttentionCase, attend_varlen, has_varlen_dropout
from training.architectures.layout import BatchLayout, spread
from training.architectures.linears import ColumnLinear, RowLinear
from training.architectures.made import add_modules
from training.architectures.recompute import call_recomputed
from training.architectures.tensor_parallel import WHOLE, Share
from training.architectures.ulysses import to_heads, to_tokens
from training.specs import SelfAttentionSpec, VectorsSpec


class Attention(nn.Module):
    """Multi-head self-attention or cross-attention (arXiv:1706.03762, 3.2.2), with the options of its spec."""

    kind: ClassVar[str] = "plain"  # of its spec
    qkv: FusedLinear  # self-attention whose queries, keys and values are one product
    query: ColumnLinear  # otherwise
    key_value: FusedLinear
    query_norm: nn.Module  # with a norm of queries and keys
    key_norm: nn.Module
    out: RowLinear
    share: Share = WHOLE
    chunk: Share = WHOLE  # this worker's fraction of the tokens

    def __init__(self, spec: SelfAttentionSpec) -> None:
        super().__init__()
        self.head_dim, self.dropout, self.window = spec.head_dim, spec.dropout, spec.window
        self.scale, self.recompute_core = None if spec.is_scaled else 1.0, False
        self.case = AttentionCase(spec.heads, spec.key_value_heads or spec.heads, spec.head_dim, spec.dropout)
        add_modules(self, spec.tensors())
        self.is_joint, self.has_norms = "qkv" in self._modules, spec.head_norm is not None
        self.adjusts = type(self).adjust is not Attention.adjust
        vectors = (tensor for tensor in spec.tensors() if isinstance(tensor, VectorsSpec))
        self.axes = {tensor.name: tensor.axis for tensor in vectors if tensor.axis is not None}

    def split_axes(self) -> dict[str, int]:
        """The axes of the heads in parameters that are no linear layers."""
        return self.axes

    def forward(
        self, x: Tensor, rows: BatchLayout, read: Tensor | None = None, source: BatchLayout | None = None
    ) -> Tensor:
        """Attention of the tokens `x` to the states `read`, by default to themselves.

        `rows` is the layout of `x`; `source` has the layout and the mask of `read`. If `source` has cached keys and
        values, self-attention appends those of `read` to them. In cross-attention the cache is complete, and `read` is
        not used.
        """
        source = rows if source is None else source
        query, key_value = self._project(x, rows, x if read is None else read, source)
        if (held := source.held) is not None:
            key_value = held.used if held.slot_BS is None else held.put(key_value)
            held = held if self.window is None else held.within(self.window[0])
            source = replace(source, shape=(key_value.shape[0], key_value.shape[1]), seen=held.seen)
        dropout = self.dropout if self.training else 0.0
        with self.share.noise(dropout), self.chunk.noise(dropout):
            mixed = self._mix(x, query, rows, key_value, source, dropout)
        if self.chunk.of > 1:
            mixed = to_tokens(mixed.flatten(0, -3), self.chunk, rows.tokens)
        return self.finish(mixed.flatten(-2), x)

    def finish(self, mixed: Tensor, x: Tensor) -> Tensor:
        """States [..., D] of the results of all heads [..., H K]; `x` are the states that the queries are made of."""
        return self.out(mixed)

    def keys_values(self, read: Tensor) -> Tensor:
        """Keys and values [..., 2 G, K] of the states [..., D] that cross-attention reads."""
        return self.key_value(read).unflatten(-1, (-1, self.head_dim))

    def adjust(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Change queries [..., H, K] and keys [..., G, K], after their norms and before their rotation."""
        return query, key

    def select_heads(self, vectors_HK: Tensor) -> Tensor:
        """The rows of a parameter that belong to the heads which this worker computes."""
        return vectors_HK[self.chunk.within(len(vectors_HK))]

    def _project(self, x: Tensor, rows: BatchLayout, read: Tensor, source: BatchLayout) -> tuple[Tensor, Tensor]:
        """Queries [..., H, K] of `x`, and keys and values [..., 2 G, K] of `read`. Rotary positions rotate both."""
        if not self.is_joint:
            query, held = self.query(x).unflatten(-1, (-1, self.head_dim)), source.held
            is_complete = held is not None and held.slot_BS is None
            return query, query[..., :0, :] if is_complete else self.keys_values(read)
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        lengths = [length // self.head_dim for length in self.qkv.lengths]
        if self.chunk.of > 1:
            heads = to_heads(heads, self.chunk, rows.tokens, lengths).unflatten(0, rows.token_shape)
            lengths = [length // self.chunk.of for length in lengths]
        num_queries, num_keys, _ = lengths
        if self.has_norms or self.adjusts:
            query, key, value = heads.split(lengths, -2)
            if self.has_norms:
                query, key = self.query_norm(query), self.key_norm(key)
            heads = torch.cat([*self.adjust(query, key), value], -2)
        if rows.rotations is not None:
            turned, value = heads.split([num_queries + num_keys, num_keys], -2)
            heads = torch.cat([rows.rotations[self.window is not None].apply(turned), value], -2)
        query, key_value = heads.split([num_queries, 2 * num_keys], -2)
        return query, key_value

    def _mix(
        self, x: Tensor, query: Tensor, rows: BatchLayout, key_value: Tensor, source: BatchLayout, dropout: float
    ) -> Tensor:
        """Attention core: queries [B, S, H, K] or [T, H, K], keys and values [B, U, 2 G, K] or [T, 2 G, K].

        The result has the shape of the queries. `x` are the states that the queries are made of.
        """
        if self.window is not None and source.held is None:
            return attend_to_window(
                query, key_value, rows, self.window, dropout, scale=self.scale, recompute=self.recompute_core
            )
        return attend(query, key_value, rows, source, dropout, scale=self.scale, recompute=self.recompute_core)


def attend(
    query: Tensor,
    key_value: Tensor,
    rows: BatchLayout,
    source: BatchLayout,
    dropout: float = 0.0,
    *,
    scale: float | None = None,
    recompute: bool = False,
) -> Tensor:
    """Scaled dot-product attention: [B, S, H, K] and [B, U, 2 G, K] -> [B, S, H, K], or unpadded [T, H, K].

    For unpadded tokens on CUDA, FlexAttention evaluates a block mask, without dropout, and the variable-length kernel
    computes other masks in 16 bits; `recompute` would save no memory in them. On CPUs, unpadded tokens with dropout
    have their own function. All other inputs are padded to [B, H, S, K] for torch's padded kernel, which is the fastest
    if all sequences are full. `scale` None: 1 / sqrt(K).
    """
    if rows.block_mask is not None and source is rows:
        return flex.attend(query, key_value, rows.block_mask, scale)
    ends, source_ends = rows.ends_B1, source.ends_B1
    if ends is None or source_ends is None or query.ndim != 3:
        return call_recomputed(recompute, _attend_padded, query, rows, key_value, source, dropout, scale)
    is_full = rows.token_at is None and source.token_at is None
    if not is_full and _fits_varlen(query, dropout):
        key, value = key_value.chunk(2, -2)
        longest = rows.shape[1], source.shape[1]
        return attend_varlen(query, key, value, ends, source_ends, longest, dropout, source.causal, scale)
    is_grouped = key_value.shape[-2] != 2 * query.shape[-2]
    drops_on_cpu = dropout > 0 and query.device.type == "cpu" and not torch.compiler.is_compiling()
    if drops_on_cpu and query.dtype == torch.float32 and not is_grouped:
        return call_recomputed(recompute, _attend_with_dropout, query, rows, key_value, source, dropout, scale)
    return call_recomputed(recompute, _attend_padded, query, rows, key_value, source, dropout, scale)


def _fits_varlen(query: Tensor, dropout: float) -> bool:
    """Whether the variable-length kernel can process unpadded queries."""
    is_half = query.dtype in (torch.bfloat16, torch.float16)
    return query.is_cuda and is_half and (dropout == 0 or has_varlen_dropout())


def _attend_with_dropout(
    query: Tensor, rows: BatchLayout, key_value: Tensor, source: BatchLayout, dropout: float, scale: float | None
) -> Tensor:
    assert rows.ends_B1 is not None
    assert source.ends_B1 is not None
    ends, source_ends = rows.ends_B1.tolist(), source.ends_B1.tolist()
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    mixed: Tensor = DropoutAttention.apply(query, key_value, ends, source_ends, source.causal, dropout, scale)
    return mixed


def _attend_padded(
    query: Tensor, rows: BatchLayout, key_value: Tensor, source: BatchLayout, dropout: float, scale: float | None
) -> Tensor:
    query_BSHK = spread(query, rows.token_at).view(*rows.shape, *query.shape[-2:])
    key_value = spread(key_value, source.token_at).view(*source.shape, *key_value.shape[-2:])
    key_BGUK, value_BGUK = key_value.transpose(1, 2).chunk(2, 1)
    mixed_BHSK = F.scaled_dot_product_attention(
        query_BSHK.transpose(1, 2),
        key_BGUK,
        value_BGUK,
        attn_mask=source.seen,
        dropout_p=dropout,
        is_causal=source.causal,
        scale=scale,
        enable_gqa=key_BGUK.shape[1] != query_BSHK.shape[2],
    )
    mixed_BSHK = mixed_BHSK.transpose(1, 2)
    if rows.place_T is not None:
        return mixed_BSHK.flatten(0, 1).index_select(0, rows.place_T)
    return mixed_BSHK.reshape(query.shape)


def attend_to_window(
    query: Tensor,
    key_value: Tensor,
    rows: BatchLayout,
    window: tuple[int, int],
    dropout: float = 0.0,
    *,
    first: bool = False,
    scale: float | None = None,
    recompute: bool = False,
) -> Tensor:
    """Self-attention of each token to near tokens, and with `first` to the first token; the result is as in `attend`.

    `window` has the numbers of tokens before and after a token that it attends to.
    """
    assert rows.ends_B1 is not None  # windows exist only with bidirectional or causal attention
    if query.ndim == 3 and not first and flex.fits(query, dropout):
        mask = flex.band(flex.row_of(rows.ends_B1, len(query)), *window)
        return flex.attend(query, key_value, mask, scale)
    query_BSHK, key_value_BSGK = (to_padded(heads, rows) for heads in (query, key_value))
    band = partial(attend_to_band, first=first, dropout=dropout, scale=scale)
    mixed_BSHK = call_recomputed(recompute, band, query_BSHK, key_value_BSGK, rows.ends_B1.diff(), *window)
    mixed = mixed_BSHK.flatten(0, 1)
    return (mixed if rows.place_T is None else mixed[rows.place_T]).view(query.shape)


def to_padded(x: Tensor, rows: BatchLayout) -> Tensor:
    """Convert heads [B, S, H, K] or [T, H, K] to the padded layout."""
    return spread(x.flatten(0, -3), rows.token_at).view(*rows.shape, *x.shape[-2:])
