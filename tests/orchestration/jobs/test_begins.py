"""Weights of several steps, and fine-tunings that begin with another task."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestration.config import load_cluster
from orchestration.jobs import eval_target, evaluate
from orchestration.jobs.eval_request import EvalTarget, tasks_from_words
from orchestration.jobs.score_plan import plan_tasks
from orchestration.launch import eval_trial as launch_cell
from orchestration.launch.eval_trial import EvalTrial, evaluate_cell
from orchestration.progress import ignore_progress
from preprocessing.errors import BadInput
from tests.orchestration.jobs.runs import scored, wanted
from training.formats import load_weights
from training.tasks import TrialScore


def test_weights_of_several_steps_make_a_curve(net: EvalTarget, data: Path, done: list[str]) -> None:
    for step in (10, 20, 25):
        shutil.copytree(net.folder / "weights", net.folder / f"weights-{step}")
    (net.folder / "result.json").write_text('{"step": 30}')
    nets = eval_target.targets_at_steps(net, 10)
    assert [one.step for one in nets] == [10, 20, 30]
    plans = [plan for one in nets for plan in plan_tasks(one, wanted(data, num_seeds=1))]
    scores = evaluate.evaluate(net.folder, plans, load_cluster("local"), ignore_progress)
    assert [score.step for score in scores] == [10, 20, 30]
    assert len({plan.stage.folder for plan in plans}) == len(done) == 3
    (whole,) = plan_tasks(net, wanted(data, num_seeds=1))
    assert whole.stage == replace(plans[-1].stage)  # that of the last step is that of the run
    assert whole.stage.state == "done"
    assert len({score.values("pretrained") for score in scores}) == 1  # the weights are the same
    with pytest.raises(BadInput, match=r"--checkpoints-every 7: .* has weights of steps 10, 20, 25; train with"):
        eval_target.targets_at_steps(net, 7)


def test_checkpoints_that_a_run_kept_are_scored_too(
    net: EvalTarget, data: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run kept weights where `cluster.save_weights_every` was set before it began, and no others were scored."""
    for step in (10, 20, 30):
        checkpoint = net.folder / "checkpoints" / f"step-{step:09d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_text("{}")
    shutil.copytree(net.folder / "weights", net.folder / "weights-20")
    (net.folder / "result.json").write_text('{"step": 30}')
    nets = eval_target.targets_at_steps(net, 10)
    assert [(one.step, one.weights) for one in nets] == [
        (10, "checkpoints/step-000000010"), (20, "weights-20"), (30, "weights"),
    ]  # fmt: skip
    _, weights = load_weights(net.folder / "weights")
    read = list[Path]()

    def weights_of(path: Path) -> Any:
        read.append(path)
        return {**weights, "a buffer": torch.zeros(1)}

    monkeypatch.setattr("training.checkpoint.weights_of", weights_of)
    scores = [scored(one, wanted(data, num_seeds=1)) for one in nets]
    assert read == [net.folder / "checkpoints/step-000000010"]
    assert len({score.values("pretrained") for score in scores}) == 1  # the weights are the same
    with pytest.raises(BadInput, match=r"--checkpoints-every 7: .* has weights of steps 10, 20; train with"):
        eval_target.targets_at_steps(net, 7)


