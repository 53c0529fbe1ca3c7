"""Host and device times from torch's profiler, by phase, module, operator and kernel.

For each named range on the host, torch records a second range on the device, from its first kernel to its last.
Neither range is the time that kernels ran. Therefore, a kernel counts where it was launched: in its operator, in the
modules around the operator, and in the phase in which the operator started. The operator may run on any thread;
autograd has its own thread for the backward pass.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

PHASE, MODULE = "phase: ", "module: "
SENT: Final = ("gloo:", "nccl:")  # prefixes of the events of collective calls
SENT_KERNEL: Final = "nccl"  # prefix of the kernels of collective calls
MAX_EVENTS: Final = 1_000_000  # maximum number of events to read, which takes seconds; later steps are not read
MS: Final = 1e-6  # milliseconds per nanosecond


@dataclass(frozen=True, slots=True)
class Event:
    """A time interval on the host or on the device."""

    name: str
    start: int  # ns
    duration: int  # ns
    is_device: bool = False
    is_range: bool = False  # True: a named range of the program, such as a phase or a module
    thread: int = 0  # thread of the host
    id: int = 0  # ID of an operator
    launched_by: int = 0  # ID of the operator that launched this kernel or driver call; 0: unknown


@dataclass
class TimeSpent:
    """Calls and times of one name."""

    calls: int = 0
    host: float = 0.0  # ms
    device: float = 0.0  # ms


@dataclass
class Trace:
    """Times in milliseconds, over all steps that were read."""

    steps: int = 0
    device: float = 0.0  # sum over all kernels; kernels that run at the same time are counted separately
    phases: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    modules: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    operators: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    kernels: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    sent: TimeSpent = field(default_factory=TimeSpent)


def events_of(recorded: Iterable[Any]) -> Iterator[Event]:
    """Convert torch's events (`torch._C._autograd._KinetoEvent`). The public API of torch takes minutes."""
    import torch

    host = torch.autograd.DeviceType.CPU
    for one in recorded:
        if one.is_hidden_event():
            continue
        yield Event(
            one.name(),
            one.start_ns(),
            one.duration_ns(),
            is_device=one.device_type() != host,
            is_range=one.is_user_annotation(),
            thread=one.start_thread_id(),
            id=one.correlation_id(),
            launched_by=one.linked_correlation_id(),
        )


def steps_within(num_events: int, steps: int, most: int = MAX_EVENTS) -> int:
    """Number of steps to read if `steps` steps have `num_events` events, so that at most `most` events are read.

    At least one step is read.


    >>> steps_within(1_000, steps=4), steps_within(2_000_000, steps=4), steps_within(90_000_000, steps=4)
    (4, 2, 1)
    """
    return max(1, min(steps, most * steps // max(1, num_events)))


def read(events: Iterable[Event], steps: int, of_steps: int) -> Trace:
    """The times of the first `steps` of `of_steps` recorded steps."""
    listed = sorted(events, key=lambda one: (one.start, -one.duration))
    phases = sorted(
        (one for one in listed if one.is_range and not one.is_device and one.name.startswith(PHASE)),
        key=lambda one: one.start,
    )
    end = _end_of(phases, steps, of_steps)
    trace, kernels_of = Trace(steps), defaultdict[int, float](float)
    on_host = [one for one in listed if not one.is_device and one.start < end]
    begins = {one.id: one.start for one in listed if not (one.is_device or one.is_range or one.launched_by)}
    starts = [one.start for one in phases]
    for one in phases:
        if one.start < end:
            _add(trace.phases[one.name.removeprefix(PHASE)], one.duration * MS)
    for one in listed:
        if not one.is_device or one.is_range:
            continue
        launched = begins.get(one.launched_by, one.start)  # some kernels have no known operator
        if launched >= end:  # it belongs to a later step
            continue
        ms = one.duration * MS
        kernels_of[one.launched_by] += ms
        _add(trace.kernels[one.name], device=ms)
        trace.device += ms
        if one.name.startswith(SENT_KERNEL):
            trace.sent.device += ms
        at = bisect_right(starts, launched) - 1
        if at >= 0 and launched < phases[at].start + phases[at].duration:
            trace.phases[phases[at].name.removeprefix(PHASE)].device += ms
    by_thread = groupby(
        sorted(on_host, key=lambda one: one.thread), key=lambda one: one.thread
    )  # the sort keeps the order within a thread
    for _, of_thread in by_thread:
        _walk(list(of_thread), kernels_of, trace)
    return trace


def _end_of(phases: Sequence[Event], steps: int, of_steps: int) -> float:
    """End of the last of `steps` steps, which is the start of the next phase "data"."""
    data = [one.start for one in phases if one.name == f"{PHASE}data"]
    if steps >= of_steps or len(data) <= steps:
        return float("inf")
    return data[steps]


def _walk(events: Sequence[Event], kernels_of: dict[int, float], trace: Trace) -> None:
    """Add the events of one thread, which are nested.

    The time of an operator excludes the operators inside it; the time of a module includes everything inside it.
    """
    open_ones: list[Event] = []
    for one in events:
        while open_ones and open_ones[-1].start + open_ones[-1].duration <= one.start:
            open_ones.pop()
        ms = one.duration * MS
        if one.is_range and one.name.startswith(MODULE):
            _add(trace.modules[one.name.removeprefix(MODULE)], ms)
        elif one.name.startswith(SENT):
            trace.sent.calls += 1
            trace.sent.host += ms
        elif not one.is_range:
            device = kernels_of.get(one.id, 0.0) if one.launched_by == 0 else 0.0
            _add(trace.operators[one.name], ms, device)
            around = next((other for other in reversed(open_ones) if not other.is_range), None)
            if around is not None:
                trace.operators[around.name].host -= ms
            for name in {other.name for other in open_ones if other.name.startswith(MODULE)}:
                trace.modules[name.removeprefix(MODULE)].device += device
        open_ones.append(one)


def _add(to: TimeSpent, host: float = 0.0, device: float = 0.0) -> None:
    to.calls += 1
    to.host += host
    to.device += device
