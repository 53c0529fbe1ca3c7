"""Processes of this machine: which belong to a Ray of ours, and how they end, even those that are stopped."""

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from preprocessing.processes import began

OF_RAY: Final = ("raylet", "gcs_server")
PATIENCE_S: Final = 3.0  # for processes that were asked to end


@dataclass(frozen=True)
class ProcessIdentity:
    """A process; `began` tells it from a later one with its number."""

    host: str
    pid: int
    began: str

    @classmethod
    def me(cls) -> "ProcessIdentity":
        return cls(platform.node(), os.getpid(), began(os.getpid()))

    def found(self) -> psutil.Process | None:
        """The process, where it is one of this machine and has not ended."""
        if self.host == platform.node() and self.began and began(self.pid) == self.began:
            with suppress(psutil.Error):
                return psutil.Process(self.pid)
        return None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def kill(identities: Iterable[ProcessIdentity]) -> None:
    """SIGKILL for those of this machine that have not ended: stopped ones end too, as by no call of Ray's."""
    kill_all(filter(None, (identity.found() for identity in identities)))


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL for all of them."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def find_ray_processes(temporary: Path) -> list[psutil.Process]:
    """The processes of the Ray that this process has started with its files in `temporary`, and all below them."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(str(temporary) in word for word in child.cmdline()):
                found += [child, *child.children(recursive=True)]
    return found


def find_leftover_ray_processes(temporary: Path) -> list[psutil.Process]:
    """The same where whoever started that Ray is gone: its two processes above the others, and all below them.

    Those below outlive them by a minute (Ray 2.60: they try to tell their store, which is gone as well). Their title
    hides their arguments, but they write to the logs in `temporary`.
    """
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() in OF_RAY and any(str(temporary) in word for word in process.cmdline()):
                found += [process, *process.children(recursive=True)]
            elif " ".join(process.cmdline()).startswith("ray::") and _writes_below(process, temporary):
                found.append(process)
    return found


def _writes_below(process: psutil.Process, folder: Path) -> bool:
    return any(Path(opened.path).is_relative_to(folder) for opened in process.open_files())


def end(processes: Iterable[psutil.Process]) -> None:
    """Wait for processes that were asked to end, then kill those that have not."""
    _, left = psutil.wait_procs(list(processes), timeout=PATIENCE_S)
    kill_all(left)
    psutil.wait_procs(left, timeout=PATIENCE_S)
