"""MLflow tracking: one run per run folder, whose life is ours.

MLflow marks a crashed run FINISHED and a killed one RUNNING for ever. Here a run ends FINISHED, FAILED or KILLED by
what left the `with` block, and each start closes the runs of owners that are gone. Who is at work in a run is who
holds the lock of its folder; what a run says of its owner counts only where no lock says anything.
The metrics of a run come from the first worker: metrics.py.
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
from preprocessing.files import checked_json, from_json, parse_json, write_atomic
from preprocessing.folders import is_writable
from preprocessing.lock import has_locks, is_held
from preprocessing.processes import began

if TYPE_CHECKING:  # it takes a second to import
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)
T = TypeVar("T")

HEARTBEAT_S = 10.0
NOTED_S = 0.3  # an answer that takes longer is worth a word
STALE_S = 600.0  # an owner on another host cannot be looked up: it is gone when it has been silent for this long
ROOM, ROOM_BYTES = ".room", 1 << 18  # in the run folder while it is at work: what is freed to note how it ended
RUN_FILE = "mlflow.json"  # in the run folder: which MLflow run is its
UNFINISHED = ".mlflow-"  # how a folder in the run folder begins in which a model is written
ENDED = "sesame.exit_reason"  # the tag that says how a run ended, where there is more to say than its status
OWNER = "sesame.owner"  # the tag that holds an Owner as JSON
KIND = ("mlflow.experimentKind", "custom_model_development")  # the tag of an experiment whose runs train models

REFUSED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "PERMISSION_DENIED")  # MLflow's codes of what no other try mends

Scores = Mapping[str, Sequence[float]]


# Where runs are kept


@dataclass(frozen=True)
class TrackingStore:
    """A tracking store: its address, and where artifacts go ("" = where the server says)."""

    uri: str
    artifacts: str = ""


@dataclass(frozen=True)
class TrackedRun:
    """One MLflow run, small enough to send to a worker."""

    uri: str
    run_id: str


def tracking_store(out: Path) -> TrackingStore:
    """The store named by MLFLOW_TRACKING_URI, else a sqlite file under `out`, by absolute path. BadInput where MLflow
    has no such store, or its driver is not installed."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI", ""):
        return TrackingStore(stores.check_store_address(uri))
    out = out.resolve()
    return TrackingStore(database_uri(out / DATABASE), (out / "artifacts").as_uri())


def load_mlflow(uri: str) -> None:
    """Import what a client of this store is made of: that takes seconds, and says nothing about the store."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
    for name, value in {
        "LOGGING_LEVEL": "WARNING",
        "SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # where a command's answer goes
        "HTTP_REQUEST_TIMEOUT": "30",
        "HTTP_REQUEST_MAX_RETRIES": "3",
    }.items():
        os.environ.setdefault(f"MLFLOW_{name}", value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # tracebacks of what it raises too
    import mlflow.tracking

    if database_file(uri):
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def client_of(uri: str, *, is_known: bool = False) -> Any:
    """An MLflow client that sends no telemetry, unpickles nothing and does not chat; the first one makes the store.
    Whoever waits for a call hears its answers.

    FileNotFoundError where the store of a run that `is_known` is gone: one that was made anew would not have it.
    """
    load_mlflow(uri)
    from mlflow import MlflowClient

    if file := database_file(uri):
        if is_known and not file.exists():
            raise FileNotFoundError(f"{file} is not there")
        stores.make(file)
    return MonitoredClient(MlflowClient(tracking_uri=uri))


def experiment(client: Any, place: TrackingStore, name: str = "") -> str:
    """The id of the experiment `name`, or of the one that runs go to; it is made where it is missing."""
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
    """The id of a new experiment, or of the one that another command has just made."""
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


def _check_is_mlflow(made: str) -> None:
    """ConnectionError where a server has answered, and not said what it has made: MLflow's client takes any JSON."""
    if not made:
        raise ConnectionError("answers, and not as MLflow does: check the address")


