"""Held-out text: how much of a corpus is held out, where it is reported, and for which tasks it is too little."""

import json
import logging
import re
from pathlib import Path

import pytest

from orchestration.cli import main
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.score_plan import plan_tasks
from orchestration.jobs import Job, JobFlags, ablation, held_out, open_job
from orchestration.progress import ignore_progress
from orchestration.reports.ablations import tables
from pipeline.readers import TextReader, about_how_many
from pipeline.spec import Corpus
from preprocessing.errors import BadInput, DataError
from preprocessing.manifest import Manifest
from tests.training.corpora import mini_corpus
from tests.training.held_out import with_test_split


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("A document about nothing. It has two sentences.\n")
    return tmp_path / "text.txt"


def job_of(*data: str, holdout_ratio: float | None = None) -> Job:
    return open_job(JobFlags(recipe="bert_base", scale="tiny", data=data, holdout_ratio=holdout_ratio))


@pytest.mark.parametrize(("holdout_ratio", "each"), [(None, 0.005), (0.1, 0.05), (0.0, 0.0)])
def test_one_percent_of_text_from_data_is_held_out_by_default(
    text: Path, holdout_ratio: float | None, each: float
) -> None:
    """`--scale tiny` replaces the recipe's corpus with demo, whose ratios of 0.02 and 0.1 once applied to the user's
    text."""
    for data in ([str(text)], [str(text), "demo"]):
        corpus = job_of(*data, holdout_ratio=holdout_ratio).corpus
        assert (corpus.validation_ratio, corpus.test_ratio) == (each, each)


@pytest.mark.parametrize("data", [[], ["demo"]])
def test_named_corpus_keeps_its_own_ratios(data: list[str]) -> None:
    corpus = job_of(*data).corpus
    assert (corpus.validation_ratio, corpus.test_ratio) == (0.02, 0.1)
    with pytest.raises(
        BadInput, match=r"^--holdout-ratio works only with text from --data: corpus demo holds out 2 % and 10 "
    ):
        job_of(*data, holdout_ratio=0.2)


@pytest.mark.parametrize("holdout_ratio", [-0.1, 1.0, 7.0, float("nan")])
def test_invalid_holdout_ratio_is_refused(text: Path, holdout_ratio: float) -> None:
    with pytest.raises(
        BadInput, match=r"^invalid --holdout-ratio: got \S+, expected at least 0 and less than 1; change it$"
    ):
        job_of(str(text), holdout_ratio=holdout_ratio)


