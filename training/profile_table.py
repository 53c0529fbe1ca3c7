"""The table of a profile: rows for programs, and a text that begins with the largest loss of time.

The text has milliseconds per step. Its first sentence names the part of a step that is furthest above the fraction
that it has in a well-tuned run (ALLOWED), or else says that matrix products take most of the time.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from textwrap import wrap
from typing import Final, Literal

from training.purposes import (
    ATTENTION,
    COMMUNICATION,
    DROPOUT,
    ELEMENTWISE,
    EMBEDDING,
    HEAD,
    HEAD_MATMUL,
    HOST_COPIES,
    MATMUL,
    MOVES,
    NORM,
    OPTIMIZER,
    OTHER,
    PURPOSES,
)
from training.trace import MIN_GAP_NS, MS, TimeSpent, Trace

PHASES: Final = ("data", "forward", "backward", "optimizer")
MAX_OPERATORS = 30  # maximum number of operators in the table; the same for modules and for kernels
MAX_LINE_WIDTH = 120  # characters
MAX_NAME_WIDTH = 60  # characters of the names of all other sections
STEP_WIDTH = 28  # characters of the names in the section about the whole step
MIN_SHARE = 0.0005  # rows below this fraction are not in the text, except phases, and those with MIN_HOST_SHARE
MIN_HOST_SHARE = 0.01  # the same for the time on the host, as a fraction of the step
STEP, BETWEEN, WITHOUT_OPERATOR = "one step", "between these", "outside operators"
BUSY, WAITS_FOR_DEVICE, WAITS_FOR_BATCHES = "busy", "waits for the device", "waits for batches"
IDLE, IDLE_IN_DATA, LONGEST_GAP = "no work", "no work while the host waits for batches", "longest gap"
KERNELS, COPIES = "launches of kernels", "copies"

_USUAL: Final = re.compile(
    r", (at::detail::|std::)?[aA]rray<char ?\*, \d\w*>|^void |\(anonymous namespace\)::|(at|native|std|c10|detail)::"
)

Of = Literal["step", "device", "host", "purpose", "phase", "module", "operator", "kernel"]
TITLES: Final[Mapping[str, str]] = {
    "purpose": "Purpose",
    "phase": "Phase",
    "module": "Module (forward pass, with the modules inside it)",
    "operator": "Operator (without the operators inside it)",
    "kernel": "Kernel",
}

ALLOWED: Final[Mapping[str, float]] = {  # fractions of a step on a device that are not called a loss
    IDLE: 0.05, OPTIMIZER: 0.03, MOVES: 0.05, HOST_COPIES: 0.02, HEAD: 0.05, ATTENTION: 0.25, ELEMENTWISE: 0.15,
    NORM: 0.10, DROPOUT: 0.05, EMBEDDING: 0.05, COMMUNICATION: 0.10, OTHER: 0.10,
}  # fmt: skip
ALLOWED_ON_HOST: Final[Mapping[str, float]] = {  # the same without a device
    WAITS_FOR_BATCHES: 0.05, OPTIMIZER: 0.10, WITHOUT_OPERATOR: 0.25, MOVES: 0.15, HEAD: 0.15, ATTENTION: 0.30,
    ELEMENTWISE: 0.25, NORM: 0.15, DROPOUT: 0.10, EMBEDDING: 0.10, COMMUNICATION: 0.15, OTHER: 0.15,
}  # fmt: skip
ADVICE: Final[Mapping[str, str]] = {
    IDLE: "Larger cluster.engine.micro_batch_tokens or cluster.engine.torch_compile need fewer launches.",
    WAITS_FOR_BATCHES: "More loader processes (cluster.engine.dataloader_num_workers) make batches sooner.",
    HOST_COPIES: "Offloading and values that the host reads cause such copies.",
    ELEMENTWISE: "cluster.engine.torch_compile merges them.",
    NORM: "cluster.engine.torch_compile merges them with their neighbors.",
    DROPOUT: "cluster.engine.torch_compile merges it with its neighbors.",
    WITHOUT_OPERATOR: "Larger cluster.engine.micro_batch_tokens need fewer operators.",
}


@dataclass(frozen=True)
class ProfileRow:
    """A line of the table, with times per step. Modules include the forward pass only; operators include all passes."""

    of: Of
    name: str
    calls: float  # per step; launches of a purpose
    host_ms: float
    device_ms: float  # 0 without a GPU
    share: float  # fraction of the time of all kernels, or without a device, of the step; of "device" and "host": step


@dataclass(frozen=True)
class Recording:
    """The steps of a profile."""

    read: int  # steps in the table
    recorded: int  # steps in the trace
    requested: int
    is_part: bool = False  # True: only the beginning of the step was read
    misses_kernels: bool = False  # True: the run is on a GPU, but torch recorded no kernels
    paused_ms: float = 0.0  # evaluations and other work between the steps, which is left out


def table(trace: Trace, wall_ms: float) -> list[ProfileRow]:
    """The rows of the table of a trace, whose steps took `wall_ms` together on the host."""
    steps, has_device = trace.steps, trace.device > 0
    step_ms = max(wall_ms, trace.device_span) / steps  # at the end of the recording, the device may be behind
    step_device = trace.device / steps
    total = step_device or step_ms  # if there is a device, fractions are of its time, because the host runs ahead

    def row(of: Of, name: str, spent: TimeSpent) -> ProfileRow:
        host, device = spent.host / steps, spent.device / steps
        return ProfileRow(of, name, spent.calls / steps, host, device, (device if has_device else host) / total)

    def longest(of: Of, by_name: Mapping[str, TimeSpent]) -> list[ProfileRow]:
        rows = [row(of, name, spent) for name, spent in by_name.items()]
        return _rank(sorted(rows, key=lambda one: -max(one.host_ms, one.device_ms))[:MAX_OPERATORS])

    phases = [row("phase", name, trace.phases[name]) for name in PHASES if name in trace.phases]
    between = TimeSpent(
        steps,
        max(0.0, step_ms * steps - sum(trace.phases[one.name].host for one in phases)),
        max(0.0, trace.device - sum(trace.phases[one.name].device for one in phases)),
    )
    purposes = {name: trace.purposes[name] for name in PURPOSES if name in trace.purposes}
    if not has_device:
        data = trace.phases["data"].host if "data" in trace.phases else 0.0
        rest = step_ms * steps - data - sum(spent.host for spent in purposes.values())
        purposes[WAITS_FOR_BATCHES] = TimeSpent(steps, data)
        purposes[WITHOUT_OPERATOR] = TimeSpent(steps, max(0.0, rest))
    return [
        ProfileRow("step", STEP, 1.0, step_ms, step_device, 1.0),
        *_step_rows(trace, step_ms),
        *_rank(row("purpose", name, spent) for name, spent in purposes.items()),
        *phases,
        row("phase", BETWEEN, between),
        row("phase", "communication in all phases", trace.sent),
        *longest("module", trace.modules),
        *longest("operator", trace.operators),
        *longest("kernel", trace.kernels),
    ]


def _rank(rows: Iterable[ProfileRow]) -> list[ProfileRow]:
    return sorted(rows, key=lambda one: (-one.share, -one.host_ms))


def _step_rows(trace: Trace, step_ms: float) -> list[ProfileRow]:
    """Work and waiting of the device and the host; their shares are of the step."""
    steps, gaps = trace.steps, trace.gaps

    def row(of: Of, name: str, ms: float = 0.0, calls: float = 0.0) -> ProfileRow:
        host, device = (ms, 0.0) if of == "host" else (0.0, ms)
        return ProfileRow(of, name, calls / steps, host, device, ms / step_ms)

    data = (trace.phases["data"].host if "data" in trace.phases else 0.0) / steps
    waits = trace.waits / steps
    on_host = [
        row("host", BUSY, max(step_ms - data - waits, 0.0)),
        row("host", WAITS_FOR_DEVICE, waits),
        row("host", WAITS_FOR_BATCHES, data),
    ]
    if not trace.device:
        return [one for one in on_host if one.name != WAITS_FOR_DEVICE]
    busy = (trace.device_span - gaps.total) / steps
    return [
        row("device", BUSY, busy, trace.launches + trace.copies),
        row("device", IDLE, max(step_ms - busy, 0.0), gaps.num),
        row("device", IDLE_IN_DATA, gaps.during_data / steps),
        row("device", LONGEST_GAP, gaps.longest),
        row("device", KERNELS, 0.0, trace.launches),
        row("device", COPIES, 0.0, trace.copies),
        *on_host,
    ]


def summarize(rows: Iterable[ProfileRow]) -> str:
    """A sentence that names the largest loss of time, and one with advice if there is any."""
    by_name = {(one.of, one.name): one for one in rows}
    step = by_name["step", STEP]
    has_device = step.device_ms > 0
    purposes = {name: one for (of, name), one in by_name.items() if of == "purpose"}
    parts = {name: (one.device_ms if has_device else one.host_ms) / step.host_ms for name, one in purposes.items()}
    if has_device:
        parts[IDLE] = by_name["device", IDLE].share
    allowed = ALLOWED if has_device else ALLOWED_ON_HOST
    excess = {name: part - allowed[name] for name, part in parts.items() if name in allowed}
    loss = max(excess, key=lambda name: excess[name], default="")
    if not loss or excess[loss] <= 0:
        return _summarize_matmul(purposes, "the device's time" if has_device else "a step")
    if loss == IDLE:
        return _summarize_idle(by_name, step)
    if loss == WAITS_FOR_BATCHES:
        return f"Training waits for batches for {_percent(parts[loss])} of a step. {ADVICE[WAITS_FOR_BATCHES]}"
    verb = "take" if loss in (NORM, ELEMENTWISE, HOST_COPIES, MOVES) else "takes"
    subject = _SUBJECTS.get(loss, loss)
    subject = subject[0].upper() + subject[1:]
    one = purposes[loss]
    if has_device:
        sentence = f"{subject} {verb} {_percent(one.share)} of the device's time in {one.calls:,.0f} kernels per step."
    else:
        sentence = f"{subject} {verb} {_percent(one.share)} of a step."
    return f"{sentence} {ADVICE[loss]}" if loss in ADVICE else sentence


_SUBJECTS: Final[Mapping[str, str]] = {
    OPTIMIZER: "the optimizer",
    MOVES: "index, gather, cat and copy operators",
    HEAD: "the loss of the head, without its matrix products,",
    EMBEDDING: "the embedding",
    OTHER: "other work",
    WITHOUT_OPERATOR: "Python code and waiting, outside of operators,",
}


def _summarize_idle(by_name: Mapping[tuple[Of, str], ProfileRow], step: ProfileRow) -> str:
    idle, data = by_name["device", IDLE], by_name["device", IDLE_IN_DATA]
    start = f"The device had no work for {_percent(idle.share)} of a step:"
    if 2 * data.device_ms > idle.device_ms:
        waits = f"the host waits for batches for {data.device_ms:,.1f} of {step.host_ms:,.1f} ms."
        return f"{start} {waits} {ADVICE[WAITS_FOR_BATCHES]}"
    launches, copies = by_name["device", KERNELS], by_name["device", COPIES]
    num_kernels, num_copies = round(launches.calls), round(copies.calls)
    work = f"{num_kernels:,} kernel{'s' * (num_kernels != 1)}"
    if num_copies:
        work += f" and {num_copies:,} {'copy' if num_copies == 1 else 'copies'}"
    return f"{start} the host launches {work} per step, slower than the device completes them. {ADVICE[IDLE]}"


def _summarize_matmul(purposes: Mapping[str, ProfileRow], of: str) -> str:
    products = sum(purposes[name].share for name in (MATMUL, HEAD_MATMUL) if name in purposes)
    others = [one for name, one in purposes.items() if name not in (MATMUL, HEAD_MATMUL)]
    sentence = f"Matrix products take {_percent(products)} of {of}"
    if not others:
        return f"{sentence}."
    largest = max(others, key=lambda one: one.share)
    return f"{sentence}; the largest other part ({largest.name}) takes {_percent(largest.share)}."


def as_text(rows: Sequence[ProfileRow], recording: Recording) -> str:
    """The table as text, with at most MAX_LINE_WIDTH characters per line."""
    has_device = rows[0].device_ms > 0
    sections = {of: list(part) for of, part in groupby(rows, key=lambda one: one.of)}
    shown = {of: [one for one in sections.get(of, ()) if _is_shown(one, rows[0].host_ms)] for of in TITLES}
    names = [*TITLES.values(), *(f"  {_shorten(one.name)}" for of in shown for one in shown[of])]
    width = min(MAX_NAME_WIDTH, max(map(len, names)))
    lines = [*wrap(summarize(rows), MAX_LINE_WIDTH), "", *wrap(_describe(recording, has_device), MAX_LINE_WIDTH)]
    lines += ["", _line("Step", ("ms", "of step"), STEP_WIDTH)]
    lines += [_line(f"  {name}", cells, STEP_WIDTH) + note for name, cells, note in _step_lines(sections)]
    for of in TITLES:
        if not shown[of]:
            continue
        is_launch = has_device and of in ("purpose", "kernel")  # they have no time on the host
        calls, host = ("launches", "") if is_launch else ("calls", "host ms")
        title = [calls, host, "device ms", "of device"] if has_device else [calls, host, "of step"]
        lines += ["", _line(TITLES[of], title, width)]
        for one in shown[of]:
            host = "" if is_launch else f"{one.host_ms:,.3f}"
            times = [host, f"{one.device_ms:,.3f}"] if has_device else [host]
            lines.append(
                _line(f"  {cut(_shorten(one.name), width - 2)}", (_count(one.calls), *times, _share(one.share)), width)
            )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _is_shown(row: ProfileRow, step_ms: float) -> bool:
    """Whether the text has this row."""
    return row.of == "phase" or row.share >= MIN_SHARE or row.host_ms >= MIN_HOST_SHARE * step_ms


def _describe(recording: Recording, has_device: bool) -> str:
    """What was recorded and read, and how kernels are counted."""
    read, recorded = recording.read, recording.recorded
    of = f" of the {recording.requested} requested" if recorded < recording.requested else ""
    parts = [f"Means of {read}{of} step{'s' * (read != 1 or bool(of))} of the first worker."]
    if recording.is_part:
        parts = ["The beginning of one step of the first worker, because a step has too many events."]
    if read < recorded:
        parts.append(f"{recorded} steps were recorded, too many for this table; the trace contains all of them.")
    if recording.paused_ms:
        parts.append(f"Evaluations, checkpoints and samples are left out: {recording.paused_ms:,.0f} ms in all.")
    if recording.misses_kernels:
        parts.append("torch recorded no kernels of the GPU (CUPTI), so all times are those of the host.")
    if has_device:
        parts.append("A kernel counts for the phase, module and operator that launched it.")
    return " ".join(parts)


def _step_lines(sections: Mapping[str, Sequence[ProfileRow]]) -> Iterator[tuple[str, tuple[str, str], str]]:
    """Name, cells and note of the lines about the whole step."""
    (step,) = sections["step"]
    yield "whole step", (f"{step.host_ms:,.3f}", _share(1.0)), ""
    by_name = {one.name: one for one in sections.get("device", ())}
    if by_name:
        launches, copies = _count(by_name[KERNELS].calls), _count(by_name[COPIES].calls)
        gaps, longest = _count(by_name[IDLE].calls), by_name[LONGEST_GAP].device_ms
        notes = {
            BUSY: f"  {launches} launches of kernels and {copies} copies",
            IDLE: f"  {gaps} gaps of {MIN_GAP_NS * MS:g} ms or more; the longest {longest:,.3f} ms",
        }
        for name, note in notes.items():
            one = by_name[name]
            yield f"device: {name}", (f"{one.device_ms:,.3f}", _share(one.share)), note
    for one in sections.get("host", ()):
        yield f"host: {one.name}", (f"{one.host_ms:,.3f}", _share(one.share)), ""


def _line(name: str, cells: Sequence[str], width: int) -> str:
    return f"{name:{width}}" + "".join(f"  {cell:>10}" for cell in cells)


def _count(calls: float) -> str:
    """A number of calls per step.

    >>> _count(5004.0), _count(0.25)
    ('5,004', '0.2')
    """
    return f"{calls:,.0f}" if abs(calls - round(calls)) < 0.05 else f"{calls:,.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _shorten(name: str) -> str:
    """The name of a kernel or an operator without namespaces and parameters, which are the same for most kernels.

    >>> _shorten("void at::native::(anonymous namespace)::layer_norm_kernel<float>(int, float const*)")
    'layer_norm_kernel<float>'
    """
    name = _USUAL.sub("", name.replace("autograd::engine::evaluate_function: ", "evaluate "))
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and place and name[place - 1] not in " :":
            return name[:place].rstrip()
    return name


def cut(name: str, width: int) -> str:
    """The name, shortened to `width` characters. The middle is removed, because kernel names differ at both ends.

    >>> cut("void at::native::vectorized_elementwise_kernel", 20)
    'void at:...se_kernel'
    """
    if len(name) <= width:
        return name
    first = (width - 3) // 2
    return f"{name[:first]}...{name[len(name) - (width - 3 - first) :]}"


def as_csv(rows: Iterable[ProfileRow]) -> str:
    """The table as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([field.name for field in fields(ProfileRow)])
    writer.writerows(astuple(row) for row in rows)
    return file.getvalue()
