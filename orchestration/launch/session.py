"""The connection to Ray: to a cluster that runs, or to one of our own that ends with the block."""

import json
import logging
import os
import re
import resource
import secrets
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestration.launch import processes
from orchestration.launch.address import bind_to_loopback, is_loopback, resolve_address
from orchestration.launch.job_server import EXCLUDES, ROOT
from orchestration.progress import Report, ignore_progress
from orchestration.signals import listen_again
from preprocessing import limits
from preprocessing.errors import BadInput, ResourceError, SesameError
from preprocessing.lock import OWNER, hold_lock

START_S = 180  # for each of Ray's processes to begin; an idle machine takes three, one with a load of 15 a minute
STORE_BYTES = 100_000_000  # of Ray's object store: what passes through Ray is small
FILE_BYTES = 1 << 27  # that a file must be allowed to have: the store, with what is around it
PATIENCE = {  # for what Ray 2.60 waits, by the names that it reads from the environment of this process and of its own
    "RAY_gcs_server_port_wait_time_s": START_S,  # its store listens (ray/_private/node.py); by itself Ray waits 30 s
    "RAY_raylet_start_wait_time_s": START_S,  # this machine registers there (GlobalStateAccessor::GetNode); 30 s
    "RAY_worker_register_timeout_seconds": START_S,  # the process of a worker says that it is there; 60 s
}
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # what Ray tells a driver that `ray job submit` has started
NICENESS = "RAY_worker_niceness"  # by itself Ray gives its workers 15: beside other work, training comes to a halt
PREFIX = "sesame-"  # of the temporary folders of our own Rays
TOO_SLOW = ("timed out during startup", "Timed out waiting for file")  # what node.py says when it has waited


@contextmanager
def ray_session(
    address: str = "",
    *,
    cpus: int,
    gpus: int = 0,
    dashboard: bool = False,
    logs: Path | None = None,
    report: Report = ignore_progress,
) -> Iterator[None]:
    """A connection to the Ray cluster at `address`, or to one of our own that ends with the block.

    Our own listens on 127.0.0.1 alone, its `dashboard` too, whose address is said. ResourceError, within 15 s, where no
    Ray answers at `address`. A connection that this process already has is used as it is. Where the block ends in an
    error that is not a SesameError, the logs of our own cluster are copied to `logs`.
    """
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    if "ray" not in sys.modules:
        report({"stage": "importing Ray"})
    import ray

    if ray.is_initialized():
        yield
        return
    quiet = {"namespace": "sesame", "logging_level": logging.ERROR, "log_to_driver": False}
    # A short path: Ray puts sockets below it, and their names end at 107 characters. It opens its folder to everybody
    # (0777), so that is one inside of ours.
    above = Path(os.environ.get("RAY_TMPDIR", "/tmp"))
    _remove_left_behind(above)
    private = _private(above)
    temporary = private / "r"
    around, found = ExitStack(), ""

    def begin() -> None:
        with _own_handlers():
            if found:
                with _same_versions(found):
                    ray.init(found, runtime_env=_shipped(), **quiet)
            else:
                _refuse_small_files()
                _start_patiently(temporary, cpus, gpus, dashboard, quiet)
        ray._private.worker._worker_logs_enabled = False  # the raylet's notices would go to stdout, which is ours

    session = None if address else _own.set(_Own(begin, temporary))
    try:
        report({"stage": "starting Ray"})
        found = resolve_address(address) if address else ""
        around.enter_context(hold_lock(private))
        around.enter_context(bind_to_loopback(not found or is_loopback(found)))
        begin()
        yield
        report({"stage": "stopping Ray"})
    except Exception as error:
        own_logs = temporary / "session_latest" / "logs"
        if logs and own_logs.exists() and not isinstance(error, SesameError):
            shutil.copytree(own_logs, logs, dirs_exist_ok=True)
        raise
    finally:
        if session:
            _own.reset(session)
        _end(temporary)
        around.close()
        shutil.rmtree(private, ignore_errors=True)


