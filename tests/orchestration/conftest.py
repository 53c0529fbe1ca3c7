"""What tests of runs share: a store that is made once."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestration.tracking import stores

MADE_BY_MLFLOW = stores._fill  # two hundred statements, a second


@pytest.fixture(scope="session", autouse=True)
def copied_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In the process of the tests each new store is a copy of the first one, for artifacts of its own."""
    first = tmp_path_factory.mktemp("store") / "mlflow.db"
    told = "file:///artifacts-of-the-first"

    def copy(file: Path, artifacts: str) -> None:
        if not first.exists():
            MADE_BY_MLFLOW(first, told)
        file.write_bytes(first.read_bytes())
        with closing(sqlite3.connect(file)) as opened, opened:
            opened.execute(
                "UPDATE experiments SET artifact_location = replace(artifact_location, ?, ?)", (told, artifacts)
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_fill", copy)
        yield
