"""A worker's shards of the parameters and of the optimizer state, with any ZeRO stage.

ZeRO gives each worker's optimizer flat float32 tensors, which are concatenated parts of parameters. A `FlatParameter`
is a flat tensor, together with the elements of parameters that it contains. Only the functions that create it depend on
the ZeRO stage.

The state of most optimizers consists of tensors with one number for each element of the flat tensor, and of single
numbers, such as the step. An optimizer with another state implements `ShardedStateOptimizer`
(training/optimizers/sharded_state.py).
"""

import math
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
from training.optimizers import ShardedState, ShardedStateOptimizer

Copy = Callable[[str, Tensor], Tensor]
"""Copies a tensor, identified by a name, to host memory, where the next update does not change it."""


@dataclass(frozen=True)
class LocalShard:
    """A worker's shard of a parameter: contiguous elements, possibly none."""

    name: str
    shape: Shape  # shape of the whole parameter
    start: int  # index of the first element in the parameter, or in its slice
    at: slice  # range of the elements in the flat tensor
    cut: TensorSlice | None = None  # this worker's slice of the parameter under tensor parallelism
    is_own: bool = True  # False: another worker has the same elements and writes them

    @property
    def length(self) -> int:
        return self.at.stop - self.at.start

    @property
    def size(self) -> int:
        """Number of elements of the whole parameter, or of this worker's slice of it."""
        size = math.prod(self.shape)
        if self.cut is None:
            return size
        return size // self.shape[self.cut.dimension] * sum(stop - start for start, stop in self.cut.pieces)


@dataclass(frozen=True)
class Shares:
    """This worker's slices of the parameters under tensor parallelism; empty without it."""

    # shape of the whole parameter and slice of this worker, by name of the parameter
    cuts: Mapping[str, tuple[Shape, TensorSlice]] = field(default_factory=dict)
    is_first: bool = True  # whether this worker writes the parameters that all workers sharing a model have

    def of(self, name: str, shape: Sequence[int], start: int, at: slice) -> LocalShard:
        """The shard at element `start` of a parameter, or of this worker's slice; `shape` is the shape of either."""
        whole_shape, cut = self.cuts.get(name, (tuple(shape), None))
        return LocalShard(name, whole_shape, start, at, cut, is_own=self.is_first or cut is not None)


WHOLE = Shares()


def tensor_shares_of(model: nn.Module, *, is_first: bool) -> Shares:
    """This worker's slices of the parameters of a model."""
    cuts = {
        name: (cut.shape, TensorSlice(cut.axis, tuple((each.start, each.stop) for each in cut.within)))
        for name, cut in net_of(model).cuts.items()
    }
    return Shares(cuts, is_first)


@dataclass(frozen=True)
class FlatParameter:
    """A tensor that a worker's optimizer updates, with the shards of parameters that it contains."""

    weights: Tensor
    group: dict[str, Any]  # parameter group of the optimizer
    members: tuple[LocalShard, ...]


def parameters(model: nn.Module, optimizer: torch.optim.Optimizer, shares: Shares = WHOLE) -> Iterator[FlatParameter]:
    """Iterate over the parameters of an optimizer without ZeRO, each as a separate tensor."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for weight in group["params"]:
            yield FlatParameter(weight, group, (shares.of(names[weight], weight.shape, 0, slice(0, weight.numel())),))


def groups(model: nn.Module, zero: Any, shares: Shares = WHOLE) -> Iterator[FlatParameter]:
    """Iterate over the flat tensors of ZeRO stages 1 and 2, one for each group; `zero` is DeepSpeed's optimizer."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    bf16 = hasattr(zero, "bf16_groups")  # stage 1 in bf16 has another class
    members_of = zero.bf16_groups if bf16 else zero.bit16_groups
    flats = zero.fp32_groups_flat_partition if bf16 else zero.single_partition_of_fp32_groups
    for group, members, flat in zip(zero.optimizer.param_groups, members_of, flats, strict=True):
        shards = (shares.of(names[parameter], parameter.shape, *_map_elements(parameter)) for parameter in members)
        yield FlatParameter(flat, group, tuple(shards))


def _map_elements(parameter: Tensor) -> tuple[int, slice]:
    """First element of a parameter in the flat tensor of its group, and range in that tensor (DeepSpeed's mapping)."""
    mapping = parameter._hp_mapping  # type: ignore[attr-defined]
    if mapping is None:
        return 0, slice(0, 0)
    address = mapping.hp_fragment_address
    return mapping.lp_fragment_address.start, slice(address.start, address.start + address.numel)


