"""MLflow tracking: one MLflow run per run directory, with a lifetime that Sesame controls.

MLflow marks a crashed run as FINISHED and a killed run as RUNNING forever. In Sesame a run ends as FINISHED, FAILED or
KILLED, according to how the `with` block ends. Each start also closes the runs of owners that no longer exist. A run is
active if a process holds the lock of its directory; the owner tag is used only if there is no lock. The first worker
logs the metrics of a run (metrics.py).
"""

import json
import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from orchestration.tracking import names, stores
from orchestration.tracking.metadata import FOLDER, KINDS, Metadata, collect_metadata, flush_pending_metadata, run_name
from orchestration.tracking.relocate import ARTIFACTS, DATABASE, has_run, relocate_store
from orchestration.tracking.store_timeout import (
    MonitoredClient,
    add_logged,
    add_pending,
    clear_logged,
    clear_pending,
    database_file,
    database_uri,
    describe_failure,
    describe_unavailable,
    folder_of,
    pending_updates,
    redact,
    refusal_status,
    summarize_error,
    wait_while_available,
    without_password,
)
from preprocessing.errors import BadInput, Preempted, ResourceError
from preprocessing.files import from_json, parse_json, to_checked_json, write_atomic
from preprocessing.folders import is_writable
from preprocessing.lock import has_locks, is_held
from preprocessing.processes import read_start_id

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)
T = TypeVar("T")

HEARTBEAT_S = 10.0
NOTED_S = 0.3  # seconds after which an answer is reported as slow

# seconds without a heartbeat after which an owner on another host is considered dead, because its process cannot be
# checked
STALE_S = 600.0
# file in the directory of an active run; removing it frees disk space for the record of how the run ended
ROOM, ROOM_BYTES = ".room", 1 << 18
RUN_FILE = "mlflow.json"  # file in the run directory with the ID of its MLflow run
UNFINISHED = ".mlflow-"  # prefix of a temporary directory in the run directory, in which a model is written
ENDED = "sesame.exit_reason"  # tag with the reason why a run ended, if the status alone does not tell it
OWNER = "sesame.owner"  # the tag that holds an Owner as JSON
KIND = ("mlflow.experimentKind", "custom_model_development")  # tag of experiments whose runs train models

REFUSED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "PERMISSION_DENIED")  # MLflow error codes that a retry cannot fix

Scores = Mapping[str, Sequence[float]]
NO_TEXTS: Mapping[str, str] = MappingProxyType({})


# Stores


@dataclass(frozen=True)
class TrackingStore:
    """A tracking store: its address, and the location of its artifacts ("": the server decides)."""

    uri: str
    artifacts: str = ""


@dataclass(frozen=True)
class TrackedRun:
    """One MLflow run, small enough to send to a worker."""

    uri: str
    run_id: str


def tracking_store(out: Path) -> TrackingStore:
    """The store of MLFLOW_TRACKING_URI, or else an SQLite file below `out` with an absolute path.

    Raises BadInput if MLflow does not support the store, or if its driver is not installed.
    """
    if uri := os.environ.get("MLFLOW_TRACKING_URI", ""):
        return TrackingStore(stores.check_store_address(uri))
    out = out.resolve()
    return TrackingStore(database_uri(out / DATABASE), (out / "artifacts").as_uri())


