"""The metrics of a run: `metrics.jsonl` in its directory is the record, and MLflow mirrors it.

Each call of the training loop appends one line; a thread sends the lines to MLflow in batches. So tracking never delays
a step, a killed worker loses no point, and a restarted worker records no point twice. A tracking server that was
unavailable gets the missing points at the next start of the run.
"""

import json
import logging
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestration.figures import History
from orchestration.progress import Report, ignore_progress
from orchestration.tracking import names
from orchestration.tracking.metadata import flush_pending_metadata
from orchestration.tracking.runs import TrackedRun, client_of, load_mlflow
from orchestration.tracking.store_timeout import (
    CallTimeout,
    add_logged,
    add_pending,
    clear_pending,
    pending_updates,
    summarize_error,
)
from preprocessing.errors import BadInput
from preprocessing.files import parse_json

log = logging.getLogger(__name__)

FLUSH_S = 5.0
METRICS_FILE = "metrics.jsonl"  # file in the directory of the run
BATCH = 1000  # MLflow's limit of metrics in one call
STAGE = "mirroring metrics"


def history(folder: Path) -> History:
    """Steps and values of each metric of the run in `folder`, in order. Raises BadInput if the file is damaged."""
    points: History = {}
    for line in _lines(folder):
        for key, value in line["metrics"].items():
            points.setdefault(key, []).append((line["step"], math.nan if value is None else value))
    return points


def _lines(folder: Path) -> list[dict[str, Any]]:
    """The recorded lines, without a last line that a kill cut short. Raises BadInput if a line is damaged."""
    try:
        content = (folder / METRICS_FILE).read_bytes()
    except FileNotFoundError:
        return []
    lines = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n")[:-1], start=1):
        try:
            lines.append(_point(line))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{folder / METRICS_FILE}: line {number} is damaged ({error}); restore the file, or delete the line, "
                "which loses its points"
            ) from None
    return lines


def _point(line: bytes) -> dict[str, Any]:
    """A line, checked for the keys and types with which it was written."""
    value = parse_json(line)
    return {
        "step": int(value["step"]),
        "time": float(value["time"]),
        "metrics": {key: None if one is None else float(one) for key, one in value["metrics"].items()},
    }


