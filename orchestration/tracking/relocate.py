"""A folder of ours that was moved or copied with its store: MLflow keeps absolute paths beside the database."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlparse
from urllib.request import url2pathname

log = logging.getLogger(__name__)

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"  # in the folder of --output-dir
COLUMNS: Final = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
WAIT_S: Final = 30.0  # for another process that writes to it


def relocate_store(artifacts: str) -> None:
    """Have the store that lies beside these artifacts, a URI, say that they are there: without it MLflow would go on
    to write, and look for, artifacts at the place that they were moved from."""
    database = Path(url2pathname(urlparse(artifacts).path)).with_name(DATABASE)
    if not database.is_file():
        return
    try:
        with closing(sqlite3.connect(database, timeout=WAIT_S)) as store, store:
            before = [place for place in _places(store) if place != artifacts]
            for place in before:
                log.warning(
                    "%s: was at %s; its artifacts are looked for, and written, where it is now", database, place
                )
                for table, column in COLUMNS:
                    _replace(store, table, column, place, artifacts)
    except sqlite3.Error as error:  # whoever opens it next is told what is wrong with it
        log.debug("%s: %s", database, error)


def has_run(database: Path, run_id: str) -> bool:
    """Whether a store of SQLite has this run; one that cannot be read has none."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=WAIT_S)) as store:
            return store.execute("SELECT 1 FROM runs WHERE run_uuid = ?", (run_id,)).fetchone() is not None
    except sqlite3.Error as error:
        log.debug("%s: %s", database, error)
        return False


def _places(store: sqlite3.Connection) -> list[str]:
    """Where our experiments say that their artifacts are; those that somebody else has made are left alone."""
    ours = (
        "SELECT DISTINCT artifact_location FROM experiments JOIN experiment_tags USING (experiment_id) "
        "WHERE key = 'mlflow.experimentKind' AND artifact_location LIKE 'file:%/' || ?"
    )
    return [place for (place,) in store.execute(ours, (ARTIFACTS,))]


def _replace(store: sqlite3.Connection, table: str, column: str, old: str, new: str) -> None:
    """Paths at or below the one place become those at the other."""
    try:
        store.execute(
            f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # names of ours
            f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
            (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
        )
    except sqlite3.OperationalError as error:  # an MLflow without this table or column
        if "no such" not in str(error):
            raise
