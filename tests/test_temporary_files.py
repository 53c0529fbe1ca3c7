"""What tests leave in the folder of temporary files goes with them: 700 folders had come together there in a day."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import pytest_configure


class Config:
    """That of a run of pytest, which ends when its cleanups are called."""

    def __init__(self) -> None:
        self.cleanups = list[Callable[[], None]]()

    def add_cleanup(self, cleanup: Callable[[], None]) -> None:
        self.cleanups.append(cleanup)


def test_a_run_of_the_tests_has_a_folder_of_its_own_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pytest_configure(config := Config())  # type: ignore[arg-type]  # as much of one as it needs
    made = Path(tempfile.mkdtemp())  # as a job of Beam leaves it, or a download of MLflow
    (made / "model").write_text("weights")
    assert made.parent.parent == tmp_path
    assert os.environ["TMPDIR"] == str(made.parent)
    (end,) = config.cleanups
    end()
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)
