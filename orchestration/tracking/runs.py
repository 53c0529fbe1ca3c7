"""MLflow tracking: one run per run folder, whose life is ours.

MLflow marks a crashed run FINISHED and a killed one RUNNING for ever. Here a run ends FINISHED, FAILED or KILLED by
what left the `with` block, its owner's heartbeat is a tag, and each start closes the runs of owners that are gone.
The metrics of a run come from the first worker: metrics.py.
"""

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from orchestration.tracking.metadata import FOLDER, Metadata, log_metadata, telling_name
from orchestration.tracking.patience import FAILED_S, behind, forget, in_a_line, is_there, note_behind, within
from preprocessing.errors import BadInput, Preempted, ResourceError
from preprocessing.files import write_atomic

if TYPE_CHECKING:  # it takes a second to import
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
STALE_S = 600.0  # an owner on another host cannot be looked up: it is gone when it has been silent for this long
RUN_FILE = "mlflow.json"  # in the run folder: which MLflow run is its
OWNER = "sesame.owner"  # the tag that holds an Owner as JSON
KIND = ("mlflow.experimentKind", "custom_model_development")  # the tag of an experiment whose runs train models

Scores = Mapping[str, Sequence[float]]


# Where runs are kept


@dataclass(frozen=True)
class Place:
    """A tracking store: its address, and where artifacts go ("" = where the server says)."""

    uri: str
    artifacts: str = ""


@dataclass(frozen=True)
class Tracked:
    """One MLflow run, small enough to send to a worker."""

    uri: str
    run_id: str


