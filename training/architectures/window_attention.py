"""Windowed attention: each token attends to near tokens, in time and memory linear in the length of a sequence.

Axes as in layers.py; N chunks of a sequence, Q queries of a chunk, U keys that at least one of them may attend to.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures import flex
from training.architectures.fused import FusedLinear
from training.architectures.layers import BatchLayout, spread
from training.architectures.linears import ColumnLinear, RowLinear
from training.architectures.made import add_modules
from training.architectures.recompute import call_recomputed
from training.architectures.tensor_parallel import WHOLE, Share
from training.specs import WindowAttentionSpec


class WindowAttention(nn.Module):
    """Attention of each token to itself, to `before` tokens before it and to `after` tokens after it.

    With `global_first` (Longformer, arXiv:2004.05150, 3.1), all tokens attend to the first token of their sequence. The
    first token attends to all tokens, with separate linear layers.
    """

    qkv: FusedLinear
    out: RowLinear
    global_query: ColumnLinear | None
    global_key_value: FusedLinear | None
    share: Share = WHOLE

    def __init__(self, spec: WindowAttentionSpec) -> None:
        super().__init__()
        self.head_width, self.before, self.after = spec.head_dim, spec.before, spec.after
        self.dropout, self.recompute_core = spec.dropout, False
        self.global_query = self.global_key_value = None
        add_modules(self, spec.tensors())

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor, rows: BatchLayout) -> Tensor:
        with self.share.noise(self.dropout if self.training else 0.0):
            mixed = self._mix(x, rows)
        return self.out(mixed)

    def _mix(self, x: Tensor, rows: BatchLayout) -> Tensor:
        """The outputs of all heads, [..., H * K]."""
        dropout = self.dropout if self.training else 0.0
        if rows.held is not None:  # during generation: only a decoder has a cache, and it has no global first token
            qkv = self.qkv(x).unflatten(-1, (3, -1, self.head_width))
            return rows.held.within(self.before).attend(qkv).flatten(-2)
        assert rows.ends_B1 is not None  # windows exist only with bidirectional or causal attention
        if x.ndim == 2 and self.global_query is None and flex.fits(x, dropout):
            mask = flex.band(flex.row_of(rows.ends_B1, len(x)), self.before, self.after)
            return flex.attend(self.qkv(x).unflatten(-1, (3, -1, self.head_width)), mask).flatten(-2)
        qkv_BS3HK = self._spread(self.qkv(x), rows, 3)
        lengths_B, first = rows.ends_B1.diff(), self.global_query is not None
        band = partial(attend_to_band, first=first, dropout=dropout)
        mixed_BSHK = call_recomputed(self.recompute_core, band, qkv_BS3HK, lengths_B, self.before, self.after)
        if self.global_query is not None and self.global_key_value is not None:
            key_value_BS2HK = self._spread(self.global_key_value(x), rows, 2)
            first_B1HK = self.global_query(self._spread(x, rows, 0)[:, :1]).unflatten(-1, (-1, self.head_width))
            seen_B11S = (torch.arange(rows.shape[1], device=x.device) < lengths_B[:, None])[:, None, None]
            query, key, value = (z.transpose(1, 2) for z in (first_B1HK, *key_value_BS2HK.unbind(2)))
            mixed_BH1K = F.scaled_dot_product_attention(query, key, value, attn_mask=seen_B11S, dropout_p=dropout)
            mixed_BSHK = torch.cat([mixed_BH1K.transpose(1, 2), mixed_BSHK[:, 1:]], dim=1)
        mixed = mixed_BSHK.flatten(2).flatten(0, 1)
        return (mixed if rows.place_T is None else mixed[rows.place_T]).view(*x.shape[:-1], -1)

    def _spread(self, x: Tensor, rows: BatchLayout, parts: int) -> Tensor:
        """Convert tokens to the padded layout [B, S, parts, H, K]; with `parts` 0, [B, S, D]."""
        padded = spread(x.flatten(0, -2), rows.token_at).view(*rows.shape, -1)
        return padded.unflatten(-1, (parts, -1, self.head_width)) if parts else padded


def attend_to_band(
    qkv_BS3HK: Tensor, lengths_B: Tensor, before: int, after: int, *, first: bool = False, dropout: float = 0.0
) -> Tensor:
    """Scaled dot-product attention [B, S, H, K] to a band of keys around each query, and with `first` to the first key.

    A sequence is divided into chunks of queries. Each chunk is multiplied with all keys that any of its queries may
    attend to, and a mask excludes the other keys of each query. No token attends to padding.
    """
    rows, longest = qkv_BS3HK.shape[:2]
    before, after = min(before, longest - 1), min(after, longest - 1)
    size = max(before, after, 1)
    chunks = -(-longest // size)
    span = before + size + after
    qkv = F.pad(qkv_BS3HK, (0, 0) * 3 + (before, chunks * size - longest + after))
    query_BNQHK = qkv[:, before : before + chunks * size, 0].unflatten(1, (chunks, size))
    key_BNHKU, value_BNHKU = (qkv[:, :, i].unfold(1, span, size) for i in (1, 2))

    seen_BNQU = _make_mask(lengths_B, (chunks, size), (before, after), first)
    key_BNHUK, value_BNHUK = key_BNHKU.transpose(-1, -2), value_BNHKU.transpose(-1, -2)
    if first:
        key_BNHUK, value_BNHUK = (
            torch.cat([qkv_BS3HK[:, None, 0, i, :, None].expand_as(z[..., :1, :]), z], dim=-2)
            for i, z in ((1, key_BNHUK), (2, value_BNHUK))
        )
        seen_BNQU = F.pad(seen_BNQU, (1, 0), value=True)
    mixed = F.scaled_dot_product_attention(
        query_BNQHK.transpose(2, 3).flatten(0, 1),
        key_BNHUK.flatten(0, 1),
        value_BNHUK.flatten(0, 1),
        attn_mask=seen_BNQU.flatten(0, 1)[:, None],
        dropout_p=dropout,
    )
    return mixed.transpose(1, 2).reshape(rows, chunks * size, *qkv_BS3HK.shape[3:])[:, :longest]


def _make_mask(lengths_B: Tensor, cut: tuple[int, int], sides: tuple[int, int], first: bool) -> Tensor:
    """Attention mask, bool [B, N, Q, U], of a sequence in N chunks of Q queries.

    With `first`, it excludes the first key of the sequence, which the caller adds for all queries.
    """
    (chunks, size), (before, after), device = cut, sides, lengths_B.device
    start_N11 = torch.arange(0, chunks * size, size, device=device)[:, None, None]
    query_NQ1 = start_N11 + torch.arange(size, device=device)[:, None]
    key_N1U = start_N11 + torch.arange(-before, size + after, device=device)
    offset_NQU = key_N1U - query_NQ1
    near_NQU = (offset_NQU >= -before) & (offset_NQU <= after)
    inside_BN1U = (key_N1U >= first) & (key_N1U < lengths_B[:, None, None, None])
    # each query attends to at least one key, so that the softmax is also defined at padding
    return (near_NQU & inside_BN1U) | ((offset_NQU == 0) & (query_NQ1 >= first))
