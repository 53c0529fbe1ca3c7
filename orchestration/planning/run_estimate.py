"""The estimate for a recipe on a cluster: memory, time, cost, and better layouts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

from orchestration.config import Cluster, Recipe
from orchestration.gpus import list_gpus
from orchestration.planning.devices import DEVICES, UNNAMED, Device, cores, detect_gpu, device_of, measure_cores
from orchestration.planning.layout import Checkpointing, ParallelLayout, layout_of, near_partition
from orchestration.planning.memory import DeviceMemory
from orchestration.planning.micro_batch import choose_micro_tokens
from orchestration.planning.overheads import CALIBRATED, UNCALIBRATED
from orchestration.planning.search import (
    FILLED,
    REFUSED,
    LayoutCandidate,
    cost_layout,
    find_best_layouts,
    find_conflict,
    find_smallest_layout,
    has_room,
    layout_in_phase,
    memory_ratio,
    peak_memory,
    peak_on,
)
from orchestration.planning.workload import Workload, workload_of
from preprocessing.errors import BadInput, ResourceError

DAY, HOUR = 86_400.0, 3_600.0
FP8_PAYS = 1e9  # parameters of a model from which FP8 products are faster than those in bf16
GPU = "h100"  # GPU that a message suggests if a model does not fit on the CPUs of a machine


@dataclass(frozen=True)
class CostedLayout:
    """A layout with its time and cost."""

    choice: LayoutCandidate
    device: Device
    flops: float  # FLOPs of the model in the whole run, without recomputation

    @property
    def days(self) -> float:
        return self.choice.total_s / DAY

    @property
    def device_hours(self) -> float:
        return self.choice.total_s / HOUR * self.choice.layout.devices

    @property
    def usd(self) -> float:
        return self.device_hours * self.device.price

    @property
    def mfu(self) -> float:
        """FLOPs of the model as a fraction of the devices' peak (arXiv:2204.02311, appendix B)."""
        layout = self.choice.layout
        return self.flops / (self.choice.total_s * layout.devices * self.device.peak(layout.precision))

    @property
    def fits(self) -> bool:
        return has_room(self.choice.memory, self.device)

    def shares(self) -> dict[str, float]:
        """Fractions of the run's time by cause: the reasons for the MFU."""
        total: dict[str, float] = {}
        for one, steps in zip(self.choice.seconds, self.choice.steps, strict=True):
            for name, seconds in one.items():
                total[name] = total.get(name, 0.0) + seconds * steps
        return {name: seconds / self.choice.total_s for name, seconds in total.items()}

    def values(self) -> dict[str, Any]:
        """Values as plain types."""
        layout = self.choice.layout
        return {
            "layout": {name: getattr(layout, name) for name in ParallelLayout.__dataclass_fields__},
            "devices": layout.devices,
            "fits": self.fits,
            "memory_bytes": dict(self.choice.memory.items()) | {"peak": self.choice.memory.peak},
            "step_s": [one.total for one in self.choice.seconds],
            "sent_bytes": [dict(one.items()) | {"total": one.total} for one in self.choice.sent],
            "shares": self.shares(),
            "mfu": self.mfu,
            "days": self.days,
            "device_hours": self.device_hours,
            "usd": self.usd,
        }


@dataclass(frozen=True)
class RunEstimate:
    """The estimate of a run before it starts."""

    recipe: Recipe
    cluster: Cluster
    demand: Workload
    device: Device
    assumed: str  # assumptions about the devices; "" if the cluster file or this machine defines them
    own: CostedLayout  # the layout of the cluster file
    why_not: str  # reason why that layout is impossible; "" if it is possible
    notes: tuple[str, ...]  # notes on that layout: little free memory, keys that are not counted
    checkpointing: dict[str, DeviceMemory]  # its memory with each kind of activation checkpointing
    better: tuple[CostedLayout, ...]  # the best layouts on the same devices
    hint: str = ""  # the smallest number of devices on which a layout fits, if none fits on these devices
    goal: str = ""  # what the user asked for, e.g. the fewest devices that meet a deadline
    wanted: CostedLayout | None = None  # the layout that meets the deadline or the budget
    unmet: str = ""  # reason why no layout does

    def overrides(self, costed: CostedLayout) -> list[str]:
        """Overrides that give this cluster file the layout."""
        return list(costed.choice.layout.overrides(self.cluster))

    def values(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.name,
            "cluster": self.cluster.name,
            "parameters": self.demand.parameters,
            "flops": self.demand.training_flops,
            "tokens": self.recipe.num_tokens,
            "device": self.device.name,
            "assumed": self.assumed,
            "calibrated": CALIBRATED if self.device.kind == "cuda" else "",
            "own": self.own.values(),
            "why_not": self.why_not,
            "notes": list(self.notes),
            "activation_checkpointing": {
                kind: {"activations": one.activations, "peak": one.peak} for kind, one in self.checkpointing.items()
            },
            "better": [one.values() | {"overrides": self.overrides(one)} for one in self.better],
            "hint": self.hint,
            "goal": self.goal,
            "wanted": self.wanted.values() | {"overrides": self.overrides(self.wanted)} if self.wanted else None,
            "unmet": self.unmet,
        }