def existing_run(folder: Path) -> TrackedRun | None:
    """The MLflow run that the run folder names, if it names one; a damaged file is a warning, and names none.

    Its file has no password: the one of MLFLOW_TRACKING_URI is taken, where that is the same store. The store of a
    folder that was moved or copied is told where its artifacts are now.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    try:
        found = TrackedRun(**from_json((folder / RUN_FILE).read_bytes()))
        found = replace(found, uri=_uri_now(found, folder))
        return replace(found, uri=given) if given and found.uri == without_password(given) else found
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        log.warning("%s: damaged, so a new run in MLflow takes its place", folder / RUN_FILE)
        return None


def _uri_now(tracked: TrackedRun, folder: Path) -> str:
    """The address of the store that a run's folder names; or of that which lies around it, as in each folder of
    --output-dir, where they were moved together (the one that is named is gone) or copied together (both have the
    run)."""
    named, beside = database_file(tracked.uri), folder.resolve().parent.parent / DATABASE
    if not named or not beside.is_file() or (named.exists() and named.samefile(beside)):
        return tracked.uri
    if named.exists() and not has_run(beside, tracked.run_id):
        return tracked.uri  # somebody has named that store; ours is of other runs
    relocate_store((beside.parent / ARTIFACTS).as_uri())
    return database_uri(beside)


# Whose run it is


@dataclass(frozen=True)
class Owner:
    """The process that a run belongs to; `began` tells it from a later process with the same number."""

    host: str
    pid: int
    started: float  # wall clock, seconds
    beat: float  # the same
    began: str = ""  # that of earlier versions say nothing of it

    @classmethod
    def me(cls) -> "Owner":
        pid = os.getpid()
        return cls(platform.node(), pid, psutil.Process().create_time(), time.time(), began(pid))

    def alive(self) -> bool:
        """Whether the process still runs; on another host: whether it has lately said so."""
        if self.host != platform.node():
            return time.time() - self.beat < STALE_S
        now = began(self.pid)
        if self.began or not now:
            return bool(now) and now == self.began
        with suppress(psutil.Error):
            return abs(psutil.Process(self.pid).create_time() - self.started) < 1
        return False


def _owner(mlflow_run: Any) -> Owner | None:
    """Whose a run is; None where it is not ours, or says so in a way that is not of this version."""
    try:
        said = parse_json(mlflow_run.data.tags.get(OWNER) or "{}")
        found = Owner(**{field.name: said[field.name] for field in fields(Owner) if field.name in said})
        return Owner(str(found.host), int(found.pid), float(found.started), float(found.beat), str(found.began))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def reap(place: TrackingStore) -> list[str]:
    """Mark our runs that still say RUNNING though their owner is gone as FAILED, or as what their folder says; their
    ids."""
    client = client_of(place.uri)
    experiments = [found.experiment_id for found in client.search_experiments()]
    running = client.search_runs(experiments, filter_string="attributes.status = 'RUNNING'")
    dead = [found for found in running if (owner := _owner(found)) and not _is_at_work(found, owner)]
    for found in dead:
        folder = _folder_of(found)
        if not (_is_of(found, folder) and log_exit_reason(client, found.info.run_id, folder)):
            _terminate(client, found.info.run_id, "FAILED", "its process was gone")
    return [found.info.run_id for found in dead]


def _is_at_work(found: Any, owner: Owner) -> bool:
    """Whether somebody is at work in a run that says that it is RUNNING: by the lock of its folder, where that is here
    and is the run's own; its evaluations have the same folder, and hold no lock."""
    folder = _folder_of(found)
    lock = is_held(folder) if _is_of(found, folder) else None
    return owner.alive() if lock is None else lock


def _folder_of(found: Any) -> Path:
    return folder_of(found.data.tags.get(FOLDER) or os.devnull)


def _is_of(found: Any, folder: Path) -> bool:
    """Whether a run is the one of a folder; that of another user may be none that we can look into."""
    try:
        tracked = existing_run(folder) if os.path.isdir(folder) else None
    except OSError:
        return False
    return tracked is not None and tracked.run_id == found.info.run_id


def log_exit_reason(client: Any, run_id: str, folder: Path) -> bool:
    """Close the run of `folder` as its last start has ended, where the store did not take that then; whether it was so.

    Whatever the store says of it: another command, which knows it by another address, may have called it FAILED since.
    """
    if "status" not in (kept := pending_updates(folder)):
        return False
    _terminate(client, run_id, kept["status"], _ended(folder, kept.get("detail", "")))
    clear_pending(folder, "status", "detail")
    return True


