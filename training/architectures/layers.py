"""The parts of a transformer block: self-attention for padded and unpadded batches, feed-forward, and the block.

Axes: B sequences, S tokens of a sequence, T tokens of an unpadded batch, D width, H heads, K width of a head. Hidden
states are [B, S, D] in a padded batch and [T, D] in an unpadded one; `x` stands for both. Except for `attend`, all
functions treat each token separately.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask

from training.architectures import flex
from training.architectures.cache import KVCacheView
from training.architectures.fused import FusedLinear
from training.architectures.linears import ColumnLinear, RowLinear
from training.architectures.made import add_modules, make_norm
from training.architectures.recompute import call_recomputed
from training.architectures.tensor_parallel import WHOLE, Share
from training.architectures.ulysses import to_heads, to_tokens
from training.specs import Activation, FeedForwardSpec, SelfAttentionSpec, Stack, Visibility


@dataclass(frozen=True)
class BatchLayout:
    """Memory layout and attention mask of a batch. It is computed once per forward pass and read by every block."""

    shape: tuple[int, int]  # B, S: number of sequences, and length of the longest sequence
    causal: bool  # True: each token attends to itself and to earlier tokens, without a mask in memory
    # int32 [B + 1]: end of each sequence in an unpadded batch, after a 0; None if these do not determine the mask
    ends_B1: Tensor | None
    place_T: Tensor | None  # index in [B * S] of each unpadded token; None if the tokens have that layout already
    token_at: Tensor | None  # index of the token at each position [B * S] of the padded layout; arbitrary at padding
    seen: Tensor | None  # bool [B, 1, 1 or S, S], True if the query (third axis) attends to the key; None: no mask
    block_mask: BlockMask | None = None  # the attention mask as a rule, for FlexAttention
    held: KVCacheView | None = None  # during generation: cached keys and values, and the mask
    token_shape: tuple[int, ...] = ()  # shape of the tokens in memory: [B, S] or [T]

    @property
    def tokens(self) -> int:
        """Number of tokens in memory, including padding."""
        return math.prod(self.token_shape)


def incremental_layout(held: KVCacheView) -> BatchLayout:
    """Layout of the new tokens [B, S] of sequences with cached keys and values."""
    assert held.slot_BS is not None
    rows, new = held.slot_BS.shape
    return BatchLayout((rows, new), causal=False, ends_B1=None, place_T=None, token_at=None, seen=None, held=held)


def layout(batch: Mapping[str, Tensor], visibility: Visibility, dropout: float = 0.0) -> BatchLayout:
    """Layout of a batch with the columns `input_ids` ([B, S] or [T]) and `lengths`.

    With the visibility "per_sequence", `rank` and `reach` determine the mask. `dropout` is the rate for attention
    weights: the kernels that need no mask in memory do not support dropout. Leave `lengths` on the CPU: the host must
    read the longest length of an unpadded batch, and would otherwise wait for the device.
    """
    ids, lengths_B, causal = batch["input_ids"], batch["lengths"], visibility == "causal"
    padded = ids.ndim == 2
    rows, longest = ids.shape if padded else (len(lengths_B), int(lengths_B.max()))
    full = not padded and len(ids) == rows * longest
    lengths_B = lengths_B.to(ids.device, non_blocking=True)
    inside_BS = torch.arange(longest, device=ids.device) < lengths_B[:, None]
    moved = not (padded or full)
    token_at = (inside_BS.flatten().cumsum(0) - 1) if moved else None
    # Padding is at the end of a sequence, so causal attention of a token never reaches it.
    seen = None if causal or full else inside_BS[:, None, None, :]
    ends_B1, block_mask = F.pad(lengths_B.cumsum(0), (1, 0)).int(), None
    if visibility == "per_sequence" and "rank" in batch and not padded and flex.fits(ids, dropout):
        block_mask = flex.rank_mask(flex.row_of(ends_B1, len(ids)), batch["rank"], batch["reach"])
    elif visibility == "per_sequence" and "rank" in batch:  # downstream batches have no `rank`: attention is full
        rank_BS, reach_BS = (spread(batch[name], token_at).view(rows, longest) for name in ("rank", "reach"))
        seen = (rank_BS[:, None, :] <= reach_BS[:, :, None])[:, None] & inside_BS[:, None, None, :]
        # each position, including padding, attends to itself
        seen = seen | torch.eye(longest, dtype=torch.bool, device=ids.device)
    return BatchLayout(
        shape=(rows, longest),
        causal=causal,
        ends_B1=ends_B1 if visibility != "per_sequence" else None,
        place_T=inside_BS.flatten().nonzero_static(size=len(ids)).squeeze(1) if moved else None,
        token_at=token_at,
        seen=seen,
        block_mask=block_mask,
        token_shape=tuple(ids.shape),
    )


def spread(x: Tensor, token_at: Tensor | None) -> Tensor:
    """Move unpadded tokens to the padded layout [B * S]; return `x` unchanged if it has that layout already."""
    return x if token_at is None else x.index_select(0, token_at)


def attend(qkv: Tensor, rows: BatchLayout, dropout: float, *, recompute: bool = False) -> Tensor:
    """Scaled dot-product self-attention: [B, S, 3, H, K] -> [B, S, H, K], or unpadded [T, 3, H, K] -> [T, H, K].

    For unpadded tokens on CUDA, FlexAttention evaluates a block mask, and the variable-length kernel computes other
    masks in 16 bits. Both kernels lack dropout, and `recompute` would save no memory in them. All other inputs are
    padded to [B, H, S, K] for torch's padded kernel.
    """
    if rows.held is not None:
        return rows.held.attend(qkv)
    if rows.block_mask is not None:
        return flex.attend(qkv, rows.block_mask)
    half = qkv.dtype in (torch.bfloat16, torch.float16)
    if qkv.ndim == 4 and qkv.is_cuda and half and dropout == 0 and rows.ends_B1 is not None:
        from torch.nn.attention.varlen import varlen_attn  # imports torch's compiler, which takes 1 s

        query, key, value = qkv.unbind(1)
        ends, longest, window = rows.ends_B1, rows.shape[1], (-1, 0 if rows.causal else -1)
        mixed_THK = varlen_attn(query, key, value, ends, ends, longest, longest, window_size=window)
        return mixed_THK  # type: ignore[return-value]  # a tuple only with `return_aux`
    return call_recomputed(recompute, _attend_padded, qkv, rows, dropout)


def _attend_padded(qkv: Tensor, rows: BatchLayout, dropout: float) -> Tensor:
    query, key, value = spread(qkv, rows.token_at).view(*rows.shape, *qkv.shape[-3:]).permute(2, 0, 3, 1, 4)
    mixed_BHSK = F.scaled_dot_product_attention(
        query, key, value, attn_mask=rows.seen, dropout_p=dropout, is_causal=rows.causal
    )
    mixed_BSHK = mixed_BHSK.transpose(1, 2)
    if rows.place_T is not None:
        return mixed_BSHK.flatten(0, 1).index_select(0, rows.place_T)
    return mixed_BSHK.reshape(*qkv.shape[:-3], *qkv.shape[-2:])


class SelfAttention(nn.Module):
    """Multi-head self-attention with one linear layer for queries, keys and values (arXiv:1706.03762, 3.2.2)."""

    qkv: FusedLinear
    out: RowLinear
    share: Share = WHOLE
    chunk: Share = WHOLE  # this worker's fraction of the tokens

    def __init__(self, spec: SelfAttentionSpec) -> None:
        super().__init__()
        self.head_width, self.dropout, self.recompute_core = spec.head_dim, spec.dropout, False
        add_modules(self, spec.tensors())

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor, rows: BatchLayout) -> Tensor:
        qkv, dropout = self.qkv(x).unflatten(-1, (3, -1, self.head_width)), self.dropout if self.training else 0.0
        if self.chunk.of > 1:
            qkv = to_heads(qkv, self.chunk, rows.tokens).unflatten(0, rows.token_shape)
        with self.share.noise(dropout), self.chunk.noise(dropout):
            mixed = attend(qkv, rows, dropout, recompute=self.recompute_core)
        if self.chunk.of > 1:
            mixed = to_tokens(mixed.flatten(0, -3), self.chunk, rows.tokens)
        return self.out(mixed.flatten(-2))


class FeedForward(nn.Module):
    """Two linear layers with an activation and optional dropout between them (arXiv:1706.03762, 3.3)."""

    up: ColumnLinear
    down: RowLinear
    share: Share = WHOLE

    def __init__(self, spec: FeedForwardSpec) -> None:
        super().__init__()
        self.activation, self.dropout = spec.activation, nn.Dropout(spec.dropout)
        add_modules(self, spec.tensors())

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        x = apply_activation(self.up(x), self.activation)
        with self.share.noise(self.dropout.p if self.training else 0.0):
            x = self.dropout(x)
        return self.down(x)


class TransformerBlock(nn.Module):
    """Attention, then feed-forward, each with a residual: x + f(norm(x)) for pre-norm, norm(x + f(x)) for post-norm."""

    def __init__(self, trunk: Stack, attention: nn.Module) -> None:
        super().__init__()
        self.norm_first = trunk.norm_position == "pre"
        self.attention = attention
        self.attention_norm = make_norm(trunk.norm("attention_norm"))
        self.feed_forward = FeedForward(trunk.feed_forward)
        self.feed_forward_norm = make_norm(trunk.norm("feed_forward_norm"))
        self.dropout = nn.Dropout(trunk.hidden_dropout)

    def forward(self, x: Tensor, rows: BatchLayout) -> Tensor:
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), rows))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, rows)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


def apply_activation(x: Tensor, activation: Activation) -> Tensor:
    """Apply an activation function.

    `gelu` is x * Phi(x), computed with the error function. `gelu_tanh` is its tanh approximation (arXiv:1606.08415), as
    in GPT-2.
    """
    match activation:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
