"""Repairs the store of an output directory that was moved or copied: MLflow keeps absolute paths in its database."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlparse
from urllib.request import url2pathname

log = logging.getLogger(__name__)

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"  # file and directory in --output-dir
COLUMNS: Final = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
WAIT_S: Final = 30.0  # seconds to wait for another process that writes to the database


def relocate_store(artifacts: str) -> None:
    """Set the artifact location in the store beside the directory `artifacts` (a URI) to this directory.

    Without this, MLflow would read and write artifacts at their old place.
    """
    database = Path(url2pathname(urlparse(artifacts).path)).with_name(DATABASE)
    if not database.is_file():
        return
    try:
        with closing(sqlite3.connect(database, timeout=WAIT_S)) as store, store:
            before = [place for place in _artifact_locations(store) if place != artifacts]
            for place in before:
                log.warning(
                    "%s: was moved from %s; its artifacts are now read and written at the new place", database, place
                )
                for table, column in COLUMNS:
                    _replace(store, table, column, place, artifacts)
    except sqlite3.Error as error:  # the next command that opens the database reports the error
        log.debug("%s: %s", database, error)


def has_run(database: Path, run_id: str) -> bool:
    """Whether an SQLite store has this run; False if the store cannot be read."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=WAIT_S)) as store:
            return store.execute("SELECT 1 FROM runs WHERE run_uuid = ?", (run_id,)).fetchone() is not None
    except sqlite3.Error as error:
        log.debug("%s: %s", database, error)
        return False


def _artifact_locations(store: sqlite3.Connection) -> list[str]:
    """The artifact locations of Sesame's experiments; those of other experiments do not change."""
    query = (
        "SELECT DISTINCT artifact_location FROM experiments JOIN experiment_tags USING (experiment_id) "
        "WHERE key = 'mlflow.experimentKind' AND artifact_location LIKE 'file:%/' || ?"
    )
    return [place for (place,) in store.execute(query, (ARTIFACTS,))]


def _replace(store: sqlite3.Connection, table: str, column: str, old: str, new: str) -> None:
    """Replace the path `old`, and paths below it, by `new`."""
    try:
        store.execute(
            f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # table and column are constants of this module
            f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
            (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
        )
    except sqlite3.OperationalError as error:  # this version of MLflow has no such table or column
        if "no such" not in str(error):
            raise
