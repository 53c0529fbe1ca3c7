"""`eval --save`: the model of the selected trial is a directory, and `eval DIR` scores it again."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sesame
from orchestration import tracking
from orchestration.cli import main
from orchestration.config import load_cluster, tasks_from_words
from orchestration.evaluation import eval_target, evaluate, saved_models
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.score_plan import TaskPlan, check_flags, plan_tasks
from orchestration.jobs import JobFlags, finetuned_source, register
from orchestration.progress import ignore_progress
from orchestration.tracking import store_timeout
from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, train
from tests.orchestration.evaluation.runs import make_request, write_questions, write_transformers_directory
from training.evaluation.tasks import Classification, TaskFile, TaskScore


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
    its, median = f"{100 * values[best]:.1f}", f"{100 * sum(values) / 2:.1f}"
    assert notes == [
        f"saved {to}: sst2, pretrained, 0.003 x 8 x 6 steps, seed {best} ({rule}); its accuracy on dev is {its}, the "
        f"median of the table is {median}"
    ]
    card = (to / "README.md").read_text()
    assert card.startswith("---\n")
    assert f'pipeline("text-classification", "{to}")' in card
    assert f"`sesame eval {to}` scores it again" in card
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
    assert model.name == run.info.run_name.removeprefix("eval/").replace("/", "_")
    about = json.loads((tmp_path / "saved" / "sesame.json").read_text())
    digest = plans[0].cells[0].digests["dev"][:36]
    points = {one.key: (one.value, one.dataset_name, one.dataset_digest) for one in model.metrics}
    assert points["dev_accuracy"] == (about["scores"]["dev"]["accuracy"], "sst2, dev", digest)
    assert {one.dataset.name for one in run.inputs.dataset_inputs} >= {"sst2, train", "sst2, dev"}
    card = model.tags["mlflow.note.content"]
    assert card.startswith("# base, fine-tuned on sst2")
    assert f'download_artifacts("models:/{model.model_id}") + "/model"' in card
    assert 'pipeline("text-classification", folder)' in card
    assert f"`sesame eval {tmp_path / 'saved'}` scores it again" in card
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

    # the two evaluations have their own names, also in the metrics of the whole model
    children = client.search_runs(
        [parent.info.experiment_id], f"tags.mlflow.parentRunId = '{parent.info.run_id}'", order_by=["start_time"]
    )
    hashed = other[0].stage.folder.name
    title = run.info.run_name
    assert [one.info.run_name for one in children] == [title, title.replace("eval/sst2", f"eval/{hashed}")]
    metrics = set(client.get_run(parent.info.run_id).data.metrics)
    assert {"eval/sst2/pretrained_accuracy", f"eval/{hashed}/pretrained_accuracy"} <= metrics

    # the saved directory is registered with the model that was logged for it
    flags = JobFlags(recipe=str(tmp_path / "saved"), output_dir=tmp_path / "out")
    assert [register(flags, "mine").is_new for _ in range(2)] == [True, False]
    (version,) = client.search_model_versions("name = 'mine'")
    assert model.model_id in version.source
    with pytest.raises(BadInput, match="invalid --alias"):
        register(flags, "mine", "latest")
    for logged in client.search_logged_models([parent.info.experiment_id]):
        client.delete_logged_model(logged.model_id)
    with pytest.raises(BadInput, match=r"MLflow has no model of it in the run of .*; repeat `.*` with another --save"):
        register(flags, "other")


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


def test_a_saved_model_is_opened_predicts_as_transformers_and_is_evaluated(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    to = tmp_path / "saved"
    _, (score,), _ = save(target, make_request(data, max_steps=6, num_seeds=1), to)
    opened = sesame.open(str(to), output_dir=tmp_path / "out")
    assert (repr(opened), opened.folder) == (f"{to}: fine-tuned model, row_label (0, 1)", to)
    texts = ["the film is good", "bad " * 200]  # the second one is truncated
    found = opened.predict(*texts, ("the film", "is bad"))
    from transformers import pipeline

    theirs = pipeline("text-classification", str(to), top_k=None)
    expected = [*theirs(texts, truncation=True), *theirs([{"text": "the film", "text_pair": "is bad"}])]
    for one, other in zip(found, expected, strict=True):
        assert [name for name, _ in one.labels] == [each["label"] for each in other]
        assert [p for _, p in one.labels] == pytest.approx([each["score"] for each in other], abs=1e-6)
    assert opened.predict(texts) == found[:2]
    assert len(opened.predict("a", top_k=1)[0].labels) == 1
    assert str(found[0]).startswith("the film is good -> ")
    (again,) = opened.evaluate()
    assert again.values("pretrained") == score.values("pretrained")
    for call in (opened.train, opened.corpus, opened.examples, lambda: opened.recipe, lambda: opened.generate("a")):
        with pytest.raises(BadInput, match="saved is a fine-tuned model, which only predicts labels and is evaluated"):
            call()
    with pytest.raises(BadInput, match="leave save out"):
        opened.evaluate(save=tmp_path / "other")
    with pytest.raises(BadInput, match=r"invalid texts: got 3, expected text, or a tuple of two texts"):
        opened.predict(3)
    with pytest.raises(BadInput, match=r"--scale: .* is already trained"):
        sesame.open(str(to), scale="tiny")


def test_a_classifier_generates_no_text(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message once asked to download a tensor that a classifier does not have."""
    to = tmp_path / "saved"
    save(target, make_request(data, max_steps=6, num_seeds=1), to)
    assert main(["generate", str(to), "a ___ film", "--masked-decoding", "gibbs"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith(
        f"sesame: {to} is a classifier (BertForSequenceClassification) and predicts no tokens; use"
    )
    assert f"`sesame eval {to}`" in message


@pytest.mark.parametrize(
    ("is_finetuned", "saved", "kind", "origin"),
    [
        (False, None, "a directory of transformers", "a directory of transformers that was not pretrained here"),
        (True, None, "a fine-tuned model", "the fine-tuned model in `{}`"),
        (
            True,
            {"base": {"folder": "/runs/b-1"}},
            "a fine-tuned model",
            "the fine-tuned model in `{}`, whose base is `/runs/b-1`",
        ),
    ],
)
def test_the_mlflow_run_of_a_scored_directory_says_what_it_is(
    is_finetuned: bool, saved: Any, kind: str, origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved model was once described as not pretrained here."""
    made = list[tracking.Metadata]()

    def run(store: object, folder: object, resume: object, metadata: tracking.Metadata) -> Any:
        made.append(metadata)
        return nullcontext()

    monkeypatch.setattr(tracking, "run", run)
    if saved:
        (tmp_path / "sesame.json").write_text(json.dumps(saved))
    cell = SimpleNamespace(is_finetuned=is_finetuned, folder=tmp_path.parent, weights=tmp_path.name)
    plans: Any = [SimpleNamespace(cells=[cell])]
    with evaluate._directory_run(tmp_path / "out" / "clf-1a2b", tmp_path, "sesame eval clf", plans):
        pass
    assert made[0].note == f"Downstream scores of `clf`, {origin.format(tmp_path)}."
    assert made[0].tags == {"net": kind, "command": "sesame eval clf"}
