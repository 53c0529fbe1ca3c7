"""The layouts that are possible on a number of devices, and the best of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, get_args

from orchestration.planning.devices import Device
from orchestration.planning.layout import Checkpointing, ParallelLayout
from orchestration.planning.memory import DeviceMemory, device_memory
from orchestration.planning.timing import CommunicationVolume, StepSeconds, communication_volume, step_seconds
from orchestration.planning.workload import Workload
from training.specs import Phase

FILLED: Final = 0.95  # fraction of a device's memory that a layout may fill
REFUSED: Final = 1.1  # fraction above which a layout is refused; the prediction may exceed the measured memory by 10 %
MOST_ROWS: Final = 10  # largest exponent: a micro-batch has up to 2**10 of the longest sequences
_ENGINE: Final = "cluster.engine."
MOST_ROWS_PIPED: Final = 3  # largest exponent with a pipeline: up to 2**3 sequences


@dataclass(frozen=True)
class LayoutCandidate:
    """A layout with its memory and its time."""

    layout: ParallelLayout  # layout with the `rows` of the phase that needs the most memory
    memory: DeviceMemory  # memory in that phase
    seconds: tuple[StepSeconds, ...]  # time of one step, for each phase
    steps: tuple[int, ...]
    sent: tuple[CommunicationVolume, ...]  # bytes that each device sends in one step, for each phase

    @property
    def total_s(self) -> float:
        """Seconds of the whole run."""
        return sum(one.total * steps for one, steps in zip(self.seconds, self.steps, strict=True))


def cost_layout(demand: Workload, layout: ParallelLayout, device: Device) -> LayoutCandidate:
    """The memory and the time of a layout in all phases."""
    phases = demand.recipe.phases
    largest, needed = peak_on(demand, layout, device)
    each = [(layout_in_phase(layout, demand, phase), phase.seq_length, phase.global_batch_size) for phase in phases]
    return LayoutCandidate(
        largest,
        needed,
        tuple(step_seconds(demand, one, device, length, batch) for one, length, batch in each),
        tuple(phase.steps for phase in phases),
        tuple(communication_volume(demand, one, length, batch) for one, length, batch in each),
    )


def peak_on(demand: Workload, layout: ParallelLayout, device: Device) -> tuple[ParallelLayout, DeviceMemory]:
    """`peak_memory` on this device, whose memory determines the slices of logits."""
    return peak_memory(demand, layout, cuda=is_gpu(device), gpu_memory=device.memory if is_gpu(device) else 0.0)


def peak_memory(
    demand: Workload, layout: ParallelLayout, *, cuda: bool, gpu_memory: float = 0.0
) -> tuple[ParallelLayout, DeviceMemory]:
    """The layout with the `rows` of the phase that needs the most memory, and the memory in this phase.

    `gpu_memory` is the memory of a GPU in bytes; 0: its heads have the small slices of logits of a CPU.
    """
    shapes = {(phase.seq_length, phase.global_batch_size): phase for phase in demand.recipe.phases}
    each = [(layout_in_phase(layout, demand, phase), phase.seq_length) for phase in shapes.values()]
    costs = [(one, device_memory(demand, one, length, cuda=cuda, gpu_memory=gpu_memory)) for one, length in each]
    return max(costs, key=lambda one: one[1].peak)


def layout_in_phase(layout: ParallelLayout, demand: Workload, phase: Phase) -> ParallelLayout:
    """The layout with the number of sequences per micro-batch that its token limit allows in `phase`."""
    tokens = layout.micro_tokens or layout.rows * demand.row_tokens(demand.longest.seq_length)
    return replace(layout, micro_tokens=tokens, rows=demand.micro_rows(tokens, phase, layout.data))


def memory_ratio(needed: DeviceMemory, device: Device) -> float:
    """Used fraction of a device's memory, or of its host's memory if that is larger."""
    return max(needed.peak / device.memory, needed.host / device.host if needed.host else 0.0)


def has_room(needed: DeviceMemory, device: Device) -> bool:
    return memory_ratio(needed, device) <= FILLED


def find_conflict(layout: ParallelLayout, demand: Workload) -> str:
    """The reason why a layout is impossible; "" if it is possible."""
    trunk, batch = demand.recipe.model, min(phase.global_batch_size for phase in demand.recipe.phases)
    if layout.tensor > 1:
        if reason := trunk.split_over(layout.tensor):
            return f"{_ENGINE}tensor_parallel_size is {layout.tensor}, {reason}"
        if not demand.recipe.optimizer.takes_slices:
            return (
                f"{_ENGINE}tensor_parallel_size is {layout.tensor}, but optimizer.kind "
                f"{demand.recipe.optimizer.kind} needs whole tensors; set {_ENGINE}tensor_parallel_size=1"
            )
        if demand.vocab_size < layout.tensor:
            return (
                f"{_ENGINE}tensor_parallel_size is {layout.tensor}, but the token table has {demand.vocab_size} rows; "
                f"lower {_ENGINE}tensor_parallel_size"
            )
    if layout.pipeline > 1:
        if reason := trunk.stages_over(layout.pipeline):
            return f"{_ENGINE}pipeline_parallel_size is {layout.pipeline}, {reason}"
        if layout.zero > 1:
            return (
                f"invalid {_ENGINE}zero_stage: got {layout.zero}, expected 0 or 1 with pipeline_parallel_size; set "
                f"{_ENGINE}zero_stage=1"
            )
    if layout.data > batch:
        return f"{layout.data} replicas, but a batch has {batch} sequences; lower cluster.num_workers"
    return ""


def iterate_layouts(demand: Workload, device: Device, devices: int, like: ParallelLayout) -> Iterator[ParallelLayout]:
    """Layouts that the search compares, on at most `devices` devices, with the precision and the buffers of `like`.

    All pipeline stages have the same number of layers. Pipelines use ZeRO 1 and small micro-batches, which shortens the
    time that stages wait. Offloading is not tried on CPUs, whose states are already in host memory.
    """
    batch, layers, gpu = (
        min(phase.global_batch_size for phase in demand.recipe.phases),
        demand.recipe.model.num_hidden_layers,
        is_gpu(device),
    )
    degrees = [degree for degree in (1, 2, 4, 8) if degree <= min(devices, device.per_node) and gpu] or [1]
    stages = [stages for stages in range(1, layers + 1) if layers % stages == 0 and gpu] or [1]
    for tensor, pipeline in product(degrees, stages if like.precision != "fp16" else [1]):
        data = min(devices // (tensor * pipeline), batch)
        if data == 0:
            continue
        piped = pipeline > 1
        zeros, offloads = ((1,), (False,)) if piped else ((1, 2, 3), (False, True) if gpu else (False,))
        is_lone = data * tensor * pipeline == 1 and like.precision != "fp16" and not like.deepspeed
        sizes = list(_micro_tokens(demand, data, MOST_ROWS_PIPED if piped else MOST_ROWS))
        for zero, checkpointing, tokens, offload in product(zeros, get_args(Checkpointing), sizes, offloads):
            if is_lone and not offload and zero != (like.zero or 1):  # ZeRO divides nothing: all stages are equal
                continue
            yield ParallelLayout(
                data=data,
                tensor=tensor,
                pipeline=pipeline,
                zero=zero,
                micro_tokens=tokens,
                checkpointing=checkpointing,
                offload=offload,
                precision=like.precision,
                reduce_bytes=like.reduce_bytes,
                overlap=like.overlap and zero == 2,
                persistent=like.persistent,
                bucket=like.bucket,
                prefetch=like.prefetch,
                live=like.live,
                deepspeed=like.deepspeed,
            )


def is_gpu(device: Device) -> bool:
    return device.kind != "cpu"


def _micro_tokens(demand: Workload, replicas: int, most: int) -> Iterator[int]:
    """Micro-batch sizes in tokens: 1, 2, 4 and so on of the longest sequences, until a micro-batch holds a replica's
    whole batch."""
    one = demand.row_tokens(demand.longest.seq_length)
    whole = max(
        -(-phase.global_batch_size // replicas) * demand.row_tokens(phase.seq_length) for phase in demand.recipe.phases
    )
    for power in range(most + 1):
        yield one << power
        if one << power >= whole:
            return


def find_best_layouts(
    demand: Workload, device: Device, devices: int, *, count: int = 4, like: ParallelLayout | None = None
) -> list[LayoutCandidate]:
    """The fastest layouts that fit, the best first, one for each combination of degrees and ZeRO stage; [] if none
    fits.

    Precision and buffers are those of `like`, or the defaults without it. Layouts that recompute needlessly are left
    out.
    """
    best: dict[tuple[int, int, int, str, bool], LayoutCandidate] = {}
    for layout in iterate_layouts(
        demand, device, devices, like or ParallelLayout(precision="bf16" if is_gpu(device) else "fp32")
    ):
        if find_conflict(layout, demand) or not has_room(peak_on(demand, layout, device)[1], device):
            continue
        choice = cost_layout(demand, layout, device)
        key = (layout.tensor, layout.pipeline, layout.zero, layout.checkpointing, layout.offload)
        if key not in best or choice.total_s < best[key].total_s:
            best[key] = choice
    ordered = sorted(best.values(), key=lambda choice: choice.total_s)
    return [one for one in ordered if not _recomputes_needlessly(one, best)][:count]


def _recomputes_needlessly(
    choice: LayoutCandidate, best: dict[tuple[int, int, int, str, bool], LayoutCandidate]
) -> bool:
    """Whether a layout recomputes attention scores that the kernels do not store: memory and time are then the same as
    without recomputation."""
    layout = choice.layout
    if layout.checkpointing != "selective":
        return False
    plain = best.get((layout.tensor, layout.pipeline, layout.zero, "none", layout.offload))
    return plain is not None and (plain.memory.peak, plain.total_s) == (choice.memory.peak, choice.total_s)


def find_smallest_layout(
    demand: Workload, device_for: Callable[[int], Device], *, most: int = 1 << 16, like: ParallelLayout | None = None
) -> LayoutCandidate | None:
    """The best layout on the smallest power of two of devices on which a layout fits; None if none fits on up to `most`
    devices.

    `device_for` gives the device for a number of devices: the cores of one machine share its memory.
    """
    devices = 1
    while devices <= most:
        if layouts := find_best_layouts(demand, device_for(devices), devices, count=1, like=like):
            return layouts[0]
        devices *= 2
    return None