def estimate_run(recipe: Recipe, cluster: Cluster, *, budget: float = 0.0, deadline_s: float = 0.0) -> RunEstimate:
    """The estimate of the whole run. With a `budget` in US dollars or a `deadline_s` in seconds, also the layout that
    meets it."""
    demand = workload_of(recipe)
    numbered, chosen = resolve_micro_batch(recipe, cluster)
    layout = _cluster_layout(recipe, numbered, demand)
    device, assumed = _choose_device(recipe, cluster, demand, layout)
    refuse_precision(cluster, device)
    own = _cost(demand, cost_layout(demand, layout, device), device)
    devices = max(1, cluster.count_workers(recipe))
    better = tuple(_cost(demand, one, device) for one in find_best_layouts(demand, device, devices, like=layout))
    needed = own.choice.memory
    why_not = find_conflict(layout, demand)
    if not why_not and memory_ratio(needed, device) > REFUSED:
        why_not = _describe_shortage(needed, device)
    kinds: tuple[Checkpointing, ...] = get_args(Checkpointing)
    each = {str(kind): peak_on(demand, replace(layout, checkpointing=kind), device)[1] for kind in kinds}
    notes = (*chosen, *_notes(cluster, device, layout, needed, demand))
    if layout.is_alone and device.kind == "cuda":
        notes = (*notes, UNCALIBRATED)
    hint = "" if better else _hint(demand, cluster, layout)
    estimate = RunEstimate(recipe, cluster, demand, device, assumed, own, why_not, notes, each, better, hint)
    return _find_layout_for_goal(estimate, devices, budget, deadline_s, layout) if budget or deadline_s else estimate


def describe_layout(recipe: Recipe, cluster: Cluster) -> str:
    """The layout of a cluster file for a recipe, in one line."""
    return _cluster_layout(recipe, resolve_micro_batch(recipe, cluster)[0], workload_of(recipe)).describe()


def refuse_what_does_not_fit(recipe: Recipe, cluster: Cluster, *, elsewhere: bool = False) -> list[str]:
    """Notes on a layout that fits: assumptions, little free memory, keys that are not counted. `elsewhere`: this
    machine is not part of the cluster.

    Raises ResourceError if the devices or hosts of the cluster file have too little memory. It names the fastest layout
    on these devices, or the smallest one on more of them. Raises BadInput if the devices lack the precision.
    """
    demand = workload_of(recipe)
    numbered, chosen = resolve_micro_batch(recipe, cluster, elsewhere=elsewhere)
    layout = _cluster_layout(recipe, numbered, demand)
    device, assumed = _choose_device(recipe, cluster, demand, layout, timed=False, elsewhere=elsewhere)
    refuse_precision(cluster, device)
    _, needed = peak_on(demand, layout, device)
    if memory_ratio(needed, device) <= REFUSED:
        return [*([assumed] if assumed else []), *chosen, *_notes(cluster, device, layout, needed, demand)]
    assumption = f" ({assumed})" if assumed else ""
    devices = max(1, cluster.count_workers(recipe))
    if best := find_best_layouts(demand, device, devices, count=1, like=layout):
        these = f"these {devices} devices" if devices > 1 else "this device"
        hint = f"the fastest layout on {these}: {' '.join(best[0].layout.overrides(cluster))}"
    else:
        hint = _hint(demand, cluster, layout)
    raise ResourceError(f"{recipe.name} on {cluster.name}: {_describe_shortage(needed, device)}{assumption}; {hint}")


def refuse_what_cannot_be(recipe: Recipe, cluster: Cluster) -> list[str]:
    """Raises ResourceError if this machine has too few GPUs; otherwise does the same as `refuse_what_does_not_fit`."""
    refuse_missing_gpus(cluster, cluster.count_workers(recipe))
    return refuse_what_does_not_fit(recipe, cluster)