def test_held_out_fractions_are_reported(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["bert_base", "--scale", "tiny", "--dry-run", "--output-dir", str(text.parent / "out")]
    for verb in ("corpus", "run", "train"):
        assert main([verb, *given, "--data", str(text)]) == 0
        message = (
            "held out of text: 0.5 % for validation, 0.5 % for downstream tasks; to change the sum, set --holdout-ratio"
        )
        assert message in capsys.readouterr().err
    assert main(["corpus", *given, "--data", "demo"]) == 0
    message = (
        "held out of demo: 2 % for validation, 10 % for downstream tasks; to change them, set validation_ratio and "
        "test_ratio in a corpus file of your own"
    )
    assert message in capsys.readouterr().err


def test_holdout_ratio_keeps_all_digits_in_the_command(text: Path) -> None:
    command = JobFlags(recipe="bert_base", data=[str(text)], holdout_ratio=0.12345678).command("train")
    assert "--holdout-ratio 0.12345678" in command


def test_suggested_commands_keep_the_holdout_ratio(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["bert_base", "--scale", "tiny", "--data", str(text), "--holdout-ratio", ".3"]
    assert main(["corpus", *given, "--output-dir", str(text.parent / "out"), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert "--holdout-ratio .3" in planned["next"][0]
    assert planned["stages"]["corpus"]["folder"] != str(job_of(str(text)).plan.corpus.folder)
    for verb in ("eval", "export"):
        more = [str(text.parent / "to")] if verb == "export" else []
        assert main([verb, "bert_base", *more, *given[1:], "--output-dir", str(text.parent / "out")]) == 2
        assert "--holdout-ratio 0.3" in capsys.readouterr().err


def test_too_few_labeled_examples_are_reported_with_a_remedy(tmp_path: Path) -> None:
    corpus = with_test_split(tmp_path / "corpus")
    assert held_out.find_too_few(corpus, ["source_classification", "next_sentence"], 16) == {}
    found = held_out.find_too_few(corpus, ["source_classification", "next_sentence", "no such task"], 5_000)
    assert list(found) == ["source_classification", "next_sentence"]
    for task, line in found.items():
        assert line.startswith(f"task {task}: too few labeled examples: got ")
        assert "(--max-train-samples " in line
        assert line.endswith("hold out more of the text (a larger --holdout-ratio, or test_ratio in its corpus file)")


def test_corpus_without_held_out_documents_is_reported_for_each_task(tmp_path: Path) -> None:
    mini_corpus(tmp_path / "corpus")
    assert "test" not in Manifest.load(tmp_path / "corpus").splits
    found = held_out.find_too_few(tmp_path / "corpus", ["source_classification", "next_sentence"], 16)
    assert "has no held-out documents; hold out more of the text (a larger --holdout-ratio" in found["next_sentence"]


def target_on(corpus: Path, folder: Path) -> EvalTarget:
    """Return a finished run on a corpus."""
    return EvalTarget(folder=folder, hash="of the run", name="bert_base_tiny", parameters=1, corpus=corpus)


def test_evaluation_without_held_out_documents_is_refused_before_ray_starts(tmp_path: Path) -> None:
    """Otherwise a worker would raise BadInput when it reads the shards."""
    mini_corpus(tmp_path / "corpus")
    wanted = EvalRequest(tasks=["source_classification", "next_sentence"], num_seeds=1, max_train_samples=(16,))
    with pytest.raises(
        DataError, match=r"task source_classification: .* no held-out documents.*\ntask next_sentence: "
    ):
        plan_tasks(target_on(tmp_path / "corpus", tmp_path), wanted)


def test_task_without_training_ignores_label_counts(tmp_path: Path) -> None:
    target = target_on(with_test_split(tmp_path / "corpus"), tmp_path / "run")
    plans = plan_tasks(target, EvalRequest(tasks=["cloze", "next_sentence"], num_seeds=1, max_train_samples=(4, 8)))
    assert [(plan.task, plan.labels) for plan in plans] == [("cloze", 0), ("next_sentence", 4), ("next_sentence", 8)]
    assert plans[0].stage.folder == plan_tasks(target, EvalRequest(tasks=["cloze"], num_seeds=1))[0].stage.folder


def test_skipped_task_is_reported_by_every_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The second command once showed the scores without naming the task that was left out."""
    target = target_on(with_test_split(tmp_path / "corpus", topics=1), tmp_path / "run")
    wanted = EvalRequest(tasks=["source_classification", "next_sentence"], num_seeds=1, max_train_samples=(16,))
    for state in ("due", "done"):
        (plan,) = plan_tasks(target, wanted)
        assert (plan.task, plan.stage.state) == ("next_sentence", state)
        plan.stage.finish()
    assert caplog.text.count("left out: task source_classification: the held-out documents") == 2


def test_tasks_with_too_few_examples_are_reported_before_training(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = open_job(
        JobFlags(recipe="bert_base", scale="tiny", data=[str(text)], output_dir=text.parent / "out")
    ).plan.corpus
    with caplog.at_level(logging.WARNING):
        # the corpus does not exist yet
        assert held_out.tasks_without_text(stage, ["source_classification", "next_sentence"], 200) == []
        with_test_split(stage.folder, topics=1)
        stage.finish()
        assert held_out.tasks_without_text(stage, ["source_classification", "next_sentence"], 5_000) == [
            "source_classification",
            "next_sentence",
        ]
    assert caplog.text.count("no scores: task ") == 2


def test_ablation_is_not_trained_if_its_tasks_have_too_few_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the trials would be trained and could not be measured."""
    (tmp_path / "text.txt").write_text("A text.\n")
    flags = JobFlags(recipe="x", scale="tiny", data=(str(tmp_path / "text.txt"),), output_dir=tmp_path / "out")
    table = next(one for one in tables.TABLES.values() if any(m.kind == "task" for m in one.columns.values()))
    plan = ablation.plan(table, flags, 1)
    monkeypatch.setattr(ablation.corpus_stage, "corpus", lambda job, *_: mini_corpus(job.plan.corpus.folder))
    with pytest.raises(DataError, match="has no held-out documents; hold out more of the text"):
        ablation.run_ablation(plan, ignore_progress)


@pytest.mark.parametrize(
    ("num", "test", "is_own_text", "message"),
    [
        (
            739,
            0.005,
            True,
            "news has about 739 documents, of which 4 are held out.*; set test_ratio: 0.5 in a corpus file, which "
            "holds out 370",
        ),
        (
            2_000,
            0.005,
            True,
            "news has about 2,000 documents, of which 10 .*; set --holdout-ratio 0.6, which holds out 600",
        ),
        (2_000, 0.005, False, "; set test_ratio: 0.3 in a corpus file, which holds out 600"),
        (30, 0.1, True, "news has about 30 documents, of which 3 are held out.*; give more text"),
        (9, 0.001, True, "news has about 9 documents, of which 2 are held out"),
        (0, 0.005, True, "news has about 0 documents, of which 0 are held out.*; give more text"),
    ],
)
def test_too_few_documents_are_predicted_with_a_remedy(num: int, test: float, is_own_text: bool, message: str) -> None:
    (line,) = held_out.warn_of_few_documents(
        Corpus(name="news", test_ratio=test), num, ["source_classification", "glue"], is_own_text
    )
    assert line.startswith("no scores expected for source_classification: ")
    assert re.search(message, line), line


def test_a_task_by_sentence_is_only_without_scores_if_no_document_is_held_out() -> None:
    tasks = ["source_classification", "next_sentence", "cloze"]
    (few,) = held_out.warn_of_few_documents(Corpus(name="news", test_ratio=0.1), 140, tasks, own=True)
    assert few.startswith("no scores expected for source_classification, next_sentence: ")
    (none,) = held_out.warn_of_few_documents(Corpus(name="news", test_ratio=0), 140, tasks, own=True)
    assert none.startswith("no scores expected for source_classification, next_sentence, cloze: ")


@pytest.mark.parametrize(("num", "tasks"), [(8_000, ["source_classification"]), (739, ["glue"]), (739, [])])
def test_enough_documents_give_no_warning(num: int, tasks: list[str]) -> None:
    assert held_out.warn_of_few_documents(Corpus(name="news"), num, tasks, own=True) == []


def test_warning_comes_before_any_stage_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"A document with the number {number}. It has two sentences.\n" for number in range(739))
    (tmp_path / "texts.txt").write_text(lines)
    given = [
        "bert_base",
        "--scale",
        "tiny",
        "--data",
        f"line:{tmp_path}/texts.txt",
        "--output-dir",
        str(tmp_path / "out"),
    ]
    assert main(["run", *given, "--dry-run"]) == 0
    message = " ".join(capsys.readouterr().err.split())
    assert "texts has about 739 documents, of which 4 are held out" in message
    assert not (tmp_path / "out").exists()


def test_document_count_of_large_text_is_estimated(tmp_path: Path) -> None:
    for number in range(9):
        lines = (
            f"A document with the number {number} {line}. It has two sentences and some words.\n"
            for line in range(9_000)
        )
        (tmp_path / f"{number}.txt").write_text("".join(lines))
    found = about_how_many([TextReader(path=str(tmp_path), document_unit="line")], 32, 10_000)
    assert found == pytest.approx(81_000, rel=0.05)


def test_document_count_of_files_of_different_sizes_is_estimated(tmp_path: Path) -> None:
    """The sample has more large files than small ones; the estimate was once the number of files of their size."""
    for number in range(400):
        (tmp_path / f"{number}.txt").write_text("A few words. " * (5 if number % 20 else 20_000))
    found = about_how_many([TextReader(path=str(tmp_path), document_unit="document")], 32, 1_000_000)
    assert found == pytest.approx(400, rel=0.35)


def test_the_corpus_file_that_sets_the_fractions_is_named(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = text.parent / "mine.yaml"
    file.write_text(f"name: mine\nsources: [{{kind: text, path: {text}}}]\n")
    words = ["corpus", "bert_base", "--scale", "tiny", "--dry-run", "--output-dir", str(text.parent / "out")]
    assert main([*words, "--data", str(file)]) == 0
    assert (
        f"downstream tasks; to change them, set validation_ratio and test_ratio in {file}\n" in capsys.readouterr().err
    )