@contextmanager
def run(place: TrackingStore, folder: Path, corpus: Path | None, metadata: Metadata) -> Iterator[TrackedRun]:
    """The MLflow run of `folder`, the same one after each restart, RUNNING inside the block and closed after it.

    What leaves the block decides whether it ends FINISHED, KILLED (asked to stop) or FAILED. The caller holds the lock
    of the folder. Raises ResourceError when the store does not answer at the beginning of a run: its address may be a
    wrong one. A run that it has taken before goes on without it, and is told to it later.
    """
    for left in folder.glob(f"{UNFINISHED}*"):  # by a start that was killed
        shutil.rmtree(left, ignore_errors=True)
    says, name = collect_metadata(metadata, folder, corpus), run_name(metadata.name, folder)
    tracked, is_open = _taken(place, folder, name)
    clear_pending(folder, "status", "detail")  # of an earlier start: now it is RUNNING
    add_logged(folder, says)
    with heartbeat(tracked, folder, is_open):
        if is_open:
            with log_and_suppress("what the run says of itself"):
                wait_while_available(
                    place.uri, lambda: flush_pending_metadata(client_of(place.uri), tracked.run_id, folder)
                )
        yield tracked


def _taken(place: TrackingStore, folder: Path, name: str) -> tuple[TrackedRun, bool]:
    """The run of a folder, ours from now on, and whether the store knows that yet."""
    before = existing_run(folder)
    is_known = before is not None and before.uri == place.uri
    try:
        tracked = query_store(place, lambda client: _resumed(client, place, folder) or create_run(client, place, name))
    except (StoreUnavailable, StoreRefused) as error:
        if before is None or not is_known:
            raise
        log.warning("%s: the run goes on, and is told to it later", error)
        return before, False
    kept = replace(tracked, uri=without_password(tracked.uri))
    write_atomic(folder / RUN_FILE, checked_json(asdict(kept)))
    return tracked, True


class StoreUnavailable(ResourceError):
    """A store that does not answer."""


class StoreRefused(BadInput):
    """A store that wants credentials, or others."""


def query_store(place: TrackingStore, ask: Callable[[Any], T]) -> T:
    """What `ask` returns of a client of the store, in which no run of an owner that is gone is open.

    Away where the store does not answer, or ceases to, however slowly it may answer; Refused where it wants
    credentials.
    """

    def asked() -> T:
        if place.artifacts:
            relocate_store(place.artifacts)
        client = client_of(place.uri)
        reap(place)
        return ask(client)

    load_mlflow(place.uri)
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if (file := database_file(place.uri)) and not stores.is_whole(file):
            return asked()  # it is made now, which takes seconds
        if reason := describe_failure(place.uri):
            raise TimeoutError(reason)
        return wait_while_available(place.uri, asked, has_answered=True)
    except (MlflowException, SQLAlchemyError, OSError) as error:  # a full disk is of the second kind
        if refusal_status(error):
            raise StoreRefused(f"MLflow at {redact(place.uri)}: {summarize_error(error)}") from error
        raise StoreUnavailable(
            f"MLflow at {redact(place.uri)} {describe_unavailable(error)}; see MLFLOW_TRACKING_URI"
        ) from error


def examine_store(uri: str) -> tuple[str, str]:
    """What the store at an address says to a request as a run would make it, and what to do about it; "": nothing."""
    said = redact(uri)
    try:
        stores.check_store_address(uri)
    except BadInput as error:
        found, _, remedy = str(error).partition("; ")
        return found, remedy
    if (file := database_file(uri)) and not file.exists():
        can = is_writable(file.parent)
        return f"{said} is not there: the first run makes it", "" if can else "give a folder that can be written to"
    began_s, reason = time.monotonic(), describe_failure(uri)
    answer_s = time.monotonic() - began_s
    if not (file or reason):
        load_mlflow(uri)
        try:
            wait_while_available(uri, lambda: client_of(uri).search_experiments(max_results=1))
        except Exception as error:
            if refusal_status(error):
                what, _, remedy = summarize_error(error).partition("; ")
                return f"{said}: {what}", remedy
            reason = summarize_error(error)
    if reason.startswith("answers"):
        return f"{said} {reason}", "check MLFLOW_TRACKING_URI"
    if reason:
        return f"{said} does not answer ({reason})", "start that server, or unset MLFLOW_TRACKING_URI"
    return f"{said} answers" + (f", in {answer_s:.1f} s" if answer_s > NOTED_S else ""), ""


