"""Profile of a few steps of the first worker: a trace and a table.

profile/trace.json.gz   for chrome://tracing or ui.perfetto.dev
profile/table.txt       the largest loss of time, then milliseconds per step of purposes, phases, modules and operators
profile/table.csv       the same table for programs
"""

import gzip
import logging
import re
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import time_ns
from typing import Any, Final, Protocol, TypeVar

import torch
from torch import nn
from torch.autograd.profiler import record_function

from preprocessing.files import write_atomic
from training.architectures import has_compiled_blocks
from training.profile_table import Recording, as_csv, as_text, summarize, table
from training.run import WARM_UP, Run
from training.trace import MAX_EVENTS, MODULE, MS, PHASE, Event, events_of, pause_garbage_collection, read, steps_within

T = TypeVar("T")
FOLDER, TRACE, TEXT, CSV = "profile", "trace.json.gz", "table.txt", "table.csv"  # in the run directory
MAX_DEPTH = 5  # maximum number of parts in a module name: trunk.blocks.0.attention.out
MAX_COMPILED_DEPTH = 2  # the same with torch_compile, because a hook inside compiled code would change it
MAX_TRACE_EVENTS = 4 * MAX_EVENTS  # larger traces are not written
log = logging.getLogger(__name__)


class PhaseObserver(Protocol):
    """Receives the start and the end of each phase of this process, as they happen."""

    def begin(self, phase: str) -> None:
        """A phase begins."""

    def end(self, phase: str) -> None:
        """A phase ends."""


_OBSERVERS: Final[list[PhaseObserver]] = []  # like torch's profiler, one list per process


@contextmanager
def observe_phases(*observers: PhaseObserver) -> Iterator[None]:
    """Call the observers at the start and the end of each phase of this process, within the block."""
    _OBSERVERS.extend(observers)
    try:
        yield
    finally:
        for observer in observers:
            _OBSERVERS.remove(observer)


@contextmanager
def record_phase(phase: str) -> Iterator[None]:
    """Record one of PHASES in the block. It takes a few microseconds if nothing is recorded."""
    observers = tuple(_OBSERVERS)
    for observer in observers:
        observer.begin(phase)
    try:
        with record_function(f"{PHASE}{phase}"):
            yield
    finally:
        for observer in reversed(observers):
            observer.end(phase)


def time_items(items: Iterable[T]) -> Generator[T]:
    """The items; the time to compute each of them is recorded as the phase "data"."""
    iterator, end = iter(items), object()
    while True:
        with record_phase("data"):
            item: Any = next(iterator, end)
        if item is end:
            return
        yield item


