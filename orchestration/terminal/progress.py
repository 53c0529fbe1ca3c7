"""Progress output: bars on a terminal, or a line every ten seconds elsewhere, or nothing.

Workers print no progress. A job calls `report` with one flat dictionary, which has these keys:
  stage          name of the current stage; a new name ends the previous stage and starts a new one
  done, total    finished parts and their number; a stage without a total ends when the next stage starts
  left_s         remaining seconds, if the job has a better estimate than the rate so far; 0: unknown
  anything else  a value to show with the stage ({"loss": 4.2, "tokens_per_s": 11_800.0}); stage.py formats it
A stage that builds a corpus reports its documents, bytes and tokens so far. `Pace` computes their rates and the
remaining time. The displayed time advances also between reports. Each stage ends with a line, which says whether it was
done or stopped; a stage without a total that took under half a second gets no line. A line fits the width of the
terminal, or 80 columns without a terminal. All output goes to stderr, because stdout is for results (`--json`).
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
COMPILING_EVERY_S = 2.0  # the same while a model compiles, which takes up to a minute without any other sign
WIDTH = 80  # columns, if there is no terminal
BAR = 24  # columns


@contextmanager
def show_progress(mode: Mode = "auto") -> Iterator[Report]:
    """Yield a report function that shows progress.

    With `auto` it draws bars if stderr is a terminal that can draw them (see `is_plain`), and prints lines otherwise.
    """
    if mode == "none":
        yield ignore_progress
    elif mode == "rich" or (mode == "auto" and sys.stderr.isatty() and not is_plain()):
        with _make_bars(Console(stderr=True)) as drawn, _redirect_log():
            yield from _close_after(BarProgress(drawn))
    else:
        yield from _close_after(LineProgress())


def is_plain() -> bool:
    """Whether output must be plain text: NO_COLOR is set (https://no-color.org), or the terminal supports only text."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")


def _close_after(sink: "BarProgress | LineProgress") -> Iterator[Report]:
    """Yield the sink and close it after the block. After an error, the last stage is shown as stopped."""
    try:
        yield sink
    except BaseException:
        sink.close(stopped=True)
        raise
    sink.close()


@contextmanager
def _redirect_log() -> Iterator[None]:
    """Write log messages above the bars: rich redirects sys.stderr while it draws bars."""
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
    """Draws a bar for the current stage, below a line for each finished stage."""

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
        """End the last stage, as done, or as stopped by an error."""
        with self.lock:
            self._end(stopped)

    def _end(self, stopped: bool = False) -> None:
        if self.stage is None:
            return
        self.drawn.remove_task(self.task)
        if not self.stage.is_brief:
            line = self.stage.format_ended(self.drawn.console.width - 2, stopped)
            mark = ("* ", "green") if self.stage.is_whole and not stopped else ("! ", "yellow")
            self.drawn.console.print(Text.assemble(mark, line), no_wrap=True, crop=True)
        self.stage = None


class _StageBars(Progress):
    """A stage in two lines: a bar with its progress and the remaining time, then the values of the stage."""

    def get_renderables(self) -> Iterator[RenderableType]:
        for task in self.tasks:
            stage: StageProgress = task.fields["stage"]
            numbers = fit_to_width(stage.figures, self.console.width - 4)
            below = [Text(f"    {numbers}", "cyan", no_wrap=True)] if numbers else []
            yield Group(self.make_tasks_table([task]), *below)


class _TimesColumn(TextColumn):
    """Elapsed and remaining time of a stage."""

    def render(self, task: Task) -> Text:
        stage: StageProgress = task.fields["stage"]
        return Text("  ".join(filter(None, (stage.elapsed, stage.left))), "progress.remaining")


class _DoneColumn(TextColumn):
    """Finished parts and their number: done/total."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["stage"].far, "progress.download")


def _make_bars(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(BAR), _DoneColumn(""), _TimesColumn(""))
    return _StageBars(*columns, console=console, refresh_per_second=4, transient=True)


class LineProgress:
    """Prints a line at the start of a stage, every ten seconds, and at its end: for log files and pipes."""

    def __init__(self) -> None:
        self.stage: StageProgress | None = None
        self.printed_s = 0.0
        self.lock, self.closed = threading.Lock(), threading.Event()
        self.clock = threading.Thread(target=self._repeat_lines, name="progress", daemon=True)
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
                self._print(self.stage.format_running(WIDTH))

    def close(self, stopped: bool = False) -> None:
        """End the last stage, as done, or as stopped by an error."""
        self.closed.set()
        self.clock.join()
        with self.lock:
            self._end(stopped)

    def _end(self, stopped: bool = False) -> None:
        if self.stage is not None and not self.stage.is_brief:
            self._print(self.stage.format_ended(WIDTH, stopped))
        self.stage = None

    def _repeat_lines(self) -> None:
        """Print the current stage again some seconds after the previous line, even if the job reports nothing."""
        while not self.closed.wait(min(LINE_EVERY_S, COMPILING_EVERY_S) / 2):
            with self.lock:
                is_compiling = self.stage is not None and self.stage.event.get("now") == "compiling"
                every_s = COMPILING_EVERY_S if is_compiling else LINE_EVERY_S
                if self.stage is not None and perf_counter() - self.printed_s >= every_s:
                    self._print(self.stage.format_running(WIDTH))

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        self.printed_s = perf_counter()