def load_mlflow(uri: str) -> None:
    """Import the modules of a client for this store. This takes seconds, which must not count as waiting for the
    store."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
    for name, value in {
        "LOGGING_LEVEL": "WARNING",
        "SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the output of a command goes to the same stream
        "HTTP_REQUEST_TIMEOUT": "30",
        "HTTP_REQUEST_MAX_RETRIES": "3",
    }.items():
        os.environ.setdefault(f"MLFLOW_{name}", value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # this logger also reports tracebacks of exceptions that MLflow raises
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    import mlflow.tracking

    if database_file(uri):
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def client_of(uri: str, *, is_known: bool = False) -> Any:
    """An MLflow client without telemetry, unpickling or messages; creates the store if it is missing. Each answer
    resets the timeout of the current call.

    With `is_known`, the store already has the run. FileNotFoundError is then raised if the store is missing, because a
    new store would not have the run.
    """
    load_mlflow(uri)
    from mlflow import MlflowClient

    if file := database_file(uri):
        if is_known and not file.exists():
            raise FileNotFoundError(f"{file} does not exist")
        stores.make(file)
    return MonitoredClient(MlflowClient(tracking_uri=uri))


def experiment(client: Any, place: TrackingStore, name: str = "") -> str:
    """The ID of the experiment `name`, or of the default experiment; creates it if it is missing."""
    name = names.experiment(name or os.environ.get("MLFLOW_EXPERIMENT_NAME", "") or "sesame")
    found = client.get_experiment_by_name(name)
    if found is None:
        return _new_experiment(client, place, name)
    _check_is_mlflow(found.experiment_id)
    stores.check_artifacts(found.artifact_location)
    if KIND[0] not in found.tags:
        client.set_experiment_tag(found.experiment_id, *KIND)
    return found.experiment_id


def _new_experiment(client: Any, place: TrackingStore, name: str) -> str:
    """The ID of a new experiment, or of the one that another process has created at the same time."""
    from mlflow.exceptions import MlflowException

    try:
        made = client.create_experiment(name, artifact_location=place.artifacts or None, tags=dict([KIND]))
        found = client.get_experiment(made)
    except MlflowException:
        if not (found := client.get_experiment_by_name(name)):
            raise
    _check_is_mlflow(found.experiment_id)
    stores.check_artifacts(found.artifact_location)
    return found.experiment_id


def _check_is_mlflow(answer_id: str) -> None:
    """Raises ConnectionError if an answer has no ID: MLflow's client accepts any JSON."""
    if not answer_id:
        raise ConnectionError("answers, but not like MLflow: check the address")


