"""The connection to Ray: to a running cluster, or to our own Ray, which ends with the block."""

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
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from orchestration.launch import lean_agent, processes, setup_worker
from orchestration.launch.address import bind_to_loopback, is_loopback, resolve_address
from orchestration.launch.job_server import EXCLUDES, ROOT
from orchestration.progress import Report, ignore_progress
from orchestration.signals import listen_again
from preprocessing import limits
from preprocessing.errors import BadInput, ResourceError, SesameError
from preprocessing.lock import OWNER, hold_lock

START_S = 180  # timeout for the start of each process of Ray; it takes 3 s on an idle machine, a minute at a load of 15
STORE_BYTES = 100_000_000  # size of Ray's object store; Sesame passes only small objects through Ray
FILE_BYTES = 1 << 27  # minimum allowed file size: the object store and some overhead
PATIENCE = {  # timeouts of Ray 2.60; Ray reads these variables in this process and in its own processes
    "RAY_gcs_server_port_wait_time_s": START_S,  # until the GCS listens (ray/_private/node.py); default 30 s
    "RAY_raylet_start_wait_time_s": START_S,  # until this node is registered (GlobalStateAccessor::GetNode); 30 s
    "RAY_worker_register_timeout_seconds": START_S,  # until the process of a worker is registered; default 60 s
}
log = logging.getLogger(__name__)

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray for a driver that `ray job submit` started
PRESTART: Final = "RAY_prestart_worker_first_driver"  # Ray starts a process per core before it knows their options
RAYLET_PID: Final = "RAY_RAYLET_PID"
NICENESS = "RAY_worker_niceness"  # Ray's default for workers is 15: training would almost stop if other programs run
PREFIX = "sesame-"  # prefix of the temporary directories of our own Ray clusters
TOO_SLOW = ("timed out during startup", "Timed out waiting for file")  # messages of Ray's node.py after a timeout


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
    """Connect to the Ray cluster at `address`; without an address start our own Ray, which ends with the block.

    Our own Ray and its `dashboard` listen on 127.0.0.1 only; the address of the dashboard is printed. If the block
    raises an error other than a SesameError, the logs of our own Ray are copied to `logs`.

    An existing connection of this process is used unchanged; one that `early_ray_session` is opening is awaited. Raises
    ResourceError within 15 s if no Ray answers at `address`.
    """
    if early := _early.get():
        early.wait(report)
    _configure_ray()
    if "ray" not in sys.modules:
        report({"stage": "importing Ray"})
    import ray

    if ray.is_initialized():
        _services.update(processes.find_services())
        yield
        return
    with _prepare_session(address, cpus=cpus, gpus=gpus, dashboard=dashboard, logs=logs) as connect:
        report({"stage": "starting Ray"})
        connect()
        yield
        report({"stage": "stopping Ray"})


@contextmanager
def early_ray_session(
    *, cpus: int, gpus: int = 0, dashboard: bool = False, logs: Path | None = None, warm_up: Callable[[], None]
) -> Iterator[None]:
    """Start our own Ray in a thread, while the block does other work; then call `warm_up` in that thread.

    `ray_session` inside the block waits for the thread, and raises its error. Without such a call, the error is
    ignored. Ray ends with the block.
    """
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        yield
        return
    early = _EarlyStart(warm_up)
    try:
        with _prepare_session("", cpus=cpus, gpus=gpus, dashboard=dashboard, logs=logs) as connect:
            token = _early.set(early)
            try:
                early.begin(connect)
                yield
            finally:
                _early.reset(token)
                early.has_started.wait()  # Ray can end only after it has started
    finally:
        early.end()


class _EarlyStart:
    """The thread that starts Ray, and the error of the start.

    The thread lives until Ray has ended, because Linux kills the processes of Ray when the thread that started them
    ends (PR_SET_PDEATHSIG).
    """

    def __init__(self, warm_up: Callable[[], None]) -> None:
        self.warm_up = warm_up
        self.error: Exception | None = None
        self.has_started, self.has_ended = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def begin(self, connect: Callable[[], None]) -> None:
        """Start the thread."""
        self.thread = threading.Thread(target=self._run, args=(connect,), name="early Ray", daemon=True)
        self.thread.start()

    def _run(self, connect: Callable[[], None]) -> None:
        try:
            connect()
            self._warm_up()
        except Exception as error:
            self.error = error
        finally:
            self.has_started.set()
        self.has_ended.wait()

    def _warm_up(self) -> None:
        try:
            self.warm_up()
        except Exception as error:
            log.warning("workers did not start early (%s); they start when they are needed", error)

    def wait(self, report: Report) -> None:
        """Wait until Ray has started, and raise the error of the start."""
        if not self.has_started.is_set():
            report({"stage": "starting Ray"})
        self.has_started.wait()
        if self.error:
            raise self.error

    def end(self) -> None:
        """End the thread."""
        self.has_ended.set()
        if self.thread:
            self.thread.join()


