"""Where the time of a step goes: a trace of some steps of the first worker, and a table of it.

profile/trace.json.gz   for chrome://tracing or ui.perfetto.dev
profile/table.txt       phases of a step, modules, operators, kernels, in milliseconds a step
profile/table.csv       the same
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
FOLDER, TRACE, TEXT, CSV = "profile", "trace.json.gz", "table.txt", "table.csv"  # in the run's folder
PHASES: Final = ("data", "forward", "backward", "optimiser")
DEEPEST = 5  # parts of the name of a module whose time is told: trunk.blocks.0.attention.out
MOST = 30  # operators of the table, and kernels
WIDEST = 120  # characters of a line of it
log = logging.getLogger(__name__)


Of = Literal["step", "phase", "module", "operator", "kernel"]


@dataclass(frozen=True)
class ProfileRow:
    """A line of the table. Times are of one step; modules are parts of the forward pass, operators of everything."""

    of: Of
    name: str
    calls: float  # a step
    host_ms: float
    device_ms: float  # 0 without a GPU
    share: float  # of the step: of the device's time where there is a device, else of the host's


def record_phase(phase: str) -> record_function:
    """A context that is one of PHASES; it costs a microsecond where nothing is recorded."""
    return record_function(f"{PHASE}{phase}")


def time_items(items: Iterable[T]) -> Generator[T]:
    """The items, the making of each being the phase "data"."""
    iterator, end = iter(items), object()
    while True:
        with record_phase("data"):
            item: Any = next(iterator, end)
        if item is end:
            return
        yield item


class Profiler:
    """Records `run.profile` steps of the first worker, some steps after its start. What is learned stays the same."""

    def __init__(self, run: Run, model: nn.Module, rank: int) -> None:
        self._run, self._model, self._steps = run, model, run.profile_steps if rank == 0 else 0
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
        if self._run.engine.device == "cuda":
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        if not self._run.engine.torch_compile:  # a compiled net has no modules left to time
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
        found = table(read(events_of(recorded), read_steps, steps), wall_ms * read_steps / steps)
        write_atomic(folder / TEXT, as_text(found, read_steps, steps).encode())
        write_atomic(folder / CSV, as_csv(found).encode())
        self._recorder = None


def _name_modules(model: nn.Module, hooks: ExitStack) -> None:
    """Give the forward pass of each module, down to DEEPEST, a name in the trace, until `hooks` are closed."""
    for name, module in model.named_modules():
        if not name or name.count(".") >= DEEPEST or isinstance(module, nn.ModuleList | nn.ModuleDict):
            continue
        open_ones: list[record_function] = []

        def begin(module: nn.Module, given: Any, name: str = name, stack: list[record_function] = open_ones) -> None:
            stack.append(record_function(f"{MODULE}{re.sub(r'[.][0-9]+', '.*', name)}"))
            stack[-1].__enter__()

        def end(module: nn.Module, given: Any, made: Any, stack: list[record_function] = open_ones) -> None:
            stack.pop().__exit__(None, None, None)

        hooks.callback(module.register_forward_pre_hook(begin).remove)
        hooks.callback(module.register_forward_hook(end).remove)


def table(found: Trace, wall_ms: float) -> list[ProfileRow]:
    """The lines of a recording, whose steps took `wall_ms` together."""
    steps, step_ms = found.steps, wall_ms / found.steps
    step_device = found.device / steps
    whole = step_device or step_ms  # where there is a device its time is shared out: the host runs ahead of it

    def line(of: Of, name: str, spent: TimeSpent) -> ProfileRow:
        host, device = spent.host / steps, spent.device / steps
        return ProfileRow(of, name, spent.calls / steps, host, device, (device if step_device else host) / whole)

    phases = [line("phase", name, found.phases[name]) for name in PHASES if name in found.phases]
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
        line("phase", "communication, in all of these", found.sent),
        *longest("module", found.modules),
        *longest("operator", found.operators, MOST),
        *longest("kernel", found.kernels, MOST),
    ]


def as_text(lines: Iterable[ProfileRow], steps: int, recorded: int = 0) -> str:
    """The table for people, no wider than WIDEST; `steps` of `recorded` were read."""
    lines = list(lines)
    room = WIDEST - len(_row("", "", "", "", "", "", 0))
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
    about = f"Means of {steps} steps of the first worker. Modules hold the modules inside of them; operators do not."
    more = "A kernel counts for the phase, module and operator that launched it."
    if steps < recorded:
        more = f"{recorded} steps were recorded, too much to read here: the trace has them all. {more}"
    head = _row("", "", "calls", "host ms", "device ms", f"of {of}", widest)
    return "\n".join([about, *([more] if lines[0].device_ms or steps < recorded else []), "", head, *rows]) + "\n"


def _row(of: str, name: str, calls: str, host: str, device: str, share: str, widest: int) -> str:
    return f"{of:8}  {name:{widest}}  {calls:>8}  {host:>10}  {device:>10}  {share:>9}"


def cut(name: str, width: int) -> str:
    """At most so many characters: kernels are called by their templates, which differ at both ends.

    >>> cut("void at::native::vectorized_elementwise_kernel", 20)
    'void at:...se_kernel'
    """
    if len(name) <= width:
        return name
    first = (width - 3) // 2
    return f"{name[:first]}...{name[len(name) - (width - 3 - first) :]}"


def as_csv(lines: Iterable[ProfileRow]) -> str:
    """The table for programs."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([field.name for field in fields(ProfileRow)])
    writer.writerows(astuple(line) for line in lines)
    return file.getvalue()
