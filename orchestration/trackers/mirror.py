"""Sends the record of a run to its trackers, in a thread, so that no tracker delays a step or stops a run.

The record is the file of metrics, to which the first worker appends. The number of bytes that each tracker has is in
`trackers.json`. So a killed run loses no point, and a tracker that was added later gets the points before it.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestration.trackers.tracker import Tracker, TrackerSetup
from preprocessing.errors import BadInput
from preprocessing.files import parse_json

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0  # seconds between two reads of the record
CLOSE_S: Final = 60.0  # timeout of the end of all trackers
REMEDY: Final = "the run continues; a later command for this run sends the rest"
NO_SCORES: Final = "it gets no scores of this command; they are in the directory of the run, and in MLflow"

Figures = Callable[[], "Mapping[str, Figure]"]
Classes = Callable[[tuple[str, ...]], "list[type[Tracker]]"]


@dataclass(frozen=True)
class _Line:
    """A line of the record, and the bytes of the file up to its end."""

    step: int
    time_s: float
    values: Mapping[str, float]
    end: int


class TrackerMirror:
    """Sends lines of `record` to the trackers of the run in `folder` until `close`; without trackers it does nothing.

    An error of a tracker is logged once as a warning. The other trackers and the run continue.
    """

    def __init__(self, folder: Path, record: Path, classes: Classes, figures: Figures = dict) -> None:
        """`classes` selects trackers by name. `figures` draws the figures of the run at its end."""
        self._folder, self._record, self._figures = folder, record, figures
        self._setup = TrackerSetup.read(folder)
        self._closing = threading.Event()
        self._failed: set[str] = set()
        self._last_step: dict[str, int] = {}  # by tracker: the last step that this process has sent
        self._thread: threading.Thread | None = None
        if self._setup and (chosen := classes(self._setup.kinds)):
            self._thread = threading.Thread(target=self._run, args=(chosen, self._setup), daemon=True, name="trackers")
            self._thread.start()

    def close(self) -> None:
        """Send the rest and the figures, and end the trackers; after CLOSE_S seconds, warn and return."""
        self._closing.set()
        if self._thread:
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                log.warning("trackers of %s: not finished after %.0f s; %s", self._folder, CLOSE_S, REMEDY)

    def _run(self, classes: "list[type[Tracker]]", setup: TrackerSetup) -> None:
        opened: dict[str, Tracker] = {}
        sent = dict(setup.sent)
        while True:
            is_last = self._closing.wait(EVERY_S)
            for tracker_class in classes:
                kind = tracker_class.kind
                if kind not in self._failed:
                    with _report_errors(self._folder, kind, self._failed, REMEDY):
                        if kind not in opened:
                            opened[kind] = tracker_class(self._folder, setup, is_new=kind not in sent)
                        sent[kind] = self._send(opened[kind], sent.get(kind, 0), is_last)
                    if kind in self._failed and kind in opened:
                        with suppress(Exception):  # the warning has told the first error
                            opened.pop(kind).close()
            self._store(sent)
            if is_last:
                return

    def _send(self, tracker: Tracker, start: int, is_last: bool) -> int:
        """Send the lines from byte `start` on, and at the end the figures; returns the number of bytes sent."""
        end = start
        for line in read_record(self._record, start):
            tracker.log_metrics(line.step, line.time_s, line.values)
            end, self._last_step[tracker.kind] = line.end, line.step
        if is_last:
            if (step := self._last_step.get(tracker.kind)) is not None and (figures := self._figures()):
                tracker.log_figures(step, figures)
            tracker.close()
        elif end > start:
            tracker.flush()
        return end

    def _store(self, sent: Mapping[str, int]) -> None:
        with suppress(OSError, BadInput):  # a full disk ends the run elsewhere; a later command sends points again
            if (setup := TrackerSetup.read(self._folder)) and setup.sent != sent:
                replace(setup, sent=dict(sent)).write(self._folder)


@contextmanager
def _report_errors(folder: Path, kind: str, failed: set[str], remedy: str) -> Iterator[None]:
    """Turn an exception of a tracker into one warning, and add the tracker to `failed`."""
    try:
        yield
    except Exception as error:
        failed.add(kind)
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        log.warning("tracker %s of %s: %s; %s", kind, folder, reason, remedy)


def read_record(record: Path, start: int) -> Iterator[_Line]:
    """Yield the complete lines of the file of metrics from byte `start` on; null becomes NaN."""
    try:
        with record.open("rb") as file:
            file.seek(start)
            content = file.read()
    except FileNotFoundError:
        return
    end = start
    for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
        end += len(line)
        values = parse_json(line)
        metrics = {key: math.nan if one is None else float(one) for key, one in values["metrics"].items()}
        yield _Line(int(values["step"]), float(values["time"]), metrics, end)


@dataclass(frozen=True)
class Scores:
    """Scores of a task, with the step of the evaluated weights, and figures by name."""

    step: int
    values: Mapping[str, float]
    figures: "Mapping[str, Figure]"


def log_scores(folder: Path, classes: Classes, scores: Sequence[Scores]) -> None:
    """Send scores to the trackers of the run in `folder`, if it has any. An error of a tracker is a warning."""
    try:
        setup = TrackerSetup.read(folder)
    except BadInput as error:
        log.warning("%s; its trackers other than MLflow get no scores", error)
        return
    if setup is None or not scores:
        return
    failed, new, now_s = set[str](), list[str](), time.time()
    for tracker_class in classes(setup.kinds):
        is_new = tracker_class.kind not in setup.sent
        with _report_errors(folder, tracker_class.kind, failed, NO_SCORES):
            tracker = tracker_class(folder, setup, is_new=is_new)
            for each in scores:
                tracker.log_metrics(each.step, now_s, each.values)
                if each.figures:
                    tracker.log_figures(each.step, each.figures)
            tracker.close()
            new += [tracker_class.kind] if is_new else []
    # a training of the run may have changed the file since
    with suppress(OSError, BadInput):
        if new and (now := TrackerSetup.read(folder)):
            replace(now, sent=dict.fromkeys(new, 0) | dict(now.sent)).write(folder)
