"""Scores of tasks, computed from the results of their trials."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from orchestration.evaluation import task_scores
from orchestration.evaluation.eval_request import EvalTarget
from orchestration.evaluation.score_plan import plan_tasks
from tests.orchestration.evaluation.runs import make_request
from training.evaluation import EvalResult


@pytest.mark.parametrize(
    ("metric", "values", "score", "low", "high"),
    [
        ("f1", [0.2, 1.9, 0.9, 1.0], 0.99, 0.0, 1.0),
        ("matthews", [-0.9, 2.9, 0.2, 0.8], 0.6, -1.0, 1.0),
        ("word_perplexity", [3.0, 9.0], np.exp(6), 0.0, np.inf),
        ("word_perplexity", [0.2, 0.9] * 50, np.exp(0.55), 1.0, np.e),
        ("bits_per_byte", [0.9, 0.1] * 50, 0.5, 0.4, 0.6),
    ],
)
def test_intervals_stay_inside_the_range_of_the_metric(
    metric: str, values: list[float], score: float, low: float, high: float
) -> None:
    """The interval of a perplexity over two texts once was -79 to 79 million, and that of an accuracy gain reached
    101.9 points."""
    plan: Any = SimpleNamespace(metric=metric, split="dev")

    def cells(start: str, of: list[float], score: float) -> Any:
        cell: Any = SimpleNamespace(start=start, tuning=None)
        return [(cell, EvalResult({"dev": {metric: score}}, {}, by_unit={"dev": of}))]

    ends = task_scores._interval(plan, cells("pretrained", values, score))
    assert ends is not None
    assert low <= ends[0] < score < ends[1] <= high
    gain = task_scores._gain(
        plan, cells("pretrained", values, score), cells("random", [value - 0.3 for value in values], score / 2)
    )
    assert gain is not None
    assert gain.low <= gain.difference <= gain.high
    assert abs(gain.difference) == pytest.approx(score / 2)
    if metric in ("f1", "matthews"):
        assert low - high <= gain.low < gain.high <= high - low
    infinite = task_scores._interval(plan, cells("pretrained", [value + 800 for value in values], np.inf))
    assert infinite is None  # the interval once was infinity to 1e304, which filled four lines of a table


def test_score_has_the_notes_of_the_selected_trials_by_seed(target: EvalTarget, data: Path) -> None:
    """A score once had the threshold of another learning rate beside it."""
    (plan,) = plan_tasks(target, make_request(data, learning_rates=(1e-3, 3e-3), with_baseline=True))
    results = []
    for cell in plan.cells:
        assert cell.tuning is not None
        own = f"threshold of {cell.start}, {cell.tuning.learning_rate}, {cell.tuning.seed}"
        scores = {"dev": {"accuracy": cell.tuning.learning_rate}}
        results.append((cell, EvalResult(scores, {"dev": []}, notes=["all say this", own])))
    plan = replace(plan, notes=())
    score = task_scores.summarize(plan, results, {})
    assert score.starts["pretrained"].how["learning_rate"] == 3e-3
    assert score.notes == ("all say this", *(f"seed {n}: threshold of pretrained, 0.003, {n}" for n in range(2)))
    assert task_scores.summarize(plan, results[-4:], {}).notes == score.notes
