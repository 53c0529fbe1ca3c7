"""What a person sees while something runs: bars on a terminal, a plain line every ten seconds elsewhere, or nothing.

Workers never draw. Whoever works calls `report` with one flat dictionary:
  stage          what is being done; a new name ends the stage before it and begins a new one
  done, total    how far; without a total the stage ends where the next one begins
  left_s         seconds to its end, where whoever works knows better than the pace so far; 0: nobody knows
  anything else  a figure to show beside it ({"loss": 4.2, "tokens_per_s": 11_800.0}); stage.py says how
A stage that makes a corpus says how many documents, bytes and tokens there are by now; how fast they come, and what
time is left, is worked out here (Pace). The clock of a stage runs on while it says nothing. Each one that began is said
to be done, or to have stopped, unless it was over at once and has nothing to show. No line is wider than the terminal;
where there is none, than 80 columns. Everything goes to stderr: stdout belongs to results (`--json`).
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.text import Text

from orchestration.progress import Report, ignore_progress
from orchestration.terminal.stage import StageProgress, fit_to_width

Mode = Literal["auto", "rich", "plain", "none"]

LINE_EVERY_S = 10.0
WIDTH = 80  # columns, where there is no terminal
BAR = 24  # columns


@contextmanager
def show_progress(mode: Mode = "auto") -> Iterator[Report]:
    """A `report` to call; `auto` draws bars where stderr is a terminal that takes more than text (see `is_plain`)."""
    if mode == "none":
        yield ignore_progress
    elif mode == "rich" or (mode == "auto" and sys.stderr.isatty() and not is_plain()):
        with _bars(Console(stderr=True)) as drawn, _log_above():
            yield from _closed_after(BarProgress(drawn))
    else:
        yield from _closed_after(LineProgress())


def is_plain() -> bool:
    """Whether nothing but text is wanted: NO_COLOR (https://no-color.org), or a terminal that takes nothing else."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")


def _closed_after(sink: "BarProgress | LineProgress") -> Iterator[Report]:
    """The sink, closed when whoever reports is done: the last stage then is too, unless there was an error."""
    try:
        yield sink
    except BaseException:
        sink.close(stopped=True)
        raise
    sink.close()


@contextmanager
def _log_above() -> Iterator[None]:
    """Messages of the log go where print goes while bars are drawn, that is above them."""
    before = {
        handler: handler.setStream(sys.stderr)
        for handler in logging.root.handlers
        if type(handler) is logging.StreamHandler
    }
    try:
        yield
    finally:
        for handler, stream in before.items():
            if stream is not None:
                handler.setStream(stream)


class BarProgress:
    """The bar of the stage that runs; a line for each that has ended stands above it."""

    def __init__(self, drawn: Progress) -> None:
        self.drawn = drawn
        self.stage: StageProgress | None = None
        self.lock = threading.Lock()

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self.lock:
            name = str(event["stage"])
            if self.stage is None or name != self.stage.name:
                self._end()
                self.stage = StageProgress(name)
                self.task = self.drawn.add_task(name, total=None, stage=self.stage)
            self.stage(event)
            self.drawn.update(self.task, completed=event.get("done") or 0, total=event.get("total"))

    def close(self, stopped: bool = False) -> None:
        """End the last stage: done, or stopped by an error."""
        with self.lock:
            self._end(stopped)

    def _end(self, stopped: bool = False) -> None:
        if self.stage is None:
            return
        self.drawn.remove_task(self.task)
        if not self.stage.is_brief:
            line = self.stage.ended(self.drawn.console.width - 2, stopped)
            mark = ("* ", "green") if self.stage.is_whole and not stopped else ("! ", "yellow")
            self.drawn.console.print(Text.assemble(mark, line), no_wrap=True, crop=True)
        self.stage = None


class _OfStage(Progress):
    """A stage in two lines: a bar, how far it is and what time is left; below them its figures."""

    def get_renderables(self) -> Iterator[RenderableType]:
        for task in self.tasks:
            stage: StageProgress = task.fields["stage"]
            numbers = fit_to_width(stage.figures, self.console.width - 4)
            below = [Text(f"    {numbers}", "cyan", no_wrap=True)] if numbers else []
            yield Group(self.make_tasks_table([task]), *below)


class _Times(TextColumn):
    """How long a stage has run, and what time is left."""

    def render(self, task: Task) -> Text:
        stage: StageProgress = task.fields["stage"]
        return Text("  ".join(filter(None, (stage.elapsed, stage.left))), "progress.remaining")


class _Far(TextColumn):
    """done/total."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["stage"].far, "progress.download")


def _bars(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(BAR), _Far(""), _Times(""))
    return _OfStage(*columns, console=console, refresh_per_second=4, transient=True)


class LineProgress:
    """A line when a stage begins, every ten seconds while it runs, and at its end: for log files and pipes."""

    def __init__(self) -> None:
        self.stage: StageProgress | None = None
        self.said_s = 0.0
        self.lock, self.closed = threading.Lock(), threading.Event()
        self.clock = threading.Thread(target=self._say_again, name="progress", daemon=True)
        self.clock.start()

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self.lock:
            is_new = self.stage is None or event["stage"] != self.stage.name
            if is_new:
                self._end()
                self.stage = StageProgress(str(event["stage"]))
            assert self.stage is not None
            self.stage(event)
            if is_new:
                self._say(self.stage.running(WIDTH))

    def close(self, stopped: bool = False) -> None:
        """End the last stage: done, or stopped by an error."""
        self.closed.set()
        self.clock.join()
        with self.lock:
            self._end(stopped)

    def _end(self, stopped: bool = False) -> None:
        if self.stage is not None and not self.stage.is_brief:
            self._say(self.stage.ended(WIDTH, stopped))
        self.stage = None

    def _say_again(self) -> None:
        """What a stage has come to, LINE_EVERY_S after the last line, also where it reports nothing."""
        wait_s = LINE_EVERY_S
        while not self.closed.wait(wait_s):
            with self.lock:
                wait_s = self.said_s + LINE_EVERY_S - perf_counter()
                if wait_s <= 0 and self.stage is not None:
                    self._say(self.stage.running(WIDTH))
                wait_s = wait_s if wait_s > 0 else LINE_EVERY_S

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        self.said_s = perf_counter()