def place(out: Path) -> Place:
    """The store named by MLFLOW_TRACKING_URI, else a sqlite file under `out`, by absolute path."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI", ""):
        return Place(uri)
    out = out.resolve()
    return Place(f"sqlite:///{out / 'mlflow.db'}", (out / "artifacts").as_uri())


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

    if uri.startswith("sqlite:///"):
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def client_of(uri: str) -> Any:
    """An MLflow client that sends no telemetry, unpickles nothing and does not chat; the first one makes the store."""
    load_mlflow(uri)
    from mlflow import MlflowClient

    if uri.startswith("sqlite:///"):
        folder = Path(uri.removeprefix("sqlite:///")).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"{folder}: cannot be made ({error.strerror}); give another --out, or MLFLOW_TRACKING_URI"
            ) from None
    return MlflowClient(tracking_uri=uri)


def experiment(client: Any, place: Place, name: str = "") -> str:
    """The id of the experiment `name`, or of the one that runs go to; it is made where it is missing."""
    name = name or os.environ.get("MLFLOW_EXPERIMENT_NAME", "sesame")
    found = client.get_experiment_by_name(name)
    if found is None:
        return _new_experiment(client, place, name)
    if KIND[0] not in found.tags:
        client.set_experiment_tag(found.experiment_id, *KIND)
    return found.experiment_id


def _new_experiment(client: Any, place: Place, name: str) -> str:
    """The id of a new experiment, or of the one that another command has just made."""
    from mlflow.exceptions import MlflowException

    try:
        return client.create_experiment(name, artifact_location=place.artifacts or None, tags=dict([KIND]))
    except MlflowException:
        if found := client.get_experiment_by_name(name):
            return found.experiment_id
        raise


def known(folder: Path) -> Tracked | None:
    """The MLflow run that the run folder names, if it names one; a damaged file is a warning, and names none."""
    try:
        return Tracked(**json.loads((folder / RUN_FILE).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        log.warning("%s: damaged, so a new run in MLflow takes its place", folder / RUN_FILE)
        return None


# Whose run it is


@dataclass(frozen=True)
class Owner:
    """The process that a run belongs to; `started` tells it from a later process with the same number."""

    host: str
    pid: int
    started: float
    beat: float  # wall clock, seconds

    @classmethod
    def me(cls) -> "Owner":
        return cls(platform.node(), os.getpid(), psutil.Process().create_time(), time.time())

    def alive(self) -> bool:
        """Whether the process still runs; on another host: whether it has lately said so."""
        if self.host != platform.node():
            return time.time() - self.beat < STALE_S
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) < 1
        except psutil.Error:
            return False


def _owner(mlflow_run: Any) -> Owner | None:
    tag = mlflow_run.data.tags.get(OWNER)
    return Owner(**json.loads(tag)) if tag else None


def reap(place: Place) -> list[str]:
    """Mark our runs that still say RUNNING though their owner is gone as FAILED, or as what their folder says; their
    ids."""
    client = client_of(place.uri)
    experiments = [found.experiment_id for found in client.search_experiments()]
    running = client.search_runs(experiments, filter_string="attributes.status = 'RUNNING'")
    dead = [found for found in running if (owner := _owner(found)) and not owner.alive()]
    for found in dead:
        folder = Path(found.data.tags.get(FOLDER, "").removeprefix("file://"))
        tracked = known(folder)
        is_its_folder = tracked is not None and tracked.run_id == found.info.run_id
        if not (is_its_folder and tell_how_it_ended(client, found.info.run_id, folder)):
            _terminate(client, found.info.run_id, "FAILED", "its process was gone")
    return [found.info.run_id for found in dead]


def tell_how_it_ended(client: Any, run_id: str, folder: Path) -> bool:
    """Close the run of `folder` as its last start has ended, where the store did not take that then; whether it was so.

    Whatever the store says of it: another command, which knows it by another address, may have called it FAILED since.
    """
    if "status" not in (kept := behind(folder)):
        return False
    _terminate(client, run_id, kept["status"], kept.get("detail", ""))
    forget(folder, "status", "detail")
    return True


@contextmanager
def run(place: Place, folder: Path, corpus: Path | None, metadata: Metadata) -> Iterator[Tracked]:
    """The MLflow run of `folder`, the same one after each restart, RUNNING inside the block and closed after it.

    What leaves the block decides whether it ends FINISHED, KILLED (asked to stop) or FAILED. Raises ResourceError when
    another living process holds the run, or when the store does not answer at the beginning of a run: its address may
    be a wrong one. A run that it has taken before goes on without it, and is told to it later.
    """
    before = known(folder)
    if before and before.uri == place.uri and not _is_reached(place):
        log.warning("MLflow at %s does not answer: the run goes on, and is told to it later", place.uri)
        with heartbeat(client_of(place.uri), before, folder, is_open=False):
            yield before
        return
    with reached(place) as client:
        tracked = _resumed(client, place, folder) or created(client, place, telling_name(metadata.name, folder))
    forget(folder, "status", "detail")  # of an earlier start: now it is RUNNING
    with heartbeat(client, tracked, folder):
        write_atomic(folder / RUN_FILE, json.dumps(asdict(tracked)).encode())
        log_metadata(client, tracked.run_id, metadata, folder, corpus)
        yield tracked


def _is_reached(place: Place) -> bool:
    """Whether a store answers now; of a kind that cannot be asked, whether it is looked through soon enough."""
    if place.uri.startswith("sqlite:///") and not Path(place.uri.removeprefix("sqlite:///")).exists():
        return True  # it is made anew
    if place.uri.startswith(("http", "sqlite:///")):
        return is_there(place.uri, FAILED_S)
    try:
        within(place.uri, lambda: client_of(place.uri).search_experiments(max_results=1))
    except Exception:
        return False
    return True


@contextmanager
def reached(place: Place) -> Iterator[Any]:
    """A client of the store, in which no run of an owner that is gone is open; ResourceError where none answers."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        client = client_of(place.uri)
        reap(place)
        yield client
    except (MlflowException, SQLAlchemyError, OSError) as error:  # a full disk is of the second kind
        reason = str(error).splitlines()[0]
        raise ResourceError(f"MLflow at {place.uri} does not answer ({reason}); see MLFLOW_TRACKING_URI") from error


@contextmanager
def heartbeat(client: Any, tracked: Tracked, folder: Path | None = None, is_open: bool = True) -> Iterator[None]:
    """The life of a run that is ours: its heartbeat inside the block, how it ended after it. With `is_open` False the
    store does not know yet that it is RUNNING.

    A store that does not take how it ended within seconds is not waited for: that is kept in the run's `folder`, and
    told to the store at the next start of any run.
    """
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(client, tracked.run_id, stop, is_open), daemon=True, name="heartbeat")
    status, detail = "FAILED", ""
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
        beat.join(FAILED_S)  # a beat that hangs is a daemon's
        try:
            within(tracked.uri, lambda: _terminate(client, tracked.run_id, status, detail))
        except Exception as error:
            log.warning("MLflow does not take that the run is %s: %s", status, in_a_line(error))
            if folder:
                with log_and_suppress("how the run ended"):
                    note_behind(folder, status=status, detail=detail)


