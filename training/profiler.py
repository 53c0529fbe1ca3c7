"""Profile of a few steps of the first worker: a trace and a table.

profile/trace.json.gz   for chrome://tracing or ui.perfetto.dev
profile/table.txt       milliseconds per step of phases, modules, operators and kernels
profile/table.csv       the same table for programs
"""

import csv
import io
import logging
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal, TypeVar

import torch
from torch import nn
from torch.autograd.profiler import record_function

from preprocessing.files import write_atomic
from training.run import WARM_UP, Run
from training.trace import MODULE, PHASE, TimeSpent, Trace, events_of, read, steps_within

T = TypeVar("T")
FOLDER, TRACE, TEXT, CSV = "profile", "trace.json.gz", "table.txt", "table.csv"  # in the run directory
PHASES: Final = ("data", "forward", "backward", "optimizer")
MAX_DEPTH = 5  # maximum number of parts in a module name: trunk.blocks.0.attention.out
MAX_OPERATORS = 30  # maximum number of operators in the table; the same for kernels
MAX_LINE_WIDTH = 120  # characters
log = logging.getLogger(__name__)


Of = Literal["step", "phase", "module", "operator", "kernel"]


@dataclass(frozen=True)
class ProfileRow:
    """A line of the table, with times per step. Modules include the forward pass only; operators include all passes."""

    of: Of
    name: str
    calls: float  # per step
    host_ms: float
    device_ms: float  # 0 without a GPU
    share: float  # fraction of the time of the step on the device, or on the host without a device


def record_phase(phase: str) -> record_function:
    """A context that records one of PHASES. It takes about a microsecond if nothing is recorded."""
    return record_function(f"{PHASE}{phase}")


def time_items(items: Iterable[T]) -> Generator[T]:
    """The items; the time to compute each of them is recorded as the phase "data"."""
    iterator, end = iter(items), object()
    while True:
        with record_phase("data"):
            item: Any = next(iterator, end)
        if item is end:
            return
        yield item


class Profiler:
    """Records `run.profile_steps` steps of the first worker, after WARM_UP steps. It does not change the training."""

    def __init__(self, run: Run, model: nn.Module, rank: int) -> None:
        self._run, self._model, self._steps = run, model, run.profile_steps if rank == 0 else 0
        self._seen, self._since_s = 0, 0.0
        self._recorder: torch.profiler.profile | None = None
        self._hooks = ExitStack()

    @property
    def is_recording(self) -> bool:
        """Whether `finish` will write a profile."""
        return self._recorder is not None

    @property
    def is_full(self) -> bool:
        """Whether all requested steps are recorded, so that `finish` must be called now."""
        return self.is_recording and self._seen == WARM_UP + self._steps

    def at_step(self) -> None:
        """Record the start of a step. Call it before each step."""
        if self._steps and self._seen == WARM_UP:
            self._start()
        self._seen += 1

    def finish(self) -> None:
        """Write the profile of the recorded steps, or log a warning if there were too few steps."""
        done = self._seen - WARM_UP
        if self._recorder:
            self._stop(done)
        elif self._steps and done <= 0:
            log.warning("no profile: only %d steps were left; profiling starts after %d steps", self._seen, WARM_UP)

    def close(self) -> None:
        """Stop recording without writing a profile, after an error."""
        if self._recorder:
            self._recorder.stop()
        self._recorder = None
        self._hooks.close()

    def _start(self) -> None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self._run.engine.device == "cuda":
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        if not self._run.engine.torch_compile:  # a compiled model has no modules to time
            _name_modules(self._model, self._hooks)
        self._recorder = torch.profiler.profile(activities=kinds)
        self._recorder.start()
        self._since_s = perf_counter()

    def _stop(self, steps: int) -> None:
        assert self._recorder is not None
        wall_ms = 1_000 * (perf_counter() - self._since_s)
        self._recorder.stop()
        self._hooks.close()
        folder = Path(self._run.folder) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TRACE).unlink(missing_ok=True)
        self._recorder.export_chrome_trace(str(folder / TRACE))
        recorded = self._recorder.profiler.kineto_results.events()  # type: ignore[union-attr]  # it has recorded
        read_steps = steps_within(len(recorded), steps)
        rows = table(read(events_of(recorded), read_steps, steps), wall_ms * read_steps / steps)
        write_atomic(folder / TEXT, as_text(rows, read_steps, steps).encode())
        write_atomic(folder / CSV, as_csv(rows).encode())
        self._recorder = None