def existing_run(folder: Path) -> TrackedRun | None:
    """The MLflow run of the run directory; None if it has none, or (with a warning) if its file is damaged.

    The file has no password; the password of MLFLOW_TRACKING_URI is used if it names the same store. If the directory
    was moved or copied, the artifact location of its store is updated.
    """
    environment_uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    try:
        tracked = TrackedRun(**from_json((folder / RUN_FILE).read_bytes()))
        tracked = replace(tracked, uri=_current_uri(tracked, folder))
        return (
            replace(tracked, uri=environment_uri)
            if environment_uri and tracked.uri == without_password(environment_uri)
            else tracked
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        log.warning("%s: damaged, so a new MLflow run replaces this one", folder / RUN_FILE)
        return None


def _current_uri(tracked: TrackedRun, folder: Path) -> str:
    """The address of a run's store. It is the recorded address, or the address of the store in the same output
    directory. The second case applies if run and store were moved together (the recorded store is gone), or copied
    together (both stores have the run).
    """
    named, beside = database_file(tracked.uri), folder.resolve().parent.parent / DATABASE
    if not named or not beside.is_file() or (named.exists() and named.samefile(beside)):
        return tracked.uri
    if named.exists() and not has_run(beside, tracked.run_id):
        return tracked.uri  # the recorded store was chosen on purpose; the store in the output directory has other runs
    relocate_store((beside.parent / ARTIFACTS).as_uri())
    return database_uri(beside)


# Owners


@dataclass(frozen=True)
class Owner:
    """The process that a run belongs to; `began` distinguishes it from a later process with the same ID."""

    host: str
    pid: int
    started: float  # start time of the process, in seconds since the epoch
    beat: float  # time of the last heartbeat, in seconds since the epoch
    began: str = ""  # "" for owners of earlier versions

    @classmethod
    def me(cls) -> "Owner":
        pid = os.getpid()
        return cls(platform.node(), pid, psutil.Process().create_time(), time.time(), read_start_id(pid))

    def alive(self) -> bool:
        """Whether the process still runs. For a process on another host: whether its last heartbeat is recent."""
        if self.host != platform.node():
            return time.time() - self.beat < STALE_S
        now = read_start_id(self.pid)
        if self.began or not now:
            return bool(now) and now == self.began
        with suppress(psutil.Error):
            return abs(psutil.Process(self.pid).create_time() - self.started) < 1
        return False


def _owner(mlflow_run: Any) -> Owner | None:
    """The owner of a run; None if Sesame did not create the run, or if another version wrote its owner tag."""
    try:
        values = parse_json(mlflow_run.data.tags.get(OWNER) or "{}")
        owner = Owner(**{field.name: values[field.name] for field in fields(Owner) if field.name in values})
        return Owner(str(owner.host), int(owner.pid), float(owner.started), float(owner.beat), str(owner.began))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def reap(place: TrackingStore) -> list[str]:
    """Mark RUNNING runs whose owner is gone as FAILED, or with the status in their directory; returns their IDs."""
    client = client_of(place.uri)
    experiments = [entry.experiment_id for entry in client.search_experiments()]
    running = client.search_runs(experiments, filter_string="attributes.status = 'RUNNING'")
    dead = [mlflow_run for mlflow_run in running if (owner := _owner(mlflow_run)) and not _is_active(mlflow_run, owner)]
    for mlflow_run in dead:
        folder = _folder_of(mlflow_run)
        if not (_is_of(mlflow_run, folder) and log_exit_reason(client, mlflow_run.info.run_id, folder)):
            _terminate(client, mlflow_run.info.run_id, "FAILED", "its process ended without a record")
    return [mlflow_run.info.run_id for mlflow_run in dead]


def _is_active(mlflow_run: Any, owner: Owner) -> bool:
    """Whether a process works in a run that is marked as RUNNING.

    The lock of the directory decides if the directory is on this machine and belongs to this run. Evaluations use the
    same directory and hold no lock.
    """
    folder = _folder_of(mlflow_run)
    lock = is_held(folder) if _is_of(mlflow_run, folder) else None
    return owner.alive() if lock is None else lock


def find_run_directories(place: TrackingStore, run_id: str) -> list[Path]:
    """The run directories of the runs in a store whose IDs begin with `run_id`, each once.

    These runs may be evaluations or trials. `run_id` has hexadecimal digits only. Raises ResourceError if the store
    does not answer.
    """
    if (file := database_file(place.uri)) and not file.is_file():
        return []
    client = client_of(place.uri)
    from mlflow.entities import ViewType
    from mlflow.exceptions import MlflowException

    try:
        experiments = [one.experiment_id for one in client.search_experiments()]
        found = client.search_runs(experiments, f"attributes.run_id LIKE '{run_id}%'", run_view_type=ViewType.ALL)
    except MlflowException as error:
        raise ResourceError(f"MLflow at {redact(place.uri)}: {summarize_error(error)}") from None
    return list(dict.fromkeys(map(_folder_of, found)))


def _folder_of(mlflow_run: Any) -> Path:
    return folder_of(mlflow_run.data.tags.get(FOLDER) or os.devnull)


def _is_of(mlflow_run: Any, folder: Path) -> bool:
    """Whether the directory belongs to this run; False if it is another user's and cannot be read."""
    try:
        tracked = existing_run(folder) if os.path.isdir(folder) else None
    except OSError:
        return False
    return tracked is not None and tracked.run_id == mlflow_run.info.run_id


def log_exit_reason(client: Any, run_id: str, folder: Path) -> bool:
    """Set the status with which the run of `folder` ended, if the store has not accepted it. Returns whether the status
    was set.

    This overrides the status in the store: a command that uses another address of the store may have marked the run as
    FAILED.
    """
    if "status" not in (pending := pending_updates(folder)):
        return False
    _terminate(client, run_id, pending["status"], _exit_reason(folder, pending.get("detail", "")))
    clear_pending(folder, "status", "detail")
    return True


@contextmanager
def run(place: TrackingStore, folder: Path, corpus: Path | None, metadata: Metadata) -> Iterator[TrackedRun]:
    """The MLflow run of `folder`, the same after each restart: RUNNING inside the block and closed after it.

    The run ends as FINISHED, KILLED (stopped by request) or FAILED, according to how the block ends. The caller holds
    the lock of the directory. Raises ResourceError if the store does not answer when a new run starts, because its
    address may be wrong. A run that the store knows already continues, and its data is sent later.
    """
    for leftover in folder.glob(f"{UNFINISHED}*"):  # left by a command that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    metadata_values, name = collect_metadata(metadata, folder, corpus), run_name(metadata.name, folder)
    tracked, is_open = _open_run(place, folder, name)
    clear_pending(folder, "status", "detail")  # remove the status of an earlier start, because the run is RUNNING now
    add_logged(folder, metadata_values)
    with heartbeat(tracked, folder, is_open):
        if is_open:
            with log_and_suppress("the metadata of the run"):
                wait_while_available(
                    place.uri, lambda: flush_pending_metadata(client_of(place.uri), tracked.run_id, folder)
                )
        yield tracked


def _open_run(place: TrackingStore, folder: Path, name: str) -> tuple[TrackedRun, bool]:
    """The run of a directory, now owned by this process, and whether the store has marked it as RUNNING."""
    before = existing_run(folder)
    is_known = before is not None and before.uri == place.uri
    try:
        tracked = query_store(place, lambda client: _resume(client, place, folder) or create_run(client, place, name))
    except (StoreUnavailable, StoreRefused) as error:
        if before is None or not is_known:
            raise
        log.warning("%s: training continues; metrics will be synced later", error)
        return before, False
    stored = replace(tracked, uri=without_password(tracked.uri))
    write_atomic(folder / RUN_FILE, to_checked_json(asdict(stored)))
    return tracked, True


class StoreUnavailable(ResourceError):
    """A store that does not answer."""


class StoreRefused(BadInput):
    """A store that requires other credentials."""


def query_store(place: TrackingStore, request: Callable[[Any], T]) -> T:
    """Close the runs of dead owners, then call `request` with a client of the store and return its result.

    Raises StoreUnavailable if the store stops answering (slow answers are no error), and StoreRefused if it requires
    credentials.
    """

    def send_request() -> T:
        if place.artifacts:
            relocate_store(place.artifacts)
        client = client_of(place.uri)
        reap(place)
        return request(client)

    load_mlflow(place.uri)
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if (file := database_file(place.uri)) and not stores.is_whole(file):
            return send_request()  # the store is created now, which takes seconds
        if reason := describe_failure(place.uri):
            raise TimeoutError(reason)
        return wait_while_available(place.uri, send_request, has_answered=True)
    except (MlflowException, SQLAlchemyError, OSError) as error:  # a full disk is an SQLAlchemyError
        if refusal_status(error):
            raise StoreRefused(f"MLflow at {redact(place.uri)}: {summarize_error(error)}") from error
        raise StoreUnavailable(
            f"MLflow at {redact(place.uri)} {describe_unavailable(error)}; check MLFLOW_TRACKING_URI"
        ) from error


def examine_store(uri: str) -> tuple[str, str]:
    """The answer of a store to a test request, and a remedy; the remedy is "" if there is no problem."""
    address = redact(uri)
    try:
        stores.check_store_address(uri)
    except BadInput as error:
        problem, _, remedy = str(error).partition("; ")
        return problem, remedy
    if (file := database_file(uri)) and not file.exists():
        can = is_writable(file.parent)
        return f"{address} does not exist: the first run creates it", "" if can else "use a writable directory"
    began_s, reason = time.monotonic(), describe_failure(uri)
    answer_s = time.monotonic() - began_s
    if not (file or reason):
        load_mlflow(uri)
        try:
            wait_while_available(uri, lambda: client_of(uri).search_experiments(max_results=1))
        except Exception as error:
            if refusal_status(error):
                what, _, remedy = summarize_error(error).partition("; ")
                return f"{address}: {what}", remedy
            reason = summarize_error(error)
    if reason.startswith("answers"):
        return f"{address} {reason}", "check MLFLOW_TRACKING_URI"
    if reason:
        return f"{address} does not answer ({reason})", "start that server, or unset MLFLOW_TRACKING_URI"
    return f"{address} answers" + (f", in {answer_s:.1f} s" if answer_s > NOTED_S else ""), ""


@contextmanager
def heartbeat(tracked: TrackedRun, folder: Path | None = None, is_open: bool = True) -> Iterator[None]:
    """The lifetime of a run: heartbeats inside the block, and its final status after it. `is_open` False: the store has
    not marked the run as RUNNING yet.

    If the store does not accept the final status within seconds, the status is stored in `folder`. The next start of
    any run sends this status.
    """
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(tracked, folder, stop, is_open), daemon=True, name="heartbeat")
    status, detail = "FAILED", ""
    _reserve_disk_space(folder)
    try:
        beat.start()
        yield
        status = "FINISHED"
    except BaseException as error:
        detail = f"{type(error).__name__}: {error}"[:500]
        status = "KILLED" if isinstance(error, Preempted | KeyboardInterrupt | SystemExit) else "FAILED"
        raise
    finally:
        stop.set()
        # wait, because a late heartbeat would mark the run as RUNNING again; a hanging thread is a daemon
        with suppress(TimeoutError):
            wait_while_available(tracked.uri, beat.join)
        _close(tracked, folder, status, detail)


