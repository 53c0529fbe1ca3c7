"""What a person sees while something runs: bars on a terminal, a plain line every ten seconds elsewhere, or nothing.

Workers never draw. Whoever works calls `report` with one flat dictionary:
  stage          what is being done; a new name begins a new bar
  done, total    how far; without a total the bar only moves
  anything else  a figure to show beside it ({"loss": 4.2, "tokens_per_s": 11_800.0})
Everything goes to stderr: stdout belongs to results (`--json`).
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Mode = Literal["auto", "rich", "plain", "none"]
Report = Callable[[Mapping[str, Any]], None]

LINE_EVERY_S = 10.0


@contextmanager
def shown(mode: Mode = "auto") -> Iterator[Report]:
    """A `report` to call from this thread; `auto` draws bars when stderr is a terminal."""
    if mode == "none":
        yield ignore
    elif mode == "rich" or (mode == "auto" and sys.stderr.isatty()):
        with _bars(Console(stderr=True)) as bars:
            yield Bars(bars)
    else:
        lines = Lines()
        yield lines
        lines.close()


def ignore(event: Mapping[str, Any]) -> None:
    """A report that nobody sees."""


def figures(event: Mapping[str, Any]) -> str:
    """The figures of an event, in words.

    >>> figures({"stage": "pretrain", "done": 3, "total": 9, "loss": 4.21537, "tokens_per_s": 11800.0})
    'loss 4.215  tokens_per_s 11,800'
    """
    return "  ".join(f"{key} {_number(value)}" for key, value in event.items() if key not in ("stage", "done", "total"))


def _number(value: object) -> str:
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


class Bars:
    """One bar per stage, the finished ones above it."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.stage, self.task = "", TaskID(-1)

    def __call__(self, event: Mapping[str, Any]) -> None:
        stage, total = str(event["stage"]), event.get("total")
        if stage != self.stage:
            self.stage, self.task = stage, self.bars.add_task(stage, total=None, figures="")
        self.bars.update(self.task, completed=event.get("done", 0), total=total, figures=figures(event))


def _bars(console: Console) -> Progress:
    name, numbers = TextColumn("{task.description:<12}"), TextColumn("{task.fields[figures]}", style="cyan")
    clock = (TimeElapsedColumn(), TimeRemainingColumn(compact=True))
    return Progress(SpinnerColumn(finished_text="*"), name, BarColumn(bar_width=24), *clock, numbers, console=console)


class Lines:
    """A line when a stage begins, every ten seconds, and at its end: for log files and pipes."""

    def __init__(self) -> None:
        self.last: Mapping[str, Any] = {}
        self.printed = True
        self.next_at = 0.0

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["stage"] != self.last.get("stage"):
            self.close()
            self.next_at = 0.0
        self.last, self.printed = event, False
        if time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + LINE_EVERY_S
            self.close()

    def close(self) -> None:
        """Print the last event, if it has not been."""
        if not self.printed:
            done, total = self.last.get("done"), self.last.get("total")
            far = f"{done:,}/{total:,}" if total else f"{done:,}" if done else ""
            print(f"{self.last['stage']}: {far}  {figures(self.last)}".rstrip(), file=sys.stderr, flush=True)
            self.printed = True
