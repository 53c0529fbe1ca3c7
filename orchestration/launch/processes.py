"""Processes of this machine: find those of a Ray that Sesame started, and end them, even if they are stopped."""

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from preprocessing.processes import read_start_id

OF_RAY: Final = ("raylet", "gcs_server")
PATIENCE_S: Final = 3.0  # timeout for the end of processes after SIGTERM


@dataclass(frozen=True)
class ProcessIdentity:
    """Identifies a process; `began` distinguishes it from a later process with the same process ID."""

    host: str
    pid: int
    began: str

    @classmethod
    def me(cls) -> "ProcessIdentity":
        return cls(platform.node(), os.getpid(), read_start_id(os.getpid()))

    def find(self) -> psutil.Process | None:
        """The process, if it runs on this machine and has not ended."""
        if self.host == platform.node() and self.began and read_start_id(self.pid) == self.began:
            with suppress(psutil.Error):
                return psutil.Process(self.pid)
        return None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def kill(identities: Iterable[ProcessIdentity]) -> None:
    """Kill the processes that run on this machine, and ignore the others. Unlike Ray's calls, this also ends stopped
    processes."""
    kill_all(filter(None, (identity.find() for identity in identities)))


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill all of these processes (SIGKILL)."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended. A zombie has ended, but its parent has not yet read its exit code."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def find_services() -> dict[str, psutil.Process]:
    """The raylet and the gcs_server that this process started and that are alive, by name.

    Empty if there are several raylets: a test cluster with several raylets continues without one of them.
    """
    services = list[tuple[str, psutil.Process]]()
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.name() in OF_RAY and is_alive(child):
                services.append((child.name(), child))
    return dict(services) if len(services) <= len(OF_RAY) else {}


def find_ray_processes(temporary: Path) -> list[psutil.Process]:
    """The processes of the Ray that this process started with its files in `temporary`, and their descendants."""
    matches: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(str(temporary) in word for word in child.cmdline()):
                matches += [child, *child.children(recursive=True)]
    return matches


def find_leftover_ray_processes(temporary: Path) -> list[psutil.Process]:
    """The processes of a Ray whose driver or raylet is gone: its raylet, gcs_server and agents, and their descendants.

    The descendants outlive the raylet and the gcs_server by a minute, because they try to reach the dead GCS (Ray
    2.60). Their titles hide their arguments, but their log files in `temporary` identify them.
    """
    matches: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            is_of_ray = process.name() in OF_RAY or any("/ray/" in word and word.endswith(".py") for word in words)
            if is_of_ray and any(str(temporary) in word for word in words):
                matches += [process, *process.children(recursive=True)]
            elif " ".join(words).startswith("ray::") and _writes_below(process, temporary):
                matches.append(process)
    return matches


def _writes_below(process: psutil.Process, folder: Path) -> bool:
    return any(Path(opened.path).is_relative_to(folder) for opened in process.open_files())


def end(processes: Iterable[psutil.Process]) -> None:
    """Wait up to PATIENCE_S for processes to end after SIGTERM, then kill the remaining ones."""
    _, alive = psutil.wait_procs(list(processes), timeout=PATIENCE_S)
    kill_all(alive)
    psutil.wait_procs(alive, timeout=PATIENCE_S)