class MetricLog:
    """Records metrics of the training loop: `log(step, {"train/loss": 5.1})` appends to metrics.jsonl, and a thread
    mirrors the file to MLflow.

    A step that the file has already is not recorded again; a restarted worker repeats the steps after its checkpoint.
    Values that are not finite are null in the file and NaN in MLflow, which would store infinity as 1.8e308.
    """

    def __init__(
        self,
        folder: Path,
        tracked: TrackedRun | None,
        *,
        system: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`tags`: tags of the worker for its run. The machine that trains may differ from that of the driver."""
        self._tags = dict(tags or {})  # tags that are not stored in the directory yet
        self._last_step: dict[str, int] = {key: points[-1][0] for key, points in history(folder).items()}
        self._pending = _lines(folder)
        self._written = max(self._last_step.values(), default=-1)
        self._folder, self._uri = folder, tracked.uri if tracked else ""
        self._files: list[tuple[Path, str]] = [
            (folder / name, where) for name, where in pending_updates(folder).get("files", ())
        ]
        self._call: CallTimeout | None = None  # the current call to the store
        self._fails = ""  # the error of the last call
        self._is_left = False  # whether `close` has given up waiting for a call
        self._is_for_driver = False  # whether the driver sends everything, if the thread has sent nothing yet
        self._is_deferred = False  # whether the thread has left everything to the driver
        self._has_begun = threading.Event()  # whether the thread has begun to send
        self._report: Report = ignore_progress
        path = folder / METRICS_FILE
        self._file = path.open("ab")
        self._size = self._truncate_to_whole_lines()  # bytes of the file, as far as this process has written it
        self._lost = -1  # the last step whose points another program removed from the file during training
        self._closing = threading.Event()
        self._mirror = threading.Thread(target=self._keep_mirroring, args=(tracked, system), daemon=True, name="mlflow")
        self._is_mirrored = tracked is not None
        if tracked:
            self._mirror.start()

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        fresh = {key: value for key, value in metrics.items() if step > self._last_step.get(key, -1)}
        if not fresh:
            return
        self._last_step |= dict.fromkeys(fresh, step)
        finite = {key: value if math.isfinite(value) else None for key, value in fresh.items()}
        line = {"step": step, "time": round(time.time(), 3), "metrics": finite}
        self._check_file()
        content = json.dumps(line).encode() + b"\n"
        self._file.write(content)
        self._file.flush()
        self._size += len(content)
        self._written = step
        self._pending.append(line)

    def _check_file(self) -> None:
        """Detect that another program has truncated or replaced the file, and continue writing to the current file."""
        path = self._folder / METRICS_FILE
        try:
            is_named = os.path.samestat(path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            is_named = False
        if is_named and os.fstat(self._file.fileno()).st_size >= self._size:
            return
        if not is_named:
            self._file.close()
            self._file = path.open("ab")
        self._size = self._truncate_to_whole_lines()
        self._lost = max(self._lost, self._written)
        log.warning(
            "%s: another program truncated or replaced it during training; restore it when training has ended", path
        )

    def _truncate_to_whole_lines(self) -> int:
        """Remove an incomplete last line and return the bytes of the file, so that the next entry begins on a new
        line."""
        size = (self._folder / METRICS_FILE).read_bytes().rfind(b"\n") + 1
        self._file.truncate(size)
        return size

    def mirror(self, file: Path, folder: str) -> None:
        """Also log a file of the run as an artifact, in the artifact directory `folder`; a later file with the same
        name replaces it."""
        self._files.append((file, folder))

    def close(self, report: Report = ignore_progress, *, may_defer: bool = False) -> None:
        """Wait until MLflow has everything, while the store answers; otherwise warn about the missing data.

        `report` gets the number of sent points. The next start of the run sends the missing data.

        With `may_defer`, the caller has a driver that calls `close` later (group.log_results). If nothing has been sent
        yet, everything is left to it: a short training need not import MLflow in the worker, which takes seconds.
        """
        self._report, self._is_for_driver = report, may_defer
        self._closing.set()
        while self._mirror.is_alive():
            self._mirror.join(0.05)
            if (call := self._call) and call.is_over():
                self._fails, self._is_left = self._fails or call.reason, True
                break
        self._report = ignore_progress  # a call that was given up may still be running
        self._warn_of_missing_data()
        self._check_file()
        if self._lost >= 0:
            also = " (MLflow has them)" if self._is_mirrored and not self._fails else ""
            log.warning(
                "%s: lacks points up to step %d, which another program removed%s; restore the file from a copy",
                self._file.name,
                self._lost,
                also,
            )
        os.fsync(self._file.fileno())
        self._file.close()

    @property
    def can_defer(self) -> bool:
        """Whether `close` can leave everything to the driver, because nothing has been sent yet."""
        return not self._has_begun.is_set()

    def _warn_of_missing_data(self) -> None:
        points, files = sum(len(line["metrics"]) for line in list(self._pending)), list(self._files)
        self._store_tags()
        if self._fails and (points or files):
            self._add_missing(points, files)
            log.warning(
                "MLflow does not accept metrics (%s): it lacks %d points and %d files, which are stored in %s; repeat "
                "the command to send them",
                self._fails, points, len(files), self._folder,
            )  # fmt: skip
        elif self._is_deferred:
            self._add_missing(points, files)
        elif self._is_mirrored:
            clear_pending(self._folder, "points", "files")

    def _add_missing(self, points: int, files: Iterable[tuple[Path, str]]) -> None:
        """Record how many points and which files MLflow lacks."""
        lacks = {"points": points, "files": self._relative_paths(files)}
        add_pending(self._folder, **{what: one for what, one in lacks.items() if one})

    def _relative_paths(self, files: Iterable[tuple[Path, str]]) -> list[list[str]]:
        return [[file.relative_to(self._folder).as_posix(), where] for file, where in files]

    def _store_tags(self) -> None:
        if self._is_mirrored and self._tags:
            add_logged(self._folder, {"tags": self._tags})
            self._tags = {}

    def _keep_mirroring(self, tracked: TrackedRun, system: bool) -> None:
        monitor, mirrored, has_warned = None, None, False
        if self._closing.wait(FLUSH_S) and self._is_for_driver:
            self._is_deferred = True
            return
        self._has_begun.set()
        while True:
            last = self._closing.is_set()
            try:
                self._store_tags()
                # stored, so that the files are sent later if the worker is killed during the wait
                if files := self._relative_paths(self._files):
                    add_pending(self._folder, files=files)
                load_mlflow(tracked.uri)  # on a busy machine the import takes longer than the timeout of the store
                with self._await_calls(tracked):
                    client = client_of(tracked.uri, is_known=True)
                    flush_pending_metadata(client, tracked.run_id, self._folder)
                    if monitor is None and system and not last:
                        monitor = _system_monitor(tracked)
                    if mirrored is None and self._pending:
                        mirrored = _last_steps(client, tracked.run_id)
                    self._mirror_pending(client, tracked.run_id, mirrored or {})
                    self._mirror_files(client, tracked.run_id)
                if files:
                    clear_pending(self._folder, "files")
                self._fails = ""
            except Exception as error:  # for any error of the store, training continues and the file keeps the points
                self._fails = summarize_error(error)
                if not has_warned and not self._is_left:
                    log.warning(
                        "MLflow does not accept metrics (%s); they stay in %s and are sent later",
                        self._fails,
                        self._file.name,
                    )
                has_warned = True
            if last:
                break
            self._closing.wait(FLUSH_S)
        if monitor:
            with self._await_calls(tracked):
                monitor.finish()

    @contextmanager
    def _await_calls(self, tracked: TrackedRun) -> Iterator[None]:
        """Inside the block, `close` waits while the store answers."""
        with CallTimeout(tracked.uri) as self._call:
            try:
                yield
            finally:
                self._call = None

    def _mirror_files(self, client: Any, run_id: str) -> None:
        while self._files:
            file, folder = self._files[0]
            if file.exists():
                client.log_artifact(run_id, str(file), names.path(folder))
            else:
                log.warning("%s: was removed, so MLflow does not get it", file)
            del self._files[0]

    def _mirror_pending(self, client: Any, run_id: str, mirrored: Mapping[str, int]) -> None:
        num_lines = len(self._pending)  # the training loop may append lines during this call
        points = [
            names.metric(key, value, int(line["time"] * 1000), line["step"])
            for line in self._pending[:num_lines]
            for key, value in line["metrics"].items()
            if line["step"] > mirrored.get(names.key(key), -1)
        ]
        for start in range(0, len(points), BATCH):
            self._report({"stage": STAGE, "done": start, "total": len(points)})
            client.log_batch(run_id, metrics=points[start : start + BATCH])
        names.log_true_names(client, run_id, {key for line in self._pending[:num_lines] for key in line["metrics"]})
        del self._pending[:num_lines]
        if points:
            self._report({"stage": STAGE, "done": len(points), "total": len(points)})


def _last_steps(client: Any, run_id: str) -> dict[str, int]:
    """The last step of each metric in MLflow, by its name there: the point where an earlier process stopped mirroring.

    One request for the entry of the run returns all of them; the history would need a request for each metric.
    """
    return {metric.key: metric.step for metric in client.get_run(run_id).data.to_proto().metrics}


def _system_monitor(tracked: TrackedRun) -> Any:
    """MLflow's thread that logs the use of processor, memory, disk, network and GPU."""
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(tracked.run_id, resume_logging=True, tracking_uri=tracked.uri)
    monitor.start()
    return monitor
