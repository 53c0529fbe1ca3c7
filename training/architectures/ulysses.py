"""Sequence parallelism (Ulysses, arXiv:2309.14509): of the tokens of a batch each of several workers has a chunk.

Embeddings and heads are computed by each worker for all tokens, blocks for its chunk alone. Around an attention the
workers exchange chunks of all heads for all tokens of some heads, and back. The workers of a group read the same rows
and have the same loss; to ZeRO they are workers like all others, over which gradients are averaged. What a chunk gives
is a part of the gradient of blocks and embeddings: so it is multiplied by the number of chunks (`together`).
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
    """A module that works on a chunk of tokens."""

    chunk: Share


def set_chunks(model: nn.Module, chunk: Share) -> None:
    """Say which chunk of tokens is this worker's from now on."""
    for module in model.modules():
        if isinstance(module, ChunkedModule):
            module.chunk = chunk


def split_sequence(x: Tensor, chunk: Share) -> Tensor:
    """This worker's of all tokens: [B, S, D] or [T, D] -> [T', D]; with one chunk as it is."""
    if chunk.of == 1:
        return x
    x_TD = x.flatten(0, -2)
    return x_TD[chunk.within(len(x_TD))]


def gather_sequence(x: Tensor, chunk: Share, lying: Sequence[int]) -> Tensor:
    """All workers' tokens as they lie in their batch, [B, S] or [T]: [T', D] -> [B, S, D] or [T, D]."""
    if chunk.of == 1:
        return x
    return _Together.apply(x, chunk, math.prod(lying)).view(*lying, -1)


def to_heads(x: Tensor, chunk: Share, tokens: int) -> Tensor:
    """Of a chunk's tokens all heads [T', ..., H, K] -> of all tokens some heads [T, ..., H / chunks, K]."""
    return x if chunk.of == 1 else _Exchange.apply(x, chunk, tokens, True)


def to_tokens(x: Tensor, chunk: Share, tokens: int) -> Tensor:
    """The way back: [T, ..., H / chunks, K] -> [T', ..., H, K]."""
    return x if chunk.of == 1 else _Exchange.apply(x, chunk, tokens, False)


class _Together(torch.autograd.Function):
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
    def forward(ctx: Any, x: Tensor, chunk: Share, tokens: int, by_heads: bool) -> Tensor:
        ctx.chunk, ctx.tokens, ctx.by_heads = chunk, tokens, by_heads
        return _exchanged(x, chunk, tokens, by_heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchanged(d_x, ctx.chunk, ctx.tokens, not ctx.by_heads), None, None, None


def _exchanged(x: Tensor, chunk: Share, tokens: int, by_heads: bool) -> Tensor:
    """What `to_heads` and `to_tokens` do, without gradient; chunks differ by a token at most."""
    slices = [Share(number, chunk.of).within(tokens) for number in range(chunk.of)]
    lengths = [each.stop - each.start for each in slices]
    mine = lengths[chunk.number]
    if by_heads:
        sent = [part.contiguous() for part in x.chunk(chunk.of, -2)]
        got = [x.new_empty(length, *sent[0].shape[1:]) for length in lengths]
    else:
        sent = [part.contiguous() for part in x.split(lengths)]
        got = [x.new_empty(mine, *x.shape[1:]) for _ in lengths]
    flat = x.new_empty(sum(part.numel() for part in got))
    distributed.all_to_all_single(
        flat,
        torch.cat([part.flatten() for part in sent]),
        [part.numel() for part in got],
        [part.numel() for part in sent],
        group=chunk.group,
    )
    parts = [piece.view_as(part) for piece, part in zip(flat.split([p.numel() for p in got]), got, strict=True)]
    return torch.cat(parts, 0 if by_heads else -2)
