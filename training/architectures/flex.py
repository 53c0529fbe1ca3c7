"""Attention on a GPU by a rule of two tokens (FlexAttention, arXiv:2412.05496), without the square of a row.

Axes as in layers.py; T tokens of an unpadded batch lie end to end, N blocks of them. The kernel evaluates
the rule, and only in blocks in which it may allow a pair.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

Rule = Callable[[Tensor, Tensor], Tensor]  # numbers of queries and of keys in the batch -> bool: the attention mask
BLOCK = 128


def fits(x: Tensor, dropout: float) -> bool:
    """Whether the kernel takes a tensor: on CUDA, and without dropout, which it lacks."""
    return x.is_cuda and dropout == 0


def row_of(ends_B1: Tensor, num_tokens: int) -> Tensor:
    """The row [T] of each token, by where the rows end, from 0.

    >>> row_of(torch.tensor([0, 2, 5]), 5)
    tensor([0, 0, 1, 1, 1])
    """
    return torch.searchsorted(ends_B1[1:], torch.arange(num_tokens, device=ends_B1.device), right=True)


def rank_mask(row_T: Tensor, rank_T: Tensor, reach_T: Tensor) -> BlockMask:
    """Inside of a row, a token sees those whose rank is within its reach, and itself (preprocessing/schema.py)."""

    def sees(query: Tensor, key: Tensor) -> Tensor:
        return (row_T[query] == row_T[key]) & ((rank_T[key] <= reach_T[query]) | (query == key))

    return blocks(sees, row_T)


def band(row_T: Tensor, before: int, after: int) -> BlockMask:
    """Inside of a row, a token sees so many before it and behind it, and itself."""

    least, most = torch.tensor([-before, after], device=row_T.device)  # a number would be compiled in, for each anew

    def sees(query: Tensor, key: Tensor) -> Tensor:
        return (row_T[query] == row_T[key]) & (key - query >= least) & (key - query <= most)

    return blocks(sees, row_T, before, after)


def blocks(sees: Rule, row_T: Tensor, before: int | None = None, after: int | None = None) -> BlockMask:
    """The rule, evaluated in blocks that share a row and, with bounds, are no farther apart than these."""
    num_tokens = len(row_T)
    first_N = row_T[::BLOCK]
    last_N = torch.cat([row_T[BLOCK - 1 :: BLOCK], row_T[-1:]])[: len(first_N)]
    meet_NN = (first_N[:, None] <= last_N) & (first_N <= last_N[:, None])
    if before is not None and after is not None:
        at_N = torch.arange(len(first_N), device=row_T.device)
        apart_NN = at_N - at_N[:, None]
        meet_NN &= (apart_NN >= -before // BLOCK) & (apart_NN <= -(-after // BLOCK))
    return BlockMask.from_kv_blocks(
        meet_NN.sum(1)[None, None].int(),
        meet_NN.int().argsort(dim=1, descending=True, stable=True)[None, None].int(),
        BLOCK_SIZE=BLOCK,
        mask_mod=lambda _row, _head, query, key: sees(query, key),
        seq_lengths=(num_tokens, num_tokens),
    )


def attend(qkv_T3HK: Tensor, mask: BlockMask) -> Tensor:
    """Scaled dot-product attention of unpadded tokens, [T, 3, H, K] -> [T, H, K]."""
    query, key, value = qkv_T3HK.permute(1, 2, 0, 3)[:, None]
    mixed_1HTK = _kernel()(query, key, value, block_mask=mask)
    return mixed_1HTK[0].transpose(0, 1)


@cache
def _kernel() -> Callable[..., Tensor]:
    """Compiled once for batches of any length; without that it would make every pair's score."""
    return torch.compile(flex_attention, dynamic=True)