_early = ContextVar[_EarlyStart | None]("_early", default=None)


@contextmanager
def _prepare_session(
    address: str, *, cpus: int, gpus: int, dashboard: bool, logs: Path | None
) -> Iterator[Callable[[], None]]:
    """A function that connects to Ray. At the end of the block, the connection is closed and our own Ray is ended."""
    _configure_ray()
    quiet = {"namespace": "sesame", "logging_level": logging.ERROR, "log_to_driver": False}
    # Ray creates sockets below this path, and their names are limited to 107 characters, so it must be short. Ray makes
    # its temporary directory public (0777), so it gets one inside a private directory.
    above = Path(os.environ.get("RAY_TMPDIR", "/tmp"))
    _remove_abandoned(above)
    private = _make_private_directory(above)
    temporary = private / "r"
    stack, cluster = ExitStack(), ""

    def connect() -> None:
        import ray

        _services.clear()
        with _keep_handlers():
            if cluster:
                with _explain_versions(cluster):
                    ray.init(cluster, runtime_env=_code_to_send(), **quiet)
            else:
                _check_file_limit()
                _start_with_retry(temporary, cpus, gpus, dashboard, quiet)
                _services.update(processes.find_services())
        # Ray 2.60 prints error messages of the raylet to stdout even with log_to_driver=False (worker.py,
        # listen_error_messages). It has no public option against this, but stdout is only for the output of Sesame.
        ray._private.worker._worker_logs_enabled = False

    session = None if address else _own.set(_OwnRay(connect, temporary))
    try:
        cluster = resolve_address(address) if address else ""
        stack.enter_context(hold_lock(private))
        stack.enter_context(bind_to_loopback(not cluster or is_loopback(cluster)))
        yield connect
    except Exception as error:
        own_logs = temporary / "session_latest" / "logs"
        if logs and own_logs.exists() and not isinstance(error, SesameError):
            shutil.copytree(own_logs, logs, dirs_exist_ok=True)
        raise
    finally:
        if session:
            _own.reset(session)
        _end(temporary)
        stack.close()
        shutil.rmtree(private, ignore_errors=True)


def _configure_ray() -> None:
    """Set the variables that Ray reads at its import.

    If the raylet dies, Ray 2.60 ends a driver without a message if the parent of the driver has ended, as after `nohup
    sesame run &` and a logout. It considers that parent the raylet. RAYLET_PID names a process to look at instead: this
    one, which lives. Ray sets the variable again for its workers.
    """
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ.setdefault(RAYLET_PID, str(os.getpid()))


def _make_private_directory(above: Path) -> Path:
    """Create a directory for this user only. Raises BadInput if RAY_TMPDIR is not a writable directory."""
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
    except OSError as error:
        raise BadInput(
            f"invalid RAY_TMPDIR: got {above} ({error.strerror}), expected a writable directory for the temporary "
            "files of Ray; set RAY_TMPDIR to one"
        ) from None


def _remove_abandoned(above: Path) -> None:
    """Remove the temporary directories of killed commands, and kill the remaining processes of their Ray.

    A directory is in use while its lock is held; the kernel releases the lock when the process ends. Directories
    without a lock file and those of other users are skipped, because `above` may be /tmp.
    """
    for folder in above.glob(f"{PREFIX}*"):
        if _may_be_abandoned(folder):
            with suppress(SesameError, OSError), hold_lock(folder):
                processes.kill_all(processes.find_leftover_ray_processes(folder))
                shutil.rmtree(folder)


def _may_be_abandoned(folder: Path) -> bool:
    """Whether this is a directory of this user, not a link, with a lock file."""
    with suppress(OSError):
        status = folder.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and (folder / OWNER).is_file()
    return False


@dataclass(frozen=True)
class _OwnRay:
    """How to start our own Ray again, and the directory of its temporary files."""

    connect: Callable[[], None]
    temporary: Path


