"""What a person sees while something runs: bars on a terminal, a plain line every ten seconds elsewhere, or nothing.

Workers never draw. Whoever works calls `report` with one flat dictionary:
  stage          what is being done; a new name begins a new bar
  done, total    how far; without a total the bar only moves
  anything else  a figure to show beside it ({"loss": 4.2, "tokens_per_s": 11_800.0})
A stage that makes a corpus says how many documents, bytes and tokens there are by now; how fast they come, and what
time is left, is worked out here (Pace).
Everything goes to stderr: stdout belongs to results (`--json`).
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from orchestration.progress import Paces, Rates, Report, ignore

Mode = Literal["auto", "rich", "plain", "none"]


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


def amounts(event: Mapping[str, Any], rates: Rates) -> str:
    """What a corpus has by now and how fast it grows, in words.

    >>> amounts({"documents": 1200, "bytes": 5_400_000, "tokens": 90_000}, Rates(1_250_000.0, 31_000.0, 65.0))
    '1,200 documents  5.4 MB  1.2 MB/s  31,000 tokens/s'
    """
    said = [f"{event['documents']:,} documents", f"{event['bytes'] / 1e6:,.1f} MB"]
    said += [f"{rates.bytes_per_s / 1e6:,.1f} MB/s"] if rates.bytes_per_s else []
    said += [f"{rates.tokens_per_s:,.0f} tokens/s"] if rates.tokens_per_s else []
    return "  ".join(said)


def clock(seconds: float) -> str:
    """
    >>> clock(65), clock(3725)
    ('1:05', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Bars:
    """One bar per stage, the finished ones above it."""

    def __init__(self, bars: Progress) -> None:
        self.bars, self.paces = bars, Paces()
        self.stage, self.task = "", TaskID(-1)

    def __call__(self, event: Mapping[str, Any]) -> None:
        stage, total = str(event["stage"]), event.get("total")
        if stage != self.stage:
            self.stage, self.task = stage, self.bars.add_task(stage, total=None, figures="", left_s=None)
        rates = self.paces(event)
        said, left_s = (amounts(event, rates), rates.left_s) if rates else (figures(event), None)
        self.bars.update(self.task, completed=event.get("done", 0), total=total, figures=said, left_s=left_s)


class _Left(TimeRemainingColumn):
    """rich's estimate forgets what is 30 s old, and the parts of a corpus take longer: there it is the pace's own."""

    def render(self, task: Task) -> Text:
        left_s = task.fields["left_s"]
        if left_s is None or task.finished:
            return super().render(task)
        return Text(clock(left_s) if left_s else "-:--", style="progress.remaining")


def _bars(console: Console) -> Progress:
    name, numbers = TextColumn("{task.description:<12}"), TextColumn("{task.fields[figures]}", style="cyan")
    times = (TimeElapsedColumn(), _Left(compact=True))
    return Progress(SpinnerColumn(finished_text="*"), name, BarColumn(bar_width=24), *times, numbers, console=console)


class Lines:
    """A line when a stage begins, every ten seconds, and at its end: for log files and pipes."""

    def __init__(self) -> None:
        self.last: Mapping[str, Any] = {}
        self.said = ""
        self.paces = Paces()
        self.printed = True
        self.next_at = 0.0

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["stage"] != self.last.get("stage"):
            self.close()
            self.next_at = 0.0
        self.last, self.printed = event, False
        self.said = _said(event, self.paces(event))
        if time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + LINE_EVERY_S
            self.close()

    def close(self) -> None:
        """Print the last event, if it has not been."""
        if not self.printed:
            done, total = self.last.get("done"), self.last.get("total")
            far = f"{done:,}/{total:,}" if total else f"{done:,}" if done else ""
            print(f"{self.last['stage']}: {far}  {self.said}".rstrip(), file=sys.stderr, flush=True)
            self.printed = True


def _said(event: Mapping[str, Any], rates: Rates | None) -> str:
    if rates is None:
        return figures(event)
    return amounts(event, rates) + (f"  {clock(rates.left_s)} left" if rates.left_s else "")
