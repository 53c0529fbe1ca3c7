"""Calls to a tracking store that may not answer. Data that the store lacks is recorded in the run's directory."""

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

from preprocessing.files import from_json, to_checked_json, write_atomic

log = logging.getLogger(__name__)

T = TypeVar("T")

FAILED_S: Final = 1.0  # timeout in seconds of a store that fails: connection refused, locked, unknown host
SLOW_S: Final = 3.0  # timeout in seconds of a store that fails after an earlier answer
ANSWER_S: Final = 10.0  # timeout in seconds of one answer of a server or a database that may be slow
PROBE_S: Final = 0.4  # seconds after which a probe checks whether the store is available
MOST_S: Final = 60.0  # timeout in seconds of one request of a call while the probe succeeds
PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # default ports of databases
BEHIND: Final = "mlflow-behind.json"  # file in the run's directory: data that MLflow lacks

_silent: Final = set[str]()  # stores that were given up and have not answered since
_here: Final = threading.local()  # `waiting`: the CallTimeout of the call in this thread


def wait_while_available(uri: str, call: Callable[[], T], most_s: float = MOST_S, *, has_answered: bool = False) -> T:
    """Run `call` for the store at `uri` and return its result; it may make any number of requests.

    The wait continues while requests are answered (`MonitoredClient`), each within `most_s`, and while probes show that
    the store is available. Otherwise raises TimeoutError; the call then continues in its own thread.
    """
    waiting = CallTimeout(uri, most_s, has_answered)
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with waiting:
                results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="mlflow call")
    thread.start()
    while thread.is_alive() and not waiting.is_over():
        thread.join(0.02)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(waiting.reason)
    return results[0]


class CallTimeout:
    """The timeout of a call that starts now; used as a context manager in the thread of the call.

    A slow server is not an unavailable server. Answers to the call and answers to probes both extend the timeout;
    probes start after PROBE_S and are repeated. The call is given up after ANSWER_S without an answer. If probes fail,
    the call is given up after FAILED_S, or after SLOW_S if the store has answered before. After a call was given up,
    the timeout is SLOW_S until the store answers again.
    """

    def __init__(self, uri: str, most_s: float = MOST_S, has_answered: bool = False) -> None:
        self._uri, self._most_s, self._has_answered = uri, most_s, has_answered
        self._answered_s = time.monotonic()  # when the call started, or its last request was answered
        self._available_s = 0.0  # when the last probe succeeded
        self._probed_s = 0.0  # when the probes started; 0: not yet
        self._fails = False  # whether the last probe failed
        self._ended = threading.Event()
        self.reason = ""  # why the call was given up

    def __enter__(self) -> "CallTimeout":
        _here.waiting = self
        return self

    def __exit__(self, *error: object) -> None:
        _here.waiting = None
        self._ended.set()

    def record_answer(self) -> None:
        """Record that a request of the call was answered."""
        self._answered_s, self._has_answered = time.monotonic(), True
        _silent.discard(self._uri)

    def is_over(self) -> bool:
        """Whether the call must be given up now. Starts the probes when they are due."""
        now_s = time.monotonic()
        alone_s = now_s - self._answered_s
        if alone_s > PROBE_S and not self._probed_s:
            self._probed_s = now_s
            threading.Thread(target=self._probe, daemon=True, name="mlflow probe").start()
        quiet_s = now_s - max(self._answered_s, self._available_s)
        if self._fails and quiet_s > (limit_s := SLOW_S if self._has_answered else FAILED_S):
            return self._give_up(limit_s)
        limit_s = SLOW_S if self._uri in _silent else ANSWER_S
        if self._probed_s and min(quiet_s, now_s - self._probed_s) > limit_s:
            return self._give_up(limit_s)
        return alone_s > self._most_s and self._give_up(self._most_s)

    def _give_up(self, limit_s: float) -> bool:
        self.reason = f"no answer within {limit_s:g} s"
        if limit_s != self._most_s:
            _silent.add(self._uri)
        self._ended.set()
        return True

    def _probe(self) -> None:
        while not self._ended.is_set():
            self._fails = not is_available(self._uri)
            if not self._fails:
                self._available_s, self._has_answered = time.monotonic(), True
                _silent.discard(self._uri)
            self._ended.wait(PROBE_S)


