"""The layouts that a number of devices allows, and which of them is best."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, get_args

from orchestration.planning.demand import Demand
from orchestration.planning.devices import Device
from orchestration.planning.layout import Checkpointing, Layout
from orchestration.planning.memory import Memory, memory
from orchestration.planning.timing import Seconds, seconds

FILLED: Final = 0.95  # share of a device's memory that a plan may fill
MOST_ROWS: Final = 10  # powers of two of a micro-batch's rows, up to 1,024
MOST_ROWS_PIPED: Final = 3  # with a pipeline up to 8


@dataclass(frozen=True)
class Choice:
    """A layout with what it needs and how long it takes."""

    layout: Layout
    memory: Memory  # in the phase with the longest rows
    seconds: tuple[Seconds, ...]  # of a step in each phase
    steps: tuple[int, ...]

    @property
    def total_s(self) -> float:
        """Of the whole run."""
        return sum(one.total * steps for one, steps in zip(self.seconds, self.steps, strict=True))


def chosen(demand: Demand, layout: Layout, device: Device) -> Choice:
    """A layout, costed. Rows are as many in each phase as tokens allow in the one with the longest."""
    phases = demand.recipe.phases
    longest = demand.longest.length
    needed = memory(demand, layout, longest, cuda=device.kind != "cpu")
    times = tuple(
        seconds(demand, with_rows(layout, longest, phase.length, phase.batch), device, phase.length, phase.batch)
        for phase in phases
    )
    return Choice(layout, needed, times, tuple(phase.steps for phase in phases))


def with_rows(layout: Layout, longest: int, length: int, batch: int) -> Layout:
    """The same with as many tokens in rows of another length."""
    rows = max(1, min(layout.rows * longest // length, -(-batch // layout.data)))
    return replace(layout, rows=rows)


def fits(choice: Choice, device: Device) -> bool:
    return choice.memory.peak <= FILLED * device.memory


def legal(layout: Layout, demand: Demand, device: Device) -> str:
    """Why a layout cannot be, in words; "" where it can."""
    trunk, batch = demand.recipe.trunk, min(phase.batch for phase in demand.recipe.phases)
    if layout.tensor > device.per_node:
        return f"tensor_parallel is {layout.tensor}, a node has {device.per_node} devices"
    if layout.tensor > 1:
        if reason := trunk.split_over(layout.tensor):
            return f"tensor_parallel is {layout.tensor}, {reason}"
        if not demand.recipe.optim.takes_slices:
            return f"tensor_parallel is {layout.tensor}, optim.kind {demand.recipe.optim.kind} looks at whole tensors"
    if layout.pipeline > 1:
        if reason := trunk.stages_over(layout.pipeline):
            return f"pipeline_parallel is {layout.pipeline}, {reason}"
        if layout.zero > 1:
            return f"zero is {layout.zero}, allowed is 0 or 1 with pipeline_parallel"
    if layout.data > batch:
        return f"{layout.data} replicas have no row each: a batch has {batch}"
    return ""


def layouts(demand: Demand, device: Device, devices: int) -> Iterator[Layout]:
    """Those that are worth a look, on so many devices at most. Stages are alike: as many as divide the layers, with
    ZeRO 1 and small micro-batches, which leave them less time to wait."""
    batch = min(phase.batch for phase in demand.recipe.phases)
    degrees = [degree for degree in (1, 2, 4, 8) if degree <= min(devices, device.per_node) and device.kind != "cpu"]
    precision = "fp32" if device.kind == "cpu" else "bf16"
    layers = demand.recipe.trunk.layers
    stages = [stages for stages in range(1, layers + 1) if layers % stages == 0] if device.kind != "cpu" else [1]
    for tensor, pipeline in product(degrees or [1], stages):
        data = min(devices // (tensor * pipeline), batch)
        if data == 0:
            continue
        piped = pipeline > 1
        most = -(-batch // data)
        rows = [1 << power for power in range((MOST_ROWS_PIPED if piped else MOST_ROWS) + 1) if 1 << power <= most]
        zeros, offloads = ((1,), (False,)) if piped else ((1, 2, 3), (False, True))
        for zero, checkpointing, at_once, offload in product(zeros, get_args(Checkpointing), rows, offloads):
            yield Layout(
                data=data,
                tensor=tensor,
                pipeline=pipeline,
                zero=zero,
                rows=at_once,
                checkpointing=checkpointing,
                offload=offload,
                precision=precision,
            )


def best(demand: Demand, device: Device, devices: int, *, count: int = 4) -> list[Choice]:
    """The fastest that fit, the best first, one for each combination of degrees and stage; [] where none fits."""
    found: dict[tuple[int, int, int, str, bool], Choice] = {}
    for layout in layouts(demand, device, devices):
        if legal(layout, demand, device):
            continue
        needed = memory(demand, layout, demand.longest.length, cuda=device.kind != "cpu")
        if needed.peak > FILLED * device.memory:
            continue
        choice = chosen(demand, layout, device)
        key = (layout.tensor, layout.pipeline, layout.zero, layout.checkpointing, layout.offload)
        if key not in found or choice.total_s < found[key].total_s:
            found[key] = choice
    return sorted(found.values(), key=lambda choice: choice.total_s)[:count]


def smallest(demand: Demand, device: Device, most: int = 1 << 16) -> Choice | None:
    """The best layout on the fewest devices (a power of two) on which any fits; None where none does."""
    devices = 1
    while devices <= most:
        if found := best(demand, device, devices, count=1):
            return found[0]
        devices *= 2
    return None
