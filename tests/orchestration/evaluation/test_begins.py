"""Scores at several steps, and fine-tuning that starts with another task."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestration.config import load_cluster, tasks_from_words
from orchestration.evaluation import eval_target, evaluate
from orchestration.evaluation.eval_request import EvalTarget
from orchestration.evaluation.score_plan import plan_tasks
from orchestration.launch import eval_trial as launch_cell
from orchestration.launch.eval_trial import EvalTrial, evaluate_cell
from orchestration.progress import ignore_progress
from preprocessing.errors import BadInput
from tests.orchestration.evaluation.runs import make_request, score_one
from training.evaluation.tasks import TrialScore
from training.formats import load_weights


def test_weights_of_several_steps_are_scored_as_a_curve(target: EvalTarget, data: Path, trial_names: list[str]) -> None:
    for step in (10, 20, 25):
        shutil.copytree(target.folder / "weights", target.folder / f"weights-{step}")
    (target.folder / "result.json").write_text('{"step": 30}')
    nets = eval_target.targets_at_steps(target, 10)
    assert [one.step for one in nets] == [10, 20, 30]
    plans = [plan for one in nets for plan in plan_tasks(one, make_request(data, num_seeds=1))]
    scores = evaluate.evaluate(target.folder, plans, load_cluster("local"), ignore_progress)
    assert [score.step for score in scores] == [10, 20, 30]
    assert len({plan.stage.folder for plan in plans}) == len(trial_names) == 3
    (whole,) = plan_tasks(target, make_request(data, num_seeds=1))
    assert whole.stage == replace(plans[-1].stage)  # the weights of the last step are the weights of the run
    assert whole.stage.state == "done"
    assert len({score.values("pretrained") for score in scores}) == 1  # all steps have the same weights
    with pytest.raises(BadInput, match=r"--checkpoints-every 7: .* has weights of steps 10, 20, 25; train with"):
        eval_target.targets_at_steps(target, 7)


def test_checkpoints_are_scored_beside_saved_weights(
    target: EvalTarget, data: Path, trial_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of checkpoints are scored too if the run was made with `cluster.save_weights_every`."""
    for step in (10, 20, 30):
        checkpoint = target.folder / "checkpoints" / f"step-{step:09d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_text("{}")
    shutil.copytree(target.folder / "weights", target.folder / "weights-20")
    (target.folder / "result.json").write_text('{"step": 30}')
    nets = eval_target.targets_at_steps(target, 10)
    assert [(one.step, one.weights) for one in nets] == [
        (10, "checkpoints/step-000000010"), (20, "weights-20"), (30, "weights"),
    ]  # fmt: skip
    _, weights = load_weights(target.folder / "weights")
    read = list[Path]()

    def weights_of(path: Path) -> Any:
        read.append(path)
        return {**weights, "a buffer": torch.zeros(1)}

    monkeypatch.setattr("training.checkpoint.weights_of", weights_of)
    scores = [score_one(one, make_request(data, num_seeds=1)) for one in nets]
    assert read == [target.folder / "checkpoints/step-000000010"]
    assert len({score.values("pretrained") for score in scores}) == 1  # all steps have the same weights
    with pytest.raises(BadInput, match=r"--checkpoints-every 7: .* has weights of steps 10, 20; train with"):
        eval_target.targets_at_steps(target, 7)