def _name_modules(model: nn.Module, hooks: ExitStack) -> None:
    """Name the forward pass of each module in the trace, up to MAX_DEPTH, until `hooks` are closed."""
    for name, module in model.named_modules():
        if not name or name.count(".") >= MAX_DEPTH or isinstance(module, nn.ModuleList | nn.ModuleDict):
            continue
        open_ones: list[record_function] = []

        def begin(module: nn.Module, inputs: Any, name: str = name, stack: list[record_function] = open_ones) -> None:
            stack.append(record_function(f"{MODULE}{re.sub(r'[.][0-9]+', '.*', name)}"))
            stack[-1].__enter__()

        def end(module: nn.Module, inputs: Any, outputs: Any, stack: list[record_function] = open_ones) -> None:
            stack.pop().__exit__(None, None, None)

        hooks.callback(module.register_forward_pre_hook(begin).remove)
        hooks.callback(module.register_forward_hook(end).remove)


def table(trace: Trace, wall_ms: float) -> list[ProfileRow]:
    """The rows of the table of a trace, whose steps took `wall_ms` together."""
    steps, step_ms = trace.steps, wall_ms / trace.steps
    step_device = trace.device / steps
    total = step_device or step_ms  # if there is a device, fractions are of its time, because the host runs ahead

    def line(of: Of, name: str, spent: TimeSpent) -> ProfileRow:
        host, device = spent.host / steps, spent.device / steps
        return ProfileRow(of, name, spent.calls / steps, host, device, (device if step_device else host) / total)

    phases = [line("phase", name, trace.phases[name]) for name in PHASES if name in trace.phases]
    rest_ms = max(0.0, step_ms - sum(phase.host_ms for phase in phases))
    rest_device = max(0.0, step_device - sum(phase.device_ms for phase in phases))
    between = TimeSpent(steps, rest_ms * steps, rest_device * steps)

    def longest(of: Of, by_name: Mapping[str, TimeSpent], most: int | None = None) -> list[ProfileRow]:
        lines = [line(of, name, spent) for name, spent in by_name.items()]
        return sorted(lines, key=lambda one: -max(one.host_ms, one.device_ms))[:most]

    return [
        ProfileRow("step", "one step", 1.0, step_ms, step_device, 1.0),
        *phases,
        line("phase", "between these", between),
        line("phase", "communication in all phases", trace.sent),
        *longest("module", trace.modules),
        *longest("operator", trace.operators, MAX_OPERATORS),
        *longest("kernel", trace.kernels, MAX_OPERATORS),
    ]


def as_text(lines: Iterable[ProfileRow], steps: int, recorded: int = 0) -> str:
    """The table as text, with at most MAX_LINE_WIDTH characters per line; `steps` of the `recorded` steps were read."""
    lines = list(lines)
    room = MAX_LINE_WIDTH - len(_row("", "", "", "", "", "", 0))
    widest = min(room, max(len(line.name) for line in lines))
    of = "device" if lines[0].device_ms else "host"
    rows = [
        _row(
            one.of,
            cut(one.name, widest),
            f"{one.calls:.1f}",
            f"{one.host_ms:.3f}",
            f"{one.device_ms:.3f}",
            f"{one.share:.1%}",
            widest,
        )
        for one in lines
    ]
    about = f"Means of {steps} steps of the first worker. Modules include the modules inside them; operators do not."
    more = "A kernel counts for the phase, module and operator that launched it."
    if steps < recorded:
        more = f"{recorded} steps were recorded, too many for this table; the trace contains all of them. {more}"
    head = _row("", "", "calls", "host ms", "device ms", f"of {of}", widest)
    return "\n".join([about, *([more] if lines[0].device_ms or steps < recorded else []), "", head, *rows]) + "\n"


def _row(of: str, name: str, calls: str, host: str, device: str, share: str, widest: int) -> str:
    return f"{of:8}  {name:{widest}}  {calls:>8}  {host:>10}  {device:>10}  {share:>9}"


def cut(name: str, width: int) -> str:
    """The name, shortened to `width` characters. The middle is removed, because kernel names differ at both ends.

    >>> cut("void at::native::vectorized_elementwise_kernel", 20)
    'void at:...se_kernel'
    """
    if len(name) <= width:
        return name
    first = (width - 3) // 2
    return f"{name[:first]}...{name[len(name) - (width - 3 - first) :]}"


def as_csv(lines: Iterable[ProfileRow]) -> str:
    """The table as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([field.name for field in fields(ProfileRow)])
    writer.writerows(astuple(line) for line in lines)
    return file.getvalue()
