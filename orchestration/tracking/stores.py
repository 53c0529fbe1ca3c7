"""Supported MLflow stores and their requirements, and the SQLite store of an output directory, which is created
atomically.

MLflow creates the tables of a new file in about a hundred steps, which take seconds. The first new store of a user is
therefore kept as a template in the cache of the user, and copied for the next output directories.

An interrupted process leaves a file that no command can open, and two processes that create the file at once disturb
each other. So the file is created under another name with a lock, and then renamed.
"""

import glob
import importlib
import importlib.metadata
import logging
import os
import re
import shutil
import sqlite3
import time
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from orchestration.tracking.store_timeout import database_uri, lock_pending, redact, suggest_package
from preprocessing.errors import BadInput
from preprocessing.files import TEMPORARY, write_atomic
from preprocessing.folders import user_cache

log = logging.getLogger(__name__)

DATABASES: Final = ("postgresql", "mysql", "mssql", "sqlite")
SCHEMES: Final = ("http", "https", *DATABASES, "databricks", "databricks-uc", "uc", "file")
INCOMPLETE: Final = "half-made-"  # prefix of the new name of an incomplete SQLite file
CLIENTS: Final = {  # the module that uploads files to a location, if it is not part of MLflow
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
    """Check an address of MLFLOW_TRACKING_URI. Raises BadInput if MLflow does not support the store, or its driver is
    not installed."""
    setting = f"MLFLOW_TRACKING_URI is {redact(uri)}"
    invalid = f"invalid MLFLOW_TRACKING_URI: got {redact(uri)}"
    if re.fullmatch(r"[\w.-]+:[0-9]+", uri):
        raise BadInput(f"{invalid}, expected an address with a scheme; set it to http://{uri}")
    scheme = _scheme(uri)
    if scheme in DATABASES:
        _check_driver(uri, setting)
        if scheme == "sqlite" and re.fullmatch(r"[^:]+:/*(:memory:)?(\?.*)?", uri):
            raise BadInput(
                f"{setting}: a store in memory loses its runs when the command ends; set it to "
                "sqlite:////DIRECTORY/mlflow.db, or unset it"
            )
    elif scheme in ("http", "https") and not re.match(r"https?://[^/]", uri):
        raise BadInput(f"{invalid}, expected an address with a host; set it to {scheme}://HOST:PORT")
    elif scheme and scheme not in (*SCHEMES, *_plugins("mlflow.tracking_store")) and not uri.startswith("arn:aws:"):
        raise BadInput(
            f"{setting}: MLflow has no store {scheme}:, expected one of {', '.join(SCHEMES)}; check the address, or "
            "install the MLflow plugin for it"
        )
    elif scheme in ("", "file") and os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() not in ("true", "1"):
        raise BadInput(
            f"{setting}: a directory, where MLflow no longer stores new runs; set it to "
            "sqlite:////DIRECTORY/mlflow.db, or unset it"
        )
    return uri


def check_artifacts(location: str) -> None:
    """Raises BadInput if no installed package can upload files to the artifact location of a store."""
    scheme = _scheme(location)
    if scheme in CLIENTS:
        try:
            importlib.import_module(CLIENTS[scheme])
        except ImportError as error:
            missing = suggest_package(CLIENTS[scheme])
            raise BadInput(f"MLflow stores artifacts in {redact(location)}, which {missing}") from error
    elif scheme and scheme not in (*PLACES, *_plugins("mlflow.artifact_repository")):
        raise BadInput(
            f"MLflow stores artifacts in {redact(location)}, but has no client for {scheme}:, expected one of "
            f"{', '.join(PLACES)}; set another artifact location, or install an MLflow plugin"
        )


def _scheme(uri: str) -> str:
    """The scheme of an address in lower case, without the driver of a database; "" if it has none.

    >>> _scheme("mysql+pymysql://host/db"), _scheme("databricks"), _scheme("/tmp/a:b")
    ('mysql', 'databricks', '')
    """
    if uri in ("databricks", "databricks-uc", "uc"):
        return uri
    match = re.match(r"([A-Za-z][A-Za-z0-9.-]*)(?:\+[A-Za-z0-9_]+)?:", uri)
    return match[1].lower() if match else ""


def _plugins(group: str) -> list[str]:
    return [each.name for each in importlib.metadata.entry_points(group=group)]


def _check_driver(uri: str, setting: str) -> None:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except NoSuchModuleError as error:
        raise BadInput(f"{setting}: SQLAlchemy has no such driver ({error}); check the part after the +") from error
    except ImportError as error:
        raise BadInput(f"{setting}, which {suggest_package(error.name or str(error))}") from error
    except (ArgumentError, ValueError) as error:
        raise BadInput(
            f"{setting}: invalid address of a database ({error}); use an address such as sqlite:////folder/mlflow.db"
        ) from error


# The SQLite file of an output directory


def is_whole(file: Path) -> bool:
    """Whether a file is a complete SQLite store, or another file that must not be replaced.

    False if the file is missing, or if an interrupted command left it without its last tables. The first experiment is
    created after all tables.
    """
    if not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True, timeout=0)) as opened:
            tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return "experiments" in tables and opened.execute("SELECT 1 FROM experiments").fetchone() is not None
    except sqlite3.Error:  # another command has locked the file, or it is not an SQLite file, which MLflow will report
        return True