def _reserve_disk_space(folder: Path | None) -> None:
    """Reserve disk space, so that the end of a run can be recorded even if the disk is full."""
    if folder:
        with suppress(OSError):
            (folder / ROOM).write_bytes(bytes(ROOM_BYTES))


def _close(tracked: TrackedRun, folder: Path | None, status: str, detail: str) -> None:
    """Send the store the final status of a run and other stored data; data that it does not accept stays in
    `folder`."""
    if folder:
        with suppress(OSError):
            (folder / ROOM).unlink(missing_ok=True)
        with log_and_suppress("the final status of the run"):
            add_pending(folder, status=status, detail=detail)
    try:
        ended = _exit_reason(folder, detail) if folder else detail
        wait_while_available(tracked.uri, lambda: _terminate(client_of(tracked.uri), tracked.run_id, status, ended))
    except Exception as error:
        log.warning("MLflow does not accept the final status %s of the run: %s", status, summarize_error(error))
        return
    if folder:
        with log_and_suppress("the metadata of the run"):
            clear_pending(folder, "status", "detail")
            _send_pending(tracked, folder)


def log_tags(tracked: TrackedRun, folder: Path, texts: Mapping[str, str] = NO_TEXTS, /, **tags: object) -> None:
    """Tag the run of `folder`, and log texts by file name. What the store does not accept within seconds is stored
    there and sent later."""
    with log_and_suppress(f"{', '.join(tags)} of the run"):
        add_logged(folder, {"tags": {key: str(value) for key, value in tags.items()}, "texts": texts})
        _send_pending(tracked, folder)


