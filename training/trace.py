"""Host and device times from torch's profiler, by phase, module, operator, kernel and purpose.

For each named range on the host, torch records a second range on the device, from its first kernel to its last, with
the same name (`gpu_user_annotation`). Neither range is the time that kernels ran. Therefore, a kernel counts where it
was launched: in its operator, in the modules around the operator, and in the phase in which it was launched. The
launch may happen on any thread; autograd has its own thread for the backward pass.

A kernel has two links to its launch. The linked ID is the operator around it; it is missing if no operator was open,
as for kernels of CUDA graphs and of compiled code. The correlation ID is that of the call of the driver, such as
cudaLaunchKernel, cuLaunchKernelEx or cudaGraphLaunch. IDs of operators and IDs of calls are different numbers that
may be equal. An operator of the backward pass has the sequence number and the thread of the operator of the forward
pass that it belongs to, and thereby its modules.
"""

import gc
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

import torch

from training.purposes import COMMUNICATION, purpose_of

PHASE, MODULE = "phase: ", "module: "
SENT: Final = ("gloo:", "nccl:")  # prefixes of the events of collective calls
MAX_EVENTS: Final = 500_000  # maximum number of events to read, which takes seconds; later events are not read
MIN_GAP_NS: Final = 10_000  # shorter gaps are those between two kernels that wait in a queue; they are not counted
MS: Final = 1e-6  # milliseconds per nanosecond
_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")  # torch's types of events that keep the device busy
_CALLS: Final = ("cuda_runtime", "cuda_driver", "overhead")
_IS_CALL: Final = re.compile(r"(cuda|cu|hip)[A-Z]|Command Buffer Full|Lazy Function Loading|Activity Buffer Request")
_IS_COPY: Final = re.compile(r"Mem(cpy|set)|Copy(Host|Device)")
_IS_WAIT: Final = re.compile(r"(cuda|cu|hip)\w*Synchronize|Command Buffer Full")
_IS_SYNC: Final = re.compile(r"(Stream|Event|Context|Device) (Wait|Sync)")  # on the timeline of the device


class Event(NamedTuple):
    """A time interval on the host or on the device."""

    name: str
    start: int  # ns
    duration: int  # ns
    is_device: bool = False
    is_range: bool = False  # True: a named range of the program, such as a phase or a module
    thread: int = 0  # thread of the host
    id: int = 0  # ID of an operator, or of the driver call of a kernel or a call
    launched_by: int = 0  # ID of the operator that launched this kernel or driver call; 0: unknown
    is_call: bool = False  # True: a call of the driver, which has IDs of its own
    sequence: int = -1  # number that an operator of the forward pass shares with one of the backward pass
    forward_thread: int = 0  # in the backward pass: thread of that operator of the forward pass

    @property
    def end(self) -> int:
        return self.start + self.duration


@dataclass
class TimeSpent:
    """Calls and times of one name."""

    calls: int = 0
    host: float = 0.0  # ms
    device: float = 0.0  # ms

    def add(self, host: float = 0.0, device: float = 0.0) -> None:
        self.calls += 1
        self.host += host
        self.device += device


@dataclass
class Gaps:
    """Time without any work of the device, between its first and its last kernel."""

    total: float = 0.0  # ms
    during_data: float = 0.0  # ms in which the host was in the phase "data"
    num: int = 0  # gaps of at least MIN_GAP_NS
    longest: float = 0.0  # ms


def _times() -> dict[str, TimeSpent]:
    return defaultdict(TimeSpent)


@dataclass
class Trace:
    """Times in milliseconds, over all steps that were read."""

    steps: int = 0
    device: float = 0.0  # sum over all kernels; kernels that run at the same time are counted separately
    device_span: float = 0.0  # from the start of the first kernel to the end of the last one
    launches: int = 0  # of kernels; a CUDA graph is one launch
    copies: int = 0  # including those within the device
    waits: float = 0.0  # the host waited for the device
    gaps: Gaps = field(default_factory=Gaps)
    phases: dict[str, TimeSpent] = field(default_factory=_times)
    modules: dict[str, TimeSpent] = field(default_factory=_times)
    operators: dict[str, TimeSpent] = field(default_factory=_times)
    kernels: dict[str, TimeSpent] = field(default_factory=_times)
    purposes: dict[str, TimeSpent] = field(default_factory=_times)  # of kernels, or of operators without a device
    sent: TimeSpent = field(default_factory=TimeSpent)


