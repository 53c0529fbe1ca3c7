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
    if layout.data > batch:
        return f"{layout.data} replicas have no row each: a batch has {batch}"
    return ""


def layouts(demand: Demand, device: Device, devices: int) -> Iterator[Layout]:
    """Those that are worth a look, on so many devices at most; training has no pipeline, so that these have none."""
    batch = min(phase.batch for phase in demand.recipe.phases)
    degrees = [degree for degree in (1, 2, 4, 8) if degree <= min(devices, device.per_node) and device.kind != "cpu"]
    precision = "fp32" if device.kind == "cpu" else "bf16"
    for tensor in degrees or [1]:
        data = min(devices // tensor, batch)
        rows = [1 << power for power in range(MOST_ROWS + 1) if 1 << power <= -(-batch // data)]
        for zero, checkpointing, at_once, offload in product((1, 2, 3), get_args(Checkpointing), rows, (False, True)):
            yield Layout(
                data=data,
                tensor=tensor,
                zero=zero,
                rows=at_once,
                checkpointing=checkpointing,
                offload=offload,
                precision=precision,
            )


def best(demand: Demand, device: Device, devices: int, *, count: int = 4) -> list[Choice]:
    """The fastest that fit, the best first, one for each combination of degrees and stage; [] where none fits."""
    found: dict[tuple[int, int, str, bool], Choice] = {}
    for layout in layouts(demand, device, devices):
        if legal(layout, demand, device):
            continue
        needed = memory(demand, layout, demand.longest.length, cuda=device.kind != "cpu")
        if needed.peak > FILLED * device.memory:
            continue
        choice = chosen(demand, layout, device)
        key = (layout.tensor, layout.zero, layout.checkpointing, layout.offload)
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
