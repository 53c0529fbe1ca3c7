"""Calls to a tracking store that may never answer, and what it could not be told: kept in the run's folder."""

import fcntl
import functools
import http.client
import json
import logging
import os
import re
import shlex
import socket
import sqlite3
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

from preprocessing.files import checked_json, from_json, write_atomic

log = logging.getLogger(__name__)

T = TypeVar("T")

FAILED_S: Final = 1.0  # for a store that fails: refused, locked, unknown
SLOW_S: Final = 3.0  # for one that fails just after it has answered
ANSWER_S: Final = 10.0  # for one answer of a server or a database, however slow it is
PROBE_S: Final = 0.4  # after which a store is asked whether it is there
MOST_S: Final = 60.0  # for one request of a call, at a store that answers otherwise
PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # of databases whose address names none
BEHIND: Final = "mlflow-behind.json"  # in the run's folder: what MLflow lacks

_silent: Final = set[str]()  # stores that were given up, and have not answered since
_here: Final = threading.local()  # `waiting`: who waits for the call of this thread


def wait_while_available(uri: str, call: Callable[[], T], most_s: float = MOST_S, *, has_answered: bool = False) -> T:
    """What `call` of the store at `uri` returns, however many requests it takes.

    It is waited for as long as its requests are answered (`MonitoredClient`), each within `most_s`, or the store
    answers when it is asked whether it is there; TimeoutError otherwise, and then the call goes on in a thread of its
    own.
    """
    waiting = CallTimeout(uri, most_s, has_answered)
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with waiting:
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
        raise TimeoutError(waiting.reason)
    return found[0]


class CallTimeout:
    """How long a call is waited for that has begun now: `with` it, in the thread that makes the call.

    A server that is slow is not away. Each answer to a request of the call counts, and each answer to the question
    whether the store is there, which is asked again and again from PROBE_S on. The call is given up when there was none
    for ANSWER_S; or, where the store says that it fails, for FAILED_S, or SLOW_S after an answer. One that was given up
    is waited for for SLOW_S, until it answers again.
    """

    def __init__(self, uri: str, most_s: float = MOST_S, has_answered: bool = False) -> None:
        self._uri, self._most_s, self._has_answered = uri, most_s, has_answered
        self._heard_s = time.monotonic()  # when the call began, or a request of it was answered
        self._there_s = 0.0  # when the store has last said that it is there
        self._asked_s = 0.0  # since when it is asked; 0: not yet
        self._fails = False  # what it said last
        self._ended = threading.Event()
        self.reason = ""  # why the call is not waited for any longer

    def __enter__(self) -> "CallTimeout":
        _here.waiting = self
        return self

    def __exit__(self, *error: object) -> None:
        _here.waiting = None
        self._ended.set()

    def hear(self) -> None:
        """A request of the call was answered."""
        self._heard_s, self._has_answered = time.monotonic(), True
        _silent.discard(self._uri)

    def is_over(self) -> bool:
        """Whether the call is to be given up now. Asks the store, where that is due."""
        now_s = time.monotonic()
        alone_s = now_s - self._heard_s
        if alone_s > PROBE_S and not self._asked_s:
            self._asked_s = now_s
            threading.Thread(target=self._ask, daemon=True, name="mlflow probe").start()
        quiet_s = now_s - max(self._heard_s, self._there_s)
        if self._fails and quiet_s > (limit_s := SLOW_S if self._has_answered else FAILED_S):
            return self._given_up(limit_s)
        limit_s = SLOW_S if self._uri in _silent else ANSWER_S
        if self._asked_s and min(quiet_s, now_s - self._asked_s) > limit_s:
            return self._given_up(limit_s)
        return alone_s > self._most_s and self._given_up(self._most_s)

    def _given_up(self, limit_s: float) -> bool:
        self.reason = f"no answer within {limit_s:g} s"
        if limit_s != self._most_s:
            _silent.add(self._uri)
        self._ended.set()
        return True

    def _ask(self) -> None:
        while not self._ended.is_set():
            self._fails = not is_available(self._uri)
            if not self._fails:
                self._there_s, self._has_answered = time.monotonic(), True
                _silent.discard(self._uri)
            self._ended.wait(PROBE_S)


