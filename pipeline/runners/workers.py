"""Beam's worker processes on this machine: start them, watch them, and kill those that remain."""

import atexit
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from preprocessing.errors import ResourceError

_ROOT: Final = Path(__file__).resolve().parents[2]  # workers import the packages of this checkout
_PATIENCE: Final = 5.0  # seconds that Beam has to end after a worker has died
_SETTINGS: Final = {
    # returns free memory to the system: total memory is a quarter lower (measured)
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": "1000000",
    # a worker uses one core: with threads in several workers, throughput drops by a tenth (measured)
    "TOKENIZERS_PARALLELISM": "false",
}
_PRELOADED: Final = "pipeline.jobs"  # the module that workers call
# names of Beam's threads that read messages from a worker
_READERS: Final = ("beam_control_read", "read_grpc_client_inputs")


@cache
def _forkserver() -> tuple[subprocess.Popen[str], str]:
    """The fork server process and its address. It ends when this process ends."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pipeline.runners.forkserver", _PRELOADED],
        env={**os.environ, **_SETTINGS, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    atexit.register(_stop, process)
    if not (address := process.stdout.readline().strip()):
        raise ResourceError("cannot start Beam workers; run in one process with -- --direct_num_workers=1")
    return process, address


def _stop(process: "subprocess.Popen[str]") -> None:
    """Stop a fork server and its workers by closing its input."""
    for stream in filter(None, (process.stdin, process.stdout)):
        stream.close()
    process.wait()


def command(log: Path, pids: Path) -> str:
    """The shell command that starts a worker. It writes output to `log` and its process ID to `pids`.

    Beam's own command fails on blanks in paths and writes to the terminal. This command always exits with 0, because
    Beam prints a traceback for other codes; `run` monitors the workers. Therefore it also ignores the signals that
    Ctrl-C and Slurm send to all processes of a job.
    """
    client = Path(__file__).with_name("forkserver.py")
    request = [sys.executable, "-I", "-S", str(client), _forkserver()[1], str(log.absolute()), str(pids.absolute())]
    return f"trap '' INT TERM; {shlex.join(request)} >>{shlex.quote(str(log))} 2>&1; true"


def run(job: Callable[[], object], pids: Path, failed: threading.Event) -> None:
    """Run `job`, which starts workers that write their IDs to `pids`. Raises ResourceError if a worker dies.

    Beam waits forever for the reply of a dead worker. After a worker has `failed`, it also waits forever for a worker
    that is still starting. Therefore Beam runs in a thread that can be abandoned. No worker survives this call, even if
    it is interrupted.
    """
    failures = list[BaseException]()

    def work() -> None:
        try:
            job()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="Beam", daemon=True)
    seconds_left = _PATIENCE
    with _quiet_readers():
        thread.start()
        try:
            while thread.is_alive() and seconds_left > 0:
                thread.join(0.1)
                orphaned = _forkserver()[0].poll() is not None or not all(map(_alive, _read_started(pids)))
                seconds_left -= 0.1 * (failed.is_set() or orphaned)
        finally:
            for pid in filter(_alive, _read_started(pids)):
                os.kill(pid, signal.SIGKILL)
            # after its workers are dead, Beam may raise the original error
            thread.join(_PATIENCE if seconds_left <= 0 else 0)
            for reader in threading.enumerate():
                if reader.name in _READERS:
                    reader.join(1.0)
            if failures or seconds_left <= 0:
                _stop(_forkserver()[0])  # workers that are still requested will not start
                _forkserver.cache_clear()
    if failures:
        raise failures[0]
    if thread.is_alive():
        raise worker_died_error()


def worker_died_error() -> ResourceError:
    """The error for a dead worker, as one line."""
    return ResourceError(
        "a Beam worker died, probably because memory is exhausted; repeat the command with fewer workers, e.g. "
        "-- --direct_num_workers=1; it resumes from here"
    )


def _read_started(pids: Path) -> list[int]:
    return [int(pid) for pid in pids.read_text(encoding="utf-8").split()] if pids.exists() else []


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _quiet_readers() -> Iterator[None]:
    """Suppress tracebacks of the threads that read from a worker when it dies."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.thread is None or args.thread.name not in _READERS:
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
