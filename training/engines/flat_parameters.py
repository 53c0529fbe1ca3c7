"""The parameters of one process as one float32 tensor for each group of the optimizer, with its gradient.

An update is then a few large kernels instead of several small ones for each of some hundred parameters. In 16 bits, the
flat tensors are the master weights of the model (arXiv:1710.03740, 3.1), and gradients of micro-batches are added up in
float32. In float32, the parameters of the model and their gradients are views of the flat tensors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from training.engines.local_shards import WHOLE, FlatParameter

ALIGNED: Final = 32  # kernels are fastest on tensors that start at a multiple of 128 bytes, which is 32 float32 numbers
ITEMS: Final = ("params", "shapes", "hidden", "slices")  # keys of a group with one item per parameter


@dataclass(frozen=True)
class FlatGroup:
    """The parameters of a group, one after another in a flat tensor."""

    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]
    weights: nn.Parameter  # float32 [N]: all elements
    views: tuple[Tensor, ...]  # of `weights`, with the shape of each parameter
    gradient: Tensor  # float32 [N]
    gradient_views: tuple[Tensor, ...]


class FlatParameters:
    """All parameters of a model, which must not be moved or replaced afterwards.

    `groups` is a result of `parameter_groups`. `optimizer_groups` are the groups for an optimizer, with one flat tensor
    each. Its gradient is the flat gradient, which `collect` fills.
    """

    def __init__(self, model: nn.Module, groups: Sequence[Mapping[str, Any]]) -> None:
        names = {parameter: name for name, parameter in model.named_parameters()}
        members = [list(part) for group in groups for part in _split(group)]
        self.groups = [_flatten([(names[each["params"]], each["params"]) for each in group]) for group in members]
        self.optimizer_groups = [
            {
                **{key: value for key, value in group[0].items() if key not in ITEMS},
                "params": [flat.weights],
                "shapes": [[shape for each in group for shape in each["shapes"]]],
                "hidden": [group[0]["hidden"]],
                "slices": [[]],
            }
            for group, flat in zip(members, self.groups, strict=True)
        ]
        self.dtype = next(model.parameters()).dtype
        self.is_mixed = self.dtype != self.groups[0].weights.dtype  # whether master weights are separate
        # in the order of the model, for the norm of the gradient
        view_of = {
            name: view for flat in self.groups for name, view in zip(flat.names, flat.gradient_views, strict=True)
        }
        self.gradients = [view_of[name] for name, _ in model.named_parameters()]
        # 16-bit gradients of a later micro-batch as flat tensors, which are allocated at their first use
        self._added: list[tuple[Tensor, list[Tensor]]] = []
        self._is_first = True  # whether no micro-batch was added since the last update
        self.clear()

    @torch.no_grad()
    def collect(self) -> None:
        """Add the 16-bit gradients of the model's parameters to the flat gradients, and clear them.

        In float32, autograd has added them there.
        """
        if not self.is_mixed:
            return
        if not self._is_first and not self._added:
            self._added = _empty_like(self.groups, self.dtype)
        for number, flat in enumerate(self.groups):
            held = {at: p.grad for at, p in enumerate(flat.parameters) if p.grad is not None}
            if self._is_first:
                whole, parts = flat.gradient, flat.gradient_views
            else:  # foreach would add tensors of two precisions one by one
                whole, parts = self._added[number][0], tuple(self._added[number][1])
            if len(held) < len(parts):
                whole.zero_()
            if held:
                torch._foreach_copy_([parts[at] for at in held], list(held.values()))
            if not self._is_first:
                flat.gradient.add_(whole)
            for parameter in flat.parameters:
                parameter.grad = None
        self._is_first = False

    def clear(self) -> None:
        """Begin a new update, with gradients of 0."""
        self._is_first = True
        if not self.is_mixed:
            for flat in self.groups:
                flat.gradient.zero_()
                for parameter, view in zip(flat.parameters, flat.gradient_views, strict=True):
                    parameter.grad = view if parameter.requires_grad else None

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the master weights to the parameters of the model, if these have another precision."""
        if self.is_mixed:
            for flat in self.groups:
                torch._foreach_copy_(list(flat.parameters), list(flat.views))

    def flats(self, optimizer: torch.optim.Optimizer) -> Iterator[FlatParameter]:
        """The flat tensors with the parameters in them, for a checkpoint."""
        group_of = {id(weight): group for group in optimizer.param_groups for weight in group["params"]}
        for flat in self.groups:
            shards, at = [], 0
            for name, view in zip(flat.names, flat.views, strict=True):
                shards.append(WHOLE.of(name, view.shape, 0, slice(at, at + view.numel())))
                at += view.numel()
            yield FlatParameter(flat.weights, group_of[id(flat.weights)], tuple(shards))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Names and float32 weights."""
        for flat in self.groups:
            yield from zip(flat.names, flat.views, strict=True)


def _split(group: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """The parameters of a group with their items, divided into matrices of layers and others, as Muon needs them.

    Parameters whose size is not a multiple of ALIGNED come last, so that all others are aligned.
    """
    common = {key: value for key, value in group.items() if key not in ITEMS}
    rows = [common | dict(zip(ITEMS, row, strict=True)) for row in zip(*(group[item] for item in ITEMS), strict=True)]
    rows.sort(key=lambda row: row["params"].numel() % ALIGNED > 0)
    for is_hidden in (True, False):
        if part := [row for row in rows if row["hidden"] == is_hidden]:
            yield part


def _flatten(members: Sequence[tuple[str, nn.Parameter]]) -> FlatGroup:
    """Move parameters into a new flat tensor. Parameters in 16 bits keep their own memory."""
    size, first = sum(parameter.numel() for _, parameter in members), members[0][1]
    dtype = torch.promote_types(first.dtype, torch.float32)  # float64 stays as it is
    weights, gradient = (torch.zeros(size, dtype=dtype, device=first.device) for _ in range(2))
    views, gradient_views, at = [], [], 0
    for _, parameter in members:
        within = slice(at, at + parameter.numel())
        at = within.stop
        views.append(weights[within].view(parameter.shape))
        gradient_views.append(gradient[within].view(parameter.shape))
        views[-1].copy_(parameter.detach())
        if parameter.dtype == dtype:
            parameter.data = views[-1]
    names, parameters = zip(*members, strict=True)
    flat = nn.Parameter(weights)
    flat.grad = gradient
    return FlatGroup(names, parameters, flat, tuple(views), gradient, tuple(gradient_views))


def _empty_like(groups: Sequence[FlatGroup], dtype: torch.dtype) -> list[tuple[Tensor, list[Tensor]]]:
    """A flat tensor with another precision for each group, and its views with the shapes of the parameters."""
    result = []
    for flat in groups:
        whole = torch.empty_like(flat.gradient, dtype=dtype)
        parts = whole.split([view.numel() for view in flat.views])
        result.append((whole, [part.view(view.shape) for part, view in zip(parts, flat.views, strict=True)]))
    return result
