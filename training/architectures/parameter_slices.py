"""What one of several workers has of a net (Megatron-LM, arXiv:1909.08053, 3): which parameters are cut, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from training.architectures.fused import FusedModule
from training.architectures.tensor_parallel import Share, gather


@runtime_checkable
class TensorParallelModule(Protocol):
    """A module of which each worker computes a share."""

    share: Share

    def split_axes(self) -> Mapping[str, int]:
        """By the name of each of its own parameters that is split, along which axis; the others are whole."""


@dataclass(frozen=True)
class ParameterSlice:
    """What a worker has of a parameter: along one axis its share of each of the tensors in it (fused.py)."""

    shape: tuple[int, ...]  # of the whole parameter
    axis: int
    tensors: tuple[int, ...]  # lengths along the axis of the tensors that are fused in it, one after the other
    share: Share

    @property
    def within(self) -> tuple[slice, ...]:
        """Where the worker's part of each tensor lies in the whole parameter."""
        found, first = [], 0
        for length in self.tensors:
            mine = self.share.within(length)
            found.append(slice(first + mine.start, first + mine.stop))
            first += length
        return tuple(found)

    @property
    def lengths(self) -> tuple[int, ...]:
        """What the worker has of each tensor, along the axis."""
        return tuple(each.stop - each.start for each in self.within)

    @property
    def start(self) -> int:
        """Where the worker's part of the first tensor begins, along the axis."""
        return self.within[0].start

    def each(self) -> "list[ParameterSlice]":
        """The same of each of the tensors by itself."""
        others = self.shape[self.axis + 1 :]
        return [
            ParameterSlice((*self.shape[: self.axis], length, *others), self.axis, (length,), self.share)
            for length in self.tensors
        ]

    def add(self, sums: Tensor) -> Tensor:
        """The sums over the parts of all workers, from that over this worker's, in place and without gradient."""
        return self.share.add(sums)

    def of(self, whole: Tensor) -> Tensor:
        """The worker's part of the whole parameter."""
        found = [whole.narrow(self.axis, each.start, each.stop - each.start) for each in self.within]
        return torch.cat(found, self.axis)

    def joined(self, mine: Tensor) -> Tensor:
        """The whole parameter, from what all workers have of it: each of them calls this; without gradient."""
        tensors = zip(mine.split(self.lengths, self.axis), self.tensors, strict=True)
        found = [gather(part.transpose(0, self.axis), self.share, length) for part, length in tensors]
        return torch.cat([tensor.transpose(0, self.axis) for tensor in found], self.axis)


def cut_net(model: nn.Module, share: Share) -> dict[str, ParameterSlice]:
    """Leave of each parameter what this worker has of it, and tell its module; by name, how those are cut that are.

    The parameters are made anew, without values: on the meta device, before they have any.
    """
    cuts = {}
    for prefix, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not isinstance(module, TensorParallelModule):
            continue
        tensors = module.fused() if isinstance(module, FusedModule) else {}
        for name, axis in module.split_axes().items():
            whole = own[name]
            cut = ParameterSlice(tuple(whole.shape), axis, tensors.get(name, (whole.shape[axis],)), share)
            cuts[f"{prefix}.{name}"] = cut
            setattr(module, name, nn.Parameter(cut.of(whole.data), requires_grad=whole.requires_grad))
        module.share = share
    return cuts