class MonitoredClient:
    """A client of a store whose answers reset the timeout of the call in this thread."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if not callable(found := getattr(self._client, name)):
            return found

        @functools.wraps(found)
        def call(*args: Any, **more: Any) -> Any:
            answer = found(*args, **more)
            if waiting := getattr(_here, "waiting", None):
                waiting.record_answer()
            return answer

        return call


def is_available(uri: str) -> bool:
    """Whether a store answers now, i.e. `describe_failure` finds no reason."""
    return not describe_failure(uri)


def answer_s(uri: str) -> float:
    """The time in which a store must answer a probe. Stores that are not local files may be slow."""
    return FAILED_S - PROBE_S if database_file(uri) else ANSWER_S


def describe_failure(uri: str, timeout_s: float = 0.0) -> str:
    """The reason why a server, a file of SQLite or a database is not available; "" if it is, or if it cannot be
    checked."""
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
    except urllib.error.HTTPError:  # the server requires a password, so it is available
        pass
    except (OSError, sqlite3.Error, ValueError, http.client.HTTPException) as error:
        # MLflow may trust the certificate
        if not isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
            return summarize_error(error)
    return ""


# Addresses


def database_file(uri: str) -> Path | None:
    """The file of an SQLite store; None for other stores.

    >>> database_file("sqlite+pysqlite:////tmp/a%3Fb/mlflow.db"), database_file("http://127.0.0.1:5000")
    (PosixPath('/tmp/a?b/mlflow.db'), None)
    """
    match = re.match(r"sqlite(?:\+pysqlite)?:///(?!:memory:)([^?]+)", uri)
    return Path(unquote(match[1])) if match else None


def database_uri(file: Path) -> str:
    """The address of an SQLite store.

    The characters ? and # are quoted, because SQLAlchemy would end the path there; % is quoted, too. For addresses that
    begin with sqlite:///, MLflow would create a parent directory with the quoted name. So a quoted address also names
    the driver, which prevents this.

    >>> database_uri(Path("/tmp/of it/mlflow.db")), database_uri(Path("/tmp/50% of it?/mlflow.db"))
    ('sqlite:////tmp/of it/mlflow.db', 'sqlite+pysqlite:////tmp/50%25 of it%3F/mlflow.db')
    """
    quoted = re.sub("[%?#]", lambda match: quote(match[0]), str(file))
    return f"sqlite:///{quoted}" if quoted == str(file) else f"sqlite+pysqlite:///{quoted}"


def folder_of(uri: str) -> Path:
    """The directory of a file: address, as `Path.as_uri` writes it, or of a path without a scheme.

    >>> folder_of(Path("/tmp/50% #1").as_uri()), folder_of("/tmp/50%20 #1")
    (PosixPath('/tmp/50% #1'), PosixPath('/tmp/50%20 #1'))
    """
    return Path(unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)


def redact(text: str) -> str:
    """The text without the users and passwords of addresses in it.

    >>> redact("http://ann:secret@host:5000/ does not answer")
    'http://***@host:5000/ does not answer'
    """
    return re.sub(r"(?<=://)[^/\s]*@", "***@", text)


def without_password(uri: str) -> str:
    """The address without its user and password.

    >>> without_password("postgresql://ann:secret@host/db"), without_password("sqlite:////a@b/mlflow.db")
    ('postgresql://host/db', 'sqlite:////a@b/mlflow.db')
    """
    return re.sub(r"(?<=://)[^/\s]*@", "", uri, count=1)


# Errors


STATUS: Final = re.compile(r"too many (\d{3}) error responses|failed with error code (\d{3}) != 200")
STRANGE: Final = {  # descriptions of answers that do not come from MLflow
    "not in a valid JSON format": "answers with a web page, unlike MLflow: check the address, and whether it requires "
    "a login",
    "redirects.": "answers with endless redirects: check the address, and whether it requires a login",
    "Connection broken": "answers, but the connection breaks",
}


def summarize_error(error: BaseException) -> str:
    """The first line of an error, without passwords. Further lines of database errors contain the SQL statements.

    If a server requires credentials, the line names the variables for them. If a package is missing, the line contains
    the command that installs it.
    """
    if status := refusal_status(error):
        return suggest_credentials(status)
    if isinstance(error, ImportError) and error.name:
        return suggest_package(error.name)
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    message = str(error)
    if match := STATUS.search(message):
        return describe_status(int(match[1] or match[2]))
    if strange := next((words for part, words in STRANGE.items() if part in message), ""):
        return strange
    return redact(next(iter(message.splitlines()), "") or type(error).__name__)


def describe_status(status: int) -> str:
    """The meaning of a status code, if the answer of the server is not an error of MLflow.

    >>> describe_status(503)
    'answers 503 (Service Unavailable): the server, or a proxy before it, fails'
    """
    phrase = f" ({HTTPStatus(status).phrase})" if status in [*HTTPStatus] else ""
    fails = status >= 500 or status == HTTPStatus.TOO_MANY_REQUESTS
    return f"answers {status}{phrase}: {'the server, or a proxy before it, fails' if fails else 'it is not MLflow'}"


def describe_unavailable(error: BaseException) -> str:
    """A description of a failing store that follows its address in a sentence.

    >>> describe_unavailable(OSError("refused")), describe_unavailable(OSError("answers 700"))
    ('does not answer (refused)', 'answers 700')
    """
    message = summarize_error(error)
    return message if message.startswith("answers") else f"does not answer ({message})"


def refusal_status(error: BaseException) -> int:
    """401 or 403 if a server refused a request because of credentials or permissions; else 0."""
    answer = getattr(error, "response", None)  # response of the package requests, which uploads artifacts
    status = getattr(answer, "status_code", None) or getattr(error, "code", None)
    status = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}.get(getattr(error, "error_code", ""), status)
    return status if status in (401, 403) else 0


def suggest_credentials(status: int) -> str:
    """The problem and the remedy after an answer with status 401 or 403.

    >>> suggest_credentials(401).partition(";")[0]
    'requires a user and a password (401)'
    """
    user = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    login = f"user {user}" if user else "the token" if os.environ.get("MLFLOW_TRACKING_TOKEN") else ""
    which = f"{login} or the password" if user else login
    variables = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    if status == 403:
        return f"permission denied to {login or 'users without a password'} (403); request access, or set {variables}"
    if login:
        return f"{which} is not accepted (401); check {variables}"
    return f"requires a user and a password (401); set {variables}"


PACKAGES: Final = {  # the package of a module, if its name differs
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
    """The command that installs a missing module.

    >>> suggest_package("psycopg2")
    'needs the module psycopg2, which is not installed; install it: pip install psycopg2-binary'
    """
    package = PACKAGES.get(module) or PACKAGES.get(module.partition(".")[0], module.partition(".")[0])
    command = shlex.join(["pip", "install", *package.split()])
    return f"needs the module {module}, which is not installed; install it: {command}"


# Data that MLflow lacks


def pending_updates(folder: Path) -> dict[str, Any]:
    """The data that MLflow lacks of the run in `folder`; {} if nothing is recorded."""
    try:
        return from_json((folder / BEHIND).read_bytes())
    except OSError:
        return {}
    except ValueError:
        log.warning(
            "%s: damaged, so data that MLflow lacks is not sent; it stays in the run's directory", folder / BEHIND
        )
        return {}


def add_pending(folder: Path, **lacks: Any) -> None:
    """Record data that MLflow lacks."""
    with _edit_pending(folder) as pending:
        pending |= lacks


def clear_pending(folder: Path, *names: str) -> None:
    """Remove records of data that MLflow has now."""
    with _edit_pending(folder) as pending:
        for name in names:
            pending.pop(name, None)


def add_logged(folder: Path, values_by_kind: Mapping[str, Mapping[str, Any]]) -> None:
    """Record metadata of a run that MLflow lacks, by kind and name (metadata.py)."""
    with _edit_pending(folder) as pending:
        for kind, values in values_by_kind.items():
            pending[kind] = {**pending.get(kind, {}), **values}


def clear_logged(folder: Path, values_by_kind: Mapping[str, Mapping[str, Any]]) -> None:
    """Remove records of metadata that MLflow has now; a value that changed meanwhile stays."""
    with _edit_pending(folder) as pending:
        for kind, values in values_by_kind.items():
            pending[kind] = {key: one for key, one in pending.get(kind, {}).items() if values.get(key) != one}


_in_this_process = threading.Lock()


@contextmanager
def _edit_pending(folder: Path) -> Iterator[dict[str, Any]]:
    """The recorded data that MLflow lacks, written at the end of the block. The driver and the first worker both change
    this data."""
    with _in_this_process, lock_pending(folder):
        pending = pending_updates(folder)
        before = json.dumps(pending)
        yield pending
        remaining = {name: value for name, value in pending.items() if value != {}}
        if not remaining:
            (folder / BEHIND).unlink(missing_ok=True)
        elif json.dumps(remaining) != before:
            write_atomic(folder / BEHIND, to_checked_json(remaining))


@contextmanager
def lock_pending(folder: Path) -> Iterator[None]:
    """Hold a lock of the directory, if the disk supports locks; other processes wait."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