class PhaseStamps:
    """The phases as events, measured without torch's profiler, but on its clock."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._since_ns: dict[str, int] = {}

    def begin(self, phase: str) -> None:
        self._since_ns[phase] = time_ns()

    def end(self, phase: str) -> None:
        start = self._since_ns.pop(phase, None)
        if start is not None:
            self.events.append(Event(f"{PHASE}{phase}", start, time_ns() - start, is_range=True))


class Profiler:
    """Records `run.profile_steps` steps of the first worker, after WARM_UP steps. It does not change the training.

    The last step of the warm-up is recorded, too, and not used: a recording starts slowly on a GPU, and the number of
    events of a step limits the number of recorded steps.
    """

    def __init__(self, run: Run, model: nn.Module, rank: int) -> None:
        self._run, self._model, self._requested = run, model, run.profile_steps if rank == 0 else 0
        self._steps = self._requested
        self._seen, self._starts_ns = 0, list[int]()
        self._trial: torch.profiler.profile | None = None
        self._recorder: torch.profiler.profile | None = None
        self._stamps, self._pauses = PhaseStamps(), list[Event]()
        self._resources = ExitStack()

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
        if self._requested and self._seen == WARM_UP - 1:
            self._resources.enter_context(observe_phases(self._stamps))
            _name_modules(self._model, self._resources, is_compiled=has_compiled_blocks(self._model))
            self._trial = self._begin()
        if self._trial and self._seen == WARM_UP:
            self._limit_steps(self._trial)
            self._stamps.events.clear()
            self._recorder = self._begin()
        if self._recorder:
            self._starts_ns.append(time_ns())
        self._seen += 1

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out the block, because it is no part of a step, for example an evaluation."""
        start = time_ns()
        yield
        if self._recorder:
            self._pauses.append(Event(f"{PHASE}pause", start, time_ns() - start, is_range=True))

    def finish(self) -> None:
        """Write the profile of the recorded steps, or log a warning if there were too few steps."""
        done = self._seen - WARM_UP
        if self._recorder:
            self._stop(self._recorder, done)
        elif self._requested and done <= 0:
            self.close()
            log.warning("no profile: only %d steps were left; profiling starts after %d steps", self._seen, WARM_UP)

    def close(self) -> None:
        """Stop recording without writing a profile, after an error."""
        for recorder in (self._recorder, self._trial):
            if recorder:
                recorder.stop()
        self._recorder = self._trial = None
        self._resources.close()

    def _begin(self) -> torch.profiler.profile:
        """Start a recording without shapes and stacks, which would slow the steps."""
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self._run.engine.device == "cuda":
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
            torch.cuda.synchronize()  # earlier kernels would delay the recorded ones
        recorder = torch.profiler.profile(activities=kinds)
        recorder.start()
        return recorder

    def _limit_steps(self, trial: torch.profiler.profile) -> None:
        """Stop the trial, and record only as many steps as can be read in seconds."""
        self._trial = None
        with pause_garbage_collection():
            trial.stop()
            of_one = len(trial.profiler.kineto_results.events())  # type: ignore[union-attr]  # it has recorded
        self._steps = steps_within(self._requested * of_one, self._requested, MAX_EVENTS)
        if self._steps < self._requested:
            log.warning("profile: recording %d of %d steps: a step has %d events", self._steps, self._requested, of_one)

    def _stop(self, recorder: torch.profiler.profile, steps: int) -> None:
        with pause_garbage_collection():
            self._write(recorder, steps)

    def _write(self, recorder: torch.profiler.profile, steps: int) -> None:
        self._starts_ns.append(time_ns())
        self._recorder = None
        recorder.stop()
        self._resources.close()
        recorded = recorder.profiler.kineto_results.events()  # type: ignore[union-attr]  # it has recorded
        folder = Path(self._run.folder) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TRACE).unlink(missing_ok=True)
        if len(recorded) <= MAX_TRACE_EVENTS:
            _write_trace(recorder, folder / TRACE)
        else:
            log.warning("profile: no %s, because it would have %d events", TRACE, len(recorded))
        read_steps = steps_within(len(recorded), steps, MAX_EVENTS)
        # when a recording stops, torch waits for the device, which is no part of a step
        start, end = self._starts_ns[0], self._starts_ns[read_steps]
        is_part = read_steps == 1 and len(recorded) > MAX_EVENTS * steps
        if is_part:  # the events are in the order of their starts
            end = min(end, recorded[MAX_EVENTS].start_ns())
        trace = read(events_of(_until(recorded, end)), read_steps, end, self._stamps.events, self._pauses)
        paused_ns = sum(min(end, one.end) - one.start for one in self._pauses if one.start < end)
        wall_ms = MS * (end - start - paused_ns)
        rows = table(trace, wall_ms)
        misses_kernels = self._run.engine.device == "cuda" and not trace.device
        recording = Recording(read_steps, steps, self._requested, is_part, misses_kernels, paused_ms=MS * paused_ns)
        text = as_text(rows, recording)
        write_atomic(folder / TEXT, text.encode())
        write_atomic(folder / CSV, as_csv(rows).encode())
        log.info("profile: %s", summarize(rows))


def _until(recorded: list[Any], end: float) -> Iterator[Any]:
    """The events that may belong to steps before `end` (ns): at most 2 * MAX_EVENTS, as kernels run after launches."""
    for number, one in enumerate(recorded):
        if number >= 2 * MAX_EVENTS:
            return
        if one.start_ns() < end or one.device_type() != torch.autograd.DeviceType.CPU:
            yield one


def _write_trace(recorder: torch.profiler.profile, path: Path) -> None:
    """Write the trace, with the fastest compression: the one of torch takes ten times as long."""
    with NamedTemporaryFile(suffix=".json") as file:
        recorder.export_chrome_trace(file.name)
        with open(file.name, "rb") as source, gzip.open(path, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)


def _name_modules(model: nn.Module, resources: ExitStack, *, is_compiled: bool) -> None:
    """Name the forward pass of each module in the trace, up to MAX_DEPTH, until `resources` are closed.

    If parts of the model are compiled, only the modules around them get a name.
    """
    if _is_compiled(model):
        return
    compiled = tuple(f"{name}." for name, module in model.named_modules() if _is_compiled(module))
    for name, module in model.named_modules():
        depth = name.count(".") + 1
        if not name or depth > (MAX_COMPILED_DEPTH if is_compiled else MAX_DEPTH):
            continue
        if isinstance(module, nn.ModuleList | nn.ModuleDict) or f"{name}.".startswith(compiled):
            continue
        open_ones: list[record_function] = []

        def begin(module: nn.Module, inputs: Any, name: str = name, stack: list[record_function] = open_ones) -> None:
            stack.append(record_function(f"{MODULE}{re.sub(r'[.][0-9]+', '.*', name)}"))
            stack[-1].__enter__()

        def end(module: nn.Module, inputs: Any, outputs: Any, stack: list[record_function] = open_ones) -> None:
            stack.pop().__exit__(None, None, None)

        resources.callback(module.register_forward_pre_hook(begin).remove)
        resources.callback(module.register_forward_hook(end).remove)


def _is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile runs the module: by `module.compile()`, or as a wrapper around another module."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules
