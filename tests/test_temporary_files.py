"""Temporary files of tests are removed at the end; 700 directories had accumulated in a day."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import pytest_configure


class Config:
    """The configuration of a run of pytest, which ends when its cleanups are called."""

    def __init__(self) -> None:
        self.cleanups = list[Callable[[], None]]()

    def add_cleanup(self, cleanup: Callable[[], None]) -> None:
        self.cleanups.append(cleanup)


def test_a_test_run_has_its_own_temporary_directory_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pytest_configure(config := Config())  # type: ignore[arg-type]  # has all methods that are used
    directory = Path(tempfile.mkdtemp())  # like that of a Beam job or an MLflow download
    (directory / "model").write_text("weights")
    assert directory.parent.parent == tmp_path
    assert os.environ["TMPDIR"] == str(directory.parent)
    (end,) = config.cleanups
    end()
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)