class _Place:
    """An operator or a driver call, and what was open around it on its thread."""

    __slots__ = ("_chain", "modules", "name", "origin", "own_ns", "parent", "start")

    def __init__(self, event: Event, parent: "_Place | None", modules: tuple[str, ...], origin: tuple[str, ...]):
        self.name, self.start, self.own_ns = event.name, event.start, event.duration
        self.parent, self.modules = parent, modules
        self.origin = origin  # the modules, or in the backward pass those of the forward pass
        self._chain: tuple[str, ...] | None = None

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of this operator and of those around it, the innermost first."""
        if self._chain is None:
            self._chain = (self.name, *(self.parent.operators if self.parent else ()))
        return self._chain


def events_of(recorded: Iterable[Any]) -> Iterator[Event]:
    """Convert torch's events (`torch._C._autograd._KinetoEvent`). The public API of torch takes minutes.

    Synchronizations on the timeline of the device are not work, so they are left out.
    """
    on_host, kinds = torch.autograd.DeviceType.CPU, dict[str, bool]()
    for one in recorded:
        if one.is_hidden_event():
            continue
        name, is_device = one.name(), one.device_type() != on_host
        try:
            kind = one.activity_type()
        except AttributeError:  # an older version of torch
            kind = ""
        if is_device and _IS_SYNC.match(name):
            continue
        is_range = one.is_user_annotation() or (is_device and kind not in ("", *_WORK))
        if (is_call := kinds.get(name)) is None:
            is_call = kinds[name] = _IS_CALL.match(name) is not None
        yield Event(
            name,
            one.start_ns(),
            one.duration_ns(),
            is_device,
            is_range or name.startswith((PHASE, MODULE)),
            one.start_thread_id(),
            one.correlation_id(),
            one.linked_correlation_id(),
            not is_device and (is_call or kind in _CALLS),
            one.sequence_nr(),
            one.fwd_thread_id(),
        )


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Collect no cyclic garbage in the block. Events form no cycles, and looking for them takes most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def steps_within(num_events: int, steps: int, most: int = MAX_EVENTS) -> int:
    """Number of steps to record if `steps` steps have `num_events` events, so that they have at most `most` events.

    At least one step is recorded.

    >>> steps_within(1_000, steps=4), steps_within(1_000_000, steps=4), steps_within(90_000_000, steps=4)
    (4, 2, 1)
    """
    return max(1, min(steps, most * steps // max(1, num_events)))


def read(
    events: Iterable[Event],
    steps: int,
    end: float = float("inf"),
    stamps: Sequence[Event] = (),
    pauses: Sequence[Event] = (),
) -> Trace:
    """The times of `steps` steps, which end on the host at `end` (ns).

    `stamps` are the phases as measured without torch. They replace torch's if those are missing or too short.
    `pauses` are evaluations and other work that is no part of a step; what the host does or launches in them is left
    out.
    """
    paused = _Phases(list(pauses))
    listed = sorted(events, key=lambda one: -one.duration)
    listed.sort(key=attrgetter("start"))  # the sort keeps the order of events with the same start
    host = [_clip(one, end) for one in listed if not one.is_device and one.start < end and not paused.at(one.start)]
    ranges = {one.name for one in host if one.is_range and not one.name.startswith("triton_")}
    work = [one for one in listed if one.is_device and not one.is_range and one.name not in ranges]
    own = [_clip(one, end) for one in stamps if one.start < end and not paused.at(one.start)]
    phases = _Phases(_choose([one for one in host if one.is_range and one.name.startswith(PHASE)], own))
    trace = Trace(steps)
    for one in phases.events:
        trace.phases[one.name.removeprefix(PHASE)].add(one.duration * MS)
    places = _Places(trace)
    for thread in _by_first_event(host):
        places.walk(thread)
    launched = [one for one in work if (time := places.launch_of(one)) < end and not paused.at(time)]
    for one in launched:
        _add_kernel(one, places, phases, trace)
    if launched:
        _add_device(launched, phases, paused, trace)
    else:
        for place in places.of_operator.values():
            phase = phases.at(place.start)
            spent = trace.purposes[purpose_of("", place.operators, place.origin, phase)]
            spent.add(place.own_ns * MS)
        if waited_ms := _communication_outside(host):
            trace.purposes[COMMUNICATION].host += waited_ms
    return trace


class _Phases:
    """The phases of the program, which do not overlap."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self._starts = [one.start for one in events]

    def at(self, time: float) -> str:
        """Name of the phase at this time (ns); empty between the phases."""
        number = bisect_right(self._starts, time) - 1
        if number < 0 or time >= self.events[number].end:
            return ""
        return self.events[number].name.removeprefix(PHASE)

    def overlap(self, start: int, end: int, phase: str = "") -> int:
        """Nanoseconds between `start` and `end` that are in this phase, or in any."""
        number, total = max(0, bisect_right(self._starts, start) - 1), 0
        while number < len(self.events) and self.events[number].start < end:
            one = self.events[number]
            if not phase or one.name == f"{PHASE}{phase}":
                total += max(0, min(end, one.end) - max(start, one.start))
            number += 1
        return total


