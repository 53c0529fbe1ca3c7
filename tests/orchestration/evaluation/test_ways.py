"""Each evaluation method: repeated evaluations give the same bytes, and a trial gives the same scores on a GPU."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import torch

from orchestration import launch
from orchestration.config import load_cluster, tasks_from_words
from orchestration.evaluation import eval_target, evaluate
from orchestration.evaluation.eval_request import EvalRequest
from orchestration.evaluation.score_plan import TaskPlan, plan_tasks
from orchestration.launch.eval_trial import EvalTrial, evaluate_cell
from orchestration.progress import ignore_progress
from orchestration.reports import PREDICTIONS
from preprocessing.errors import BadInput
from tests.orchestration.evaluation.runs import finished_run, write_reviews
from training.architectures import dropout, dropout_attention
from training.evaluation.tasks.part import Way
from training.finetuning import loop
from training.specs import EngineSettings

STEPS: Final = 40
DEVICES: Final = [
    "cpu",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
    ),
]
each_method = pytest.mark.parametrize("way", get_args(Way))


PAIRS: Final = "".join(
    json.dumps(
        {
            "sentence_good": f"the {noun} is good",
            "sentence_bad": f"the {noun} the is",
            "UID": noun,
            "linguistics_term": "order",
        }
    )
    + "\n"
    for noun in ("film", "book", "plot")
)
IN_WORDS: Final = """
name: in_words
description: is it good or bad, in a word that is written
citation: test
files:
  train: {paths: [SST-2/train.tsv], format: {kind: tsv}}
  dev: {paths: [SST-2/dev.tsv], format: {kind: tsv}}
task: {kind: text_to_text, name: sst2, fields: [sentence], label_words: {"0": bad, "1": good},
  task: {kind: classification, text: sentence, label: label, labels: ["0", "1"]}, generation: {max_new_tokens: 4}}
"""


def make_plan(way: Way, folder: Path) -> TaskPlan:
    """Plan a task of this method for a tiny model, with a few examples and one learning rate."""
    target, data = (
        eval_target.target_of_run(finished_run(folder / "runs" / "bert_base_tiny-12345678")),
        write_reviews(folder / "data"),
    )
    (data / "blimp/data").mkdir(parents=True)
    (data / "blimp/data/x.jsonl").write_text(PAIRS)
    (data / "in_words.yaml").write_text(IN_WORDS)
    task = {"tuned": "sst2", "scored": "blimp", "written": f"{data}/in_words.yaml"}[way]
    how: dict[str, Any] = {"learning_rates": (2e-2,), "batch_sizes": (8,), "max_steps": STEPS, "num_seeds": 1}
    (found,) = plan_tasks(target, EvalRequest(tasks=tasks_from_words(task), task_data_dir=data, **how))
    assert found.kind.way == way
    return found


@each_method
def test_repeated_evaluation_writes_the_same_bytes(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grid(cells: Sequence[EvalTrial], room: Any, on_done: Callable[[int, Any], str], *more: Any) -> dict[int, Any]:
        for number, cell in enumerate(cells):
            on_done(number, evaluate_cell(cell))
        return {}

    monkeypatch.setattr(launch, "run_trials", grid)
    monkeypatch.setattr(launch, "ray_session", lambda *_, **__: nullcontext())
    written = []
    for folder in (tmp_path / "first", tmp_path / "again"):
        found = make_plan(way, folder)
        run = found.cells[0].folder
        (score,) = evaluate.evaluate(run, [found], load_cluster("local"), ignore_progress)
        assert score.starts
        scores = run / "scores"
        written.append({path.relative_to(scores): path.read_bytes() for path in scores.rglob("*") if path.is_file()})
    assert written[0] == written[1]
    assert {path.name for path in written[0]} >= {"table.md", "table.csv", PREDICTIONS}


@pytest.fixture
def no_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn dropout off: a GPU has its own random generator, so results with dropout differ from a CPU.

    Without this, dropout in the head (0.1) and in attention weights makes losses diverge within a dozen steps at a rate
    of 2e-2.
    """
    attention = torch.nn.functional.scaled_dot_product_attention

    def undropped(*given: Any, dropout_p: float = 0.0, **more: Any) -> torch.Tensor:
        return attention(*given, **more)

    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda self, x: x)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, *given, **more: x)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", undropped)
    monkeypatch.setattr(dropout.Dropout, "forward", lambda self, x: x)
    monkeypatch.setattr(dropout_attention, "find_limit", lambda p: dropout.find_limit(0.0))
    monkeypatch.setattr(dropout_attention, "find_keep_rate", lambda p: 1.0)


@each_method
@pytest.mark.usefixtures("no_dropout")
def test_losses_without_dropout_do_not_depend_on_random_numbers(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other random numbers change no loss by a single bit, so the next test may compare two devices."""
    (cell,) = make_plan(way, tmp_path).cells
    wanted = evaluate_cell(cell)
    seeded = loop._noise_seed
    monkeypatch.setattr(loop, "_noise_seed", lambda *address: seeded(*address) ^ 1)
    assert evaluate_cell(cell).losses == wanted.losses


@each_method
def test_task_data_that_changes_after_planning_is_refused(way: Way, tmp_path: Path) -> None:
    """Scores of the changed data were once saved as scores of the original data."""
    (cell,) = make_plan(way, tmp_path).cells
    for file in (tmp_path / "data").rglob("*.[jt]s*"):
        if file.suffix in (".tsv", ".jsonl"):
            file.write_text(file.read_text().replace(" good", " fine").replace("film", "work"))
    with pytest.raises(BadInput, match=r"split below .* has changed since the command started; repeat the command"):
        evaluate_cell(cell)


@each_method
@pytest.mark.usefixtures("no_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_trial_has_the_same_scores_on_each_device(way: Way, device: Any, tmp_path: Path) -> None:
    (cell,) = make_plan(way, tmp_path).cells
    found, wanted = (evaluate_cell(replace(cell, machine=EngineSettings(device=name))) for name in (device, "cpu"))
    assert found.losses == pytest.approx(wanted.losses, abs=0.05)
    assert len(found.losses) == (0 if way == "scored" else STEPS)
    assert found.scores.keys() == wanted.scores.keys() == found.predictions.keys() != set()
    for split, scores in wanted.scores.items():
        assert found.scores[split] == pytest.approx(scores, abs=0.1)
        assert len(found.predictions[split]) == len(wanted.predictions[split]) > 0
