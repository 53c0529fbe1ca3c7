"""The splits on which a task is scored, and the files for a leaderboard."""

import json
import math
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration import figures
from orchestration.config import load_cluster, tasks_from_words
from orchestration.evaluation import evaluate, leaderboard, score_figures, score_plan, trials
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.score_plan import plan_supported_tasks, plan_tasks
from orchestration.progress import ignore_progress
from preprocessing.errors import BadInput
from tests.orchestration.evaluation.runs import (
    make_request,
    score_one,
)
from training.evaluation import EvalResult


@pytest.mark.parametrize(("dev", "best", "warnings"), [("dev", "1", 0), ("test_labelled", "0", 1)])
def test_leaderboard_seed_is_selected_only_on_dev(
    target: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture, dev: str, best: str, warnings: int
) -> None:
    (plan,) = plan_tasks(target, make_request(data))
    cells = [
        (cell, EvalResult({dev: {"accuracy": accuracy}}, {"test": [str(number)]}))
        for number, (cell, accuracy) in enumerate(zip(plan.cells, (0.5, 0.75), strict=True))
    ]
    assert trials.select_best(replace(plan, split=dev), cells)[1].predictions == {"test": [best]}
    assert caplog.text.count("no labeled dev split to select a seed with") == warnings


def test_note_of_a_task_is_shown_beside_its_score(
    target: EvalTarget, data: Path, trial_names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    noted = replace(make_request(data, num_seeds=1), tasks=[replace(task, note="two of three options")])
    assert score_one(target, noted).notes[0] == "two of three options"
    assert "* sst2: two of three options\n" in (target.folder / "scores/table.md").read_text()
    assert plan_tasks(target, noted)[0].stage == plan_tasks(target, make_request(data, num_seeds=1))[0].stage
    assert "two of three options" not in caplog.text  # a note is not a warning


def test_always_first_correct_choice_gives_no_majority_baseline(target: EvalTarget, tmp_path: Path) -> None:
    """If a file always lists the correct choice first, the most frequent answer would have an accuracy of 100 %."""
    (task,) = tasks_from_words("wsc273")
    assert not isinstance(task, str)
    file = tmp_path / task.files["test"].paths[0]
    file.parent.mkdir(parents=True)
    row = {"context_options": ["the film is", "the book is"], "continuation": "so good", "gold": 0}
    file.write_text(json.dumps(row) + "\n")
    (plan,) = plan_tasks(
        target, EvalRequest(tasks=[replace(task, task=replace(task.task, label=""))], task_data_dir=tmp_path)
    )
    assert (plan.metric, plan.chance) == ("accuracy", None)


LANGUAGES = """
name: mine
description: is it good, in three languages
citation: me
variants: [de, fr, th]
score_splits: ["test_{variant}"]
files:
  train: {paths: [SST-2/train.tsv], format: {kind: tsv}}
  dev: {paths: [SST-2/dev.tsv], format: {kind: tsv}}
  "test_{variant}": {paths: ["{variant}.tsv"], format: {kind: tsv}}
task: {kind: classification, text: sentence, label: label, labels: ["0", "1"]}
"""


def test_task_is_scored_on_the_mean_of_its_named_splits(
    target: EvalTarget, data: Path, trial_names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """XQuAD and XNLI work like this: they train on English, and XQuAD has an English dev split."""
    (data / "mine.yaml").write_text(LANGUAGES)
    asked = make_request(data, tasks=f"{data}/mine.yaml", num_seeds=1)
    message = (
        f"task mine: its score is computed on test_de, test_fr, test_th, but {data} has no labeled file of these splits"
    )
    with pytest.raises(BadInput, match=re.escape(message)):
        plan_tasks(target, asked)
    assert plan_supported_tasks(target, asked) == []
    assert f"left out: {message}; looked for de.tsv" in caplog.text
    (data / "de.tsv").write_text("sentence\tlabel\nthe film is good\t1\nthe book is good\t1\n")
    score = score_one(target, asked)
    assert (score.split, score.chance) == ("test_de", 1)
    assert f"its score is computed on test_de only, because {data} has no labeled test_fr, test_th" in caplog.text
    (data / "th.tsv").write_text("sentence\tlabel\nthe film is bad\t0\nthe book is good\t1\n")
    score = score_one(target, asked)
    assert (score.split, score.chance) == ("mean", 0.75)
    assert f"its score is the mean over test_de, test_th, because {data} has no labeled test_fr" in caplog.text
    by_split = {split: metrics["accuracy"][0] for split, metrics in score.starts["pretrained"].scores.items()}
    assert list(by_split) == ["dev", "test_de", "test_th", "mean"]
    page = (target.folder / "scores" / "table.md").read_text()
    assert re.search(r"^\* mine \(\w{8}\): mean: over test_de, test_th$", page, re.MULTILINE)
    assert score.values("pretrained") == ((by_split["test_de"] + by_split["test_th"]) / 2,)
    assert len(trial_names) == 2


PAIRS_OF = """
name: pairs
description: which one is right
citation: me
variants: [a, b]
score_splits: ["test_{variant}"]
files: {"test_{variant}": {paths: ["{variant}.jsonl"], format: {kind: jsonl}}}
task: {kind: loglikelihood_choice, choices: ["{good}", "{bad}"], metrics: [accuracy]}
"""


@pytest.mark.parametrize("odd", ["ab", "a", "b", ""])
def test_mean_over_splits_handles_examples_that_cannot_be_scored(
    odd: str, target: EvalTarget, trial_names: list[str], tmp_path: Path
) -> None:
    """An unscorable row in one split once raised a KeyError at the end, or counted as scored."""
    (tmp_path / "pairs.yaml").write_text(PAIRS_OF)
    pairs = [
        (f"the {thing} is {how}", f"the {thing} {how} is") for thing in ("film", "plot") for how in ("good", "bad")
    ]
    for part in "ab":
        rows = [*pairs, ("", "the"), (" ", "is")] if part in odd else pairs
        (tmp_path / f"{part}.jsonl").write_text(
            "".join(json.dumps({"good": good, "bad": bad}) + "\n" for good, bad in rows)
        )
    score = score_one(target, make_request(tmp_path, f"{tmp_path}/pairs.yaml"))
    by = score.starts["pretrained"].scores
    parts = [by[f"test_{part}"] for part in "ab"]
    assert score.values("pretrained") == (pytest.approx(sum(one["accuracy"][0] for one in parts) / 2),)
    assert by["mean"].get("left_out", (0.0,)) == (2.0 * len(odd),)
    assert [one["rows"] for one in (*parts, by["mean"])] == [(4.0,), (4.0,), (8.0,)]
    low, high = score.intervals["pretrained"]
    apart = [one["accuracy_high"][0] - one["accuracy_low"][0] for one in parts]
    assert 0 < high - low < min(apart)  # the mean covers twice as many questions


def test_diagnostic_set_is_not_scored_on_mnli_dev(
    target: EvalTarget, data: Path, trial_names: list[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    write_mnli(data)
    (data / "AX").mkdir()
    for task, split in (("ax", "test_labelled"), ("hans", "test_lexical_overlap, .*")):
        with pytest.raises(
            BadInput, match=f"task {task}: its score is computed on {split}, but .* has no labeled file of these"
        ):
            plan_tasks(target, make_request(data, tasks=task))
    (data / "AX/AX.tsv").write_text("index\tsentence1\tsentence2\n0\tthe film is good\tit is\n")
    plans = plan_tasks(target, make_request(data, tasks="ax", for_leaderboard=True, num_seeds=1))
    assert "the result is computed on dev and is not the score of this task" in caplog.text
    scores = evaluate.evaluate(target.folder, plans, load_cluster("local"), ignore_progress)
    assert leaderboard.submit(plans, scores, tmp_path / "to") == ["AX.tsv"]


LABELS = ("contradiction", "entailment", "neutral")


def write_mnli(data: Path) -> Path:
    """Write MNLI in the format of GLUE: train and matched dev."""
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", LABELS[n % 3]]) for n in range(9)]
    (data / "MNLI").mkdir(parents=True)
    for split in ("train", "dev_matched"):
        (data / f"MNLI/{split}.tsv").write_text("\n".join(["\t".join([*"0123456789", "gold_label"]), *lines]) + "\n")
    return data


def test_hans_has_one_score_per_heuristic(
    target: EvalTarget, trial_names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of HANS contains all three heuristics in one table."""
    columns = "gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1"
    columns += " sentence2 pairID heuristic subcase template"
    rows = [columns.split()]
    for n, heuristic in enumerate(("lexical_overlap", "subsequence", "constituent", "subsequence")):
        label = ("non-entailment", "entailment")[n % 2]
        rows.append([label, *"abcd", "the film is good", "so it is", f"ex{n}", heuristic, f"{heuristic}_x", "t1"])
    data = write_mnli(tmp_path / "nli")
    (data / "heuristics_evaluation_set.txt").write_text("".join("\t".join(row) + "\n" for row in rows))
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "plot_confusion", lambda title, *what: drawn.append(what))
    (plan,) = plan_tasks(target, make_request(data, tasks="hans", num_seeds=1))
    assert {split: len(items) for split, items in plan.items.items() if split.startswith("test")} == {
        "test_lexical_overlap": 1,
        "test_subsequence": 2,
        "test_constituent": 1,
    }
    (score,) = evaluate.evaluate(target.folder, [plan], load_cluster("local"), ignore_progress)
    by_split = {split: metrics["accuracy"][0] for split, metrics in score.starts["pretrained"].scores.items()}
    tests = [value for split, value in by_split.items() if split.startswith("test_")]
    assert (score.split, len(tests), score.values("pretrained")) == ("mean", 3, (pytest.approx(sum(tests) / 3),))
    page = (target.folder / "scores/table.md").read_text()
    assert all(f"test_{one} accuracy" in page for one in ("lexical_overlap", "subsequence", "constituent"))
    score_figures._confusion(plan, trials.load_results(plan), score)
    ((labels, counts, _),) = drawn
    assert (labels, sum(map(sum, counts))) == (["non-entailment", "entailment"], 4)


def test_labeled_diagnostic_set_uses_the_three_class_correlation(tmp_path: Path) -> None:
    """Gorodkin's R_K, computed from the counts of labels and predictions."""
    columns = "Lexical Semantics,Predicate-Argument Structure,Logic,Knowledge,Domain,Premise,Hypothesis,Label"
    predicted = ["entailment", "neutral", "neutral", "contradiction", "entailment", "entailment", "neutral", "neutral"]
    gold = ["entailment", "neutral", "contradiction", "contradiction", "neutral", "entailment", "neutral", "entailment"]
    rows = [["Lexical entailment", "", "", "", "News", f"Premise {n}.", "It is.", one] for n, one in enumerate(gold)]
    (tmp_path / "diagnostic").mkdir()
    lines = ["\t".join(row) + "\n" for row in (columns.split(","), *rows)]
    (tmp_path / "diagnostic/diagnostic-full.tsv").write_text("".join(lines))
    (task,) = tasks_from_words("ax")
    assert not isinstance(task, str)
    items, records = task.items("test_labelled", tmp_path)
    assert (items[3].texts, [LABELS[item.gold] for item in items]) == (("Premise 3.", "It is."), gold)
    assert records.notes == []

    def products(one: list[str], other: list[str]) -> int:
        return sum(one.count(label) * other.count(label) for label in LABELS)

    hits, square = sum(map(str.__eq__, gold, predicted)), len(gold) ** 2
    expected = (len(gold) * hits - products(gold, predicted)) / math.sqrt(
        (square - products(gold, gold)) * (square - products(predicted, predicted))
    )
    assert task.task.scores(items, predicted) == {"matthews": pytest.approx(expected), "accuracy": hits / len(gold)}  # type: ignore[union-attr]


def test_sample_split_has_no_reported_score(target: EvalTarget, tmp_path: Path) -> None:
    (tmp_path / "summaries").mkdir()
    with zipfile.ZipFile(tmp_path / "summaries/cnndm_sample.zip", "w") as archive:
        archive.writestr("train_sample.csv", "article,highlights\na film,good\n")
    writer = replace(target, expected={"tldr": {"rouge_1": 29.34}})
    (plan,) = plan_tasks(writer, make_request(tmp_path, tasks="cnndm_tldr"))
    assert (plan.split, plan.paper) == ("test_sample", {})
    (tmp_path / "cnn_dm").mkdir()
    (tmp_path / "cnn_dm/test.csv").write_text("article,highlights\na film,good\n")
    (plan,) = plan_tasks(writer, make_request(tmp_path, tasks="cnndm_tldr"))
    assert (plan.split, plan.paper) == ("test", {"tldr.rouge_1": 29.34})


def test_leaderboard_files_cover_each_unlabeled_split(
    target: EvalTarget, data: Path, trial_names: list[str], tmp_path: Path
) -> None:
    (data / "SST-2/test.tsv").write_text("index\tsentence\n0\tthe film is good\n1\tthe film is bad\n")
    plans = plan_tasks(target, make_request(data, for_leaderboard=True))
    scores = evaluate.evaluate(target.folder, plans, load_cluster("local"), ignore_progress)
    assert leaderboard.submit(plans, scores, tmp_path / "to") == ["SST-2.tsv"]
    lines = (tmp_path / "to/SST-2.tsv").read_text().splitlines()
    assert (lines[0], [line.split("\t")[0] for line in lines[1:]]) == ("index\tprediction", ["0", "1"])
    assert {line.split("\t")[1] for line in lines[1:]} <= {"0", "1"}
    failed = replace(plans[0], task="of which all cells failed")
    assert leaderboard.submit([failed, *plans], scores, tmp_path / "to") == ["SST-2.tsv"]


def test_leaderboard_request_without_unlabeled_splits_is_refused(target: EvalTarget, data: Path) -> None:
    """The error once came after all fine-tuning, and no scores were shown."""
    asked = make_request(data, for_leaderboard=True)
    with pytest.raises(BadInput, match=r"^--leaderboard-dir: none of these tasks has an unlabeled leaderboard split"):
        score_plan.check_flags(plan_tasks(target, asked), asked)


def test_leaderboard_split_with_malformed_rows_is_refused(target: EvalTarget, data: Path) -> None:
    """Predictions were once numbered without the skipped row, so that later ones had a wrong index."""
    (data / "SST-2/test.tsv").write_text("index\tsentence\n0\tthe film\tis good\n1\tthe film is bad\n")
    row = r"SST-2/test.tsv:2: .*; repair the file, .* numbered by row, or leave --leaderboard-dir out"
    with pytest.raises(BadInput, match=rf"^task sst2, test: malformed row in a split for a leaderboard: {row}$"):
        plan_tasks(target, make_request(data, for_leaderboard=True))
    assert plan_tasks(target, make_request(data))[0].notes  # without --leaderboard-dir, the row only gives a note


GLUE = {  # for each task: columns of train and dev, columns of test, and labels
    "CoLA": ("- label - text", "index text", "0 1"),
    "SST-2": ("text label", "index text", "0 1"),
    "MRPC": ("label id id text text", "index id id text text", "0 1"),
    "STS-B": ("index a b c d e f text text label", "index a b c d e f text text", "0.5 4.5"),
    "QQP": ("id id id text text label", "id text text", "0 1"),
    "MNLI": ("index a b c d e f g text text label", "index a b c d e f g text text", "contradiction entailment"),
    "QNLI": ("index text text label", "index text text", "entailment not_entailment"),
    "RTE": ("index text text label", "index text text", "entailment not_entailment"),
    "WNLI": ("index text text label", "index text text", "0 1"),
    "AX": ("", "index text text", "contradiction entailment neutral"),
}


FILES = {"MNLI": ("MNLI-m", "MNLI-mm")}


def write_glue(data: Path) -> Path:
    """Write all of GLUE in its distributed format: eight training examples, and two without labels."""
    for task, (columns, of_test, labels) in GLUE.items():
        (data / task).mkdir(parents=True)

        def row(names: str, n: int, labels: Sequence[str] = tuple(labels.split())) -> str:
            cells = {"text": f"the film is {('bad', 'good')[n % 2]}", "label": labels[n % 2], "index": str(n)}
            return "\t".join(cells.get(name, name) for name in names.split())

        def written(split: str, names: str, rows: int, task: str = task, row: Callable[..., str] = row) -> None:
            head = [] if task == "CoLA" and split != "test" else [names.replace(" ", "\t")]
            lines = [*head, *(row(names, n) for n in range(rows))]
            (data / task / f"{split}.tsv").write_text("\n".join(lines) + "\n")

        kinds = ("_matched", "_mismatched") if task == "MNLI" else ("",)
        for split in ("train", *(f"dev{kind}" for kind in kinds)) if columns else ():
            written(split, columns, 8)
        for split in (f"test{kind}" for kind in kinds) if task != "AX" else ("AX",):
            written(split, of_test, 2)
    return data


def test_glue_leaderboard_has_all_eleven_files(target: EvalTarget, trial_names: list[str], tmp_path: Path) -> None:
    data = write_glue(tmp_path / "glue")
    plans = plan_tasks(target, make_request(data, tasks="glue", for_leaderboard=True, num_seeds=1, max_steps=1))
    scores = evaluate.evaluate(target.folder, plans, load_cluster("local"), ignore_progress)
    files = [name for task in GLUE for name in FILES.get(task, (task,))]
    assert len(files) == 11
    assert leaderboard.submit(plans, scores, tmp_path / "to") == sorted(f"{name}.tsv" for name in files)
    for task, (_, _, labels) in GLUE.items():
        for name in FILES.get(task, (task,)):
            head, *lines = (tmp_path / "to" / f"{name}.tsv").read_text().splitlines()
            assert (head, [line.split("\t")[0] for line in lines]) == ("index\tprediction", ["0", "1"])
            answers = [line.split("\t")[1] for line in lines]
            if task == "STS-B":
                assert all(re.fullmatch(r"[0-5]\.\d{3}", answer) for answer in answers)
            else:
                assert set(answers) <= {*labels.split(), *(["neutral"] if task == "MNLI" else [])}