def _private(above: Path) -> Path:
    """A new folder of ours alone; BadInput where RAY_TMPDIR names no folder that we may write to."""
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
    except OSError as error:
        raise BadInput(
            f"{above}: no folder for Ray's temporary files ({error.strerror}); name one that can be written to in "
            "RAY_TMPDIR"
        ) from None


def _remove_left_behind(above: Path) -> None:
    """Remove the temporary folders of commands that were killed, and end what is left of their Rays.

    A folder belongs to who holds its lock, which the kernel drops with the process; one without is not looked at, nor
    one of another user: `above` may be /tmp.
    """
    for folder in above.glob(f"{PREFIX}*"):
        if _may_be_left(folder):
            with suppress(SesameError, OSError), hold_lock(folder):
                processes.kill_all(processes.find_leftover_ray_processes(folder))
                shutil.rmtree(folder)


def _may_be_left(folder: Path) -> bool:
    """Whether it is a folder, of this user and no link, that a command has locked once."""
    with suppress(OSError):
        found = folder.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and (folder / OWNER).is_file()
    return False


@dataclass(frozen=True)
class _Own:
    """How the Ray of ours was started that this process is connected to."""

    begin: Callable[[], None]
    temporary: Path


_own = ContextVar[_Own | None]("_own", default=None)


def find_fault() -> str:
    """Which process of a Ray of our own is gone, without which it does nothing any more; "" where all are there."""
    import ray

    node = ray._private.worker._global_node
    for kind in ("gcs_server", "raylet"):
        if node and any(info.process.poll() is not None for info in node.all_processes.get(kind, ())):
            return f"Ray's {kind}"
    return ""


def is_ours() -> bool:
    """Whether this thread has started the Ray that it is connected to: it has one node, this machine."""
    return _own.get() is not None


def renew() -> None:
    """Start our own Ray again, of which a process is gone; ResourceError where this thread did not start it."""
    if (own := _own.get()) is None:
        raise ResourceError(f"{find_fault()} is gone; repeat the command, it goes on from the newest checkpoint")
    _end(own.temporary)
    own.begin()


def _end(temporary: Path) -> None:
    """Leave Ray; none of the processes stay that were started here, even where a signal came while they were."""
    import ray

    started = processes.find_ray_processes(temporary)
    if find_fault():  # it would wait for what is gone
        processes.kill_all(started)
    _listen_meanwhile()
    ray.shutdown()
    processes.end(started)


def _listen_meanwhile() -> None:
    """Ray 2.60 leaves SIGTERM to the system as it shuts down, and waits for its processes then: a second SIGTERM, which
    is ignored while what is open is closed, would end this process in the middle of it."""
    import ray

    if node := ray._private.worker._global_node:
        ends = node.kill_all_processes

        def listen_and_end(**how: Any) -> None:
            listen_again()
            ends(**how)

        node.kill_all_processes = listen_and_end


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Ray 2.60 puts handlers of SIGTERM in place of ours, which end this process with 15, or 1, and no word."""
    from ray._private import utils

    theirs, utils.set_sigterm_handler = utils.set_sigterm_handler, lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = theirs


@contextmanager
def _same_versions(address: str) -> Iterator[None]:
    """ResourceError in place of what Ray raises where a cluster has another Python, or another Ray, than we have."""
    try:
        yield
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise
        (ray_there, python_there), (ray_here, python_here) = (
            re.findall(r"Ray: (\S+)\s+Python: (\S+)", str(error)) + [("?", "?")] * 2
        )[:2]
        raise ResourceError(
            f"the cluster at {address} has Ray {ray_there} on Python {python_there}, this process Ray {ray_here} on "
            f"Python {python_here} ({sys.executable}); start the cluster with that Python, on every machine"
        ) from None


def _shipped() -> dict[str, Any]:
    """What goes to the machines of a running cluster: our code, unless the Ray job that this is part of has brought it:
    Ray refuses a second working directory."""
    job = json.loads(os.environ.get(JOB, "{}")).get("runtime_env") or {}
    if "working_dir" in job:
        return {}
    return {"working_dir": str(ROOT), "excludes": list(EXCLUDES)}


def _refuse_small_files() -> None:
    """ResourceError where the limit of a file's size (ulimit -f) is below Ray's store: Ray's process would end as it
    makes that, and be waited for START_S twice. The limit stays as it was set: who sets it may have a reason."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most != resource.RLIM_INFINITY and most < FILE_BYTES:
        raise ResourceError(
            f"a file may have {most / 1e6:,.1f} MB here (ulimit -f), and Ray's object store is one of "
            f"{STORE_BYTES / 1e6:,.0f} MB; raise the limit: `ulimit -f unlimited`, in a shell that may"
        )