@contextmanager
def heartbeat(tracked: TrackedRun, folder: Path | None = None, is_open: bool = True) -> Iterator[None]:
    """The life of a run that is ours: its heartbeat inside the block, how it ended after it. With `is_open` False the
    store does not know yet that it is RUNNING.

    A store that does not take how it ended within seconds is not waited for: that is kept in the run's `folder`, and
    told to the store at the next start of any run.
    """
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(tracked, folder, stop, is_open), daemon=True, name="heartbeat")
    status, detail = "FAILED", ""
    _keep_room(folder)
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
        with suppress(TimeoutError):  # a beat that hangs is a daemon's; one that is late would call the run RUNNING
            wait_while_available(tracked.uri, beat.join)
        _close(tracked, folder, status, detail)


def _keep_room(folder: Path | None) -> None:
    """Keep some room on the disk of a run, without which nobody could write down that it ended as the disk was full."""
    if folder:
        with suppress(OSError):
            (folder / ROOM).write_bytes(bytes(ROOM_BYTES))


def _close(tracked: TrackedRun, folder: Path | None, status: str, detail: str) -> None:
    """Tell the store how a run ended, and what else is kept of it; what it does not take stays kept."""
    if folder:
        with suppress(OSError):
            (folder / ROOM).unlink(missing_ok=True)
        with log_and_suppress("how the run ended"):
            add_pending(folder, status=status, detail=detail)
    try:
        ended = _ended(folder, detail) if folder else detail
        wait_while_available(tracked.uri, lambda: _terminate(client_of(tracked.uri), tracked.run_id, status, ended))
    except Exception as error:
        log.warning("MLflow does not take that the run is %s: %s", status, summarize_error(error))
        return
    if folder:
        with log_and_suppress("what the run says of itself"):
            clear_pending(folder, "status", "detail")
            _tell_kept(tracked, folder)


def log_tags(tracked: TrackedRun, folder: Path, **tags: object) -> None:
    """Tag the run of `folder`; what the store does not take within seconds is kept there, and told to it later."""
    with log_and_suppress(f"{', '.join(tags)} of the run"):
        add_logged(folder, {"tags": {key: str(value) for key, value in tags.items()}})
        _tell_kept(tracked, folder)


def _tell_kept(tracked: TrackedRun, folder: Path) -> None:
    if pending_updates(folder).keys() & KINDS:
        load_mlflow(tracked.uri)
        wait_while_available(
            tracked.uri, lambda: flush_pending_metadata(client_of(tracked.uri), tracked.run_id, folder)
        )


def catch_up(tracked: TrackedRun, folder: Path) -> None:
    """Give the store how the run of `folder` ended and what it says of itself, where it lacks that."""

    def call() -> None:
        client = client_of(tracked.uri)
        log_exit_reason(client, tracked.run_id, folder)
        flush_pending_metadata(client, tracked.run_id, folder)

    with log_and_suppress("how the run ended"):
        wait_while_available(tracked.uri, call)


def _terminate(client: Any, run_id: str, status: str, ended: str) -> None:
    names.log_tags(client, run_id, [(ENDED, ended)])
    client.set_terminated(run_id, status)


def _ended(folder: Path, detail: str = "") -> str:
    """What a run says of its end: an error, and what the store lacks of it. A run whose points are not there is not
    FINISHED in silence."""
    kept = pending_updates(folder)
    counts = {"points": kept.get("points", 0), "files": len(kept.get("files", ()))}
    lacks = [f"{count:,} {what}" for what, count in counts.items() if count]
    lacks += ["its figures"] if "results" in kept else []
    said = f"MLflow lacks {', '.join(lacks)} of it, which are kept in {folder}" if lacks else ""
    return "; ".join(filter(None, (detail, said)))


def complete(tracked: TrackedRun, folder: Path) -> None:
    """Have a run that has ended say what the store still lacks of it, or that it lacks nothing."""
    with log_and_suppress("what it lacks of the run"):
        wait_while_available(tracked.uri, lambda: tag(tracked, **{ENDED: _ended(folder)}))


