"""Where the time of a step goes: a trace of some steps of the first worker, and a table of it.

profile/trace.json.gz   for chrome://tracing or ui.perfetto.dev
profile/table.txt       phases of a step, modules, operators, in milliseconds a step
profile/table.csv       the same
"""

import csv
import io
import logging
import re
from collections.abc import Generator, Iterable
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

T = TypeVar("T")
FOLDER, TRACE, TEXT, CSV = "profile", "trace.json.gz", "table.txt", "table.csv"  # in the run's folder
PHASES: Final = ("data", "forward", "backward", "optimiser")
SENT = ("gloo:", "nccl:")  # how torch names what a collective call does, from its begin to its end
DEEPEST = 5  # parts of the name of a module whose time is told: trunk.blocks.0.attention.out
MOST = 30  # operators of the table
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Line:
    """A line of the table. Times are of one step; modules are parts of the forward pass, operators of everything."""

    of: Literal["step", "phase", "module", "operator"]
    name: str
    calls: float  # a step
    host_ms: float
    device_ms: float  # 0 without a GPU
    share: float  # of the step, by the host's time


def within(phase: str) -> record_function:
    """A context that is one of PHASES; it costs a microsecond where nothing is recorded."""
    return record_function(f"phase: {phase}")


def timed(items: Iterable[T]) -> Generator[T]:
    """The items, the making of each being the phase "data"."""
    iterator, end = iter(items), object()
    while True:
        with within("data"):
            item: Any = next(iterator, end)
        if item is end:
            return
        yield item


class Profiler:
    """Records `run.profile` steps of the first worker, some steps after its start. What is learned stays the same."""

    def __init__(self, run: Run, model: nn.Module, rank: int) -> None:
        self._run, self._model, self._steps = run, model, run.profile if rank == 0 else 0
        self._seen, self._since_s = 0, 0.0
        self._recorder: torch.profiler.profile | None = None
        self._hooks = ExitStack()

    @property
    def is_recording(self) -> bool:
        """Whether `finish` will write something."""
        return self._recorder is not None

    @property
    def is_full(self) -> bool:
        """Whether all steps that were asked for are recorded: call `finish` now."""
        return self.is_recording and self._seen == WARM_UP + self._steps

    def at_step(self) -> None:
        """A step begins that will be made: call it before each."""
        if self._steps and self._seen == WARM_UP:
            self._start()
        self._seen += 1

    def finish(self) -> None:
        """The last step is done: write what there is, or say that there is nothing."""
        done = self._seen - WARM_UP
        if self._recorder:
            self._stop(done)
        elif self._steps and done <= 0:
            log.warning("no profile: only %d steps were left, %d come before the first one", self._seen, WARM_UP)

    def close(self) -> None:
        """Record nothing more, and forget what is recorded: for a training that ended by an error."""
        if self._recorder:
            self._recorder.stop()
        self._recorder = None
        self._hooks.close()

    def _start(self) -> None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self._run.machine.device == "cuda":
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        if not self._run.machine.compile:  # a compiled net has no modules left to time
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
        found = table(self._recorder.key_averages(), steps, wall_ms)
        write_atomic(folder / TEXT, as_text(found, steps).encode())
        write_atomic(folder / CSV, as_csv(found).encode())
        self._recorder = None


def _name_modules(model: nn.Module, hooks: ExitStack) -> None:
    """Give the forward pass of each module, down to DEEPEST, a name in the trace, until `hooks` are closed."""
    for name, module in model.named_modules():
        if not name or name.count(".") >= DEEPEST or isinstance(module, nn.ModuleList | nn.ModuleDict):
            continue
        open_ones: list[record_function] = []

        def begin(module: nn.Module, given: Any, name: str = name, stack: list[record_function] = open_ones) -> None:
            stack.append(record_function(f"module: {re.sub(r'[.][0-9]+', '.*', name)}"))
            stack[-1].__enter__()

        def end(module: nn.Module, given: Any, made: Any, stack: list[record_function] = open_ones) -> None:
            stack.pop().__exit__(None, None, None)

        hooks.callback(module.register_forward_pre_hook(begin).remove)
        hooks.callback(module.register_forward_hook(end).remove)


def table(averages: Iterable[Any], steps: int, wall_ms: float) -> list[Line]:
    """The lines of a recording of so many steps, which took `wall_ms` together. `averages` are torch's, by name."""
    step_ms = wall_ms / steps

    def line(of: Literal["phase", "module", "operator"], name: str, events: list[Any], alone: bool = False) -> Line:
        host = sum(e.self_cpu_time_total if alone else e.cpu_time_total for e in events) / 1_000 / steps
        device = sum(e.self_device_time_total if alone else e.device_time_total for e in events) / 1_000 / steps
        return Line(of, name, sum(e.count for e in events) / steps, host, device, host / step_ms)

    by_name = {event.key: event for event in averages}
    phases = [line("phase", name, [by_name[key]]) for name in PHASES if (key := f"phase: {name}") in by_name]
    rest_ms = step_ms - sum(phase.host_ms for phase in phases)
    sent = [event for name, event in by_name.items() if name.startswith(SENT)]
    modules = [line("module", name[8:], [e]) for name, e in by_name.items() if name.startswith("module: ")]
    ours = ("phase: ", "module: ", *SENT, "ProfilerStep")
    operators = [line("operator", name, [e], True) for name, e in by_name.items() if not name.startswith(ours)]
    return [
        Line("step", "one step", 1.0, step_ms, sum(one.device_ms for one in operators), 1.0),
        *phases,
        Line("phase", "between these", 1.0, rest_ms, 0.0, rest_ms / step_ms),
        line("phase", "communication, in all of these", sent),
        *sorted(modules, key=lambda one: -max(one.host_ms, one.device_ms)),
        *sorted(operators, key=lambda one: -max(one.host_ms, one.device_ms))[:MOST],
    ]


def as_text(lines: Iterable[Line], steps: int) -> str:
    """The table for people."""
    widest = max(len(line.name) for line in lines)
    head = f"{'':8}  {'':{widest}}  {'calls':>8}  {'host ms':>10}  {'device ms':>10}  {'share':>6}"
    rows = [
        f"{one.of:8}  {one.name:{widest}}  {one.calls:8.1f}  {one.host_ms:10.3f}  {one.device_ms:10.3f}"
        f"  {one.share:6.1%}"
        for one in lines
    ]
    about = f"Means of {steps} steps of the first worker. Modules hold the modules inside of them; operators do not."
    return "\n".join([about, "", head, *rows]) + "\n"


def as_csv(lines: Iterable[Line]) -> str:
    """The table for programs."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([field.name for field in fields(Line)])
    writer.writerows(astuple(line) for line in lines)
    return file.getvalue()
