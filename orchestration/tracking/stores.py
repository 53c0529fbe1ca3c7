"""Which stores MLflow has, what each needs to be installed, and the one of a folder: a file of SQLite, there whole or
not at all.

MLflow makes the tables of a new file in a hundred steps. Stopped in between, it leaves a file that no command can open
any more, and two that make one at once disturb each other. So it is made aside, under a lock, and then gets its name.
"""

import glob
import importlib
import importlib.metadata
import logging
import os
import re
import sqlite3
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from orchestration.tracking.store_timeout import database_uri, lock_pending, redact, suggest_package
from preprocessing.errors import BadInput
from preprocessing.files import TEMPORARY

log = logging.getLogger(__name__)

DATABASES: Final = ("postgresql", "mysql", "mssql", "sqlite")
SCHEMES: Final = ("http", "https", *DATABASES, "databricks", "databricks-uc", "uc", "file")
HALF_MADE: Final = "half-made-"  # how a file of SQLite is called from then on that was left without its tables
CLIENTS: Final = {  # the module by which files get to a place, where MLflow does not bring it
    "s3": "boto3",
    "r2": "boto3",
    "b2": "boto3",
    "gs": "google.cloud.storage",
    "wasbs": "azure.storage.blob",
    "abfss": "azure.storage.filedatalake",
    "sftp": "pysftp",
    "hdfs": "pyarrow",
    "viewfs": "pyarrow",
}
PLACES: Final = (*CLIENTS, "file", "http", "https", "mlflow-artifacts", "ftp", "dbfs")


def check_store_address(uri: str) -> str:
    """An address of MLFLOW_TRACKING_URI; BadInput where MLflow knows no such store, or its driver is not installed."""
    said = f"MLFLOW_TRACKING_URI is {redact(uri)}"
    if re.fullmatch(r"[\w.-]+:[0-9]+", uri):
        raise BadInput(f"{said}, allowed is an address with a scheme; set it to http://{uri}")
    scheme = _scheme(uri)
    if scheme in DATABASES:
        _check_driver(uri, said)
        if scheme == "sqlite" and re.fullmatch(r"[^:]+:/*(:memory:)?(\?.*)?", uri):
            raise BadInput(
                f"{said}: a store in memory, whose runs are gone when the command ends; set it to "
                "sqlite:////FOLDER/mlflow.db, or unset it"
            )
    elif scheme in ("http", "https") and not re.match(r"https?://[^/]", uri):
        raise BadInput(f"{said}, allowed is an address with a host; set it to {scheme}://HOST:PORT")
    elif scheme and scheme not in (*SCHEMES, *_plugins("mlflow.tracking_store")) and not uri.startswith("arn:aws:"):
        raise BadInput(
            f"{said}: MLflow has no store {scheme}:, allowed are {', '.join(SCHEMES)}; check the address, or install "
            "the plugin of MLflow that brings it"
        )
    elif scheme in ("", "file") and os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() not in ("true", "1"):
        raise BadInput(
            f"{said}: a folder, in which MLflow keeps no new runs any more; set it to sqlite:////FOLDER/mlflow.db, or "
            "unset it"
        )
    return uri


def check_artifacts(location: str) -> None:
    """BadInput where nothing is installed that gets files to a place in which a store keeps artifacts."""
    scheme = _scheme(location)
    if scheme in CLIENTS:
        try:
            importlib.import_module(CLIENTS[scheme])
        except ImportError as error:
            missing = suggest_package(CLIENTS[scheme])
            raise BadInput(f"MLflow keeps artifacts in {redact(location)}, which {missing}") from error
    elif scheme and scheme not in (*PLACES, *_plugins("mlflow.artifact_repository")):
        raise BadInput(
            f"MLflow keeps artifacts in {redact(location)}, and gets no files to {scheme}:, allowed are "
            f"{', '.join(PLACES)}; give the experiment another place, or install the plugin of MLflow that does"
        )


def _scheme(uri: str) -> str:
    """What stands before the first colon, without the driver of a database.

    >>> _scheme("mysql+pymysql://host/db"), _scheme("databricks"), _scheme("/tmp/a:b")
    ('mysql', 'databricks', '')
    """
    if uri in ("databricks", "databricks-uc", "uc"):
        return uri
    found = re.match(r"([A-Za-z][A-Za-z0-9.-]*)(?:\+[A-Za-z0-9_]+)?:", uri)
    return found[1].lower() if found else ""


def _plugins(group: str) -> list[str]:
    return [each.name for each in importlib.metadata.entry_points(group=group)]


def _check_driver(uri: str, said: str) -> None:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except NoSuchModuleError as error:
        raise BadInput(f"{said}: SQLAlchemy has no such driver ({error}); check what stands behind the +") from error
    except ImportError as error:
        raise BadInput(f"{said}, which {suggest_package(error.name or str(error))}") from error
    except (ArgumentError, ValueError) as error:
        raise BadInput(f"{said}: no address of a database ({error}), as sqlite:////folder/mlflow.db") from error


# The file of a folder


def is_whole(file: Path) -> bool:
    """Whether a file of SQLite is a store, or something else that is not ours to replace; not: one that is missing, or
    that a stopped command has left without its last tables. The first experiment comes after these."""
    if not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True, timeout=0)) as opened:
            tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return "experiments" in tables and opened.execute("SELECT 1 FROM experiments").fetchone() is not None
    except sqlite3.Error:  # locked, so another command has opened it; or no file of SQLite, which MLflow will say
        return True


def make(file: Path, artifacts: str = "") -> None:
    """Make the store of a folder, where it is not there whole; the artifacts of its first experiment go to `artifacts`.

    A half-made one is set aside, under another name. BadInput where the folder cannot be written to.
    """
    if is_whole(file):
        return
    try:
        with lock_pending(file.parent):
            if not is_whole(file):
                _make(file, artifacts)
    except OSError as error:
        raise BadInput(
            f"{error.filename or file.parent}: cannot be made ({error.strerror}); give another --output-dir, or "
            "MLFLOW_TRACKING_URI"
        ) from None


def _make(file: Path, artifacts: str) -> None:
    for left in file.parent.glob(f"{TEMPORARY}{glob.escape(file.name)}-*"):  # by a command that was killed
        left.unlink(missing_ok=True)
    if file.exists():
        aside = file.with_name(f"{HALF_MADE}{uuid.uuid4().hex[:8]}-{file.name}")
        for suffix in ("-journal", "-wal", "-shm"):  # of the old file, which SQLite would take for the new one's
            with suppress(FileNotFoundError):
                os.rename(f"{file}{suffix}", f"{aside}{suffix}")
        os.rename(file, aside)
        log.warning("%s: was left half-made by a command that was stopped; made anew, the old one is %s", file, aside)
    temporary = file.with_name(f"{TEMPORARY}{file.name}-{uuid.uuid4().hex}")
    try:
        _fill(temporary, artifacts or (file.parent / "artifacts").absolute().as_uri())
        _name(temporary, file)
    finally:
        for path in (temporary, Path(f"{temporary}-journal")):
            path.unlink(missing_ok=True)


def _fill(file: Path, artifacts: str) -> None:
    """Make all tables of a store, and its first experiment."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(database_uri(file), artifacts).engine.dispose()


def _name(temporary: Path, file: Path) -> None:
    """Give a file its name, unless another command has just made one: not every disk has locks."""
    try:
        os.link(temporary, file)
    except FileExistsError:
        log.debug("%s: was made by another command", file)
    except OSError:  # a disk without hard links
        if not file.exists():
            os.rename(temporary, file)