@contextmanager
def log_and_suppress(what: str, remedy: str = "") -> Iterator[None]:
    """A store that fails here costs a warning, never the run: all that matters is in the run's folder too.

    `remedy` is said where another try can succeed: not where the store refuses what it is given.
    """
    try:
        yield
    except Exception as error:
        refused = getattr(error, "error_code", "") in REFUSED
        advice = "; it is refused, and another try would be; it is kept in the run's folder" if refused else remedy
        log.warning("MLflow does not take %s%s: %s", what, advice, summarize_error(error))


def create_run(client: Any, place: TrackingStore, name: str, among: str = "", **tags: str) -> TrackedRun:
    """A new run of ours, RUNNING, in the experiment `among`."""
    tags |= {OWNER: json.dumps(asdict(Owner.me()))}
    name = names.title(name)
    return TrackedRun(
        place.uri, client.create_run(experiment(client, place, among), tags=tags, run_name=name).info.run_id
    )


def _resumed(client: Any, place: TrackingStore, folder: Path) -> TrackedRun | None:
    """The run that the folder names, RUNNING again and ours; None where the store does not know one."""
    from mlflow.exceptions import MlflowException

    named = existing_run(folder)
    if named is None:
        return None
    try:
        found = client.get_run(named.run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return claim_run(client, place, found, folder)


def claim_run(client: Any, place: TrackingStore, found: Any, folder: Path) -> TrackedRun:
    """A run of `folder`, whose lock is ours, that the store has: RUNNING again and ours.

    Where the disk has no locks, an owner that seems to live is a warning.
    """
    owner = _owner(found)
    if (
        found.info.status == "RUNNING"
        and owner
        and owner.pid != os.getpid()
        and owner.alive()
        and not has_locks(folder)
    ):
        log.warning(
            "%s: process %d on %s says that it is at work in it, and this disk has no locks: if it is, stop one of the "
            "two",
            folder, owner.pid, owner.host,
        )  # fmt: skip
    client.set_tag(found.info.run_id, OWNER, json.dumps(asdict(Owner.me())))
    client.update_run(found.info.run_id, status="RUNNING")
    return TrackedRun(place.uri, found.info.run_id)


def explain_missing_run(tracked: TrackedRun) -> str:
    """Why the store does not say that it has the run; "" where it does."""
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
        except Exception as error:  # the store is away: the owner's process can still be looked up
            log.debug("no heartbeat: %s", summarize_error(error))


# Figures, artifacts, evaluations


def mirror(folder: Path, name: str, what: str, call: Callable[[TrackedRun], object]) -> None:
    """Let `call` give `what` to the MLflow run of `folder`, if it has one. A store that does not answer is not waited
    for; what it has not taken the folder says by its `name` (`owed`), until another call is taken."""
    if not (tracked := existing_run(folder)):
        return
    owing = {"owed": {name: what}}

    def told() -> None:
        call(tracked)
        clear_logged(folder, owing)

    with log_and_suppress(what, "; the same command again logs them"):
        add_logged(folder, owing)
        load_mlflow(tracked.uri)
        wait_while_available(tracked.uri, told)


def unlogged_metrics(folder: Path) -> set[str]:
    """Names of what `mirror` could not give."""
    return set(pending_updates(folder).get("owed", {}))


def tag(tracked: TrackedRun, **tags: object) -> None:
    names.log_tags(client_of(tracked.uri), tracked.run_id, tags.items())


def log_figures(tracked: TrackedRun, figures: Mapping[str, "Figure"]) -> None:
    """Pictures, by name."""
    client = client_of(tracked.uri)
    for name, figure in figures.items():
        client.log_figure(tracked.run_id, figure, names.path(f"figures/{name}.png"))


def log_scores(tracked: TrackedRun, scores: Mapping[str, float]) -> None:
    """Figures that stand for the whole run."""
    now_ms = int(time.time() * 1000)
    points = [(key, value, now_ms, 0) for key, value in scores.items()]
    names.log_metrics(client_of(tracked.uri), tracked.run_id, points)


def log_table(tracked: TrackedRun, scores: Mapping[str, float], page: Path, figure: "Figure") -> None:
    """The scores of a table, its page and its figure."""
    log_scores(tracked, scores)
    client_of(tracked.uri).log_artifact(tracked.run_id, str(page))
    log_figures(tracked, {page.stem: figure})