class MonitoredClient:
    """A client of a store, each of whose answers is heard by whoever waits for the call of this thread."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if not callable(found := getattr(self._client, name)):
            return found

        @functools.wraps(found)
        def asked(*args: Any, **more: Any) -> Any:
            answer = found(*args, **more)
            if waiting := getattr(_here, "waiting", None):
                waiting.hear()
            return answer

        return asked


def is_available(uri: str) -> bool:
    """Whether a store answers now: `why_away` has no reason."""
    return not describe_failure(uri)


def answer_s(uri: str) -> float:
    """How long a store may take to say that it is there: what is no file is far away, and may be slow."""
    return FAILED_S - PROBE_S if database_file(uri) else ANSWER_S


def describe_failure(uri: str, timeout_s: float = 0.0) -> str:
    """Why a server does not answer, a file of sqlite cannot be written to now, or a database takes no connection; ""
    where it is there, or there is no way to ask."""
    timeout_s = timeout_s or answer_s(uri)
    try:
        if file := database_file(uri):
            path = f"file:{urllib.request.pathname2url(str(file))}?mode=rw"
            opened = sqlite3.connect(path, uri=True, timeout=timeout_s, isolation_level=None)
            opened.execute("BEGIN IMMEDIATE")
            opened.rollback()
            opened.close()
        elif uri.startswith("http"):
            health = f"{without_password(uri).rstrip('/')}/health"
            with urllib.request.urlopen(health, timeout=timeout_s):
                pass
        elif (place := urlsplit(uri)).hostname and (port := place.port or PORTS.get(place.scheme.partition("+")[0])):
            socket.create_connection((place.hostname, port), timeout=timeout_s).close()
    except urllib.error.HTTPError:  # it wants a password, but it is there
        pass
    except (OSError, sqlite3.Error, ValueError, http.client.HTTPException) as error:
        if not isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):  # MLflow may trust it
            return summarize_error(error)
    return ""


# Addresses


def database_file(uri: str) -> Path | None:
    """The file of a store of SQLite; None where the store is of another kind.

    >>> database_file("sqlite+pysqlite:////tmp/a%3Fb/mlflow.db"), database_file("http://127.0.0.1:5000")
    (PosixPath('/tmp/a?b/mlflow.db'), None)
    """
    found = re.match(r"sqlite(?:\+pysqlite)?:///(?!:memory:)([^?]+)", uri)
    return Path(unquote(found[1])) if found else None


def database_uri(file: Path) -> str:
    """The address of a store of SQLite.

    What SQLAlchemy would take for the end of the path is quoted, and % with it. MLflow makes the folder of what begins
    with sqlite:///, and takes the quoted name for its name: such a path has the driver in its address.

    >>> database_uri(Path("/tmp/of it/mlflow.db")), database_uri(Path("/tmp/50% of it?/mlflow.db"))
    ('sqlite:////tmp/of it/mlflow.db', 'sqlite+pysqlite:////tmp/50%25 of it%3F/mlflow.db')
    """
    quoted = re.sub("[%?#]", lambda found: quote(found[0]), str(file))
    return f"sqlite:///{quoted}" if quoted == str(file) else f"sqlite+pysqlite:///{quoted}"


def folder_of(uri: str) -> Path:
    """The folder that a file: address names, as `Path.as_uri` writes it, or that stands there without a scheme.

    >>> folder_of(Path("/tmp/50% #1").as_uri()), folder_of("/tmp/50%20 #1")
    (PosixPath('/tmp/50% #1'), PosixPath('/tmp/50%20 #1'))
    """
    return Path(unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)


def redact(text: str) -> str:
    """A text with addresses in it, without the users and passwords that these name.

    >>> redact("http://ann:secret@host:5000/ does not answer")
    'http://***@host:5000/ does not answer'
    """
    return re.sub(r"(?<=://)[^/\s]*@", "***@", text)


def without_password(uri: str) -> str:
    """An address without user and password.

    >>> without_password("postgresql://ann:secret@host/db"), without_password("sqlite:////a@b/mlflow.db")
    ('postgresql://host/db', 'sqlite:////a@b/mlflow.db')
    """
    return re.sub(r"(?<=://)[^/\s]*@", "", uri, count=1)


# Errors


STATUS: Final = re.compile(r"too many (\d{3}) error responses|failed with error code (\d{3}) != 200")
STRANGE: Final = {  # what MLflow says of answers that are none of MLflow's
    "not in a valid JSON format": "answers with a page, as MLflow does not: check the address, and whether it wants a "
    "login",
    "redirects.": "answers with redirects that do not end: check the address, and whether it wants a login",
    "Connection broken": "answers, and breaks off in the middle",
}


def summarize_error(error: BaseException) -> str:
    """What an error says first, without passwords; those of a database go on with its statements. Where a server wants
    credentials, or others: by which variables it gets them; where a package is missing: how it is installed."""
    if status := refusal_status(error):
        return suggest_credentials(status)
    if isinstance(error, ImportError) and error.name:
        return suggest_package(error.name)
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    said = str(error)
    if found := STATUS.search(said):
        return describe_status(int(found[1] or found[2]))
    if strange := next((words for part, words in STRANGE.items() if part in said), ""):
        return strange
    return redact(next(iter(said.splitlines()), "") or type(error).__name__)


def describe_status(status: int) -> str:
    """What it means that a server answers with a status alone, without an error of MLflow's.

    >>> describe_status(503)
    'answers 503 (Service Unavailable): it, or a proxy before it, fails'
    """
    phrase = f" ({HTTPStatus(status).phrase})" if status in [*HTTPStatus] else ""
    fails = status >= 500 or status == HTTPStatus.TOO_MANY_REQUESTS
    return f"answers {status}{phrase}: {'it, or a proxy before it, fails' if fails else 'no MLflow is there'}"


def describe_unavailable(error: BaseException) -> str:
    """That a store does not answer, or what else it does, as what follows its address.

    >>> describe_unavailable(OSError("refused")), describe_unavailable(OSError("answers 700"))
    ('does not answer (refused)', 'answers 700')
    """
    said = summarize_error(error)
    return said if said.startswith("answers") else f"does not answer ({said})"


def refusal_status(error: BaseException) -> int:
    """401 or 403, where a server has refused a request for want of credentials or of permission; else 0."""
    answer = getattr(error, "response", None)  # of requests, in which artifacts are sent
    status = getattr(answer, "status_code", None) or getattr(error, "code", None)
    status = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}.get(getattr(error, "error_code", ""), status)
    return status if status in (401, 403) else 0


def suggest_credentials(status: int) -> str:
    """What to do where a server has answered 401 or 403.

    >>> suggest_credentials(401).partition(";")[0]
    'wants a user and a password (401)'
    """
    user = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    given = f"user {user}" if user else "the token" if os.environ.get("MLFLOW_TRACKING_TOKEN") else ""
    which = f"{given} or the password" if user else given
    wanted = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    if status == 403:
        return f"permission denied to {given or 'whoever has no password'} (403); ask for it, or set {wanted}"
    if given:
        return f"{which} is not accepted (401); check {wanted}"
    return f"wants a user and a password (401); set {wanted}"


PACKAGES: Final = {  # the package that has a module, where it is called otherwise
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
    "pymysql": "PyMySQL",
    "mysql": "mysql-connector-python",
    "google": "google-cloud-storage",
    "google.cloud": "google-cloud-storage",
    "google.cloud.storage": "google-cloud-storage",
    "azure.storage.filedatalake": "azure-storage-file-datalake azure-identity",
    "azure": "azure-storage-blob azure-identity",
    "databricks": "databricks-sdk",
}


def suggest_package(module: str) -> str:
    """How a module is had that is not installed.

    >>> suggest_package("psycopg2")
    'needs the module psycopg2, which is not installed; install it: pip install psycopg2-binary'
    """
    package = PACKAGES.get(module) or PACKAGES.get(module.partition(".")[0], module.partition(".")[0])
    command = shlex.join(["pip", "install", *package.split()])
    return f"needs the module {module}, which is not installed; install it: {command}"


# What MLflow lacks


def pending_updates(folder: Path) -> dict[str, Any]:
    """What MLflow lacks of the run in `folder`; {}: nothing that is known of."""
    try:
        return from_json((folder / BEHIND).read_bytes())
    except OSError:
        return {}
    except ValueError:
        log.warning("%s: damaged, so what MLflow lacks of this run is not sent; its folder has it", folder / BEHIND)
        return {}


def add_pending(folder: Path, **lacks: Any) -> None:
    """Add to what MLflow lacks."""
    with _changing(folder) as kept:
        kept |= lacks


def clear_pending(folder: Path, *names: str) -> None:
    """MLflow has these now."""
    with _changing(folder) as kept:
        for name in names:
            kept.pop(name, None)


def add_logged(folder: Path, told: Mapping[str, Mapping[str, Any]]) -> None:
    """Add what a run says of itself, by kind and name (metadata.py), to what MLflow lacks."""
    with _changing(folder) as kept:
        for kind, values in told.items():
            kept[kind] = {**kept.get(kind, {}), **values}


def clear_logged(folder: Path, told: Mapping[str, Mapping[str, Any]]) -> None:
    """MLflow has these values now; one that was noted anew meanwhile stays."""
    with _changing(folder) as kept:
        for kind, values in told.items():
            kept[kind] = {key: one for key, one in kept.get(kind, {}).items() if values.get(key) != one}


_in_this_process = threading.Lock()


@contextmanager
def _changing(folder: Path) -> Iterator[dict[str, Any]]:
    """What MLflow lacks, written when the block is left: driver and first worker both change it."""
    with _in_this_process, lock_pending(folder):
        kept = pending_updates(folder)
        before = json.dumps(kept)
        yield kept
        left = {name: value for name, value in kept.items() if value != {}}
        if not left:
            (folder / BEHIND).unlink(missing_ok=True)
        elif json.dumps(left) != before:
            write_atomic(folder / BEHIND, checked_json(left))


@contextmanager
def lock_pending(folder: Path) -> Iterator[None]:
    """Other processes that want the same wait inside the block, where the disk knows locks of folders."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
