"""Fixtures for evaluation jobs: a model, its data, and trials that run in the test process."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchestration import launch
from orchestration.evaluation import eval_target
from orchestration.evaluation.eval_request import EvalTarget
from orchestration.launch import eval_trial as launch_cell
from orchestration.launch.eval_trial import EvalTrial
from preprocessing.errors import SesameError
from tests.orchestration.evaluation.runs import finished_run, write_reviews


@pytest.fixture
def target(tmp_path: Path) -> EvalTarget:
    return eval_target.target_of_run(finished_run(tmp_path / "out" / "runs" / "bert_base_tiny-12345678"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_reviews(tmp_path / "data")


@pytest.fixture
def trial_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run trials in the test process instead of on Ray; return the names of the trials that ran."""
    names: list[str] = []

    def run_here(
        cells: Sequence[EvalTrial], room: Any, on_done: Callable[[int, Any], str], *more: Any
    ) -> dict[int, Any]:
        failed: dict[int, SesameError] = {}
        for number, cell in enumerate(cells):
            names.append(cell.name)
            try:
                on_done(number, launch_cell.evaluate_cell(cell))
            except SesameError as error:
                failed[number] = error
        return failed

    monkeypatch.setattr(launch, "run_trials", run_here)
    monkeypatch.setattr(launch, "ray_session", lambda *_, **__: nullcontext())
    return names
