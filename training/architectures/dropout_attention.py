"""Attention with dropout for unpadded tokens on CPUs, one block of queries at a time.

torch's kernel that keeps no scores in memory has no dropout. Its other kernel needs padding and a mask, and passes
many times over the scores of all sequences. Here, the scores of a block have no padding and fit into the processor's
cache. Axes as in layout.py; Q queries of a block, and U keys that they attend to.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from training.architectures.dropout import draw_noise, find_keep_rate, find_limit, keep_positive

QUERIES = 128  # of a block


class DropoutAttention(torch.autograd.Function):
    """Scaled dot-product attention [T, H, K] of queries [T, H, K] to keys and values [U, 2 H, K].

    `ends` and `source_ends` are the ends of the sequences of queries and of keys, after a 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query_THK: Tensor,
        key_value_U2K: Tensor,
        ends: Sequence[int],
        source_ends: Sequence[int],
        causal: bool,
        dropout: float,
        scale: float,
    ) -> Tensor:
        blocks, heads = list(cut_blocks(ends, source_ends, causal)), query_THK.shape[1]
        sizes = [heads * _length(queries) * _length(keys) for queries, keys in blocks]
        # the weights before dropout, which changes the sign of dropped ones
        signed, scratch = query_THK.new_empty(sum(sizes)), query_THK.new_empty(max(sizes, default=0))
        mixed_THK = torch.empty_like(query_THK, memory_format=torch.contiguous_format)
        for (queries, keys), weight in zip(blocks, signed.split(sizes), strict=True):
            query_HQK = query_THK[queries].transpose(0, 1)
            key_HUK, value_HUK = key_value_U2K[keys].transpose(0, 1).chunk(2)
            weight_HQU = weight.view(heads, _length(queries), _length(keys))
            _multiply(query_HQK, key_HUK.transpose(1, 2), scale, out=weight_HQU)
            if causal:
                _hide_later(weight_HQU)
            torch.softmax(weight_HQU, -1, out=weight_HQU)
            kept_HQU = scratch[: len(weight)].view_as(weight_HQU)
            kept_HQU.copy_(draw_noise(weight_HQU.shape)).sub_(find_limit(dropout))
            torch.copysign(weight_HQU, kept_HQU, out=weight_HQU)
            torch.clamp_min(weight_HQU, 0, out=kept_HQU)
            mixed_THK[queries] = _multiply(kept_HQU, value_HUK, 1 / find_keep_rate(dropout)).transpose(0, 1)
        ctx.save_for_backward(query_THK, key_value_U2K, mixed_THK, signed)
        ctx.blocks, ctx.sizes, ctx.dropout, ctx.scale = blocks, sizes, dropout, scale
        return mixed_THK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_mixed_THK: Tensor) -> tuple[Tensor | None, ...]:
        query_THK, key_value_U2K, mixed_THK, signed = ctx.saved_tensors
        heads, scale = query_THK.shape[1], ctx.scale
        mean_TH1 = (d_mixed_THK * mixed_THK).sum(-1, keepdim=True)
        d_mixed_THK = d_mixed_THK / find_keep_rate(ctx.dropout)
        d_query_THK = torch.empty_like(query_THK, memory_format=torch.contiguous_format)
        d_key_value_U2K = torch.zeros_like(key_value_U2K, memory_format=torch.contiguous_format)
        scratch, d_scratch = signed.new_empty(2, max(ctx.sizes, default=0))
        for (queries, keys), weight in zip(ctx.blocks, signed.split(ctx.sizes), strict=True):
            query_HQK, d_mixed_HQK, mean_HQ1 = (x[queries].transpose(0, 1) for x in (query_THK, d_mixed_THK, mean_TH1))
            key_HUK, value_HUK = key_value_U2K[keys].transpose(0, 1).chunk(2)
            weight_HQU = weight.view(heads, _length(queries), _length(keys))
            kept_HQU, d_weight_HQU = (x[: len(weight)].view_as(weight_HQU) for x in (scratch, d_scratch))
            torch.clamp_min(weight_HQU, 0, out=kept_HQU)
            d_value_HUK = torch.bmm(kept_HQU.transpose(1, 2), d_mixed_HQK)
            torch.bmm(d_mixed_HQK, value_HUK.transpose(1, 2), out=d_weight_HQU)
            keep_positive(d_weight_HQU, weight_HQU, out=d_weight_HQU)
            d_score_HQU = d_weight_HQU.sub_(mean_HQ1).mul_(torch.abs(weight_HQU, out=kept_HQU))
            d_query_THK[queries] = _multiply(d_score_HQU, key_HUK, scale).transpose(0, 1)
            d_key_HUK = _multiply(d_score_HQU.transpose(1, 2), query_HQK, scale)
            d_key_value_U2K[keys] += torch.cat([d_key_HUK, d_value_HUK]).transpose(0, 1)
        return d_query_THK, d_key_value_U2K, None, None, None, None, None


def cut_blocks(ends: Sequence[int], source_ends: Sequence[int], causal: bool) -> Iterator[tuple[slice, slice]]:
    """The queries of each block, and the keys that they attend to: those of their sequence, up to the last query.

    >>> list(cut_blocks([0, 2, 5], [0, 7, 9], causal=False))
    [(slice(0, 2, None), slice(0, 7, None)), (slice(2, 5, None), slice(7, 9, None))]
    >>> list(cut_blocks([0, 200], [0, 200], causal=True))
    [(slice(0, 128, None), slice(0, 128, None)), (slice(128, 200, None), slice(0, 200, None))]
    """
    for row in range(len(ends) - 1):
        for start in range(ends[row], ends[row + 1], QUERIES):
            end = min(start + QUERIES, ends[row + 1])
            yield slice(start, end), slice(source_ends[row], end if causal else source_ends[row + 1])


def _multiply(left_NAB: Tensor, right_NBC: Tensor, factor: float, out: Tensor | None = None) -> Tensor:
    """`factor` times the product of matrices. `out` is contiguous: otherwise torch multiplies one matrix at a time."""
    out = left_NAB.new_empty(*left_NAB.shape[:2], right_NBC.shape[2]) if out is None else out
    return out.baddbmm_(left_NAB, right_NBC, beta=0, alpha=factor)


def _hide_later(score_HQU: Tensor) -> None:
    """Set the scores of keys after the query to minus infinity. The last query has the same index as the last key."""
    length = score_HQU.shape[1]
    later_QQ = score_HQU.new_full((length, length), -math.inf).triu_(1)
    score_HQU[..., -length:].add_(later_QQ)


def _length(tokens: slice) -> int:
    length: int = tokens.stop - tokens.start
    return length
