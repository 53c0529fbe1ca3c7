"""One forward and backward pass on the meta device, which computes shapes only: FLOPs and stored bytes at any size."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from training.model import Model


@dataclass
class Measured:
    """FLOPs of matrix products outside of attention, and the bytes of tensors by their shape and type."""

    flops: int = 0
    pairs: int = 0  # pairs of a query and a key in one head, summed over heads and attentions
    kept: dict[tuple[tuple[int, ...], torch.dtype], int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors that the forward pass stores, without weights."""
        return sum(math.prod(shape) * dtype.itemsize * count for (shape, dtype), count in self.kept.items())

    def minus(self, other: "Measured") -> "Measured":
        keys = self.kept.keys() | other.kept.keys()
        kept = {key: self.kept.get(key, 0) - other.kept.get(key, 0) for key in keys}
        return Measured(self.flops - other.flops, self.pairs - other.pairs, {key: n for key, n in kept.items() if n})


class _Attention(torch.autograd.Function):
    """A kernel like FlashAttention: it stores its inputs, its output, and one number per query and head.

    On the meta device, torch would use the kernel that stores the scores. Only a bias that learns (T5) needs that one.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        rows, heads, tokens, _ = query.shape
        out = query.new_empty(rows, tokens, heads, value.shape[-1]).transpose(1, 2)  # the layout of torch's kernels
        log_sum = query.new_empty(query.shape[:-1], dtype=torch.float32)
        scores = () if bias is None else (query.new_empty(rows, heads, tokens, key.shape[-2]),)
        ctx.bias = bias
        ctx.save_for_backward(query, key, value, out, log_sum, *scores)
        return out

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]  # it takes any number
        query, key, value, *_ = ctx.saved_tensors
        d_bias = None if ctx.bias is None else torch.empty_like(ctx.bias)
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), d_bias


@contextmanager
def _attention_as_kernel(seen: Measured) -> Iterator[None]:
    def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any) -> Tensor:
        seen.pairs += math.prod(query.shape[:-1]) * key.shape[-2]
        bias = attn_mask if attn_mask is not None and attn_mask.requires_grad else None
        return _Attention.apply(query, key, value, bias)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(F, "scaled_dot_product_attention", attend)
        yield


def to_meta(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A batch without its numbers, except the lengths, which the host reads."""
    return {name: x if name.endswith("lengths") else x.to("meta") for name, x in batch.items()}


def measure(model: Model, batch: Mapping[str, Tensor], *, with_heads: bool) -> Measured:
    """Measure a forward and backward pass of a model on the meta device.

    Some heads read numbers of their batch, which the meta device does not have.
    """
    seen = Measured()
    own = {weight.untyped_storage()._cdata for weight in model.parameters()}
    storages = dict[int, Tensor]()

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage()._cdata
        if tensor.is_meta and place not in own:
            storages.setdefault(place, tensor)  # also keeps the storage alive, so that its address is not used again
        return tensor

    with FlopCounterMode(display=False) as counter, _attention_as_kernel(seen):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            if with_heads:
                loss = torch.stack([score.loss for score in model(to_meta(batch)).values()]).sum()  # type: ignore[union-attr]
            else:
                loss = model.trunk(to_meta(batch)).sum()
        loss.backward()
    seen.flops = sum(
        flops
        for op, flops in counter.get_flop_counts()["Global"].items()
        if op in (torch.ops.aten.mm, torch.ops.aten.addmm)
    )
    for tensor in storages.values():
        size = tensor.untyped_storage().nbytes() // tensor.itemsize
        key = ((size,), tensor.dtype)
        seen.kept[key] = seen.kept.get(key, 0) + 1
    return seen
