"""What the first worker leaves behind when a run is finished."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.launch.worker import EXPORT, WEIGHTS, export_weights
from tests.training.corpora import mini_corpus, mini_run
from training.engines.local import LocalEngine
from training.formats import build_model
from training.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    corpus = mini_corpus(tmp_path / "corpus", num_train=3, num_validation=1)
    return mini_run(corpus, tmp_path / "run")


def engine(run: Run) -> LocalEngine:
    return LocalEngine(build_model(run), run.optim, run.machine)


def test_a_net_that_transformers_has_is_exported(run: Run) -> None:
    assert export_weights(run, engine(run)) == ""
    assert (Path(run.folder) / EXPORT / "config.json").is_file()


def test_why_a_net_is_not_exported_is_said_in_one_line(run: Run) -> None:
    run = replace(run, trunk=replace(run.trunk, segments=0), losses=run.losses[:1])
    said = export_weights(run, engine(run))
    assert re.match(r"export: transformers has no encoder like this \(.*segments 0", said)
    assert "\n" not in said
    assert (Path(run.folder) / WEIGHTS / "spec.json").is_file()
    assert not (Path(run.folder) / EXPORT).exists()
