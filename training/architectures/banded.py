"""Attention to near tokens in time and memory that are linear in the length of a sequence.

Axes as in layout.py; N chunks of a sequence, Q queries of a chunk, U keys that at least one of them may attend to.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def attend_to_band(
    query_BSHK: Tensor,
    key_value_BSGK: Tensor,
    lengths_B: Tensor,
    before: int,
    after: int,
    *,
    first: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention [B, S, H, K] to a band of keys around each query, and with `first` to the first key.

    A sequence is divided into chunks of queries. Each chunk is multiplied with all keys that any of its queries may
    attend to, and a mask excludes the other keys of each query. No token attends to padding. `key_value_BSGK` has the
    keys, then the values. `scale` None: 1 / sqrt(K).
    """
    rows, longest = query_BSHK.shape[:2]
    before, after = min(before, longest - 1), min(after, longest - 1)
    size = max(before, after, 1)
    chunks = -(-longest // size)
    span, missing = before + size + after, chunks * size - longest
    query_BNQHK = F.pad(query_BSHK, (0, 0) * 2 + (0, missing)).unflatten(1, (chunks, size))
    padded = F.pad(key_value_BSGK, (0, 0) * 2 + (before, missing + after))
    key_BNGKU, value_BNGKU = padded.unfold(1, span, size).chunk(2, 2)

    seen_BNQU = _make_mask(lengths_B, (chunks, size), (before, after), first)
    key_BNGUK, value_BNGUK = key_BNGKU.transpose(-1, -2), value_BNGKU.transpose(-1, -2)
    if first:
        first_key, first_value = key_value_BSGK[:, None, 0, :, None].chunk(2, 2)
        key_BNGUK, value_BNGUK = (
            torch.cat([one.expand_as(z[..., :1, :]), z], dim=-2)
            for one, z in ((first_key, key_BNGUK), (first_value, value_BNGUK))
        )
        seen_BNQU = F.pad(seen_BNQU, (1, 0), value=True)
    mixed = F.scaled_dot_product_attention(
        query_BNQHK.transpose(2, 3).flatten(0, 1),
        key_BNGUK.flatten(0, 1),
        value_BNGUK.flatten(0, 1),
        attn_mask=seen_BNQU.flatten(0, 1)[:, None],
        dropout_p=dropout,
        scale=scale,
        enable_gqa=key_BNGUK.shape[2] != query_BNQHK.shape[3],
    )
    return mixed.transpose(1, 2).reshape(rows, chunks * size, *query_BSHK.shape[2:])[:, :longest]


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