def _start_patiently(temporary: Path, cpus: int, gpus: int, dashboard: bool, quiet: dict[str, Any]) -> None:
    """Start Ray, twice where one of its processes is not there in START_S: a busy machine loses some."""
    import ray

    for name, seconds in PATIENCE.items():
        os.environ.setdefault(name, str(seconds))
    os.environ.setdefault(NICENESS, "0")
    for _ in range(2):
        try:
            return _start_here(temporary, cpus, gpus, dashboard, quiet)
        except Exception as error:
            if not any(words in str(error) for words in TOO_SLOW):
                raise
            ray.shutdown()
    raise ResourceError(
        f"Ray does not start on this machine within {2 * START_S // 60} minutes: too busy; repeat the command later"
    )


def _start_here(temporary: Path, cpus: int, gpus: int, dashboard: bool, quiet: dict[str, Any]) -> None:
    """A Ray cluster of this machine only, that ends with this process."""
    import ray

    if "RAY_AUTH_TOKEN_PATH" not in os.environ:  # Ray would write a token to ~/.ray, for everybody to read
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    begun = ray.init(
        "local",  # never another cluster that happens to run here
        num_cpus=cpus,
        num_gpus=gpus or None,
        _memory=int(limits.memory().free),  # Ray sees no limit of a group below the root
        include_dashboard=dashboard,
        dashboard_host="127.0.0.1",
        object_store_memory=STORE_BYTES,
        runtime_env={
            "env_vars": {"PYTHONPATH": os.pathsep.join(paths)},
            "py_executable": shlex.quote(sys.executable),  # Ray hands it to a shell; a path may have blanks
        },
        job_config=_job_config(),
        _temp_dir=str(temporary),
        **quiet,
    )
    if dashboard:
        _say_where(f"http://{begun.dashboard_url}", temporary.with_name("token"))


class _FixedPaths(list[str]):
    """Paths that Ray cannot extend."""

    def extend(self, paths: Iterable[str]) -> None:
        pass


def _job_config() -> Any:
    """A job whose workers import Sesame from here: Ray would put the current directory first (worker.py, `connect`),
    where a file or directory of the user, such as training.py, would hide a package of Sesame."""
    from ray.job_config import JobConfig

    return JobConfig(_py_driver_sys_path=_FixedPaths([str(ROOT)]))


def _say_where(url: str, file: Path) -> None:
    """The address of a dashboard, and where its token is: in `file`, for us alone, unless the environment had one."""
    asks = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    if not asks and (token := os.environ.get("RAY_AUTH_TOKEN")):
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as written:
            written.write(token)
        asks = str(file)
    print(f"{url} is Ray's dashboard; it asks for the token in {asks}", file=sys.stderr, flush=True)


def count_free_groups(workers: int, cpus: int, gpus: int) -> int:
    """How many groups of `workers` the Ray that this process is connected to holds side by side; one, if need be."""
    import ray

    has, wants = ray.cluster_resources(), {"CPU": workers * cpus, "GPU": workers * gpus}
    return max(1, min(int(has.get(name, 0)) // amount for name, amount in wants.items() if amount))
