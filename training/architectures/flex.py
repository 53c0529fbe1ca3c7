"""FlexAttention (arXiv:2412.05496): attention on a GPU with a mask that is a function of query and key.

The kernel stores no mask of size S x S: it evaluates the function, and only in blocks that may contain a visible pair.
Axes as in layout.py; the T tokens of an unpadded batch are contiguous and form N blocks.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from training.architectures.constants import constant

Rule = Callable[[Tensor, Tensor], Tensor]  # indices of queries and of keys in the batch -> bool: the attention mask
BLOCK = 128


def fits(x: Tensor, dropout: float) -> bool:
    """Whether the kernel can process a tensor: it needs CUDA, and it does not support dropout."""
    return x.is_cuda and dropout == 0


def row_of(ends_B1: Tensor, num_tokens: int) -> Tensor:
    """Index [T] of the sequence of each token; `ends_B1` are the ends of the sequences after a 0.

    >>> row_of(torch.tensor([0, 2, 5]), 5)
    tensor([0, 0, 1, 1, 1])
    """
    return torch.searchsorted(ends_B1[1:], torch.arange(num_tokens, device=ends_B1.device), right=True)


def rank_mask(row_T: Tensor, rank_T: Tensor, reach_T: Tensor) -> BlockMask:
    """Mask by rank and reach: a token attends to itself and to tokens of its sequence whose rank is at most its reach.

    preprocessing/schema.py defines rank and reach.
    """

    def sees(query: Tensor, key: Tensor) -> Tensor:
        return (row_T[query] == row_T[key]) & ((rank_T[key] <= reach_T[query]) | (query == key))

    return blocks(sees, row_T)


def band(row_T: Tensor, before: int, after: int) -> BlockMask:
    """Mask of a window: a token attends to itself, and to `before` earlier and `after` later tokens of its sequence."""

    least, most = constant([-before, after], row_T.device)  # Python numbers would cause recompilation

    def sees(query: Tensor, key: Tensor) -> Tensor:
        return (row_T[query] == row_T[key]) & (key - query >= least) & (key - query <= most)

    return blocks(sees, row_T, before, after)


def blocks(sees: Rule, row_T: Tensor, before: int | None = None, after: int | None = None) -> BlockMask:
    """Block mask of a rule: the pairs of blocks with a common sequence, and within `before` and `after` if given."""
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


def attend(query_THK: Tensor, key_value_TGK: Tensor, mask: BlockMask, scale: float | None = None) -> Tensor:
    """Scaled dot-product attention of unpadded tokens, [T, H, K] and [T, 2 G, K] -> [T, H, K].

    `scale` None: 1 / sqrt(K).
    """
    query, (key, value) = query_THK.transpose(0, 1)[None], key_value_TGK.transpose(0, 1)[None].chunk(2, 1)
    more: dict[str, Any] = {"enable_gqa": True} if key.shape[1] != query.shape[1] else {}
    more |= {} if scale is None else {"scale": scale}
    mixed_1HTK = _kernel()(query, key, value, block_mask=mask, **more)
    return mixed_1HTK[0].transpose(0, 1)


@cache
def _kernel() -> Callable[..., Tensor]:
    """Compile the kernel once for batches of any length. Uncompiled, it would compute the scores of all pairs."""
    return torch.compile(flex_attention, dynamic=True)