def resolve_micro_batch(
    recipe: Recipe, cluster: Cluster, *, recorded: int = 0, elsewhere: bool = False
) -> tuple[Cluster, list[str]]:
    """The cluster with a number instead of `micro_batch_tokens: auto`, and a line that says so.

    `recorded` is the number with which a run began; it is kept if it still fits. Without `auto`, the cluster is
    unchanged, and there is no line.
    """
    if cluster.engine.micro_batch_tokens != "auto":
        return cluster, []
    demand = workload_of(recipe)
    layout = _cluster_layout(recipe, cluster, demand)
    smallest = replace(layout, micro_tokens=demand.row_tokens(demand.longest.seq_length))
    device, _ = _choose_device(recipe, cluster, demand, smallest, timed=False, elsewhere=elsewhere)
    tokens = choose_micro_tokens(demand, layout, device, recorded)
    used = peak_on(demand, replace(layout, micro_tokens=tokens), device)[1].peak
    kept = ", as when the run began" if tokens == recorded else ""
    share = f"{format_bytes(used)} of {format_bytes(device.memory)} by the plan"
    line = f"micro_batch_tokens: auto -> {tokens:,}{kept} ({share})"
    return replace(cluster, engine=replace(cluster.engine, micro_batch_tokens=tokens)), [line]


def refuse_precision(cluster: Cluster, device: Device) -> None:
    """Raises BadInput if the precision is bf16 and the devices do not support it."""
    if cluster.engine.precision == "bf16" and not device.has_bf16:
        raise BadInput(
            f"{cluster.name}: cluster.engine.precision is bf16, which {device.name} does not support; set "
            "cluster.engine.precision=fp32, or fp16 without pipeline_parallel_size"
        )


