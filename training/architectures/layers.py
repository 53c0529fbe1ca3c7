"""The parts of a transformer block: attention over rows of any layout, feed-forward, the block.

Axes: B rows, S tokens of a row, T tokens of an unpadded batch, D width, H heads, K width of a head. A hidden tensor is
[B, S, D] when the batch is padded and [T, D] when it is not; `x` means either. Everything but `attend` works on single
tokens of either.
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
from training.architectures.recompute import call_recomputed
from training.architectures.tensor_parallel import WHOLE, Share
from training.architectures.ulysses import to_heads, to_tokens
from training.specs import Activation, Stack, Visibility


@dataclass(frozen=True)
class BatchLayout:
    """How the rows of a batch lie in memory: worked out once per forward pass, read by every block."""

    shape: tuple[int, int]  # B, S: rows, and tokens of the longest row
    causal: bool  # each token sees those before it and itself, and no mask is needed for that
    # int32 [B + 1]: where each row of an unpadded batch ends, from 0; None where the mask does not follow from that
    ends_B1: Tensor | None
    place_T: Tensor | None  # place in [B * S] of each unpadded token; None when it lies there already
    token_at: Tensor | None  # [B * S]: the token that goes to each place; where none does, any other
    seen: Tensor | None  # bool [B, 1, 1 or S, S], True where the query (third) sees the key; None: all that it should
    block_mask: BlockMask | None = None  # the same as a rule, for a kernel that evaluates it
    held: KVCacheView | None = None  # in generation: keys and values of the tokens before, and the mask
    lying: tuple[int, ...] = ()  # of the tokens in memory: [B, S], or [T]

    @property
    def tokens(self) -> int:
        """How many lie in memory, padding included."""
        return math.prod(self.lying)


def incremental_layout(held: KVCacheView) -> BatchLayout:
    """Layout of new tokens, as a rectangle, of rows whose keys and values so far are held."""
    assert held.slot_BS is not None
    rows, new = held.slot_BS.shape
    return BatchLayout((rows, new), causal=False, ends_B1=None, place_T=None, token_at=None, seen=None, held=held)


def layout(batch: Mapping[str, Tensor], visibility: Visibility, dropout: float = 0.0) -> BatchLayout:
    """Layout of a batch: of its `input_ids`, [B, S] or [T], and `lengths`; with visibility "per_sequence" of `rank` and
    `reach` too.

    `dropout` is that of attention weights: the kernels that need no mask in memory have none. The host must know the
    longest row of an unpadded batch: leave `lengths` on the CPU, and no device has to wait.
    """
    ids, lengths_B, causal = batch["input_ids"], batch["lengths"], visibility == "causal"
    padded = ids.ndim == 2
    rows, longest = ids.shape if padded else (len(lengths_B), int(lengths_B.max()))
    full = not padded and len(ids) == rows * longest
    lengths_B = lengths_B.to(ids.device, non_blocking=True)
    inside_BS = torch.arange(longest, device=ids.device) < lengths_B[:, None]
    moved = not (padded or full)
    token_at = (inside_BS.flatten().cumsum(0) - 1) if moved else None
    # Padding lies at the end of a row, which no causal query of a token sees.
    seen = None if causal or full else inside_BS[:, None, None, :]
    ends_B1, block_mask = F.pad(lengths_B.cumsum(0), (1, 0)).int(), None
    if visibility == "per_sequence" and "rank" in batch and not padded and flex.fits(ids, dropout):
        block_mask = flex.rank_mask(flex.row_of(ends_B1, len(ids)), batch["rank"], batch["reach"])
    elif visibility == "per_sequence" and "rank" in batch:  # a downstream row has none: there each token sees each
        rank_BS, reach_BS = (spread(batch[name], token_at).view(rows, longest) for name in ("rank", "reach"))
        seen = (rank_BS[:, None, :] <= reach_BS[:, :, None])[:, None] & inside_BS[:, None, None, :]
        seen = seen | torch.eye(longest, dtype=torch.bool, device=ids.device)  # a token sees itself, padding too
    return BatchLayout(
        shape=(rows, longest),
        causal=causal,
        ends_B1=ends_B1 if visibility != "per_sequence" else None,
        place_T=inside_BS.flatten().nonzero_static(size=len(ids)).squeeze(1) if moved else None,
        token_at=token_at,
        seen=seen,
        block_mask=block_mask,
        lying=tuple(ids.shape),
    )


def spread(x: Tensor, token_at: Tensor | None) -> Tensor:
    """Unpadded tokens at their places among all [B * S]; what lies there already stays."""
    return x if token_at is None else x.index_select(0, token_at)


def attend(qkv: Tensor, rows: BatchLayout, dropout: float, *, recompute: bool = False) -> Tensor:
    """Scaled dot-product attention of each row to itself: [B, S, 3, H, K] -> [B, S, H, K], [T, 3, H, K] -> [T, H, K].

    Unpadded tokens on CUDA go through FlexAttention where their row has a mask, and in 16 bits through the
    variable-length kernel; neither has dropout, nor anything that it were worth to `recompute`. All else is spread to
    [B, H, S, K] around torch's padded kernel.
    """
    if rows.held is not None:
        return rows.held.attend(qkv)
    if rows.block_mask is not None:
        return flex.attend(qkv, rows.block_mask)
    half = qkv.dtype in (torch.bfloat16, torch.float16)
    if qkv.ndim == 4 and qkv.is_cuda and half and dropout == 0 and rows.ends_B1 is not None:
        from torch.nn.attention.varlen import varlen_attn  # brings torch's compiler along, a second of every start

        query, key, value = qkv.unbind(1)
        ends, longest, window = rows.ends_B1, rows.shape[1], (-1, 0 if rows.causal else -1)
        mixed_THK = varlen_attn(query, key, value, ends, ends, longest, longest, window_size=window)
        return mixed_THK  # type: ignore[return-value]  # a tuple only where more is asked for
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
    """Multi-head self-attention with one linear for queries, keys and values (arXiv:1706.03762, 3.2.2)."""

    share: Share = WHOLE
    chunk: Share = WHOLE  # of the tokens

    def __init__(self, trunk: Stack) -> None:
        super().__init__()
        self.head_width = trunk.width_of_head
        self.dropout, self.recompute_core = trunk.attention_dropout, False
        self.qkv = FusedLinear(3, trunk.hidden_size, trunk.num_attention_heads * self.head_width)
        self.out = RowLinear(trunk.num_attention_heads * self.head_width, trunk.hidden_size)

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor, rows: BatchLayout) -> Tensor:
        qkv, dropout = self.qkv(x).unflatten(-1, (3, -1, self.head_width)), self.dropout if self.training else 0.0
        if self.chunk.of > 1:
            qkv = to_heads(qkv, self.chunk, rows.tokens).unflatten(0, rows.lying)
        with self.share.noise(dropout), self.chunk.noise(dropout):
            mixed = attend(qkv, rows, dropout, recompute=self.recompute_core)
        if self.chunk.of > 1:
            mixed = to_tokens(mixed.flatten(0, -3), self.chunk, rows.tokens)
        return self.out(mixed.flatten(-2))


class FeedForward(nn.Module):
    """Two linears with an activation between, at each token (arXiv:1706.03762, 3.3); some drop out there too."""

    share: Share = WHOLE

    def __init__(self, trunk: Stack, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = trunk.activation
        self.up = ColumnLinear(trunk.hidden_size, trunk.inner_width, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.down = RowLinear(trunk.inner_width, trunk.hidden_size, bias=bias)

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        x = apply_activation(self.up(x), self.activation)
        with self.share.noise(self.dropout.p if self.training else 0.0):
            x = self.dropout(x)
        return self.down(x)


class TransformerBlock(nn.Module):
    """Attention, then feed-forward, each with a residual: x + Op(Norm(x)) (pre) or Norm(x + Op(x)) (post)."""

    def __init__(self, trunk: Stack) -> None:
        super().__init__()
        self.norm_first = trunk.norm_position == "pre"
        self.attention: nn.Module = SelfAttention(trunk)
        self.attention_norm = norm(trunk, trunk.hidden_size)
        self.feed_forward = FeedForward(trunk)
        self.feed_forward_norm = norm(trunk, trunk.hidden_size)
        self.dropout = nn.Dropout(trunk.hidden_dropout)

    def forward(self, x: Tensor, rows: BatchLayout) -> Tensor:
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), rows))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, rows)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


def norm(trunk: Stack, width: int) -> nn.Module:
    """Layer norm (arXiv:1607.06450) over the last axis, with the trunk's epsilon."""
    return nn.LayerNorm(width, eps=trunk.norm_eps)


def apply_activation(x: Tensor, activation: Activation) -> Tensor:
    """gelu is x * Phi(x) by the error function; gelu_tanh its tanh form (arXiv:1606.08415), which GPT-2 uses."""
    match activation:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
