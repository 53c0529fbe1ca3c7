"""Fixtures for tests of worker groups: a corpus, an MLflow store, a Ray session, and an undisturbed run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestration.launch import ray_session
from orchestration.tracking import runs as track
from tests.orchestration.launch.mini_group import run_of, start
from tests.training.held_out import with_test_split


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_test_split(tmp_path_factory.mktemp("text") / "corpus")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> track.TrackingStore:
    return track.tracking_store(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """A Ray session with two cores, for the tests of a file that request it."""
    with ray_session(cpus=2):
        yield


@pytest.fixture(scope="session")
def reference_run(corpus: Path, place: track.TrackingStore, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The directory and the result of an undisturbed run, which is made once for all files."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return folder, start(run_of(corpus, folder), place)