def test_grid_with_an_initial_task_fine_tunes_on_that_task_first(
    target: EvalTarget, data: Path, trial_names: list[str]
) -> None:
    """RoBERTa's RTE grid starts from a model fine-tuned on MNLI."""
    rows = [f"{n}\tthe film is {('bad', 'good')[n % 2]}\tso it is\t{('not_', '')[n % 2]}entailment" for n in range(12)]
    (data / "RTE").mkdir()
    for split in ("train", "dev"):
        (data / f"RTE/{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n")
    asked = make_request(data, tasks="rte", grid="roberta", num_seeds=1)
    with pytest.raises(BadInput, match="task rte: its grid first fine-tunes on mnli, which has no train split in"):
        plan_tasks(target, asked)
    (data / "MNLI").mkdir()
    labels = ("contradiction", "entailment", "neutral")
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", labels[n % 3]]) for n in range(9)]
    head = "\t".join([*"0123456789", "gold_label"])
    (data / "MNLI/train.tsv").write_text("\n".join([head, *lines]) + "\n")
    (plan,) = plan_tasks(target, asked)
    (cell,) = plan.cells
    assert cell.begin is not None
    more = plan_tasks(target, replace(asked, learning_rates=(1e-3, 3e-3), batch_sizes=(4, 8), num_seeds=3))[0].cells
    assert [one.begin[1].seed for one in more if one.begin] == [0, 1, 2] * 4
    # each of the four settings has three seeds
    assert len({repr(TrialScore.of(one.start, one.how, {}).how) for one in more}) == 4
    assert plan_tasks(target, replace(asked, num_seeds=3))[0].chosen_on == ""  # one configuration
    quick = replace(cell, begin=(cell.begin[0], replace(cell.begin[1], epochs=1.0, batch_size=4)))
    alone = replace(cell, begin=None, tuning=replace(cell.tuning, init_task=""))  # type: ignore[type-var]
    assert evaluate_cell(quick).losses != evaluate_cell(alone).losses


@pytest.fixture
def mnli_trial(target: EvalTarget, data: Path) -> EvalTrial:
    """A trial on SST-2 that starts from a model fine-tuned on MNLI."""
    (data / "MNLI").mkdir()
    labels = ("contradiction", "entailment", "neutral")
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", labels[n % 3]]) for n in range(9)]
    head = "\t".join([*"0123456789", "gold_label"])
    (data / "MNLI/train.tsv").write_text("\n".join([head, *lines]) + "\n")
    cell = plan_tasks(target, make_request(data))[0].cells[0]
    (before,) = tasks_from_words("mnli")
    assert not isinstance(before, str)
    assert cell.tuning is not None
    return replace(
        cell, begin=(before, replace(cell.tuning, batch_size=4)), tuning=replace(cell.tuning, init_task="mnli")
    )


def evaluate_without_cache(cell: EvalTrial) -> Any:
    """Evaluate the trial with an empty cache of fine-tuned models, as a new process would."""
    launch_cell._load_finetuned.cache_clear()
    return evaluate_cell(cell)


def test_initial_task_is_trained_once_per_run_and_saved(mnli_trial: EvalTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    made, before = list[str](), launch_cell._train_before

    def tuned(cell: EvalTrial, *more: Any) -> Any:
        made.append(cell.name)
        return before(cell, *more)

    monkeypatch.setattr(launch_cell, "_train_before", tuned)
    first = evaluate_without_cache(mnli_trial)
    assert evaluate_without_cache(mnli_trial) == first
    assert len(made) == 1
    (weights,) = (mnli_trial.folder / launch_cell.BEGUN).glob("mnli-*/weights.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(b"damaged")
    assert evaluate_without_cache(mnli_trial) == first  # trained again
    assert (len(made), weights.read_bytes()) == (2, whole)
    assert mnli_trial.begin is not None
    for other in (
        replace(mnli_trial, start="random"),
        replace(mnli_trial, begin=(mnli_trial.begin[0], replace(mnli_trial.begin[1], seed=7))),
    ):
        evaluate_without_cache(other)
    assert mnli_trial.data is not None
    rows = mnli_trial.data / "MNLI/train.tsv"
    rows.write_text(rows.read_text().replace("film", "book"))
    evaluate_without_cache(mnli_trial)
    assert (len(made), len(list(weights.parent.parent.glob("mnli-*/spec.json")))) == (5, 4)


def test_trial_waits_while_another_trains_the_shared_initial_task(
    mnli_trial: EvalTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate_without_cache(mnli_trial)
    (place,) = (mnli_trial.folder / launch_cell.BEGUN).glob("mnli-*.lock")
    found = list[Any]()
    monkeypatch.setattr(launch_cell, "_train_before", lambda *_: pytest.fail("trained twice"))
    with launch_cell._lock(place, waits=True):
        other = threading.Thread(target=lambda: found.append(evaluate_without_cache(mnli_trial)), daemon=True)
        other.start()
        other.join(0.5)
        assert (other.is_alive(), found) == (True, [])
        with launch_cell._lock(place, waits=False):
            pass  # a worker group does not wait for the lock
    other.join(60)
    assert found == [first]
