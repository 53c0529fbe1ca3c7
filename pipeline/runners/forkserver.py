"""Fork server of Beam's workers: a process that has imported their packages and forks one worker per request.

A new interpreter needs 1.5 s of CPU time to import Beam, for each worker of each job; a fork needs none. Run as a
script with several arguments, this file is the client, which needs only the standard library.
"""

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

_LONGEST_FOLDER = 80  # characters; the path of a socket is limited to 107 bytes


def serve(preload: str) -> None:
    """Print the socket path, import `preload` (the module that workers call), then fork a worker for each request.

    The server stops when its standard input is closed, and kills all remaining workers.
    """
    folder = tempfile.gettempdir()
    home = Path(tempfile.mkdtemp(prefix="sesame-", dir=folder if len(folder) < _LONGEST_FOLDER else "/tmp"))
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(home / "socket"))
            listener.listen(64)
            print(home / "socket", flush=True)
            _fork_for_each(listener, preload)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _fork_for_each(listener: socket.socket, preload: str) -> None:
    importlib.import_module(preload)
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas")  # pyarrow imports it in each worker if it is installed
    # not at the top of the file: the client does not import Beam
    from apache_beam.runners.worker import sdk_worker_main

    alive = set[int]()

    def reap_children(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                alive.discard(pid)

    signal.signal(signal.SIGCHLD, reap_children)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted job closes the standard input instead
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if pid := os.fork():
            alive.add(pid)
            connection.close()
            continue
        for handled in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(handled, signal.SIG_DFL)
        listener.close()
        try:
            _adopt(json.loads(connection.makefile().readline()))
            sdk_worker_main.main([])
        finally:
            sys.stderr.flush()
            os._exit(0)  # exit immediately: a regular interpreter exit takes half a second
    for pid in list(alive):
        os.kill(pid, signal.SIGKILL)


def _adopt(request: dict[str, Any]) -> None:
    """Set the client's environment, redirect output to its log file and append the process ID to its list."""
    os.environ.clear()
    os.environ.update(request["environment"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    with open(request["pids"], "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def start_worker(address: str, log: str, pids: str) -> None:
    """Request a worker with the environment of this process. Returns when the worker has ended."""
    with socket.socket(socket.AF_UNIX) as forkserver:
        forkserver.connect(address)
        request = {"environment": dict(os.environ), "log": log, "pids": pids}
        forkserver.sendall(json.dumps(request).encode() + b"\n")
        forkserver.recv(1)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        start_worker(*sys.argv[1:])
