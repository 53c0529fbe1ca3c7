"""Beam's worker processes on this machine: they are started, watched, and none of them is left behind."""

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
_PATIENCE: Final = 5.0  # seconds in which Beam may end by itself after a worker has ended
_SETTINGS: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # returns free memory: a quarter less in all (measured)
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": "1000000",
    "TOKENIZERS_PARALLELISM": "false",  # a worker is for one core: threads of several workers cost a tenth (measured)
}
_PRELOADED: Final = "pipeline.jobs"  # what a worker calls
_READERS: Final = ("beam_control_read", "read_grpc_client_inputs")  # Beam's threads that read the messages of a worker


@cache
def _forkserver() -> tuple[subprocess.Popen[str], str]:
    """The process from which our workers are forked, and its address; it ends when this process does."""
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
        raise ResourceError("Beam's workers cannot be started here; work without them: -- --direct_num_workers=1")
    return process, address


def _stop(process: "subprocess.Popen[str]") -> None:
    """End a fork server and its workers, by closing its input."""
    for stream in filter(None, (process.stdin, process.stdout)):
        stream.close()
    process.wait()


def command(log: Path, pids: Path) -> str:
    """The shell command that starts a worker; its output goes to `log`, its process id to `pids`.

    Beam's own command fails with a blank in a path and writes to the terminal. This one always exits with 0, as Beam
    would answer another code with a traceback; `run` watches the worker itself.
    """
    client = Path(__file__).with_name("forkserver.py")
    request = [sys.executable, "-I", "-S", str(client), _forkserver()[1], str(log.absolute()), str(pids.absolute())]
    return f"{shlex.join(request)} >>{shlex.quote(str(log))} 2>&1; true"


def run(job: Callable[[], object], pids: Path, failed: threading.Event) -> None:
    """Do `job`, which starts workers that write to `pids`; raises ResourceError where one of them dies on the way.

    Beam waits for ever for the answer of a dead worker and, when one has `failed`, for a worker that is just starting.
    So it runs in a thread that can be left. However the call ends, by an interrupt too, no worker outlives it.
    """
    failures = list[BaseException]()

    def work() -> None:
        try:
            job()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="Beam", daemon=True)
    patience = _PATIENCE
    with _quiet_readers():
        thread.start()
        try:
            while thread.is_alive() and patience > 0:
                thread.join(0.1)
                orphaned = _forkserver()[0].poll() is not None or not all(map(_alive, _started(pids)))
                patience -= 0.1 * (failed.is_set() or orphaned)
        finally:
            for pid in filter(_alive, _started(pids)):
                os.kill(pid, signal.SIGKILL)
            thread.join(_PATIENCE if patience <= 0 else 0)  # without its workers Beam may raise the error
            for reader in threading.enumerate():
                if reader.name in _READERS:
                    reader.join(1.0)
            if failures or patience <= 0:
                _stop(_forkserver()[0])  # workers that were still requested are not started
                _forkserver.cache_clear()
    if failures:
        raise failures[0]
    if thread.is_alive():
        raise worker_died_error()


def worker_died_error() -> ResourceError:
    """The error for a dead worker, in one line."""
    return ResourceError(
        "a Beam worker died, often for lack of memory; repeat the command, which goes on from here, "
        "with fewer workers: -- --direct_num_workers=1"
    )


def _started(pids: Path) -> list[int]:
    return [int(pid) for pid in pids.read_text(encoding="utf-8").split()] if pids.exists() else []


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _quiet_readers() -> Iterator[None]:
    """Keep the tracebacks off the terminal with which the threads that read from a worker end when it dies."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.thread is None or args.thread.name not in _READERS:
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
