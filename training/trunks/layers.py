"""The parts of a transformer block: attention over rows of any layout, feed-forward, the block.

Axes: B rows, S tokens of a row, T tokens of an unpadded batch, D width, H heads, K width of a head. A hidden tensor is
[B, S, D] when the batch is padded and [T, D] when it is not; `x` means either. Everything but `attend` works on single
tokens and never asks which.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from training.spec import Activation, Trunk


@dataclass(frozen=True)
class Layout:
    """How the rows of a batch lie in memory: worked out once per forward pass, read by every block."""

    shape: tuple[int, int]  # B, S: rows, and tokens of the longest row
    causal: bool
    ends_B1: Tensor  # int32 [B + 1]: where each row of an unpadded batch ends, from 0
    place_T: Tensor | None  # place in [B * S] of each unpadded token; None when it lies there already
    token_at: Tensor | None  # [B * S]: the token that goes to each place; where none does, any other
    seen_B11S: Tensor | None  # True at keys that exist; None when no query would see another


def layout(ids: Tensor, lengths_B: Tensor, causal: bool) -> Layout:
    """Layout of a batch of `ids`, [B, S] or [T], with rows of `lengths_B` tokens.

    The host must know the longest row of an unpadded batch: leave `lengths_B` on the CPU, and no device has to wait.
    """
    padded = ids.ndim == 2
    rows, longest = ids.shape if padded else (len(lengths_B), int(lengths_B.max()))
    full = not padded and len(ids) == rows * longest
    lengths_B = lengths_B.to(ids.device, non_blocking=True)
    inside_BS = torch.arange(longest, device=ids.device) < lengths_B[:, None]
    moved = not (padded or full)
    return Layout(
        shape=(rows, longest),
        causal=causal,
        ends_B1=F.pad(lengths_B.cumsum(0), (1, 0)).int(),
        place_T=inside_BS.flatten().nonzero_static(size=len(ids)).squeeze(1) if moved else None,
        token_at=(inside_BS.flatten().cumsum(0) - 1) if moved else None,
        # Padding lies at the end of a row, where a causal query that exists never looks.
        seen_B11S=None if causal or full else inside_BS[:, None, None, :],
    )


def attend(qkv: Tensor, rows: Layout, dropout: float) -> Tensor:
    """Scaled dot-product attention of each row to itself: [B, S, 3, H, K] -> [B, S, H, K], [T, 3, H, K] -> [T, H, K].

    Unpadded 16-bit tokens on CUDA go through the variable-length kernel, which has no dropout; all else is spread to
    [B, H, S, K] around torch's padded one.
    """
    half = qkv.dtype in (torch.bfloat16, torch.float16)
    if qkv.ndim == 4 and qkv.is_cuda and half and dropout == 0:
        query, key, value = qkv.unbind(1)
        ends, longest, window = rows.ends_B1, rows.shape[1], (-1, 0 if rows.causal else -1)
        mixed_THK = varlen_attn(query, key, value, ends, ends, longest, longest, window_size=window)
        return mixed_THK  # type: ignore[return-value]  # a tuple only where more is asked for
    if rows.token_at is not None:
        qkv = qkv.index_select(0, rows.token_at)
    query, key, value = qkv.view(*rows.shape, *qkv.shape[-3:]).permute(2, 0, 3, 1, 4)
    mixed_BHSK = F.scaled_dot_product_attention(
        query, key, value, attn_mask=rows.seen_B11S, dropout_p=dropout, is_causal=rows.causal
    )
    mixed_BSHK = mixed_BHSK.transpose(1, 2)
    if rows.place_T is not None:
        return mixed_BSHK.flatten(0, 1).index_select(0, rows.place_T)
    return mixed_BSHK.reshape(*qkv.shape[:-3], *qkv.shape[-2:])


class Attention(nn.Module):
    """Multi-head self-attention with one linear for queries, keys and values (arXiv:1706.03762, 3.2.2)."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.head_width = trunk.width // trunk.heads
        self.dropout = trunk.attention_dropout
        self.qkv = nn.Linear(trunk.width, 3 * trunk.width)
        self.out = nn.Linear(trunk.width, trunk.width)

    def forward(self, x: Tensor, rows: Layout) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, -1, self.head_width))
        return self.out(attend(qkv, rows, self.dropout if self.training else 0.0).flatten(-2))


class FeedForward(nn.Module):
    """Two linears with an activation between, at each token (arXiv:1706.03762, 3.3)."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.activation = trunk.activation
        self.up = nn.Linear(trunk.width, trunk.inner_width)
        self.down = nn.Linear(trunk.inner_width, trunk.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(activate(self.up(x), self.activation))


class Block(nn.Module):
    """Attention, then feed-forward, each with a residual: x + Op(Norm(x)) (pre) or Norm(x + Op(x)) (post)."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.norm_first = trunk.norm == "pre"
        self.attention = Attention(trunk)
        self.attention_norm = nn.LayerNorm(trunk.width, eps=trunk.norm_eps)
        self.feed_forward = FeedForward(trunk)
        self.feed_forward_norm = nn.LayerNorm(trunk.width, eps=trunk.norm_eps)
        self.dropout = nn.Dropout(trunk.dropout)

    def forward(self, x: Tensor, rows: Layout) -> Tensor:
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), rows))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, rows)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


def activate(x: Tensor, activation: Activation) -> Tensor:
    """gelu is x * Phi(x) by the error function; gelu_tanh its tanh form (arXiv:1606.08415), which GPT-2 uses."""
    match activation:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