def _hint(demand: Workload, cluster: Cluster, layout: ParallelLayout) -> str:
    """The smallest layout that fits, as keys of the cluster file: on CPUs of this machine, or else on GPUs."""
    if cluster.engine.device == "cpu" and not cluster.ray_address:
        most, kind = max(1, int(cores()) // cluster.cpus_per_worker), "on this machine"
    else:
        most, kind = 1 << 16, "of this kind"
    if smallest := find_smallest_layout(demand, _device_for(cluster), most=most, like=layout):
        return f"the smallest layout that fits: {' '.join(smallest.layout.overrides(cluster))}"
    nothing = f"no number of devices {kind} is enough"
    if cluster.engine.device == "cuda":
        return f"{nothing}; use GPUs with more memory, or a smaller model"
    on_gpus = find_smallest_layout(demand, lambda _: DEVICES[GPU], like=replace(layout, precision="bf16"))
    return (
        f"{nothing}; with {GPU} GPUs use {on_gpus.layout.describe()}" if on_gpus else f"{nothing}; use a smaller model"
    )


def _device_for(cluster: Cluster) -> Callable[[int], Device]:
    """The device of each worker, as a function of the number of workers; its speed does not matter."""
    if cluster.engine.device == "cuda":
        device = devices_of(cluster, 1)[0]
        return lambda _: device
    return lambda workers: devices_of(cluster, workers, timed=False)[0]


def _notes(
    cluster: Cluster, device: Device, layout: ParallelLayout, needed: DeviceMemory, demand: Workload
) -> tuple[str, ...]:
    """Notes on a layout that is not refused."""
    machine, notes, share = cluster.engine, list[str](), memory_ratio(needed, device)
    if FILLED < share <= REFUSED:
        notes.append(f"tight: the plan uses {share:.0%} of the memory, and may be wrong by 10 %")
    if layout.tensor > device.per_node:
        notes.append(
            f"slow: cluster.engine.tensor_parallel_size is {layout.tensor}, but a node has {device.per_node} devices"
        )
    prepare = layout.devices * machine.dataloader_num_workers
    is_here = not cluster.ray_address and (device.kind == "cpu" or bool(list_gpus()))
    if is_here and prepare and prepare > (room := max(0.0, cores() - layout.devices)):
        notes.append(
            f"slow: {prepare} dataloader processes for {layout.devices} workers, but only {room:.3g} free cores; "
            "lower cluster.engine.dataloader_num_workers"
        )
    if machine.fp8_recipe != "none" and demand.parameters < FP8_PAYS:
        notes.append(
            f"slow: cluster.engine.fp8_recipe is {machine.fp8_recipe}, slower than bf16 below a billion parameters"
        )
    further = near_partition(machine) > 1
    odd = [
        *(["torch_compile"] if machine.torch_compile is True else []),
        *(["fp8_recipe"] if machine.fp8_recipe != "none" else []),
        *(["padding: padded"] if machine.padding == "padded" else []),
        *(["zero_hpz_partition_size"] if further else []),
    ]
    return (*notes, *([f"not counted: {', '.join(odd)}"] if odd else []))


def suggest_settings(recipe: Recipe, cluster: Cluster, used: float, limit: float) -> str:
    """Settings to suggest if a worker needed `used` of `limit` bytes with the micro-batches of the cluster file.

    Memory beyond the plan (libraries, other processes, fragmentation) is assumed to stay the same.
    """
    demand = workload_of(recipe)
    layout, cuda, more = _cluster_layout(recipe, cluster, demand), cluster.engine.device == "cuda", "cluster.engine."
    length = demand.longest.seq_length
    row = demand.row_tokens(length)

    def plan_rows(rows: int) -> float:
        one = replace(layout, micro_tokens=rows * row)
        return peak_memory(demand, one, cuda=cuda, gpu_memory=limit if cuda else 0.0)[1].peak

    now = layout_in_phase(layout, demand, demand.longest).rows
    room = FILLED * limit - max(0.0, used - plan_rows(now))
    # the plan underestimates here, or other processes also need memory
    most = now - 1 if plan_rows(now) > room else now // 2
    if rows := next((rows for rows in range(most, 0, -1) if plan_rows(rows) <= room), 0):
        return (
            f"{rows * row:,} would fit: set {more}micro_batch_tokens={rows * row}; the training result does not change"
        )
    return (
        f"according to the plan, not even one sequence of {length} tokens would fit: set "
        f"{more}activation_checkpointing=full, a higher {more}zero_stage, or more workers"
    )


def refuse_missing_gpus(cluster: Cluster, workers: int) -> None:
    """Raises ResourceError if workers need GPUs of this machine and it has fewer."""
    if cluster.engine.device != "cuda" or cluster.ray_address:
        return
    needed, available = workers * cluster.gpus_per_worker, len(list_gpus())
    if available < needed:
        raise ResourceError(
            f"{cluster.name}: {workers} workers need {needed} GPUs, this machine has {available or 'none'}; "
            "use a machine that has them, a Ray cluster (cluster.ray_address), or --cluster local"
        )


def _choose_device(
    recipe: Recipe,
    cluster: Cluster,
    demand: Workload,
    layout: ParallelLayout,
    *,
    timed: bool = True,
    elsewhere: bool = False,
) -> tuple[Device, str]:
    """Do the same as `devices_of`; an unnamed GPU is the usual one, or the largest known one if only that has enough
    memory.

    So a layout that is refused fits no known GPU.
    """
    workers = cluster.count_workers(recipe)
    device, assumed = devices_of(cluster, workers, timed=timed, elsewhere=elsewhere)
    usual, largest = UNNAMED
    is_unnamed = bool(assumed) and device.name == usual
    if is_unnamed and not has_room(peak_on(demand, layout, device)[1], device):
        return devices_of(cluster, workers, timed=timed, elsewhere=elsewhere, unnamed=largest)
    return device, assumed


def devices_of(
    cluster: Cluster, workers: int, *, timed: bool = True, elsewhere: bool = False, unnamed: str = UNNAMED[0]
) -> tuple[Device, str]:
    """The device of each worker, and a note on assumptions.

    `timed` measures the speed of the cores. `unnamed` is the GPU that is assumed if neither the cluster file nor this
    machine defines one. `elsewhere`: this machine is not part of the cluster.
    """
    if cluster.engine.device == "cpu":
        sharing = 1 if cluster.ray_address else workers  # the number of workers per machine of a cluster is unknown
        share, assumed = float(cluster.cpus_per_worker), ""
        if cluster.ray_address:
            assumed = "assumed: each machine of the cluster is like this one"
        elif workers * share > cores():
            assumed = f"slow: {workers} workers request {workers * share:g} cores, but this machine has {cores():g}"
            share = cores() / workers
        device = measure_cores(share, sharing, timed=timed)
    elif cluster.gpu_type:
        device, assumed = device_of(cluster.gpu_type), ""
    elif not elsewhere and (here := detect_gpu()):
        device, assumed = here
        if cluster.ray_address:
            like = f"assumed: each machine of the cluster is like this one ({device.name})"
            assumed = "; ".join(filter(None, (like, assumed)))
    else:
        device = DEVICES[unnamed]
        none = "" if elsewhere else ", and this machine has no GPU"
        assumed = f"{unnamed} assumed: {cluster.name} does not set gpu_type{none}; set cluster.gpu_type"
    return (replace(device, price=cluster.usd_per_device_hour) if cluster.usd_per_device_hour else device), assumed


def _cluster_layout(recipe: Recipe, cluster: Cluster, demand: Workload) -> ParallelLayout:
    longest = demand.longest
    return layout_of(
        cluster.engine, cluster.count_workers(recipe), demand.row_tokens(longest.seq_length), longest.global_batch_size
    )


def _cost(demand: Workload, choice: LayoutCandidate, device: Device) -> CostedLayout:
    return CostedLayout(choice, device, demand.training_flops)


def _describe_shortage(needed: DeviceMemory, device: Device) -> str:
    if needed.peak / device.memory < memory_ratio(needed, device):
        node = device.per_node
        return (
            f"the host of {node} devices needs {format_bytes(node * needed.host)} for offloaded states, "
            f"hosts of {device.name} have {format_bytes(node * device.host)}"
        )
    largest = max(needed.items(), key=lambda item: item[1] if item[0] not in ("host", "disk") else 0.0)
    return (
        f"each device needs {format_bytes(needed.peak)}, most of it {largest[0]} ({format_bytes(largest[1])}), "
        f"{device.name} has {format_bytes(device.memory)}"
    )


def _find_layout_for_goal(
    estimate: RunEstimate, devices: int, budget: float, deadline_s: float, like: ParallelLayout
) -> RunEstimate:
    """The estimate with the layout that meets a deadline on the fewest devices, or a budget in the shortest time."""
    tried: list[CostedLayout] = []
    goal = "the fewest devices that meet the deadline" if deadline_s else "the fastest layout within the budget"
    estimate = replace(estimate, goal=goal)

    def is_met(count: int) -> bool:
        """Whether `count` devices meet the deadline. Adds all computed layouts to `tried`."""
        choices = find_best_layouts(estimate.demand, estimate.device, count, count=2, like=like)
        costed = [_cost(estimate.demand, one, estimate.device) for one in choices]
        tried.extend(costed)
        return any(one.choice.total_s <= deadline_s for one in costed)

    counts = [1 << power for power in range(int(math.log2(devices)) + 1)]
    counts += [devices] if devices not in counts else []
    few = 0
    for count in counts:
        if is_met(count) and deadline_s:
            _bisect(is_met, few, count)
            break
        few = count
    if not tried:
        return replace(estimate, unmet=f"no layout of {devices:,} x {estimate.device.name} has enough memory")
    if deadline_s:
        meeting = [one for one in tried if one.choice.total_s <= deadline_s]
        if meeting:
            return replace(
                estimate, wanted=min(meeting, key=lambda one: (one.choice.layout.devices, one.choice.total_s))
            )
        fastest = min(tried, key=lambda one: one.choice.total_s)
        layout = f"{format_duration(fastest.choice.total_s)} on {fastest.choice.layout.devices:,} devices"
        return replace(estimate, unmet=f"no layout of these devices meets the deadline; the fastest one needs {layout}")
    if not estimate.device.price:
        return replace(estimate, unmet="these devices have no price; set cluster.usd_per_device_hour")
    affordable = [one for one in tried if one.usd <= budget]
    if affordable:
        return replace(estimate, wanted=min(affordable, key=lambda one: one.choice.total_s))
    cheapest = min(tried, key=lambda one: one.usd)
    steps = int(estimate.recipe.num_steps * budget / cheapest.usd)
    reason = (
        f"no layout of these devices is within the budget; the cheapest one costs ${cheapest.usd:,.0f}, and "
        f"${budget:,.0f} buys {steps:,} of {estimate.recipe.num_steps:,} steps"
    )
    return replace(estimate, unmet=reason)


def _bisect(is_met: Callable[[int], bool], few: int, enough: int) -> None:
    """Try numbers of devices between `few` and `enough`, of which `enough` meets a deadline, to a precision of 1 %."""
    while enough - few > max(1, enough // 100):
        count = (few + enough) // 2
        few, enough = (few, count) if is_met(count) else (count, enough)


def format_bytes(number: float) -> str:
    """
    >>> format_bytes(9.53e12), format_bytes(81.2e9), format_bytes(5e6)
    ('9.5 TB', '81.2 GB', '5.0 MB')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f} bytes"


def format_duration(seconds: float) -> str:
    """
    >>> format_duration(3 * 86_400), format_duration(5_400), format_duration(90), format_duration(0.25)
    ('3.0 days', '1.5 hours', '1.5 minutes', '0.25 s')
    """
    for unit, size in (("days", DAY), ("hours", HOUR), ("minutes", 60.0)):
        if seconds >= (1.5 * size if unit == "days" else size):
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.2g} s"