def _terminate(client: Any, run_id: str, status: str, detail: str) -> None:
    client.set_tag(run_id, "sesame.ended", detail)
    client.set_terminated(run_id, status)


@contextmanager
def log_and_suppress(what: str) -> Iterator[None]:
    """A store that fails here costs a warning, never the run: all that matters is in the run's folder too."""
    try:
        yield
    except Exception as error:
        log.warning("MLflow does not take %s: %s", what, in_a_line(error))


def created(client: Any, place: Place, name: str, among: str = "", **tags: str) -> Tracked:
    """A new run of ours, RUNNING, in the experiment `among`."""
    tags |= {OWNER: json.dumps(asdict(Owner.me()))}
    return Tracked(place.uri, client.create_run(experiment(client, place, among), tags=tags, run_name=name).info.run_id)


def _resumed(client: Any, place: Place, folder: Path) -> Tracked | None:
    """The run that the folder names, RUNNING again and ours; None where the store does not know one."""
    from mlflow.exceptions import MlflowException

    named = known(folder)
    if named is None:
        return None
    try:
        found = client.get_run(named.run_id)
    except MlflowException:
        return None
    return claim_run(client, place, found, folder)


def claim_run(client: Any, place: Place, found: Any, folder: Path) -> Tracked:
    """A run of `folder` that the store has, RUNNING again and ours; ResourceError where it is a living process's."""
    owner = _owner(found)
    if found.info.status == "RUNNING" and owner and owner.alive() and owner.pid != os.getpid():
        raise ResourceError(
            f"{folder}: process {owner.pid} on {owner.host} is at work in it; wait for it, stop it, "
            "or give another --out"
        )
    client.set_tag(found.info.run_id, OWNER, json.dumps(asdict(Owner.me())))
    client.update_run(found.info.run_id, status="RUNNING")
    return Tracked(place.uri, found.info.run_id)


def answers(tracked: Tracked) -> bool:
    """Whether the store has the run, and says so within seconds."""
    load_mlflow(tracked.uri)
    try:
        within(tracked.uri, lambda: client_of(tracked.uri).get_run(tracked.run_id))
    except Exception as error:
        log.debug("MLflow does not answer: %s", error)
        return False
    return True


def _beat(client: Any, run_id: str, stop: threading.Event, is_open: bool) -> None:
    while not stop.wait(HEARTBEAT_S):
        try:
            if not is_open:
                client.update_run(run_id, status="RUNNING")
                is_open = True
            client.set_tag(run_id, OWNER, json.dumps(asdict(Owner.me())))
        except Exception as error:  # the store is away: the owner's process can still be looked up
            log.debug("no heartbeat: %s", error)


# Figures, artifacts, evaluations


def tag(tracked: Tracked, **tags: object) -> None:
    for key, value in tags.items():
        client_of(tracked.uri).set_tag(tracked.run_id, key, str(value))


def log_figures(tracked: Tracked, figures: Mapping[str, "Figure"]) -> None:
    """Pictures, by name."""
    client = client_of(tracked.uri)
    for name, figure in figures.items():
        client.log_figure(tracked.run_id, figure, f"figures/{name}.png")


def log_scores(tracked: Tracked, scores: Mapping[str, float]) -> None:
    """Figures that stand for the whole run."""
    from mlflow.entities import Metric

    now_ms = int(time.time() * 1000)
    points = [Metric(key, value, now_ms, 0) for key, value in scores.items()]
    client_of(tracked.uri).log_batch(tracked.run_id, points)


def log_table(tracked: Tracked, scores: Mapping[str, float], page: Path, figure: "Figure") -> None:
    """The scores of a table, its page and its figure."""
    log_scores(tracked, scores)
    client_of(tracked.uri).log_artifact(tracked.run_id, str(page))
    log_figures(tracked, {page.stem: figure})
