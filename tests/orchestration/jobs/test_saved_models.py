"""`eval --save`: the model of the selected trial is a directory, and `eval DIR` scores it again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration import tracking
from orchestration.config import load_cluster
from orchestration.jobs import JobFlags, eval_target, evaluate, finetuned_source, saved_models
from orchestration.jobs.eval_request import EvalRequest, EvalTarget, tasks_from_words
from orchestration.jobs.score_plan import TaskPlan, check_flags, plan_tasks
from orchestration.progress import ignore_progress
from orchestration.tracking import store_timeout
from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, train
from tests.orchestration.jobs.runs import make_request, write_questions, write_transformers_directory
from training.tasks import Classification, TaskFile, TaskScore


def save(target: EvalTarget, request: EvalRequest, to: Path) -> tuple[list[TaskPlan], list[TaskScore], list[str]]:
    """Evaluate and save; return the plans, the scores and the notes."""
    plans = plan_tasks(target, request)
    saves = saved_models.plan_saves(target, plans, to, "sesame eval x")
    scores = evaluate.evaluate(target.folder, plans, load_cluster("local"), ignore_progress, saves=saves)
    return plans, scores, saves.notes


def open_saved(folder: Path, out: Path) -> tuple[EvalTarget, EvalRequest]:
    """A saved model, and the request for its own task."""
    target = eval_target.subject_of(JobFlags(recipe=str(folder), output_dir=out))
    assert target.finetuned
    task, directory = finetuned_source.task_of(target.finetuned)
    return target, EvalRequest(tasks=[task], task_data_dir=directory)


def score_saved(target: EvalTarget, request: EvalRequest) -> tuple[TaskScore, list[str]]:
    plans = plan_tasks(target, request)
    check_flags(plans, request)
    (score,) = evaluate.evaluate(target.folder, plans, load_cluster("local"), ignore_progress)
    assert target.finetuned
    return score, saved_models.compare_all(target.finetuned, plans, [score])


def test_a_saved_model_has_the_same_score_when_it_is_scored_again(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    to = tmp_path / "saved"
    (plan,), (score,), notes = save(target, make_request(data, max_steps=6, with_baseline=True), to)
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "sesame.json"} <= {
        file.name for file in to.iterdir()
    }
    config = json.loads((to / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert (config["id2label"], config["label2id"]) == ({"0": "0", "1": "1"}, {"0": 0, "1": 1})
    about = json.loads((to / "sesame.json").read_text())
    values = score.values("pretrained")
    best = values.index(max(values))
    assert (about["tuning"]["seed"], about["selected"]) == (best, f"the best seed on dev: seed {best}")
    assert about["scores"]["dev"]["accuracy"] == values[best]
    assert (about["base"]["name"], about["command"], about["data"]) == ("bert_base_tiny", "sesame eval x", str(data))
    rule = f"the best seed on dev: seed {best}"
    assert notes == [f"saved {to}: sst2, pretrained, 0.003 x 8 x 6 steps, seed {best} ({rule})"]
    card = (to / "README.md").read_text()
    assert 'pipeline("text-classification", "saved")' in card
    assert f"| dev | accuracy | {values[best]:.4f} |" in card
    assert not list((target.folder / "scores" / "cells").glob("*.model"))
    assert plan.stage.state == "done"

    trial_names.clear()
    again, lines = score_saved(*open_saved(to, tmp_path / "out"))
    assert list(again.values("pretrained")) == [values[best]]
    assert lines == [f"sst2: dev accuracy {values[best]:.6g}, as at the time of saving"]
    assert trial_names == ["sst2, pretrained"]


@pytest.mark.filterwarnings("ignore")
def test_a_saved_model_is_a_model_of_the_mlflow_run_of_its_task(
    data: Path, trial_names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_transformers_directory(tmp_path / "base")
    base = eval_target.subject_of(JobFlags(recipe=str(folder), output_dir=tmp_path / "out"))
    plans = plan_tasks(base, make_request(data, num_seeds=1, max_train_samples=(8,)))
    saves = saved_models.plan_saves(base, plans, tmp_path / "saved")
    for _ in range(2):  # the second command logs no other model
        evaluate.evaluate(base.folder, plans, load_cluster("local"), ignore_progress, tmp_path / "out", saves=saves)
    tracked = tracking.existing_run(base.folder)
    assert tracked
    client = tracking.client_of(tracked.uri)
    parent = client.get_run(tracked.run_id)
    (model,) = client.search_logged_models([parent.info.experiment_id])
    run = client.get_run(model.source_run_id)
    assert run.info.run_name.startswith("eval/sst2 with 8 labels of base-")
    assert (model.model_type, model.status.value) == ("text-classification", "READY")
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracked.uri)
    load = mlflow.pyfunc.load_model
    answer = load(f"models:/{model.model_id}").predict(["the film is good", "the film is good " * 20])  # over 32 tokens
    assert answer["label"][0] in ("0", "1")
    assert 0 < answer["score"][0] <= 1
    assert "fine-tuned on sst2" in model.tags["mlflow.note.content"]
    copy = store_timeout.folder_of(model.artifact_location) / "model" / "config.json"
    assert not copy.samefile(tmp_path / "saved" / "config.json")  # a program may write it in place
    assert not list(base.folder.glob(".mlflow-*"))

    # another evaluation of the task, and then the model of the first one, which is logged in its own run
    other = plan_tasks(base, make_request(data, num_seeds=1, max_train_samples=(8,), max_steps=3))
    evaluate.evaluate(base.folder, other, load_cluster("local"), ignore_progress, tmp_path / "out")
    saves = saved_models.plan_saves(base, plans, tmp_path / "again")
    evaluate.evaluate(base.folder, plans, load_cluster("local"), ignore_progress, tmp_path / "out", saves=saves)
    (same,) = client.search_logged_models([parent.info.experiment_id])
    assert same.model_id == model.model_id
    assert run.data.tags["sesame.scores"] == plans[0].stage.folder.name


def test_several_tasks_are_saved_below_the_directory(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    write_questions(tmp_path / "data2")
    for file in (tmp_path / "data2").iterdir():
        file.rename(data / file.name)
    save(target, make_request(data, "sst2,squad1", num_seeds=1), tmp_path / "saved")
    configs = tmp_path.glob("saved/*/config.json")
    kinds = {path.parent.name: json.loads(path.read_text())["architectures"][0] for path in configs}
    assert kinds == {"sst2": "BertForSequenceClassification", "squad1": "BertForQuestionAnswering"}
    score, lines = score_saved(*open_saved(tmp_path / "saved" / "squad1", tmp_path / "out"))
    assert len(lines) == 1
    assert "as at the time of saving" in lines[0]
    assert score.metric == "f1"


def test_a_finished_evaluation_repeats_only_the_selected_trial(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = make_request(data, learning_rates=(3e-3, 1e-3))
    evaluate.evaluate(target.folder, plan_tasks(target, request), load_cluster("local"), ignore_progress)
    assert len(trial_names) == 4
    _, _, notes = save(target, request, tmp_path / "saved")
    assert len(trial_names) == 5
    assert "fine-tuned again, because its model was not saved" in caplog.text
    assert "when it is fine-tuned again, and was" not in caplog.text  # equal seeds give equal scores
    assert "the selected hyperparameters (best median over the seeds), and the best seed on dev: seed" in notes[0]
    _, _, notes = save(target, request, tmp_path / "saved")
    assert len(trial_names) == 5
    assert "already" in notes[0]


def test_a_directory_that_is_not_empty_is_refused_before_training(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(BadInput, match="full: exists and is not an empty directory; use another directory"):
        save(target, make_request(data), tmp_path / "full")
    save(target, make_request(data, num_seeds=1), tmp_path / "saved")
    with pytest.raises(BadInput, match="saved: exists and is not an empty directory; use another directory"):
        save(target, make_request(data, num_seeds=2), tmp_path / "saved")
    assert len(trial_names) == 1


def test_a_directory_that_cannot_be_written_is_refused_before_training(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"--save .*file/saved: .*file: Not a directory; use another directory"):
        save(target, make_request(data), tmp_path / "file" / "saved")
    with pytest.raises(BadInput, match=r"--save /proc/saved: /proc: .*; use another directory"):
        save(target, make_request(data), Path("/proc/saved"))
    assert not trial_names


def test_results_of_trials_that_were_deleted_are_named(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    request = make_request(data, num_seeds=1)
    evaluate.evaluate(target.folder, plan_tasks(target, request), load_cluster("local"), ignore_progress)
    for file in (target.folder / "scores" / "cells").iterdir():
        file.unlink()
    with pytest.raises(BadInput, match=r"its trials in .*cells are missing; delete stage\.json in this directory"):
        save(target, request, tmp_path / "saved")


def test_the_only_fine_tuning_of_the_pretrained_model_is_the_only_trial(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    _, _, notes = save(target, make_request(data, num_seeds=1, with_baseline=True), tmp_path / "saved")
    assert "(the only trial)" in notes[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"frozen_features": "last_four"}, "task sst2: --save: no class of transformers has a head on last_four"),
        ({"max_train_samples": (4, 8)}, "--save: sst2 has 2 models"),
    ],
)
def test_models_that_cannot_be_saved_are_refused(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        save(target, make_request(data, **more), tmp_path / "saved")
    assert not trial_names
    assert not (tmp_path / "saved").exists()


def test_a_changed_file_is_refused_when_the_model_is_scored(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    save(target, make_request(data, num_seeds=1), tmp_path / "saved")
    file = tmp_path / "saved" / "config.json"
    file.write_text(file.read_text().replace('"hidden_size": 16', '"hidden_size":  16'))
    with pytest.raises(BadInput, match=r"config\.json: has changed since the model was saved; restore it, or delete"):
        open_saved(tmp_path / "saved", tmp_path / "out")
    (tmp_path / "saved" / "sesame.json").unlink()
    foreign = eval_target.subject_of(JobFlags(recipe=str(tmp_path / "saved"), output_dir=tmp_path / "out"))
    assert foreign.finetuned
    assert foreign.finetuned.about == {}
    with pytest.raises(BadInput, match=r"its task is unknown, .* name a task with --tasks"):
        finetuned_source.task_of(foreign.finetuned)
    score, lines = score_saved(foreign, EvalRequest(tasks=tasks_from_words("sst2"), task_data_dir=data))
    assert (score.split, lines) == ("dev", [])


def test_a_foreign_model_without_special_tokens_is_refused(tmp_path: Path) -> None:
    """Sesame would add an end token to its sequences."""
    vocab = train(ByteLevelBPE(vocab_size=300), ["a film is good"] * 4)
    vocab.save(tmp_path)
    config = {
        "architectures": ["GPT2ForSequenceClassification"],
        "model_type": "gpt2",
        "id2label": {"0": "a", "1": "b"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="its tokenizer adds no special tokens, so the form of its sequences is unknown"):
        finetuned_source.find_finetuned(tmp_path)


def test_a_class_that_computes_something_else_is_refused(tmp_path: Path) -> None:
    config = {"architectures": ["ElectraForSequenceClassification"], "model_type": "electra"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        BadInput, match=r"got ElectraForSequenceClassification, expected ElectraForQuestionAnswering, .* has a GELU"
    ):
        finetuned_source.find_finetuned(tmp_path)


def test_other_examples_and_other_metrics_have_no_comparison_with_the_saved_scores(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    save(target, make_request(data, num_seeds=1), tmp_path / "saved")
    saved, request = open_saved(tmp_path / "saved", tmp_path / "out")
    (task,) = request.tasks
    assert isinstance(task, TaskFile)
    assert isinstance(task.task, Classification)
    other = replace(task, task=replace(task.task, metrics=("macro_f1",)))
    assert score_saved(saved, replace(request, tasks=[other]))[1] == []
    file = data / "SST-2" / "dev.tsv"
    file.write_text(file.read_text() + "the plot is good\t1\n")
    assert score_saved(saved, request)[1] == ["sst2: its examples are not those of the time of saving"]


def test_a_missing_data_directory_is_not_used(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    save(target, make_request(data, num_seeds=1), tmp_path / "saved")
    data.rename(tmp_path / "moved")
    _, request = open_saved(tmp_path / "saved", tmp_path / "out")
    assert request.task_data_dir is None
    file = tmp_path / "saved" / "sesame.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in about.items() if name != "data"}))
    with pytest.raises(BadInput, match=r"sesame\.json: is damaged \(data is missing\); evaluate the model with --save"):
        open_saved(tmp_path / "saved", tmp_path / "out")


def test_options_of_fine_tuning_have_no_effect_on_a_fine_tuned_model(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    save(target, make_request(data, num_seeds=1), tmp_path / "saved")
    saved, request = open_saved(tmp_path / "saved", tmp_path / "out")
    with pytest.raises(BadInput, match=r"--best: no effect on sst2"):
        score_saved(saved, replace(request, best=True))
    plans = plan_tasks(saved, replace(request, max_seq_length=16))
    check_flags(plans, replace(request, max_seq_length=16))
    assert plans[0].cells[0].length == 16
    with pytest.raises(BadInput, match="task stsb: invalid task: got regression, with the head row_value"):
        plan_tasks(saved, EvalRequest(tasks=tasks_from_words("stsb"), task_data_dir=data))
    with pytest.raises(BadInput, match="task lambada: is scored without a task head"):
        plan_tasks(saved, EvalRequest(tasks=tasks_from_words("lambada"), task_data_dir=data))


def test_the_best_evaluation_on_dev_is_kept_on_request(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    request = make_request(data, max_steps=20, best=True, num_seeds=1)
    (plan,) = plan_tasks(target, request)
    assert plan.cells[0].tuning is not None
    assert plan.cells[0].tuning.num_evaluations == 10
    assert "the best weights of 10 evaluations on dev" in plan.grid_description
    early = make_request(data, max_steps=20, num_evaluations=5, early_stopping_patience=2, num_seeds=1)
    (plan,) = plan_tasks(target, early)
    assert plan.cells[0].tuning is not None
    assert (plan.cells[0].tuning.num_evaluations, plan.cells[0].tuning.early_stopping_patience) == (5, 2)
    with pytest.raises(BadInput, match=r"--early-stopping-patience: got 10, expected less than .* \(10\); lower it"):
        plan_tasks(target, make_request(data, early_stopping_patience=10))
    (plan,), _, _ = save(target, request, tmp_path / "saved")
    about = json.loads((tmp_path / "saved" / "sesame.json").read_text())
    assert "used the checkpoint with the best dev score of 10 evaluations" in about["notes"]
