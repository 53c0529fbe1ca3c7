"""Calls to a tracking store that may never answer, and what it could not be told: kept in the run's folder."""

import fcntl
import http.client
import json
import logging
import os
import re
import socket
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from preprocessing.files import checked_json, from_json, write_atomic

log = logging.getLogger(__name__)

T = TypeVar("T")

FAILED_S: Final = 1.0  # for a store that fails, or does not answer
SLOW_S: Final = 3.0  # for one that answers otherwise: a busy machine takes its time
PROBE_S: Final = 0.4  # after which a store is asked whether it is there
MOST_S: Final = 60.0  # for a call that takes long at a store that answers otherwise
PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # of databases whose address names none
BEHIND: Final = "mlflow-behind.json"  # in the run's folder: what MLflow lacks


def within(uri: str, call: Callable[[], T]) -> T:
    """What `call` of the store at `uri` returns; TimeoutError where it takes too long, and then it goes on in a thread
    of its own."""
    return _waited(Waiting(uri), call)


def while_there(uri: str, call: Callable[[], T], most_s: float = MOST_S, *, has_answered: bool = False) -> T:
    """The same for a call that may take up to `most_s` seconds, as long as the store answers when it is asked; one that
    has just answered may be silent for longer."""
    waiting = Watching(uri, most_s, has_answered)
    try:
        return _waited(waiting, call)
    finally:
        waiting.ended.set()


def _waited(waiting: "Waiting", call: Callable[[], T]) -> T:
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name="mlflow call")
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


class Watching(Waiting):
    """How long a call is waited for that may take long: as long as the store, which is asked again and again, answers.
    One that has never answered is given up as by Waiting, one that has answered after SLOW_S of silence."""

    def __init__(self, uri: str, limit_s: float, has_answered: bool = False) -> None:
        super().__init__(uri)
        self._answers = has_answered or None
        self.ended = threading.Event()
        self._limit_s = limit_s
        self._heard_s = self.began_s  # when it has last answered
        self._is_silent = False  # it did not answer when it was last asked

    @property
    def most_s(self) -> float:
        waited_s = time.monotonic() - self.began_s
        return self._limit_s if waited_s > self._limit_s else super().most_s

    def is_over(self) -> bool:
        is_over, now_s = super().is_over(), time.monotonic()
        if not self._answers:
            return is_over
        return now_s - self.began_s > self._limit_s or (self._is_silent and now_s - self._heard_s > SLOW_S)

    def _ask(self) -> None:
        while not self.ended.is_set():
            self._is_silent = not is_there(self._uri)
            if not self._is_silent:
                self._heard_s, self._answers = time.monotonic(), True
            self._answers = bool(self._answers)
            self.ended.wait(PROBE_S)


def is_there(uri: str, timeout_s: float = FAILED_S - PROBE_S) -> bool:
    """Whether a store answers now: `why_away` has no reason."""
    return not why_away(uri, timeout_s)


def why_away(uri: str, timeout_s: float) -> str:
    """Why a server does not answer, a file of sqlite cannot be written to now, or a database takes no connection; ""
    where it is there, or there is no way to ask."""
    try:
        if uri.startswith("sqlite:///"):
            path = f"file:{urllib.request.pathname2url(uri.removeprefix('sqlite:///'))}?mode=rw"
            opened = sqlite3.connect(path, uri=True, timeout=timeout_s, isolation_level=None)
            opened.execute("BEGIN IMMEDIATE")
            opened.rollback()
            opened.close()
        elif uri.startswith("http"):
            health = f"{without_password(uri).rstrip('/')}/health"
            with urllib.request.urlopen(health, timeout=timeout_s / 2):  # to connect, to answer
                pass
        elif (place := urlsplit(uri)).hostname and (port := place.port or PORTS.get(place.scheme.partition("+")[0])):
            socket.create_connection((place.hostname, port), timeout=timeout_s).close()
    except urllib.error.HTTPError:  # it wants a password, but it is there
        pass
    except (OSError, sqlite3.Error, ValueError, http.client.HTTPException) as error:
        return in_a_line(error)
    return ""


def in_a_line(error: BaseException) -> str:
    """What an error says first, without passwords; those of a database go on with its statements."""
    return hidden(next(iter(str(error).splitlines()), "") or type(error).__name__)


def hidden(text: str) -> str:
    """A text with addresses in it, without the users and passwords that these name.

    >>> hidden("http://ann:secret@host:5000/ does not answer")
    'http://***@host:5000/ does not answer'
    """
    return re.sub(r"//[^/\s]*@", "//***@", text)


def without_password(uri: str) -> str:
    """An address without user and password.

    >>> without_password("postgresql://ann:secret@host/db"), without_password("sqlite:////tmp/mlflow.db")
    ('postgresql://host/db', 'sqlite:////tmp/mlflow.db')
    """
    return re.sub(r"//[^/\s]*@", "//", uri, count=1)


# What MLflow lacks


def behind(folder: Path) -> dict[str, Any]:
    """What MLflow lacks of the run in `folder`; {}: nothing that is known of."""
    try:
        return from_json((folder / BEHIND).read_bytes())
    except OSError:
        return {}
    except ValueError:
        log.warning("%s: damaged, so what MLflow lacks of this run is not sent; its folder has it", folder / BEHIND)
        return {}


def note_behind(folder: Path, **lacks: Any) -> None:
    """Add to what MLflow lacks."""
    with _changing(folder) as kept:
        kept |= lacks


def forget(folder: Path, *names: str) -> None:
    """MLflow has these now."""
    with _changing(folder) as kept:
        for name in names:
            kept.pop(name, None)


def note_told(folder: Path, told: Mapping[str, Mapping[str, Any]]) -> None:
    """Add what a run says of itself, by kind and name (metadata.py), to what MLflow lacks."""
    with _changing(folder) as kept:
        for kind, values in told.items():
            kept[kind] = {**kept.get(kind, {}), **values}


def forget_told(folder: Path, told: Mapping[str, Mapping[str, Any]]) -> None:
    """MLflow has these values now; one that was noted anew meanwhile stays."""
    with _changing(folder) as kept:
        for kind, values in told.items():
            kept[kind] = {key: one for key, one in kept.get(kind, {}).items() if values.get(key) != one}


_in_this_process = threading.Lock()


@contextmanager
def _changing(folder: Path) -> Iterator[dict[str, Any]]:
    """What MLflow lacks, written when the block is left: driver and first worker both change it."""
    with _in_this_process, _locked(folder):
        kept = behind(folder)
        before = json.dumps(kept)
        yield kept
        left = {name: value for name, value in kept.items() if value != {}}
        if not left:
            (folder / BEHIND).unlink(missing_ok=True)
        elif json.dumps(left) != before:
            write_atomic(folder / BEHIND, checked_json(left))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Other processes that want the same wait inside the block, where the disk knows locks of folders."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