def make(file: Path, artifacts: str = "") -> None:
    """Create the store of an output directory unless it is complete; artifacts of its first experiment go to
    `artifacts`.

    An incomplete file is renamed. Raises BadInput if the directory is not writable.
    """
    if is_whole(file):
        return
    try:
        with lock_pending(file.parent):
            if not is_whole(file):
                _make(file, artifacts)
    except OSError as error:
        raise BadInput(
            f"{error.filename or file.parent}: cannot be created ({error.strerror}); set another --output-dir, or "
            "MLFLOW_TRACKING_URI"
        ) from None


def _make(file: Path, artifacts: str) -> None:
    for leftover in file.parent.glob(f"{TEMPORARY}{glob.escape(file.name)}-*"):  # left by a command that was killed
        leftover.unlink(missing_ok=True)
    if file.exists():
        renamed = file.with_name(f"{INCOMPLETE}{uuid.uuid4().hex[:8]}-{file.name}")
        for suffix in ("-journal", "-wal", "-shm"):  # files of the old store; SQLite would use them for the new store
            with suppress(FileNotFoundError):
                os.rename(f"{file}{suffix}", f"{renamed}{suffix}")
        os.rename(file, renamed)
        message = "%s: an interrupted command left it incomplete; it was created again, and the old file is %s"
        log.warning(message, file, renamed)
    temporary = file.with_name(f"{TEMPORARY}{file.name}-{uuid.uuid4().hex}")
    try:
        _fill(temporary, artifacts or (file.parent / "artifacts").absolute().as_uri())
        _rename(temporary, file)
    finally:
        for path in (temporary, Path(f"{temporary}-journal")):
            path.unlink(missing_ok=True)


def _fill(file: Path, artifacts: str) -> None:
    """Create all tables of a store, and its first experiment, from the template if there is one."""
    template = _template()
    if _copy_template(template, file, artifacts):
        return
    _create_tables(file, artifacts)
    with suppress(OSError, BadInput):  # a full or read-only cache: the next store is created in the same way
        write_atomic(template, file.read_bytes())


def _create_tables(file: Path, artifacts: str) -> None:
    """Create a store with MLflow, which takes 200 SQL statements and seconds."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(database_uri(file), artifacts).engine.dispose()


def _template() -> Path:
    """The file of the empty store in the cache of the user. Each version of MLflow has its own tables."""
    return user_cache() / f"mlflow-{importlib.metadata.version('mlflow')}.db"


def _copy_template(template: Path, file: Path, artifacts: str) -> bool:
    """Copy the template, and set the artifact location and the times of its first experiment.

    Returns False if the template is missing or damaged; `file` does not exist then.
    """
    now_ms = int(time.time() * 1000)
    try:
        shutil.copyfile(template, file)
        with closing(sqlite3.connect(file)) as opened, opened:
            is_sound = opened.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            changed = opened.execute(
                "UPDATE experiments SET artifact_location = ?, creation_time = ?, last_update_time = ?",
                (f"{artifacts}/0", now_ms, now_ms),
            )
            if is_sound and changed.rowcount == 1:
                return True
    except (OSError, sqlite3.Error):
        pass
    file.unlink(missing_ok=True)
    return False


def _rename(temporary: Path, file: Path) -> None:
    """Rename a new file, unless another command has created the target; not every disk has locks."""
    try:
        os.link(temporary, file)
    except FileExistsError:
        log.debug("%s: another command has created it", file)
    except OSError:  # a disk without hard links
        if not file.exists():
            os.rename(temporary, file)