class _Places:
    """All operators and driver calls, by their IDs."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._origins: dict[tuple[int, int], tuple[str, ...]] = {}  # modules by thread and sequence number
        self.of_operator: dict[int, _Place] = {}
        self._of_call: dict[int, _Place] = {}

    def walk(self, events: Sequence[Event]) -> None:
        """Add the events of one thread, which are nested.

        The time of an operator excludes the operators inside it; the time of a module includes everything inside it.
        """
        trace = self._trace
        open_ones: list[tuple[int, _Place | None, tuple[str, ...], tuple[str, ...]]] = []
        for one in events:
            while open_ones and open_ones[-1][0] <= one.start:
                open_ones.pop()
            _, parent, modules, origin = open_ones[-1] if open_ones else (0, None, (), ())
            if one.is_range or one.name.startswith(SENT):
                if one.name.startswith(MODULE):
                    name = one.name.removeprefix(MODULE)
                    trace.modules[name].add(one.duration * MS)
                    modules = origin = (*modules, name)
                elif one.name.startswith(SENT):
                    trace.sent.add(one.duration * MS)
                open_ones.append((one.end, parent, modules, origin))
                continue
            trace.operators[one.name].add(one.duration * MS)
            if one.is_call:
                self._add_call(one, parent, modules, origin)
                continue
            if one.forward_thread and one.sequence >= 0:
                origin = self._origins.get((one.forward_thread, one.sequence), origin)
            elif one.sequence >= 0:
                self._origins[one.thread, one.sequence] = modules
            place = _Place(one, parent, modules, origin)
            if parent:
                self._subtract(parent, one)
            self.of_operator[one.id or -len(self.of_operator)] = place
            open_ones.append((one.end, place, modules, origin))

    def _add_call(self, call: Event, parent: _Place | None, modules: tuple[str, ...], origin: tuple[str, ...]) -> None:
        if _IS_WAIT.match(call.name):
            self._trace.waits += call.duration * MS
        if call.launched_by and parent:  # without a link, torch does not know the thread of the call
            self._subtract(parent, call)
        if call.id:
            self._of_call[call.id] = _Place(call, parent if call.launched_by else None, modules, origin)

    def _subtract(self, around: _Place, inside: Event) -> None:
        around.own_ns -= inside.duration
        self._trace.operators[around.name].host -= inside.duration * MS

    def operator_of(self, kernel: Event) -> _Place | None:
        """The operator that launched the kernel, if known."""
        if kernel.launched_by:
            return self.of_operator.get(kernel.launched_by)
        call = self._of_call.get(kernel.id)
        return call.parent if call else None

    def launch_of(self, kernel: Event) -> int:
        """Time of the launch on the host, or if it is unknown, of the kernel itself (ns)."""
        place = self._of_call.get(kernel.id) or self.of_operator.get(kernel.launched_by)
        return place.start if place else kernel.start

    def modules_of(self, kernel: Event) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The modules around the launch; and those that the kernel works for, which differ in the backward pass."""
        place = self.operator_of(kernel) or self._of_call.get(kernel.id)
        return (place.modules, place.origin) if place else ((), ())