def partitions(model: nn.Module, zero: Any, shares: Shares = WHOLE) -> Iterator[FlatParameter]:
    """Iterate over the flat tensors of ZeRO stage 3; `zero` is DeepSpeed's optimizer.

    An offloaded tensor is in memory until the next iteration, which writes it back to the disk.
    """
    names = {parameter.ds_id: name for name, parameter in model.named_parameters()}  # type: ignore[attr-defined]
    for number, (members, flat) in enumerate(zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True)):
        shards, at = [], 0
        for parameter in members:
            size = parameter.ds_tensor.ds_numel  # equal on all workers, because the last partitions are padded
            start = min(zero._get_param_partition_rank(parameter) * size, parameter.ds_numel)
            length = min(size, parameter.ds_numel - start)
            shards.append(shares.of(names[parameter.ds_id], parameter.ds_shape, start, slice(at, at + length)))
            at += size
        group = zero.optimizer.param_groups[zero.sub_group_to_group_id[number]]
        with in_memory(zero, number):
            yield FlatParameter(flat, group, tuple(shards))


@contextmanager
def in_memory(zero: Any, number: int) -> Iterator[None]:
    """Load the weights and the state of a subgroup of stage 3 from the disk inside the block; then write them back.

    If the subgroup is not on a disk, do nothing.
    """
    on_disk = zero._swappable_optimizer_subgroup(number)  # False for small subgroups
    if on_disk:
        zero._optimizer_states_and_gradient_swap_in(number)
    yield
    if on_disk:
        zero._optimizer_states_and_gradient_swap_out(number)


def part_of(
    model: nn.Module, flats: Iterable[FlatParameter], optimizer: torch.optim.Optimizer, copy: Copy, *, is_first: bool
) -> CheckpointFragment:
    """This worker's part of a checkpoint; the first worker also writes the buffers."""
    part = CheckpointFragment()
    for number, flat in enumerate(flats):
        _add(part, flat, {WEIGHT: copy(f"{number}|{WEIGHT}", flat.weights.detach())})
        state = optimizer.state.get(flat.weights, {})
        if not state:
            continue
        if isinstance(optimizer, ShardedStateOptimizer):
            _add_sharded_state(part, flat, optimizer, copy, number)
        else:
            tensors = {key: value for key, value in state.items() if _by_element(value, flat.weights)}
            _add(part, flat, {key: copy(f"{number}|{key}", value) for key, value in tensors.items()})
            rest = {key: value for key, value in state.items() if key not in tensors}
            numbers = _numbers(flat.members[0].name, rest) if flat.members else {}
            part.numbers.update({shard.name: numbers for shard in flat.members})
    if is_first:
        buffers = _persistent_buffers(model).items()
        part.tensors.update({whole(name, BUFFER): copy(whole(name, BUFFER), value) for name, value in buffers})
    return part


def _add(part: CheckpointFragment, flat: FlatParameter, tensors: dict[str, Tensor]) -> None:
    """Add the elements of each shard of a flat tensor to a part of a checkpoint; `tensors` are by name of the state."""
    for shard in flat.members:
        part.shapes[shard.name] = shard.shape
        if shard.cut:
            part.cuts[shard.name] = shard.cut
        if shard.length and shard.is_own:
            for state, values in tensors.items():
                part.tensors[fragment(shard.name, state, shard.start)] = values.view(-1)[shard.at]


def _add_sharded_state(
    part: CheckpointFragment, flat: FlatParameter, optimizer: ShardedStateOptimizer, copy: Copy, number: int
) -> None:
    """Add the state of a `ShardedStateOptimizer` to a part of a checkpoint."""
    tensors = _tensors_in(flat)
    for sharded in optimizer.stretches(flat.weights, flat.group):
        tensor = tensors[sharded.tensor]
        # a shard without elements is one of a flat tensor that is only padding
        if tensor.shard.is_own and tensor.shard.length and sharded.is_own and sharded.values.numel():
            key = tensor.key(sharded)
            part.tensors[key] = copy(f"{number}|{key}", sharded.values)
    numbers = dict(optimizer.numbers(flat.weights))
    part.numbers.update({shard.name: numbers for shard in flat.members})


@dataclass(frozen=True)
class _MemberTensor:
    """A tensor in a parameter of the model, which a flat tensor contains."""

    shard: LocalShard  # of the parameter
    number: int  # number of the tensor in the parameter
    begin: int  # number of elements of the parameter, or of its slice, before the tensor

    def name(self, sharded: ShardedState) -> str:
        """The name of a state in a checkpoint."""
        return f"{sharded.state}.{self.number}" if sharded.start is None else sharded.state

    def key(self, sharded: ShardedState) -> str:
        """The key of a state in a checkpoint."""
        name = self.name(sharded)
        if sharded.start is None:
            return whole(self.shard.name, name)
        return fragment(self.shard.name, name, self.begin + sharded.start)


def _tensors_in(flat: FlatParameter) -> list[_MemberTensor]:
    """The tensors that `shapes` of the group lists, with the parameters that contain them.

    The flat tensor has shards of one parameter, or several whole parameters in their order.
    """
    shapes, tensors = iter(flat.group["shapes"]), list[_MemberTensor]()
    for shard in flat.members:
        number = begin = 0
        while begin < shard.size:
            tensors.append(_MemberTensor(shard, number, begin))
            number, begin = number + 1, begin + math.prod(next(shapes))
        assert begin == shard.size, f"invalid shapes of {shard.name}: got {begin} elements, expected {shard.size}"
    return tensors


