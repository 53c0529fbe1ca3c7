"""What a worker has of the parameters and of the optimiser's state, whatever ZeRO made of them.

ZeRO gives each worker's optimiser flat tensors in float32: pieces of parameters, one after the other. `FlatParameter`
is such a tensor, and says which elements of which parameters it has; the rest of this file does not know about stages.

An optimiser keeps tensors as long as the flat one (a number for each element) and single numbers (its step). One that
keeps anything else describes it (training/optimizers/steps/optimizer_shard.py, `ShardedStateOptimizer`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from preprocessing.errors import BadInput
from training.engines.fragments import (
    BUFFER,
    WEIGHT,
    CheckpointFragment,
    Fragments,
    Numbers,
    Shape,
    TensorSlice,
    fragment,
    whole,
)
from training.model import net_of
from training.optimizers import ShardedStateOptimizer

Copy = Callable[[str, Tensor], Tensor]
"""Takes a name and a tensor, and gives it in the host's memory, where the next update does not change it."""


@dataclass(frozen=True)
class LocalShard:
    """What a worker has of a parameter: elements that lie together, or none."""

    name: str
    shape: Shape  # of the whole parameter
    start: int  # elements of the parameter, or of its slice, before them
    at: slice  # where they lie in the flat tensor
    cut: TensorSlice | None = None  # the slice of the parameter that tensor parallelism gives this worker
    is_own: bool = True  # False: another worker has the same and writes it

    @property
    def length(self) -> int:
        return self.at.stop - self.at.start


@dataclass(frozen=True)
class Shares:
    """What tensor parallelism makes of the parameters; without it nothing."""

    cuts: Mapping[str, tuple[Shape, TensorSlice]] = field(
        default_factory=dict
    )  # shape of the whole one, and the slice here
    is_first: bool = True  # of the workers that share a net: it writes the parameters that all of them have

    def of(self, name: str, shape: Sequence[int], start: int, at: slice) -> LocalShard:
        """What a worker has of its slice, which is of this shape."""
        whole_shape, cut = self.cuts.get(name, (tuple(shape), None))
        return LocalShard(name, whole_shape, start, at, cut, is_own=self.is_first or cut is not None)


WHOLE = Shares()


def tensor_shares_of(model: nn.Module, *, is_first: bool) -> Shares:
    """What this worker has of the parameters of a net that several may share."""
    cuts = {
        name: (cut.shape, TensorSlice(cut.axis, tuple((each.start, each.stop) for each in cut.within)))
        for name, cut in net_of(model).cuts.items()
    }
    return Shares(cuts, is_first)


@dataclass(frozen=True)
class FlatParameter:
    """A tensor that a worker's optimiser updates, and which elements of which parameters it has."""

    weights: Tensor
    group: dict[str, Any]  # of the optimiser, that it belongs to
    members: tuple[LocalShard, ...]


def parameters(model: nn.Module, optimizer: torch.optim.Optimizer, shares: Shares = WHOLE) -> Iterator[FlatParameter]:
    """Each parameter by itself, as an optimiser without ZeRO has them."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for weight in group["params"]:
            yield FlatParameter(weight, group, (shares.of(names[weight], weight.shape, 0, slice(0, weight.numel())),))


def groups(model: nn.Module, zero: Any, shares: Shares = WHOLE) -> Iterator[FlatParameter]:
    """The pieces of groups that stages 1 and 2 of ZeRO make; `zero` is DeepSpeed's optimiser."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    bf16 = hasattr(zero, "bf16_groups")  # stage 1 in bf16 is another class
    members_of = zero.bf16_groups if bf16 else zero.bit16_groups
    flats = zero.fp32_groups_flat_partition if bf16 else zero.single_partition_of_fp32_groups
    for group, members, flat in zip(zero.optimizer.param_groups, members_of, flats, strict=True):
        held = (shares.of(names[parameter], parameter.shape, *_linked(parameter)) for parameter in members)
        yield FlatParameter(flat, group, tuple(held))


