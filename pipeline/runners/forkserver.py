"""Where Beam's workers come from: a process that has imported all that they need, and forks one whenever it is asked.

A new interpreter takes 1.5 s of a core to import Beam, for each worker of each job; a fork takes none. As a script with
arguments this file is the client, which needs the standard library only.
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


def serve(preload: str) -> None:
    """Say where to ask, import `preload` (the module that workers call), then fork a worker for each request.

    Ends with standard input: then none of the workers lives on.
    """
    short = (
        tempfile.gettempdir() if len(tempfile.gettempdir()) < 80 else "/tmp"
    )  # a socket's path has 107 bytes at most
    home = Path(tempfile.mkdtemp(prefix="sesame-", dir=short))
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(home / "ask"))
            listener.listen(64)
            print(home / "ask", flush=True)
            _fork_for_each(listener, preload)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _fork_for_each(listener: socket.socket, preload: str) -> None:
    importlib.import_module(preload)
    from apache_beam.runners.worker import sdk_worker_main  # the client must not wait for it

    alive = set[int]()

    def bury(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                alive.discard(pid)

    signal.signal(signal.SIGCHLD, bury)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the job ends by itself, then our input does
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        asked, _ = listener.accept()
        if pid := os.fork():
            alive.add(pid)
            asked.close()
            continue
        for handled in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(handled, signal.SIG_DFL)
        listener.close()
        try:
            _become(json.loads(asked.makefile().readline()))
            sdk_worker_main.main([])
        finally:
            sys.stderr.flush()
            os._exit(0)  # at once: what an interpreter does at its end takes half a second
    for pid in list(alive):
        os.kill(pid, signal.SIGKILL)


def _become(request: dict[str, Any]) -> None:
    """Take the environment of the one who asks, log to its file, tell it the process id."""
    os.environ.clear()
    os.environ.update(request["environment"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    with open(request["pids"], "a") as file:
        file.write(f"{os.getpid()}\n")


def ask(address: str, log: str, pids: str) -> None:
    """Have a worker made with our environment; returns when it has ended."""
    with socket.socket(socket.AF_UNIX) as nursery:
        nursery.connect(address)
        request = {"environment": dict(os.environ), "log": log, "pids": pids}
        nursery.sendall(json.dumps(request).encode() + b"\n")
        nursery.recv(1)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        ask(*sys.argv[1:])
