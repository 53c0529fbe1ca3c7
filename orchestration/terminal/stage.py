"""Formats the state of a stage in one line that does not wrap: name, progress, remaining time and values."""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from orchestration.progress import CorpusRates, Pace

Figures = list[tuple[str, str]]
"""Name and text of each value of a stage."""

UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
MOST = 1e15  # numbers from here on have a power of ten
FORMATS = {  # formats of these values; other values follow their names
    "tokens_per_s": "{} tok/s",
    "steps_per_s": "{} steps/s",
    "mfu": "MFU {}",
    "held_out": "held-out {}",
    "resumed_at": "resumed at step {}",
    "equal_for": "equal for {}",
    "ended": "{}",
    "now": "{}",
    "last": "{}",
}
NO_FIGURES = ("stage", "done", "total", "left_s")
LEFT_OUT = (
    "now",
    "loss",
    "bytes_per_s",
    "steps_per_s",
    "mfu",
    "resumed_at",
)  # left out in this order if a line is too long


class StageProgress:
    """The state of a stage: its last event, its start time and its rates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began_s = time.monotonic()
        self.pace, self.rates = Pace(name), CorpusRates()
        self.event: Mapping[str, Any] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        self.event = event
        if event.get("total"):
            self.rates = self.pace({"done": 0, **event}, time.monotonic())

    @property
    def is_whole(self) -> bool:
        """Whether the stage has reached its total; always true without a total."""
        return not self.event.get("total") or self.event.get("done", 0) >= self.event["total"]

    @property
    def is_brief(self) -> bool:
        """Whether the stage took under half a second and has no total, so that it needs no final line."""
        return not self.event.get("total") and self.elapsed == "0:00"

    @property
    def far(self) -> str:
        """Finished parts and their number."""
        done, total = self.event.get("done"), self.event.get("total")
        return f"{done or 0:,}/{total:,}" if total else f"{done:,}" if done else ""

    @property
    def left(self) -> str:
        """The remaining time; "" if it is unknown."""
        left_s = self.event.get("left_s", self.rates.left_s)
        return f"{clock(left_s)} left" if left_s and not self.is_whole else ""

    @property
    def elapsed(self) -> str:
        """The time since the start."""
        return clock(time.monotonic() - self.began_s)

    @property
    def figures(self) -> Figures:
        """Name and text of each value to show."""
        return amounts(self.event, self.rates) if "documents" in self.event else figures(self.event)

    def format_running(self, width: int) -> str:
        """The line of a running stage."""
        since = self.elapsed if self.elapsed != "0:00" else ""
        return self._line([("far", self.far), ("time", self.left or since), *self.figures], width)

    def format_ended(self, width: int, stopped: bool = False) -> str:
        """The final line of a stage, with the time that it took; says if the stage was stopped."""
        took = self.elapsed if self.is_whole and not stopped else f"stopped after {self.elapsed}"
        words = [each for each in self.figures if each[0] != "now"]
        return self._line([("far", self.far), ("time", took), *words], width)

    def _line(self, words: Figures, width: int) -> str:
        text = fit_to_width(words, width - len(self.name) - 2)
        return f"{self.name}: {text}" if text else f"{self.name} ..."


def figures(event: Mapping[str, Any]) -> Figures:
    """Name and text of each value of an event.

    >>> figures({"stage": "pretrain", "done": 3, "total": 9, "loss": 4.21537, "tokens_per_s": 11800.0, "mfu": 0.43})
    [('loss', 'loss 4.215'), ('tokens_per_s', '11.8K tok/s'), ('mfu', 'MFU 43%')]
    """
    named = {key: value for key, value in event.items() if key not in NO_FIGURES}
    return [(key, FORMATS.get(key, f"{key} {{}}").format(_number(key, value))) for key, value in named.items()]


def amounts(event: Mapping[str, Any], rates: CorpusRates) -> Figures:
    """Name and text of the size of a corpus so far, and of its rates.

    >>> amounts({"documents": 1200, "bytes": 5_400_000, "tokens": 90_000}, CorpusRates(1_250_000.0, 31_000.0, 65.0))
    [('documents', '1,200 documents'), ('bytes', '5.4 MB'), ('bytes_per_s', '1.2 MB/s'), ('tokens_per_s', '31K tok/s')]
    """
    words = [("documents", f"{format_number(event['documents'])} documents"), ("bytes", _size(event["bytes"]))]
    words += [("bytes_per_s", f"{_size(rates.bytes_per_s)}/s")] if rates.bytes_per_s else []
    words += [("tokens_per_s", f"{format_number(rates.tokens_per_s)} tok/s")] if rates.tokens_per_s else []
    return words


def fit_to_width(words: Iterable[tuple[str, str]], width: int) -> str:
    """The values in one line; if they do not fit, the least important ones are left out.

    >>> fit_to_width([("loss", "loss 4.215"), ("held_out", "held-out 4.412")], 20)
    'held-out 4.412'
    """
    parts = {name: text for name, text in words if text}
    for name in LEFT_OUT:
        if len("  ".join(parts.values())) > width:
            parts.pop(name, None)
    line = "  ".join(parts.values())
    return line if len(line) <= width else line[: max(0, width - 3)] + "..."


def _number(key: str, value: object) -> str:
    if key == "mfu" and isinstance(value, float):
        return f"{value:.0%}"
    if key == "resumed_at":
        return str(value)
    if isinstance(value, float) and (abs(value) < 1000 or not math.isfinite(value)):
        return f"{value:.4g}"
    return format_number(value) if isinstance(value, int | float) else str(value)


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes < 1e9 else f"{num_bytes / 1e9:,.1f} GB"


def format_number(number: float) -> str:
    """A number as text, with three digits and a unit if it is large.

    >>> format_number(9_940), format_number(11_800), format_number(1_234_567), format_number(999_999)
    ('9,940', '11.8K', '1.23M', '1M')
    >>> format_number(3.2e17)
    '3.2e+17'
    """
    if number < 9_999.5:
        return f"{number:,.0f}"
    if number >= MOST:
        return f"{number:.3g}"
    value = float(f"{number:.3g}")
    size, unit = next((size, unit) for size, unit in UNITS if value >= size)
    return f"{value / size:g}{unit}"


def clock(seconds: float) -> str:
    """A time as text.

    >>> clock(65), clock(3725), clock(200_000)
    ('1:05', '1:02:05', '2d 7h')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
