"""Sequence parallelism (Ulysses, arXiv:2309.14509): each worker has a chunk of the tokens of a batch.

Each worker computes embeddings and heads for all tokens, and blocks only for its chunk. Before an attention, the
workers exchange all heads of their chunk for some heads of all tokens; after it, they reverse this exchange. The
workers of a group read the same sequences and compute the same loss. ZeRO averages their gradients like those of other
workers. A chunk contributes only a part of the gradient of blocks and embeddings, so `gather_sequence` multiplies the
gradient by the number of chunks.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable

from training.architectures.tensor_parallel import Share, gather


@runtime_checkable
class ChunkedModule(Protocol):
    """A module that processes a chunk of the tokens."""

    chunk: Share


def set_chunks(model: nn.Module, chunk: Share) -> None:
    """Set this worker's chunk of the tokens in all modules."""
    for module in model.modules():
        if isinstance(module, ChunkedModule):
            module.chunk = chunk


def split_sequence(x: Tensor, chunk: Share) -> Tensor:
    """Select this worker's tokens: [B, S, D] or [T, D] -> [T', D]; with one chunk, return `x` unchanged."""
    if chunk.of == 1:
        return x
    x_TD = x.flatten(0, -2)
    return x_TD[chunk.within(len(x_TD))]


def gather_sequence(x: Tensor, chunk: Share, token_shape: Sequence[int]) -> Tensor:
    """Gather the tokens of all workers: [T', D] -> [B, S, D] or [T, D], where `token_shape` is [B, S] or [T]."""
    if chunk.of == 1:
        return x
    return _GatherSequence.apply(x, chunk, math.prod(token_shape)).view(*token_shape, -1)


def to_heads(x: Tensor, chunk: Share, tokens: int, parts: Sequence[int]) -> Tensor:
    """Exchange all heads of a chunk for some heads of all tokens: [T', H, K] -> [T, H / chunks, K].

    `parts` are the numbers of heads of queries, keys and values, which are divided separately.
    """
    return x if chunk.of == 1 else _Exchange.apply(x, chunk, tokens, True, tuple(parts))


def to_tokens(x: Tensor, chunk: Share, tokens: int) -> Tensor:
    """Reverse `to_heads` for queries: [T, H / chunks, K] -> [T', H, K]."""
    return x if chunk.of == 1 else _Exchange.apply(x, chunk, tokens, False, (x.shape[-2] * chunk.of,))


class _GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, chunk: Share, tokens: int) -> Tensor:
        ctx.chunk, ctx.tokens = chunk, tokens
        return gather(x, chunk, tokens)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor, None, None]:
        return d_x[ctx.chunk.within(ctx.tokens)] * ctx.chunk.of, None, None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, chunk: Share, tokens: int, by_heads: bool, parts: tuple[int, ...]) -> Tensor:
        ctx.chunk, ctx.tokens, ctx.by_heads, ctx.parts = chunk, tokens, by_heads, parts
        return _exchange(x, chunk, tokens, by_heads, parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _exchange(d_x, ctx.chunk, ctx.tokens, not ctx.by_heads, ctx.parts), None, None, None, None


def _exchange(x: Tensor, chunk: Share, tokens: int, by_heads: bool, parts: tuple[int, ...]) -> Tensor:
    """`to_heads` or its reverse, without gradient. The lengths of two chunks differ by at most 1 token."""
    slices = [Share(number, chunk.of).within(tokens) for number in range(chunk.of)]
    lengths = [each.stop - each.start for each in slices]
    if by_heads:
        divided = [part.chunk(chunk.of, -2) for part in x.split(parts, -2)]
        sent = [torch.cat(heads, -2) for heads in zip(*divided, strict=True)]
        shapes = [(length, *sent[0].shape[1:]) for length in lengths]
    else:
        sent = [part.contiguous() for part in x.split(lengths)]
        shapes = [(lengths[chunk.number], *x.shape[1:])] * chunk.of
    sizes = [math.prod(shape) for shape in shapes]
    received = x.new_empty(sum(sizes))
    distributed.all_to_all_single(
        received,
        torch.cat([part.flatten() for part in sent]),
        sizes,
        [part.numel() for part in sent],
        group=chunk.group,
    )
    from_each = [part.view(shape) for part, shape in zip(received.split(sizes), shapes, strict=True)]
    if by_heads:
        return torch.cat(from_each)
    local = [part // chunk.of for part in parts]
    divided = [part.split(local, -2) for part in from_each]
    return torch.cat([torch.cat(heads, -2) for heads in zip(*divided, strict=True)], -2)