def _linked(parameter: Tensor) -> tuple[int, slice]:
    """Which elements of a parameter a flat piece of its group has, and where, by DeepSpeed's own mapping."""
    mapping = parameter._hp_mapping  # type: ignore[attr-defined]
    if mapping is None:
        return 0, slice(0, 0)
    there = mapping.hp_fragment_address
    return mapping.lp_fragment_address.start, slice(there.start, there.start + there.numel)


def partitions(model: nn.Module, zero: Any, shares: Shares = WHOLE) -> Iterator[FlatParameter]:
    """The pieces of parameters that stage 3 of ZeRO makes; `zero` is DeepSpeed's optimiser.

    What is on a disk is in memory until the next one is asked for, and what was changed of it is written then.
    """
    names = {parameter.ds_id: name for name, parameter in model.named_parameters()}  # type: ignore[attr-defined]
    for number, (members, flat) in enumerate(zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True)):
        held, at = [], 0
        for parameter in members:
            size = parameter.ds_tensor.ds_numel  # alike on all workers; the last ones have less, and are filled up
            start = min(zero._get_param_partition_rank(parameter) * size, parameter.ds_numel)
            length = min(size, parameter.ds_numel - start)
            held.append(shares.of(names[parameter.ds_id], parameter.ds_shape, start, slice(at, at + length)))
            at += size
        group = zero.optimizer.param_groups[zero.sub_group_to_group_id[number]]
        with in_memory(zero, number):
            yield FlatParameter(flat, group, tuple(held))


@contextmanager
def in_memory(zero: Any, number: int) -> Iterator[None]:
    """Have weights and state of a sub-group of stage 3 in memory, and write them back if they are of a disk."""
    on_disk = zero._swappable_optimizer_subgroup(number)  # small ones never are
    if on_disk:
        zero._optimizer_states_and_gradient_swap_in(number)
    yield
    if on_disk:
        zero._optimizer_states_and_gradient_swap_out(number)


def part_of(
    model: nn.Module, flats: Iterable[FlatParameter], optimizer: torch.optim.Optimizer, copy: Copy, *, is_first: bool
) -> CheckpointFragment:
    """What this worker writes of a checkpoint; the first one writes the buffers too."""
    part = CheckpointFragment()
    for number, flat in enumerate(flats):
        _add(part, flat, {WEIGHT: copy(f"{number}|{WEIGHT}", flat.weights.detach())})
        state = optimizer.state.get(flat.weights, {})
        if not state:
            continue
        if isinstance(optimizer, ShardedStateOptimizer):
            _add_stretches(part, flat, optimizer, copy, number)
        else:
            tensors = {key: value for key, value in state.items() if _by_element(value, flat.weights)}
            _add(part, flat, {key: copy(f"{number}|{key}", value) for key, value in tensors.items()})
            rest = {key: value for key, value in state.items() if key not in tensors}
            part.numbers.update({held.name: _numbers(held.name, rest) for held in flat.members})
    if is_first:
        buffers = _kept_buffers(model).items()
        part.tensors.update({whole(name, BUFFER): copy(whole(name, BUFFER), value) for name, value in buffers})
    return part


def _add(part: CheckpointFragment, flat: FlatParameter, tensors: dict[str, Tensor]) -> None:
    """Put what a worker has of each member of a flat tensor into its part, by the name of the state."""
    for held in flat.members:
        part.shapes[held.name] = held.shape
        if held.cut:
            part.cuts[held.name] = held.cut
        if held.length and held.is_own:
            for state, values in tensors.items():
                part.tensors[fragment(held.name, state, held.start)] = values.view(-1)[held.at]


def _add_stretches(
    part: CheckpointFragment, flat: FlatParameter, optimizer: ShardedStateOptimizer, copy: Copy, number: int
) -> None:
    """The same of an optimiser that describes its state, and whose groups have one parameter each."""
    (held,) = flat.members
    writes = held.is_own and held.length  # not what only fills a piece up
    for stretch in optimizer.stretches(flat.weights, flat.group):
        if writes and stretch.is_own and stretch.values.numel():
            start = stretch.start
            key = whole(held.name, stretch.state) if start is None else fragment(held.name, stretch.state, start)
            part.tensors[key] = copy(f"{number}|{key}", stretch.values)
    part.numbers[held.name] = dict(optimizer.numbers(flat.weights))


