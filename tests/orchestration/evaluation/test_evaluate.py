"""Evaluation of task files: trials are run, saved and reused; failed trials and notes are reported beside scores."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from orchestration import launch, reports
from orchestration.cli import main
from orchestration.config import load_cluster, tasks_from_words
from orchestration.evaluation import evaluate, score_pages, score_plan
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.score_plan import plan_tasks
from orchestration.launch import eval_trial as launch_cell
from orchestration.launch.eval_trial import EvalTrial, draw_items, evaluate_cell
from orchestration.progress import ignore_progress
from preprocessing.errors import BadInput, Diverged, SesameError
from tests.orchestration.evaluation.runs import (
    QUICK,
    make_request,
    score_one,
    write_questions,
    write_reviews,
)
from training.evaluation.tasks import Classification, ClozeItem, ClozeItems, SelectedTrials, TaskItem, TaskScore
from training.evaluation.tasks import Task as HeldOut
from training.evaluation.tasks.part import LabeledExamples


def test_task_is_scored_from_pretrained_and_random_weights_and_saved(
    target: EvalTarget, data: Path, trial_names: list[str]
) -> None:
    score = score_one(target, make_request(data, with_baseline=True))
    assert (score.task, score.metric, score.split, score.chance) == ("sst2", "accuracy", "dev", 0.5)
    assert {start: len(score.values(start)) for start in score.starts} == {"pretrained": 2, "random": 2}
    assert score.paper == {}  # the fine-tuning is shortened
    whole = make_request(data, max_steps=0, epochs=(1.0,))
    assert [plan.paper for plan in plan_tasks(target, whole)] == [{"glue.sst2 (test)": 93.5}]
    for one in score.starts.values():
        assert (one.scores["dev"]["rows"], one.scores["dev"]["train_rows"]) == ((12,), (24,))
    assert score.gain is not None
    assert (score.gain.seeds, score.gain.questions, set(score.intervals)) == (2, 12, {"pretrained", "random"})
    assert score.gain.difference == pytest.approx(np.mean(score.values("pretrained")) - np.mean(score.values("random")))
    assert len(trial_names) == 4
    (folder,) = (target.folder / "scores").glob("sst2-*")
    answers = json.loads((folder / reports.PREDICTIONS).read_text())
    assert set(answers) == {f"{start}, seed {seed}" for start in ("pretrained", "random") for seed in (0, 1)}
    assert len(answers["random, seed 1"]["dev"]) == 12
    asked = json.loads((folder / reports.QUESTIONS).read_text())
    assert (list(asked), len(asked["dev"])) == (["dev"], 12)
    assert asked["dev"][:2] == [
        {"place": "SST-2/dev.tsv:2", "texts": ["the film is bad"], "gold": "0"},
        {"place": "SST-2/dev.tsv:3", "texts": ["the book is good"], "gold": "1"},
    ]
    page = (target.folder / "scores" / score_pages.QUESTIONS_PAGE).read_text()
    assert page.count("<article") == 12
    for one in asked["dev"]:  # as an earlier version stored them
        del one["texts"]
    (folder / reports.QUESTIONS).write_text(json.dumps(asked))
    score_one(target, make_request(data, with_baseline=True))
    assert "the film is bad" in (folder / reports.QUESTIONS).read_text()
    assert len(trial_names) == 4
    assert "| sst2 | accuracy | dev |" in (target.folder / "scores" / "table.md").read_text()
    assert "sst2,,,pretrained,dev,accuracy,1," in (target.folder / "scores" / "table.csv").read_text()


@pytest.mark.parametrize(
    ("step", "labels", "named"), [(None, 20, "x with 20 labels"), (100, 0, "x at step 100"), (None, 0, "x")]
)
def test_constant_answer_warning_names_its_score(
    step: int | None, labels: int, named: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All scores of a task once had the same warning, and no warning named its label count or step."""
    chosen = {"pretrained": SelectedTrials({}, {"dev": {"f1": (0.5,)}})}
    constant = {"pretrained": "one constant answer: 'a'"}
    score = TaskScore("x", "f1", "dev", "", chosen, step=step, labels=labels, constant=constant)
    for name, found in (("load_results", []), ("summarize", score), ("store_score", None)):
        monkeypatch.setattr(evaluate, name, lambda *_, found=found: found)
    plan: Any = SimpleNamespace(task="x")
    evaluate._score(Path(), plan, {})
    assert f"task {named}, pretrained weights: one constant answer: 'a' (f1 50.0)" in caplog.text