def test_a_grid_that_begins_with_another_task_is_fine_tuned_on_that_first(
    net: EvalTarget, data: Path, done: list[str]
) -> None:
    """RoBERTa's RTE begins with a net that was fine-tuned on MNLI."""
    rows = [f"{n}\tthe film is {('bad', 'good')[n % 2]}\tso it is\t{('not_', '')[n % 2]}entailment" for n in range(12)]
    (data / "RTE").mkdir()
    for split in ("train", "dev"):
        (data / f"RTE/{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n")
    asked = wanted(data, tasks="rte", grid="roberta", num_seeds=1)
    with pytest.raises(BadInput, match="task rte: its grid first fine-tunes on mnli, which has no train split in"):
        plan_tasks(net, asked)
    (data / "MNLI").mkdir()
    labels = ("contradiction", "entailment", "neutral")
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", labels[n % 3]]) for n in range(9)]
    head = "\t".join([*"0123456789", "gold_label"])
    (data / "MNLI/train.tsv").write_text("\n".join([head, *lines]) + "\n")
    (plan,) = plan_tasks(net, asked)
    (cell,) = plan.cells
    assert cell.begin is not None
    more = plan_tasks(net, replace(asked, learning_rates=(1e-3, 3e-3), batch_sizes=(4, 8), num_seeds=3))[0].cells
    assert [one.begin[1].seed for one in more if one.begin] == [0, 1, 2] * 4
    assert len({repr(TrialScore.of(one.start, one.how, {}).how) for one in more}) == 4  # of three seeds each
    assert plan_tasks(net, replace(asked, num_seeds=3))[0].chosen_on == ""  # one configuration
    quick = replace(cell, begin=(cell.begin[0], replace(cell.begin[1], epochs=1.0, batch_size=4)))
    alone = replace(cell, begin=None, tuning=replace(cell.tuning, init_task=""))  # type: ignore[type-var]
    assert evaluate_cell(quick).losses != evaluate_cell(alone).losses


@pytest.fixture
def on_mnli(net: EvalTarget, data: Path) -> EvalTrial:
    """A cell of SST-2 that begins with a net that was fine-tuned on MNLI."""
    (data / "MNLI").mkdir()
    labels = ("contradiction", "entailment", "neutral")
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", labels[n % 3]]) for n in range(9)]
    head = "\t".join([*"0123456789", "gold_label"])
    (data / "MNLI/train.tsv").write_text("\n".join([head, *lines]) + "\n")
    cell = plan_tasks(net, wanted(data))[0].cells[0]
    (before,) = tasks_from_words("mnli")
    assert not isinstance(before, str)
    assert cell.tuning is not None
    return replace(
        cell, begin=(before, replace(cell.tuning, batch_size=4)), tuning=replace(cell.tuning, init_task="mnli")
    )


def in_a_new_process(cell: EvalTrial) -> Any:
    """As it would be in a process that has no net in memory."""
    launch_cell._finetuned_before.cache_clear()
    return evaluate_cell(cell)


def test_what_cells_begin_with_is_made_once_for_a_run_and_kept(
    on_mnli: EvalTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, before = list[str](), launch_cell._train_before

    def tuned(cell: EvalTrial, *more: Any) -> Any:
        made.append(cell.name)
        return before(cell, *more)

    monkeypatch.setattr(launch_cell, "_train_before", tuned)
    first = in_a_new_process(on_mnli)
    assert in_a_new_process(on_mnli) == first
    assert len(made) == 1
    (weights,) = (on_mnli.folder / launch_cell.BEGUN).glob("mnli-*/weights.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(b"damaged")
    assert in_a_new_process(on_mnli) == first  # made again
    assert (len(made), weights.read_bytes()) == (2, whole)
    assert on_mnli.begin is not None
    for other in (
        replace(on_mnli, start="random"),
        replace(on_mnli, begin=(on_mnli.begin[0], replace(on_mnli.begin[1], seed=7))),
    ):
        in_a_new_process(other)
    assert on_mnli.data is not None
    rows = on_mnli.data / "MNLI/train.tsv"
    rows.write_text(rows.read_text().replace("film", "book"))
    in_a_new_process(on_mnli)
    assert (len(made), len(list(weights.parent.parent.glob("mnli-*/spec.json")))) == (5, 4)


def test_a_cell_waits_for_the_one_that_makes_what_both_begin_with(
    on_mnli: EvalTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = in_a_new_process(on_mnli)
    (place,) = (on_mnli.folder / launch_cell.BEGUN).glob("mnli-*.lock")
    found = list[Any]()
    monkeypatch.setattr(launch_cell, "_train_before", lambda *_: pytest.fail("made twice"))
    with launch_cell._lock(place, waits=True):
        other = threading.Thread(target=lambda: found.append(in_a_new_process(on_mnli)), daemon=True)
        other.start()
        other.join(0.5)
        assert (other.is_alive(), found) == (True, [])
        with launch_cell._lock(place, waits=False):
            pass  # a group of workers goes on
    other.join(60)
    assert found == [first]