def _by_element(value: object, weights: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == weights.shape


def _numbers(name: str, rest: dict[str, Any]) -> Numbers:
    """What an optimiser keeps beside its tensors; a tensor of one number, as torch's own have, is told by its name."""
    found = {}
    for key, value in rest.items():
        is_tensor = isinstance(value, Tensor)
        assert isinstance(value, int | float) or (is_tensor and value.ndim == 0), f"{name}: what is {key} of?"
        found[f"tensor.{key}" if is_tensor else key] = value.item() if is_tensor else value
    return found


@torch.no_grad()
def load(flats: Iterable[FlatParameter], optimizer: torch.optim.Optimizer, fragments: Fragments) -> None:
    """Take weights and the optimiser's state from a checkpoint, in place; the 16-bit weights are left to the caller."""
    for flat in flats:
        for held in flat.members:
            if (found := fragments.shape(held.name)) != held.shape:
                raise BadInput(f"{fragments.folder}: {held.name} is {list(found)}, this run wants {list(held.shape)}")
        _fill(flat, WEIGHT, flat.weights, fragments)
        numbers = _latest([fragments.numbers(held.name) for held in flat.members])
        if isinstance(optimizer, ShardedStateOptimizer):
            optimizer.state.pop(flat.weights, None)
            if numbers:
                _load_stretches(flat, optimizer, fragments, numbers)
        else:
            _load_state(flat, optimizer.state[flat.weights], fragments, numbers)


@torch.no_grad()
def load_buffers(model: nn.Module, fragments: Fragments) -> None:
    """Take the buffers of the net from a checkpoint; most nets have none in their files, and then nothing is read."""
    for name, buffer in _kept_buffers(model).items():
        if fragments.has(name, BUFFER):
            buffer.copy_(fragments.of_whole(name, BUFFER))


def _kept_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that are in a file, by name."""
    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for prefix, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }


def _fill(flat: FlatParameter, state: str, out: Tensor, fragments: Fragments) -> None:
    """Put what the members of a flat tensor have of a state where they lie; what none of them has stays."""
    for held in flat.members:
        if held.length and (state == WEIGHT or fragments.has(held.name, state)):
            here = out.view(-1)[held.at]
            read = torch.empty(held.length, dtype=out.dtype)
            fragments.fill(held.name, state, read, held.start, held.cut)
            here.copy_(read)


def _load_state(flat: FlatParameter, kept: dict[str, Any], fragments: Fragments, numbers: Numbers) -> None:
    """The state of a flat tensor: zeros where a parameter has none, as one that has never had a gradient."""
    states = set().union(*(fragments.states(held.name) for held in flat.members if held.length))
    for key in kept.keys() - states:
        del kept[key]
    if not states:
        return
    for key in sorted(states):
        tensor = kept.setdefault(key, torch.zeros_like(flat.weights, requires_grad=False))
        tensor.zero_()
        _fill(flat, key, tensor, fragments)
    for key, value in numbers.items():
        name = key.removeprefix("tensor.")
        device = flat.weights.device if flat.group.get("fused") or flat.group.get("capturable") else None
        kept[name] = torch.tensor(value, dtype=torch.float32, device=device) if name != key else value


def _load_stretches(
    flat: FlatParameter, optimizer: ShardedStateOptimizer, fragments: Fragments, numbers: Numbers
) -> None:
    (held,) = flat.members
    optimizer.begin(flat.weights, flat.group, numbers)
    for stretch in optimizer.stretches(flat.weights, flat.group):
        if stretch.start is None:
            stretch.values.copy_(fragments.of_whole(held.name, stretch.state))
        elif held.length:
            read = torch.empty_like(stretch.values, device="cpu")
            fragments.fill(held.name, stretch.state, read, stretch.start, held.cut)
            stretch.values.copy_(read)


def _latest(numbers: Sequence[Numbers]) -> Numbers:
    """Of the parameters of a flat tensor: one that was without a gradient for a while has taken fewer steps."""
    found: dict[str, float] = {}
    for each in numbers:
        found |= {key: max(value, found.get(key, value)) for key, value in each.items()}
    return found