def test_truncated_held_out_documents_are_noted_beside_the_score(
    target: EvalTarget, trial_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_plan, "find_too_few", lambda *_: {})
    row = {
        "input_ids": np.array([2, 10, 3], np.int32),
        "token_type_ids": np.zeros(3, np.int8),
        "labels": np.full(3, -100, np.int32),
    }
    half, notes = LabeledExamples([row] * 200, np.arange(200) % 2), ("3 of 9 documents are cut",)
    held_out = {
        "cloze": ClozeItems([ClozeItem(np.array([10, 11, 12]), 1)], notes),
        "source_classification": HeldOut("source_classification", ("a", "b"), half, half, notes),
    }
    monkeypatch.setattr(launch_cell, "load_held_out_task", lambda name, *_: held_out[name])
    for name in held_out:
        assert set(notes) <= set(score_one(target, make_request(None, name, num_seeds=1)).notes)


def test_predictions_are_saved_with_question_ids(target: EvalTarget, tmp_path: Path, trial_names: list[str]) -> None:
    """The official script needs the question IDs."""
    asked = EvalRequest(
        tasks=tasks_from_words("squad1"), task_data_dir=write_questions(tmp_path / "data", dev=2), **QUICK
    )
    score_one(target, asked)
    (folder,) = (target.folder / "scores").glob("squad1-*")
    (first, second) = json.loads((folder / reports.QUESTIONS).read_text())["dev"]
    assert (first["id"], second["id"]) == ("0", "1")
    assert first["gold"] == {"answers": ["bad"], "starts": [12]}
    assert len(json.loads((folder / reports.PREDICTIONS).read_text())["pretrained, seed 0"]["dev"]) == 2


def test_finished_trials_are_reused_and_repeated_files_are_identical(
    target: EvalTarget, data: Path, trial_names: list[str]
) -> None:
    first = score_one(target, make_request(data))
    files = {path: path.read_bytes() for path in (target.folder / "scores").rglob("*") if path.is_file()}
    assert score_one(target, make_request(data)) == first
    assert len(trial_names) == 2
    assert {path: path.read_bytes() for path in files} == files
    for path in files:
        path.unlink()
    score_one(target, make_request(data))
    assert {path: path.read_bytes() for path in files} == files


def test_likelihood_scores_are_identical_when_repeated(
    target: EvalTarget, trial_names: list[str], tmp_path: Path
) -> None:
    (tmp_path / "blimp/data").mkdir(parents=True)
    pairs = [
        (f"the {thing} is {how}", f"the {thing} {how} is") for thing in ("film", "plot") for how in ("good", "bad")
    ]
    rows = [{"sentence_good": good, "sentence_bad": bad, "UID": good[4:8]} for good, bad in pairs]
    written = "".join(json.dumps(row | {"linguistics_term": "s-selection"}) + "\n" for row in rows)
    (tmp_path / "blimp/data/x.jsonl").write_text(written)
    first = score_one(target, make_request(tmp_path, "blimp"))
    scores = first.starts["pretrained"].scores["test"]
    # both halves of the data belong to one category
    assert scores["accuracy_in_argument_structure"] == scores["macro_accuracy"]
    (folder,) = (target.folder / "scores").glob("blimp-*")
    (answers,) = json.loads((folder / reports.PREDICTIONS).read_text()).values()
    assert len(answers["test"]) == len({str(one["nats"]) for one in answers["test"]}) == 4
    files = {path: path.read_bytes() for path in (target.folder / "scores").rglob("*") if path.is_file()}
    shutil.rmtree(target.folder / "scores")
    assert score_one(target, make_request(tmp_path, "blimp")) == first
    assert len(trial_names) == 2
    assert {path: path.read_bytes() for path in (target.folder / "scores").rglob("*") if path.is_file()} == files