_own = ContextVar[_OwnRay | None]("_own", default=None)
_services = dict[str, psutil.Process]()  # the raylet and the gcs_server of our own Ray, by name


def find_fault() -> str:
    """A dead process of our own Ray that Ray cannot work without, as text; "" if all are alive."""
    return next((f"Ray's {name}" for name, process in _services.items() if not processes.is_alive(process)), "")


def is_ours() -> bool:
    """Whether this thread started the connected Ray. Such a Ray has a single node, this machine."""
    return _own.get() is not None


def renew() -> None:
    """Start our own Ray again after one of its processes died. Raises ResourceError if this thread did not start it."""
    if (own_ray := _own.get()) is None:
        raise ResourceError(f"{find_fault()} is gone; repeat the command to resume from the newest checkpoint")
    _end(own_ray.temporary)
    own_ray.connect()


def _end(temporary: Path) -> None:
    """Disconnect from Ray and end the processes that this process started, even if a signal interrupted the start."""
    import ray

    started = processes.find_ray_processes(temporary)
    if find_fault():  # otherwise `ray.shutdown` would wait for the dead process
        processes.kill_all(started)
    _handle_signals_in_shutdown()
    ray.shutdown()
    _services.clear()
    processes.end(started)
    if late := processes.find_leftover_ray_processes(temporary):  # the raylet has started them meanwhile
        processes.kill_all(late)
        processes.end(late)


def _handle_signals_in_shutdown() -> None:
    """Keep our signal handlers while `ray.shutdown` waits for the processes of Ray.

    Ray 2.60 resets SIGTERM to the system default in C++, and then waits for its processes. A second SIGTERM would end
    this process during its cleanup. `ray.shutdown` has no hook between these two steps, so a method of the node, which
    the second step calls, is replaced. Python code can set handlers in the main thread only, which is busy there.
    """
    import ray

    if node := ray._private.worker._global_node:
        kill_all_processes = node.kill_all_processes

        def listen_and_kill(**options: Any) -> None:
            listen_again()
            kill_all_processes(**options)

        node.kill_all_processes = listen_and_kill


@contextmanager
def _keep_handlers() -> Iterator[None]:
    """Inside the block, Ray does not replace our handlers of SIGTERM.

    The handlers of Ray 2.60 end this process with exit code 15 or 1 and without a message. `ray.init` has no option
    against them, and restoring ours after it is too late: a start takes seconds to minutes.
    """
    from ray._private import utils

    original, utils.set_sigterm_handler = utils.set_sigterm_handler, lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = original


@contextmanager
def _explain_versions(address: str) -> Iterator[None]:
    """Inside the block, an error of Ray becomes a ResourceError if the cluster has another version of Ray or Python."""
    try:
        yield
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise
        (ray_there, python_there), (ray_here, python_here) = (
            re.findall(r"Ray: (\S+)\s+Python: (\S+)", str(error)) + [("?", "?")] * 2
        )[:2]
        raise ResourceError(
            f"{address}: has Ray {ray_there} on Python {python_there}, but this process has Ray {ray_here} on Python "
            f"{python_here} ({sys.executable}); start the cluster with this Python"
        ) from None


def _code_to_send() -> dict[str, Any]:
    """The runtime_env that sends the code of Sesame to a cluster.

    It is empty if a Ray job started this process and has sent the code: Ray rejects a second working directory.
    """
    job = json.loads(os.environ.get(JOB, "{}")).get("runtime_env") or {}
    if "working_dir" in job:
        return {}
    return {"working_dir": str(ROOT), "excludes": list(EXCLUDES)}