def _by_element(value: object, weights: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == weights.shape


def _numbers(name: str, rest: dict[str, Any]) -> Numbers:
    """The single numbers in an optimizer state.

    The names of scalar float tensors, as in torch's optimizers, get a prefix. An integer tensor is stored as a number.
    """
    numbers = {}
    for key, value in rest.items():
        is_tensor = isinstance(value, Tensor)
        assert isinstance(value, int | float) or (is_tensor and value.ndim == 0), (
            f"invalid optimizer state {key} of {name}: expected a number"
        )
        is_float_tensor = is_tensor and value.is_floating_point()
        numbers[f"tensor.{key}" if is_float_tensor else key] = value.item() if is_tensor else value
    return numbers


@torch.no_grad()
def load(flats: Iterable[FlatParameter], optimizer: torch.optim.Optimizer, fragments: Fragments) -> None:
    """Load weights and optimizer state from a checkpoint in place. The caller must update the 16-bit weights."""
    for flat in flats:
        for shard in flat.members:
            if (shape := fragments.shape(shard.name)) != shard.shape:
                raise BadInput(
                    f"{fragments.folder}: invalid shape of {shard.name}: got {list(shape)}, expected "
                    f"{list(shard.shape)}; use a checkpoint of the same recipe"
                )
        _fill(flat, WEIGHT, flat.weights, fragments)
        numbers = _latest([fragments.numbers(shard.name) for shard in flat.members])
        if isinstance(optimizer, ShardedStateOptimizer):
            optimizer.state.pop(flat.weights, None)
            if numbers:
                _load_sharded_state(flat, optimizer, fragments, numbers)
        else:
            _load_state(flat, optimizer.state[flat.weights], fragments, numbers)


@torch.no_grad()
def load_buffers(model: nn.Module, fragments: Fragments) -> None:
    """Load the persistent buffers of the model from a checkpoint. Most models have none; then no file is read."""
    for name, buffer in _persistent_buffers(model).items():
        if fragments.has(name, BUFFER):
            buffer.copy_(fragments.of_whole(name, BUFFER))


def _persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that a checkpoint contains, by name."""
    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for prefix, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }


def _fill(flat: FlatParameter, state: str, out: Tensor, fragments: Fragments) -> None:
    """Load a state of each shard of a flat tensor into `out`; elements without a state stay unchanged."""
    for shard in flat.members:
        if shard.length and (state == WEIGHT or fragments.has(shard.name, state)):
            read = torch.empty(shard.length, dtype=out.dtype)
            fragments.fill(shard.name, state, read, shard.start, shard.cut)
            out.view(-1)[shard.at].copy_(read)


def _load_state(flat: FlatParameter, current: dict[str, Any], fragments: Fragments, numbers: Numbers) -> None:
    """Load the optimizer state of a flat tensor; a parameter that never had a gradient has no state and gets zeros."""
    states = set().union(*(fragments.states(shard.name) for shard in flat.members if shard.length))
    for key in current.keys() - states:
        del current[key]
    if not states:
        return
    for key in sorted(states):
        tensor = current.setdefault(key, torch.zeros_like(flat.weights, requires_grad=False))
        tensor.zero_()
        _fill(flat, key, tensor, fragments)
    for key, value in numbers.items():
        name = key.removeprefix("tensor.")
        device = flat.weights.device if flat.group.get("fused") or flat.group.get("capturable") else None
        current[name] = torch.tensor(value, dtype=torch.float32, device=device) if name != key else value


def _load_sharded_state(
    flat: FlatParameter, optimizer: ShardedStateOptimizer, fragments: Fragments, numbers: Numbers
) -> None:
    """Load the state of a `ShardedStateOptimizer`; a parameter without a state gets zeros."""
    optimizer.begin(flat.weights, flat.group, numbers)
    tensors = _tensors_in(flat)
    for sharded in optimizer.stretches(flat.weights, flat.group):
        tensor = tensors[sharded.tensor]
        shard, state = tensor.shard, tensor.name(sharded)
        if len(flat.members) > 1 and not fragments.numbers(shard.name):
            continue
        if sharded.start is None:
            sharded.values.copy_(fragments.of_whole(shard.name, state))
        elif shard.length:
            read = torch.empty_like(sharded.values, device="cpu")
            fragments.fill(shard.name, state, read, tensor.begin + sharded.start, shard.cut)
            sharded.values.copy_(read)


def _latest(numbers: Sequence[Numbers]) -> Numbers:
    """The maximum of each number over the parameters of a flat tensor.

    A parameter that had no gradient in some steps has a smaller step number than the others.
    """
    largest: dict[str, float] = {}
    for each in numbers:
        largest |= {key: max(value, largest.get(key, value)) for key, value in each.items()}
    return largest
