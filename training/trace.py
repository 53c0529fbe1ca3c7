"""What a recording of torch's profiler says: time of the host and of the device, by phase, module, operator and kernel.

A range that is named on the host has a second one of the same name on the device, which reaches from its first kernel
to its last: neither says how long kernels ran. Here a kernel counts where it was launched: in the operator that it is
linked to, in the modules around that one, and in the phase in which that one began, on whichever thread (autograd has
one of its own for the backward pass).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

PHASE, MODULE = "phase: ", "module: "
SENT: Final = ("gloo:", "nccl:")  # how torch names what a collective call does, from its begin to its end
SENT_KERNEL: Final = "nccl"  # how its kernels are named
MOST_EVENTS: Final = 1_000_000  # that are read: some seconds; of further steps there is the trace alone
MS: Final = 1e-6  # of a nanosecond


@dataclass(frozen=True, slots=True)
class Event:
    """A stretch of time on the host or on the device."""

    name: str
    start: int  # ns
    duration: int  # ns
    is_device: bool = False
    is_range: bool = False  # named by a program, as phases and modules are: no work of its own
    thread: int = 0  # of the host
    id: int = 0  # of an operator
    launched_by: int = 0  # of a kernel, and of what the driver does on the host: the operator; 0: not known


@dataclass
class TimeSpent:
    """Of one name."""

    calls: int = 0
    host: float = 0.0  # ms
    device: float = 0.0  # ms


@dataclass
class Trace:
    """Times in milliseconds of all steps that were read."""

    steps: int = 0
    device: float = 0.0  # of all kernels; more than the time that passed where several run at once
    phases: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    modules: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    operators: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    kernels: dict[str, TimeSpent] = field(default_factory=lambda: defaultdict(TimeSpent))
    sent: TimeSpent = field(default_factory=TimeSpent)


def events_of(recorded: Iterable[Any]) -> Iterator[Event]:
    """From those of torch (`torch._C._autograd._KinetoEvent`): its own lists of them take minutes to make."""
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


def steps_within(num_events: int, steps: int, most: int = MOST_EVENTS) -> int:
    """Of how many steps so many events are read, where there are `num_events` in all: one at least.

    >>> steps_within(1_000, steps=4), steps_within(2_000_000, steps=4), steps_within(90_000_000, steps=4)
    (4, 2, 1)
    """
    return max(1, min(steps, most * steps // max(1, num_events)))


def read(events: Iterable[Event], steps: int, of_steps: int) -> Trace:
    """The first `steps` of `of_steps` that were recorded."""
    listed = sorted(events, key=lambda one: (one.start, -one.duration))
    phases = sorted(
        (one for one in listed if one.is_range and not one.is_device and one.name.startswith(PHASE)),
        key=lambda one: one.start,
    )
    end = _end_of(phases, steps, of_steps)
    found, kernels_of = Trace(steps), defaultdict[int, float](float)
    on_host = [one for one in listed if not one.is_device and one.start < end]
    begins = {one.id: one.start for one in listed if not (one.is_device or one.is_range or one.launched_by)}
    starts = [one.start for one in phases]
    for one in phases:
        if one.start < end:
            _add(found.phases[one.name.removeprefix(PHASE)], one.duration * MS)
    for one in listed:
        if not one.is_device or one.is_range:
            continue
        launched = begins.get(one.launched_by, one.start)  # of some kernels nobody knows
        if launched >= end:  # by a step that is not read
            continue
        ms = one.duration * MS
        kernels_of[one.launched_by] += ms
        _add(found.kernels[one.name], device=ms)
        found.device += ms
        if one.name.startswith(SENT_KERNEL):
            found.sent.device += ms
        at = bisect_right(starts, launched) - 1
        if at >= 0 and launched < phases[at].start + phases[at].duration:
            found.phases[phases[at].name.removeprefix(PHASE)].device += ms
    by_thread = groupby(sorted(on_host, key=lambda one: one.thread), key=lambda one: one.thread)  # keeps their order
    for _, of_thread in by_thread:
        _walk(list(of_thread), kernels_of, found)
    return found


def _end_of(phases: Sequence[Event], steps: int, of_steps: int) -> float:
    """When the last of so many steps ends: where the next one asks for its data."""
    data = [one.start for one in phases if one.name == f"{PHASE}data"]
    if steps >= of_steps or len(data) <= steps:
        return float("inf")
    return data[steps]


def _walk(events: Sequence[Event], kernels_of: dict[int, float], found: Trace) -> None:
    """Add those of one thread, which lie in each other: of operators what is not in those inside of them, of modules
    all."""
    open_ones: list[Event] = []
    for one in events:
        while open_ones and open_ones[-1].start + open_ones[-1].duration <= one.start:
            open_ones.pop()
        ms = one.duration * MS
        if one.is_range and one.name.startswith(MODULE):
            _add(found.modules[one.name.removeprefix(MODULE)], ms)
        elif one.name.startswith(SENT):
            found.sent.calls += 1
            found.sent.host += ms
        elif not one.is_range:
            device = kernels_of.get(one.id, 0.0) if one.launched_by == 0 else 0.0
            _add(found.operators[one.name], ms, device)
            around = next((other for other in reversed(open_ones) if not other.is_range), None)
            if around is not None:
                found.operators[around.name].host -= ms
            for name in {other.name for other in open_ones if other.name.startswith(MODULE)}:
                found.modules[name.removeprefix(MODULE)].device += device
        open_ones.append(one)


def _add(to: TimeSpent, host: float = 0.0, device: float = 0.0) -> None:
    to.calls += 1
    to.host += host
    to.device += device