def _communication_outside(host: Sequence[Event]) -> float:
    """Milliseconds of collective calls, which run on threads of their own, while no operator runs."""
    sent = [one for one in host if one.name.startswith(SENT)]
    if not sent:
        return 0.0
    outermost = list[Event]()
    for one in host:
        if not (one.is_range or one.name.startswith(SENT)) and not (outermost and one.end <= outermost[-1].end):
            outermost.append(one)
    operators = _Phases(outermost)
    return MS * sum(max(0, one.duration - operators.overlap(one.start, one.end)) for one in sent)


def _add_kernel(kernel: Event, places: _Places, phases: _Phases, trace: Trace) -> None:
    ms, operator = kernel.duration * MS, places.operator_of(kernel)
    modules, origin = places.modules_of(kernel)
    phase = phases.at(places.launch_of(kernel))
    purpose = purpose_of(kernel.name, operator.operators if operator else (), origin, phase)
    trace.device += ms
    trace.kernels[kernel.name].add(device=ms)
    trace.purposes[purpose].add(device=ms)
    if purpose == COMMUNICATION:
        trace.sent.device += ms
    if operator:
        trace.operators[operator.name].device += ms
    for name in set(modules):
        trace.modules[name].device += ms
    if phase:
        trace.phases[phase].device += ms


def _add_device(kernels: Sequence[Event], phases: _Phases, paused: _Phases, trace: Trace) -> None:
    """Add the launches, and the gaps of the device. Several streams are one device."""
    is_copy = [_IS_COPY.match(one.name) is not None for one in kernels]
    trace.copies = sum(is_copy)
    of_kernels = [one.id for one, copies in zip(kernels, is_copy, strict=True) if not copies]
    trace.launches = len(set(filter(None, of_kernels))) + of_kernels.count(0)
    first = busy_until = kernels[0].start
    for one in kernels:
        if one.start > busy_until and (gap := one.start - busy_until - paused.overlap(busy_until, one.start)) > 0:
            trace.gaps.total += gap * MS
            trace.gaps.during_data += phases.overlap(busy_until, one.start, "data") * MS
            trace.gaps.num += gap >= MIN_GAP_NS
            trace.gaps.longest = max(trace.gaps.longest, gap * MS)
        busy_until = max(busy_until, one.end)
    trace.device_span = (busy_until - first - paused.overlap(first, busy_until)) * MS


def _clip(event: Event, end: float) -> Event:
    return event if event.end <= end else event._replace(duration=int(end) - event.start)


def _choose(phases: list[Event], stamps: list[Event]) -> list[Event]:
    """The phases of torch, or those of `stamps` if torch has lost a phase, or more than half of its time."""
    measured, recorded = defaultdict[str, int](int), defaultdict[str, int](int)
    for one in stamps:
        measured[one.name] += one.duration
    for one in phases:
        recorded[one.name] += one.duration
    has_all = all(2 * recorded[name] >= ns for name, ns in measured.items())
    return phases if has_all else sorted(stamps, key=attrgetter("start"))


def _by_first_event(host: Sequence[Event]) -> list[list[Event]]:
    """The events of each thread. Threads are in the order of their first events: forward before backward."""
    threads = defaultdict[int, list[Event]](list)
    for one in host:
        threads[one.thread].append(one)
    return list(threads.values())