def _check_file_limit() -> None:
    """Raises ResourceError if the limit of the file size (ulimit -f) is too low for Ray's object store.

    Without this check, the process of Ray would die when it creates the store, and the command would wait for
    2 * START_S. Sesame does not raise the limit itself, because the user may have set it on purpose.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most != resource.RLIM_INFINITY and most < FILE_BYTES:
        raise ResourceError(
            f"file size limit too low (ulimit -f): got {most / 1e6:,.1f} MB, expected at least "
            f"{FILE_BYTES / 1e6:,.0f} MB for Ray; raise it with `ulimit -f unlimited`"
        )


def _start_with_retry(temporary: Path, cpus: int, gpus: int, dashboard: bool, quiet: dict[str, Any]) -> None:
    """Start our own Ray; try a second time if a process does not start within START_S, which happens under load."""
    import ray

    for name, seconds in PATIENCE.items():
        os.environ.setdefault(name, str(seconds))
    os.environ.setdefault(NICENESS, "0")
    os.environ.setdefault(PRESTART, "0")
    for _ in range(2):
        try:
            return _start_here(temporary, cpus, gpus, dashboard, quiet)
        except Exception as error:
            if not any(words in str(error) for words in TOO_SLOW):
                raise
            ray.shutdown()
    raise ResourceError(
        f"Ray did not start on this machine within {2 * START_S // 60} min, because it is too busy; repeat the command "
        "later"
    )


def _start_here(temporary: Path, cpus: int, gpus: int, dashboard: bool, quiet: dict[str, Any]) -> None:
    """Start a Ray cluster on this machine only, which ends with this process."""
    import ray

    if "RAY_AUTH_TOKEN_PATH" not in os.environ:  # otherwise Ray would write a token to ~/.ray that everyone can read
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with _only_needed_processes(dashboard):
        context = ray.init(
            "local",  # never another cluster that is running on this machine
            num_cpus=cpus,
            num_gpus=gpus or None,
            _memory=int(limits.memory().free),  # Ray ignores the limits of nested control groups
            include_dashboard=dashboard,
            dashboard_host="127.0.0.1",
            object_store_memory=STORE_BYTES,
            runtime_env={
                "env_vars": {"PYTHONPATH": os.pathsep.join(paths)},
                "py_executable": shlex.quote(sys.executable),  # Ray passes it to a shell, and a path may contain spaces
            },
            job_config=_job_config(),
            _temp_dir=str(temporary),
            **quiet,
        )
    if dashboard:
        _print_dashboard(f"http://{context.dashboard_url}", temporary.with_name("token"))


@contextmanager
def _only_needed_processes(dashboard: bool) -> Iterator[None]:
    """Inside the block, a new Ray starts without its autoscaler and log monitor, and without the server of the
    dashboard and the modules of its agent (lean_agent.py) unless `dashboard`. setup_worker.py sets up its workers.

    Ray 2.60 starts these three Python processes even if nothing uses them, and `ray.init` has no option against them.
    They take a quarter of the CPU time of a start. The agent of the dashboard always starts. It imports less if Ray
    finds that libraries of the dashboard are missing, and this process then does not import them either.
    """
    from ray._private import node, parameter, ray_constants, services, utils

    own = {"no_monitor": True, "include_log_monitor": False, "setup_worker_path": setup_worker.__file__}

    class LeanParams(parameter.RayParams):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | own)

    replaced: list[tuple[Any, str, Any]] = [(parameter, "RayParams", LeanParams)]
    build = services._build_python_executable_command_memory_profileable

    def build_lean(component: str, *words: Any, **options: Any) -> list[str]:
        command = list(build(component, *words, **options))
        return [*command, lean_agent.__file__] if component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT else command

    if not dashboard:
        replaced.append((services, build.__name__, build_lean))
        replaced.append((node.Node, "start_api_server", lambda self, **options: None))
        replaced.append((utils, "get_dashboard_dependency_error", lambda: ImportError("the dashboard is not used")))
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)


class _FixedPaths(list[str]):
    """A list of paths that Ray cannot extend."""

    def extend(self, paths: Iterable[str]) -> None:
        pass


def _job_config() -> Any:
    """The configuration of a job whose workers import Sesame from ROOT. By default Ray puts the current directory first
    (worker.py, `connect`). A file or directory of the user there, such as training.py, would hide a package of
    Sesame."""
    from ray.job_config import JobConfig

    return JobConfig(_py_driver_sys_path=_FixedPaths([str(ROOT)]))


def _print_dashboard(url: str, file: Path) -> None:
    """Print the address of the dashboard and the path of its token.

    Without a token file in the environment, the token is written to `file`, which only this user can read.
    """
    path = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    if not path and (token := os.environ.get("RAY_AUTH_TOKEN")):
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as writer:
            writer.write(token)
        path = str(file)
    print(f"Ray dashboard: {url}; its token is in {path}", file=sys.stderr, flush=True)


def count_free_groups(workers: int, cpus: int, gpus: int) -> int:
    """How many groups of `workers` the connected Ray can run in parallel; at least 1."""
    import ray

    total, needs = ray.cluster_resources(), {"CPU": workers * cpus, "GPU": workers * gpus}
    return max(1, min(int(total.get(name, 0)) // amount for name, amount in needs.items() if amount))