def test_score_on_few_examples_is_noted(target: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One example once gave a score without a warning, though it had also selected the learning rate."""
    (plan,) = plan_tasks(target, make_request(data, learning_rates=(1e-3, 3e-3)))
    message = "task sst2: its score is computed on 12 examples (dev), which also selected the hyperparameters: "
    message += "too few for a reliable score"
    assert plan.notes == (message,)
    assert message in caplog.text
    (plan,) = plan_tasks(target, make_request(write_reviews(data.parent / "more", dev=30)))
    assert plan.notes == ()


def test_saved_score_is_updated_with_current_reported_scores(
    target: EvalTarget, data: Path, trial_names: list[str]
) -> None:
    """An older score file has another reported score and no example count."""
    first = score_one(target, make_request(data))
    (file,) = (target.folder / "scores").glob("sst2-*/scores.json")
    old = json.loads(file.read_text())
    del old[0]["starts"]["pretrained"]["scores"]["dev"]["rows"]
    file.write_text(json.dumps([old[0] | {"paper": {"glue.sst2": 93.5}}]))
    assert score_one(target, make_request(data)) == first
    assert json.loads(file.read_text())[0]["paper"] == first.paper
    assert len(trial_names) == 2


def test_wider_grid_runs_only_the_new_trials(target: EvalTarget, data: Path, trial_names: list[str]) -> None:
    score_one(target, make_request(data))
    score = score_one(target, make_request(data, learning_rates=(3e-3, 1e-3)))
    assert len(trial_names) == 4
    assert (score.chosen_on, score.starts["pretrained"].how["learning_rate"] in (3e-3, 1e-3)) == ("dev", True)


def test_score_page_is_independent_of_the_evaluation_order(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    (data / "mine.csv").write_text((data / "SST-2/train.tsv").read_text().replace("\t", ","))
    mine = EvalRequest(tasks=tasks_from_words("", [f"{data}/mine.csv:sentence,label"]), **QUICK)
    asked = [
        make_request(data),
        mine,
        make_request(data, learning_rates=(1e-3,)),
        make_request(data, max_train_samples=(12, 10_000)),
    ]
    pages = []
    for order in (asked, asked[::-1]):
        shutil.rmtree(target.folder / "scores", ignore_errors=True)
        scores = [
            evaluate.evaluate(target.folder, plan_tasks(target, one), load_cluster("local"), ignore_progress)
            for one in order
        ]
        assert [len(found) for found in scores] == [1 if len(one.max_train_samples) == 0 else 2 for one in order]
        # no task can be evaluated
        assert evaluate.evaluate(target.folder, [], load_cluster("local"), ignore_progress) == []
        pages.append([(target.folder / "scores" / name).read_text() for name in ("table.md", "table.csv")])
    assert pages[0] == pages[1]
    hashes = [plan_tasks(target, one)[0].stage.hash[:8] for one in (asked[0], asked[2])]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in pages[0][0].splitlines() if line.startswith("|")]
    assert rows[2:] == ["mine", "sst2", *(f"sst2 ({one})" for one in sorted(hashes))]
    assert f"* sst2 ({hashes[1]}), pretrained: " in pages[0][0]


def test_interrupted_grid_resumes_with_the_missing_trials(
    target: EvalTarget, data: Path, trial_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_it = launch.run_trials

    def interrupted(cells: Sequence[EvalTrial], room: Any, on_done: Any, *more: Any) -> Any:
        all_of_it(cells[:1], room, on_done, *more)
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "run_trials", interrupted)
    with pytest.raises(KeyboardInterrupt):
        score_one(target, make_request(data))
    monkeypatch.setattr(launch, "run_trials", all_of_it)
    score_one(target, make_request(data))
    assert len(trial_names) == len(set(trial_names)) == 2


def test_new_numerics_version_of_a_task_type_invalidates_its_scores(
    target: EvalTarget, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = plan_tasks(target, make_request(data))
    monkeypatch.setattr(Classification, "numerics", 1)
    (now,) = plan_tasks(target, make_request(data))
    assert now.stage.hash != before.stage.hash
    assert {now.file_of(cell).name for cell in now.cells}.isdisjoint(before.file_of(cell).name for cell in before.cells)


def test_changed_data_needs_a_new_score_but_a_changed_description_does_not(target: EvalTarget, data: Path) -> None:
    def folder(asked: EvalRequest) -> str:
        (plan,) = plan_tasks(target, asked)
        return plan.stage.folder.name

    before = folder(make_request(data))
    file = data / "SST-2/dev.tsv"
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    assert (
        folder(replace(make_request(data), tasks=[replace(task, description="another title", note="a note")])) == before
    )
    file.write_text(file.read_text().replace("the film is bad", "a film is bad"))
    assert folder(make_request(data)) != before
    assert folder(make_request(data, max_train_samples=(12,))) != folder(make_request(data))


def test_each_label_count_has_its_own_score(target: EvalTarget, data: Path, trial_names: list[str]) -> None:
    plans = plan_tasks(target, make_request(data, max_train_samples=(20, 8, 12, 10_000)))
    rows = len(plans[-1].items["train"])
    assert [plan.labels for plan in plans] == [8, 12, 20, rows]
    # the maximum uses the directory of an unlimited task
    assert plans[-1].stage.folder == plan_tasks(target, make_request(data))[0].stage.folder
    (whole,) = evaluate.evaluate(
        target.folder, plan_tasks(target, make_request(data)), load_cluster("local"), ignore_progress
    )
    scores = evaluate.evaluate(target.folder, [*plans[:2], plans[-1]], load_cluster("local"), ignore_progress)
    # the score is saved once and shown with the requested label count
    assert (whole.labels, [score.labels for score in scores]) == (0, [8, 12, rows])
    assert [score.starts["pretrained"].scores["dev"]["train_rows"] for score in scores] == [(8,), (12,), (rows,)]
    assert "sst2,,12,pretrained,dev,accuracy,1," in (target.folder / "scores" / "table.csv").read_text()
    assert "* sst2 with 8 labels, pretrained:" in (target.folder / "scores" / "table.md").read_text()
    assert len(trial_names) == 6


def test_task_without_training_ignores_label_counts(target: EvalTarget, tmp_path: Path) -> None:
    (tmp_path / "blimp/data").mkdir(parents=True)
    row = {"sentence_good": "the film is good", "sentence_bad": "the film are good", "linguistics_term": "agreement"}
    (tmp_path / "blimp/data/agreement.jsonl").write_text(
        json.dumps(row | {"UID": "agreement", "field": "syntax"}) + "\n"
    )
    (plan,) = plan_tasks(target, make_request(tmp_path, "blimp", max_train_samples=(8, 12)))
    assert plan.labels == 0
    (longer,) = plan_tasks(target, make_request(tmp_path, "blimp", max_seq_length=64))
    assert longer.stage.folder == plan.stage.folder


def test_failed_trial_is_named_and_the_other_trials_count(
    target: EvalTarget, data: Path, trial_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate_cell

    def diverges(cell: EvalTrial, count: Path | None = None) -> Any:
        if cell.tuning and cell.tuning.seed == 1:
            raise Diverged("loss nan; lower the rate")
        return whole(cell, count)

    monkeypatch.setattr("orchestration.launch.eval_trial.evaluate_cell", diverges)
    score = score_one(target, make_request(data))
    assert len(score.values("pretrained")) == 1
    assert score.failed == ("sst2, pretrained, 0.003 x 8 x 2 steps, seed 1: loss nan; lower the rate",)
    assert "no score of sst2, pretrained" in (target.folder / "scores" / "table.md").read_text()
    (plan,) = plan_tasks(target, make_request(data))
    assert plan.stage.state == "begun"  # the same command runs the failed trial again
    monkeypatch.setattr("orchestration.launch.eval_trial.evaluate_cell", whole)
    assert score_one(target, make_request(data)).failed == ()
    assert plan.stage.state == "done"


def test_fully_failed_task_is_reported_beside_a_scored_task(
    target: EvalTarget,
    data: Path,
    trial_names: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = evaluate_cell

    def refuses(cell: EvalTrial, count: Path | None = None) -> Any:
        if cell.name.startswith("mine"):
            raise BadInput("its rows are too long")
        return whole(cell, count)

    monkeypatch.setattr("orchestration.launch.eval_trial.evaluate_cell", refuses)
    (data / "mine.csv").write_text((data / "SST-2/train.tsv").read_text().replace("\t", ","))
    tasks = tasks_from_words("sst2", [f"{data}/mine.csv:sentence,label"])
    plans = plan_tasks(target, EvalRequest(tasks=tasks, task_data_dir=data, **QUICK))
    errors: list[SesameError] = []
    scores = evaluate.evaluate(target.folder, plans, load_cluster("local"), ignore_progress, left_out=errors)
    assert ([score.task for score in scores], list(map(str, errors))) == (["sst2"], ["its rows are too long"])
    assert "left out: task mine: its rows are too long" in caplog.text
    more = [
        "--task-data-dir",
        str(data),
        "--learning-rates",
        "3e-3",
        "--batch-sizes",
        "8",
        "--max-steps",
        "2",
        "--num-seeds",
        "2",
        "--json",
    ]
    tasks = ["--tasks", "sst2", "--csv", f"{data}/mine.csv:sentence,label"]
    assert (
        main(["eval", str(target.folder), "--output-dir", str(target.folder.parent.parent), *tasks, *more]) == 2
    )  # this command was given the failing task by name
    assert [score["task"] for score in json.loads(capsys.readouterr().out)["scores"]] == ["sst2"]


def test_baseline_alone_is_not_a_score(
    target: EvalTarget, data: Path, trial_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate_cell

    def diverges(cell: EvalTrial, count: Path | None = None) -> Any:
        if cell.start == "pretrained":
            raise Diverged("loss nan")
        return whole(cell, count)

    monkeypatch.setattr("orchestration.launch.eval_trial.evaluate_cell", diverges)
    with pytest.raises(Diverged, match="loss nan"):
        score_one(target, make_request(data, with_baseline=True))


def test_fully_failed_task_raises_the_first_error(
    target: EvalTarget, data: Path, trial_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(cell: EvalTrial, count: Path | None = None) -> Any:
        raise Diverged(f"{cell.name}: nan")

    monkeypatch.setattr("orchestration.launch.eval_trial.evaluate_cell", diverges)
    with pytest.raises(Diverged, match="seed 0: nan"):
        score_one(target, make_request(data))


def test_labeled_examples_are_sampled_by_seed() -> None:
    items = [TaskItem(str(n), (str(n),), n) for n in range(10)]
    assert draw_items(items, 4, seed=0) == draw_items(items, 4, seed=0) != draw_items(items, 4, seed=1)
    assert draw_items(items, 40, seed=0) != items
    assert sorted(draw_items(items, 40, seed=0), key=lambda item: item.gold) == items
