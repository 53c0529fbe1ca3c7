"""Slices of the parameters of a model for tensor parallelism (Megatron-LM, arXiv:1909.08053, 3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from training.architectures.fused import FusedModule
from training.architectures.tensor_parallel import Share, gather


@runtime_checkable
class TensorParallelModule(Protocol):
    """A module that is split over workers."""

    share: Share

    def split_axes(self) -> Mapping[str, int]:
        """The axis along which each split parameter of the module is split, by name. The other parameters are whole."""


@dataclass(frozen=True)
class ParameterSlice:
    """A worker's slice of a parameter: its part of each fused tensor (fused.py), along one axis."""

    shape: tuple[int, ...]  # shape of the whole parameter
    axis: int
    tensors: tuple[int, ...]  # lengths along the axis of the fused tensors, in their order
    share: Share

    @property
    def within(self) -> tuple[slice, ...]:
        """The range of the worker's part of each tensor in the whole parameter, along the axis."""
        ranges, first = [], 0
        for length in self.tensors:
            local = self.share.within(length)
            ranges.append(slice(first + local.start, first + local.stop))
            first += length
        return tuple(ranges)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The length of the worker's part of each tensor, along the axis."""
        return tuple(each.stop - each.start for each in self.within)

    @property
    def start(self) -> int:
        """The start of the worker's part of the first tensor, along the axis."""
        return self.within[0].start

    def each(self) -> "list[ParameterSlice]":
        """The slice of each fused tensor, as if it were a separate parameter."""
        others = self.shape[self.axis + 1 :]
        return [
            ParameterSlice((*self.shape[: self.axis], length, *others), self.axis, (length,), self.share)
            for length in self.tensors
        ]

    def add(self, sums: Tensor) -> Tensor:
        """Add the workers' sums over their parts, in place and without gradient; all workers call it."""
        return self.share.add(sums)

    def of(self, whole: Tensor) -> Tensor:
        """The worker's slice of the whole parameter."""
        parts = [whole.narrow(self.axis, each.start, each.stop - each.start) for each in self.within]
        return torch.cat(parts, self.axis)

    def join(self, mine: Tensor) -> Tensor:
        """Gather the whole parameter from the slices of all workers, without gradient; all workers call it."""
        parts = zip(mine.split(self.lengths, self.axis), self.tensors, strict=True)
        tensors = [gather(part.transpose(0, self.axis), self.share, length) for part, length in parts]
        return torch.cat([tensor.transpose(0, self.axis) for tensor in tensors], self.axis)


def cut_net(model: nn.Module, share: Share) -> dict[str, ParameterSlice]:
    """Replace each split parameter with this worker's slice, and set the `share` of its module.

    Call it on the meta device, before the parameters have values. Returns the slices by the names of the parameters.
    """
    cuts = {}
    for prefix, module in model.named_modules():
        parameters = dict(module.named_parameters(recurse=False))
        if not isinstance(module, TensorParallelModule):
            continue
        tensors = module.list_fused() if isinstance(module, FusedModule) else {}
        for name, axis in module.split_axes().items():
            whole = parameters[name]
            cut = ParameterSlice(tuple(whole.shape), axis, tensors.get(name, (whole.shape[axis],)), share)
            cuts[f"{prefix}.{name}"] = cut
            setattr(module, name, nn.Parameter(cut.of(whole.data), requires_grad=whole.requires_grad))
        module.share = share
    return cuts
