"""Fixtures that tests with MLflow runs share: an MLflow store that is created once and then copied."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestration.tracking import stores

FILL_WITH_MLFLOW = stores._fill  # about 200 SQL statements, one second


@pytest.fixture(scope="session", autouse=True)
def copied_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In the test process, create each new store as a copy of the first one, with its own artifact directory."""
    first = tmp_path_factory.mktemp("store") / "mlflow.db"
    first_artifacts = "file:///artifacts-of-the-first"

    def copy(file: Path, artifacts: str) -> None:
        if not first.exists():
            FILL_WITH_MLFLOW(first, first_artifacts)
        file.write_bytes(first.read_bytes())
        with closing(sqlite3.connect(file)) as opened, opened:
            opened.execute(
                "UPDATE experiments SET artifact_location = replace(artifact_location, ?, ?)",
                (first_artifacts, artifacts),
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_fill", copy)
        yield