def _send_pending(tracked: TrackedRun, folder: Path) -> None:
    if pending_updates(folder).keys() & KINDS:
        load_mlflow(tracked.uri)
        wait_while_available(
            tracked.uri, lambda: flush_pending_metadata(client_of(tracked.uri), tracked.run_id, folder)
        )


def catch_up(tracked: TrackedRun, folder: Path) -> None:
    """Send the store the final status and the metadata of the run of `folder`, if it lacks them."""

    def call() -> None:
        client = client_of(tracked.uri)
        log_exit_reason(client, tracked.run_id, folder)
        flush_pending_metadata(client, tracked.run_id, folder)

    with log_and_suppress("the final status of the run"):
        wait_while_available(tracked.uri, call)


def _terminate(client: Any, run_id: str, status: str, ended: str) -> None:
    names.log_tags(client, run_id, [(ENDED, ended)])
    client.set_terminated(run_id, status)


def _exit_reason(folder: Path, detail: str = "") -> str:
    """The exit reason of a run: its error, and data that the store lacks.

    So a run with missing points does not look like a complete FINISHED run.
    """
    pending = pending_updates(folder)
    counts = {"points": pending.get("points", 0), "files": len(pending.get("files", ()))}
    lacks = [f"{count:,} {what}" for what, count in counts.items() if count]
    lacks += ["its figures"] if "results" in pending else []
    missing = f"MLflow lacks {', '.join(lacks)} of it, which are stored in {folder}" if lacks else ""
    return "; ".join(filter(None, (detail, missing)))


def complete(tracked: TrackedRun, folder: Path) -> None:
    """Update the exit reason of a finished run: the data that the store still lacks, or none."""
    with log_and_suppress("the exit reason of the run"):
        wait_while_available(tracked.uri, lambda: tag(tracked, **{ENDED: _exit_reason(folder)}))


@contextmanager
def log_and_suppress(what: str, remedy: str = "") -> Iterator[None]:
    """Turn an error of the store into a warning: everything important is also in the run's directory.

    `remedy` is added if a retry can succeed, i.e. if the store has not refused the data itself.
    """
    try:
        yield
    except Exception as error:
        refused = getattr(error, "error_code", "") in REFUSED
        advice = " and would refuse it again; it stays in the run's directory" if refused else remedy
        log.warning("MLflow does not accept %s%s: %s", what, advice, summarize_error(error))


def create_run(client: Any, place: TrackingStore, name: str, among: str = "", **tags: str) -> TrackedRun:
    """Create a RUNNING run in the experiment `among`."""
    tags |= {OWNER: json.dumps(asdict(Owner.me()))}
    name = names.title(name)
    return TrackedRun(
        place.uri, client.create_run(experiment(client, place, among), tags=tags, run_name=name).info.run_id
    )


