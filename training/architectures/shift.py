"""Scores by distance as scores by token. Axes as in relative.py."""

import torch
from torch import Tensor


def shift(by_distance_BHQR: Tensor, context: int, first_BQ: Tensor | None) -> Tensor:
    """Convert scores by distance, in decreasing order, to scores by context token: [B, H, Q, R] -> [B, H, Q, C].

    If all tokens are queries (`first_BQ` is None), each query starts one distance later than the next query. The
    input then has at least one distance more than needed. The result is a view of it, without a copy: it starts at an
    offset, and each of its rows is one element shorter.

    >>> shift(torch.tensor([[[[2, 1, 0, -1], [2, 1, 0, -1]]]]), 3, None)  # 1 token of memory, a sequence of 2 tokens
    tensor([[[[ 1,  0, -1],
              [ 2,  1,  0]]]])
    """
    if first_BQ is None:
        queries, distances = by_distance_BHQR.shape[-2:]
        lines = by_distance_BHQR.flatten(-2)[..., queries - 1 : queries * distances - 1]
        return lines.unflatten(-1, (queries, distances - 1))[..., :context]
    at_BQC = first_BQ[..., None] + torch.arange(context, device=first_BQ.device)
    at_BQC = at_BQC.clamp(max=by_distance_BHQR.shape[-1] - 1)  # later tokens, which are masked, may have no score
    return by_distance_BHQR.gather(-1, at_BQC[:, None].expand(-1, by_distance_BHQR.shape[1], -1, -1))
