"""Progress reports: a `Report` is called with one flat dictionary. terminal/progress.py documents its keys."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Report = Callable[[Mapping[str, Any]], None]


def ignore_progress(event: Mapping[str, Any]) -> None:
    """A report that does nothing."""


def combine_reports(*reports: Report) -> Report:
    """A report that passes each event to all of these reports."""

    def report(event: Mapping[str, Any]) -> None:
        for one in reports:
            one(event)

    return report


@dataclass(frozen=True)
class CorpusRates:
    """How fast a corpus is built; 0 while a rate is unknown."""

    bytes_per_s: float = 0.0
    tokens_per_s: float = 0.0
    left_s: float = 0.0


class Pace:
    """The rates of one stage, from its first event to the last finished part.

    A resumed job finds parts of an earlier job. They are counted in its first event and do not affect the rates.
    """

    def __init__(self, stage: str = "") -> None:
        self.stage = stage
        self.first: Mapping[str, Any] = {}
        self.began_s = self.changed_s = 0.0
        self.done = -1

    def __call__(self, event: Mapping[str, Any], now_s: float) -> CorpusRates:
        """The rates at the time `now_s`, in seconds.

        >>> pace = Pace("text")
        >>> start = pace({"stage": "text", "done": 1, "total": 4, "bytes": 500}, 100.0)
        >>> pace({"stage": "text", "done": 2, "total": 4, "bytes": 900}, 110.0)
        CorpusRates(bytes_per_s=40.0, tokens_per_s=0.0, left_s=20.0)
        """
        if not self.first:
            self.first, self.began_s = event, now_s
        if event["done"] != self.done:
            self.done, self.changed_s = event["done"], now_s
        parts, took_s = self.done - self.first["done"], self.changed_s - self.began_s
        if not parts or not took_s:
            return CorpusRates()
        left_s = (event["total"] - self.done) * took_s / parts - (now_s - self.changed_s)
        bytes_per_s, tokens_per_s = (
            (event.get(key, 0) - self.first.get(key, 0)) / took_s for key in ("bytes", "tokens")
        )
        return CorpusRates(bytes_per_s, tokens_per_s, max(0.0, left_s))


class Paces:
    """Returns the rates for the events of successive stages; None for a stage that does not build a corpus."""

    def __init__(self) -> None:
        self.pace = Pace()

    def __call__(self, event: Mapping[str, Any]) -> CorpusRates | None:
        if not {"done", "total", "documents", "bytes"} <= event.keys():
            return None
        if self.pace.stage != event["stage"]:
            self.pace = Pace(event["stage"])
        return self.pace(event, time.monotonic())
