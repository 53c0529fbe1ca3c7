"""Calls to a tracking store that may never answer, and what it could not be told: kept in the run's folder."""

import json
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from preprocessing.files import write_atomic

T = TypeVar("T")

FAILED_S: Final = 1.0  # for a store that fails, or does not answer
SLOW_S: Final = 3.0  # for one that answers otherwise: a busy machine takes its time
PROBE_S: Final = 0.4  # after which a store is asked whether it is there
BEHIND: Final = "mlflow-behind.json"  # in the run's folder: what MLflow lacks


def within(uri: str, call: Callable[[], T]) -> T:
    """What `call` of the store at `uri` returns; TimeoutError where it takes too long, and then it goes on in a thread
    of its own."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread, waiting = threading.Thread(target=run, daemon=True, name="mlflow call"), Waiting(uri)
    thread.start()
    while thread.is_alive() and not waiting.is_over():
        thread.join(0.02)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"no answer within {waiting.most_s:g} s")
    return found[0]


class Waiting:
    """How long a call that has just begun is waited for: FAILED_S, or SLOW_S where the store answers otherwise, or
    the machine is too busy to ask it."""

    def __init__(self, uri: str, began_s: float | None = None) -> None:
        self._uri, self.began_s = uri, time.monotonic() if began_s is None else began_s
        self._asked = False
        self._answers: bool | None = None  # not known yet

    @property
    def most_s(self) -> float:
        return SLOW_S if self._answers else FAILED_S

    def is_over(self) -> bool:
        waited_s = time.monotonic() - self.began_s
        if waited_s > PROBE_S and not self._asked:
            self._asked = True
            threading.Thread(target=self._ask, daemon=True, name="mlflow probe").start()
        return waited_s > (SLOW_S if self._answers is None else self.most_s)

    def _ask(self) -> None:
        self._answers = is_there(self._uri)


def is_there(uri: str, timeout_s: float = FAILED_S - PROBE_S) -> bool:
    """Whether a server answers, or a file of sqlite can be written to now; False for other stores, which have no such
    question."""
    try:
        if uri.startswith("sqlite:///"):
            path = f"file:{urllib.request.pathname2url(uri.removeprefix('sqlite:///'))}?mode=rw"
            opened = sqlite3.connect(path, uri=True, timeout=timeout_s, isolation_level=None)
            opened.execute("BEGIN IMMEDIATE")
            opened.rollback()
            opened.close()
            return True
        if uri.startswith("http"):
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=timeout_s / 2):  # to connect, to answer
                return True
    except urllib.error.HTTPError:  # it wants a password, but it is there
        return True
    except (OSError, sqlite3.Error, ValueError):
        pass
    return False


def in_a_line(error: BaseException) -> str:
    """What an error says first; those of a database go on with its statements."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def behind(folder: Path) -> dict[str, Any]:
    """What MLflow lacks of the run in `folder`; {}: nothing that is known of."""
    try:
        return json.loads((folder / BEHIND).read_text())
    except (OSError, ValueError):
        return {}


def note_behind(folder: Path, **lacks: Any) -> None:
    """Add to what MLflow lacks."""
    write_atomic(folder / BEHIND, json.dumps(behind(folder) | lacks, indent=1).encode())


def forget(folder: Path, *names: str) -> None:
    """MLflow has these now."""
    left = {name: value for name, value in behind(folder).items() if name not in names}
    if left:
        write_atomic(folder / BEHIND, json.dumps(left, indent=1).encode())
    else:
        (folder / BEHIND).unlink(missing_ok=True)