def _resume(client: Any, place: TrackingStore, folder: Path) -> TrackedRun | None:
    """The run of the directory, marked as RUNNING and owned by this process; None if the store does not have it."""
    from mlflow.exceptions import MlflowException

    named = existing_run(folder)
    if named is None:
        return None
    try:
        mlflow_run = client.get_run(named.run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return claim_run(client, place, mlflow_run, folder)


def claim_run(client: Any, place: TrackingStore, mlflow_run: Any, folder: Path) -> TrackedRun:
    """Mark an existing run of `folder` as RUNNING and owned by this process, which must hold the lock of `folder`.

    Warns if the disk has no locks and the owner of the run seems to be alive.
    """
    owner = _owner(mlflow_run)
    if (
        mlflow_run.info.status == "RUNNING"
        and owner
        and owner.pid != os.getpid()
        and owner.alive()
        and not has_locks(folder)
    ):
        log.warning(
            "%s: process %d on %s seems to use it, and this disk has no locks; if that process runs, stop one of the "
            "two",
            folder, owner.pid, owner.host,
        )  # fmt: skip
    client.set_tag(mlflow_run.info.run_id, OWNER, json.dumps(asdict(Owner.me())))
    client.update_run(mlflow_run.info.run_id, status="RUNNING")
    return TrackedRun(place.uri, mlflow_run.info.run_id)


def explain_missing_run(tracked: TrackedRun) -> str:
    """The reason why the store does not confirm that it has the run; "" if it does."""
    try:
        load_mlflow(tracked.uri)
        wait_while_available(tracked.uri, lambda: client_of(tracked.uri).get_run(tracked.run_id))
    except Exception as error:
        return summarize_error(error)
    return ""


def _beat(tracked: TrackedRun, folder: Path | None, stop: threading.Event, is_open: bool) -> None:
    while not stop.wait(HEARTBEAT_S):
        try:
            client = client_of(tracked.uri)
            if not is_open:
                client.update_run(tracked.run_id, status="RUNNING")
                is_open = True
            client.set_tag(tracked.run_id, OWNER, json.dumps(asdict(Owner.me())))
            if folder:
                flush_pending_metadata(client, tracked.run_id, folder)
        except Exception as error:  # the store is unavailable; other machines can still check the owner's process
            log.debug("no heartbeat: %s", summarize_error(error))


# Figures, artifacts, evaluations


def mirror(folder: Path, name: str, what: str, call: Callable[[TrackedRun], object]) -> None:
    """Let `call` log `what` to the MLflow run of `folder`, if there is one.

    If the store does not answer, the directory records `name` among its pending updates ("owed") until a later call
    succeeds.
    """
    if not (tracked := existing_run(folder)):
        return
    pending = {"owed": {name: what}}

    def send() -> None:
        call(tracked)
        clear_logged(folder, pending)

    with log_and_suppress(what, " (repeat the command to log them)"):
        add_logged(folder, pending)
        load_mlflow(tracked.uri)
        wait_while_available(tracked.uri, send)


def read_unlogged_metrics(folder: Path) -> set[str]:
    """Names of updates that `mirror` could not send."""
    return set(pending_updates(folder).get("owed", {}))


def tag(tracked: TrackedRun, **tags: object) -> None:
    names.log_tags(client_of(tracked.uri), tracked.run_id, tags.items())


def log_figures(tracked: TrackedRun, figures: Mapping[str, "Figure"]) -> None:
    """Log figures by name."""
    client = client_of(tracked.uri)
    for name, figure in figures.items():
        client.log_figure(tracked.run_id, figure, names.path(f"figures/{name}.png"))


def log_scores(tracked: TrackedRun, scores: Mapping[str, float]) -> None:
    """Log scores of the whole run."""
    now_ms = int(time.time() * 1000)
    points = [(key, value, now_ms, 0) for key, value in scores.items()]
    names.log_metrics(client_of(tracked.uri), tracked.run_id, points)


def log_table(tracked: TrackedRun, scores: Mapping[str, float], page: Path, figure: "Figure") -> None:
    """Log the scores of a table, its page and its figure."""
    log_scores(tracked, scores)
    client_of(tracked.uri).log_artifact(tracked.run_id, str(page))
    log_figures(tracked, {page.stem: figure})
