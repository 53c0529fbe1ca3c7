"""Comparisons of runs: pairing of questions, groups of seeds, metrics, and what is refused."""

import io
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from orchestration import figures, launch, tracking
from orchestration.cli import main
from orchestration.evaluation import comparison
from orchestration.evaluation.comparison import RunComparison, compare_runs, find_groups
from orchestration.jobs import stages
from orchestration.progress import ignore_progress
from orchestration.reports import PREDICTIONS, QUESTIONS, SCORE_FILE, ComparedTask, comparison_rows
from orchestration.terminal import views
from orchestration.tracking.runs import client_of
from preprocessing.errors import BadInput
from training.evaluation.metrics import mcnemar
from training.evaluation.tasks import (
    Classification,
    LoglikelihoodChoice,
    SelectedTrials,
    TaskItem,
    TaskScore,
    question_of,
)
from training.evaluation.tasks.loglikelihood_choice import LikelihoodChoice, LikelihoodOptions, LogP

PIQA = LoglikelihoodChoice(choices=("{a}", "{b}"), metrics=("accuracy",))
COLA = Classification(text="a", label="b", labels=("0", "1"), metrics=("matthews", "f1", "accuracy"))
RECIPE = {"name": "bert", "seed": 0, "optimizer": {"learning_rate": 0.1}}


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons are not sent to MLflow."""
    monkeypatch.setattr(tracking, "run", lambda *_, **__: nullcontext())


def write_run(out: Path, name: str, seed: int = 0, rate: float = 0.1) -> Path:
    folder = out / "runs" / name
    folder.mkdir(parents=True)
    (folder / launch.RUN).write_text("{}")
    recipe = RECIPE | {"seed": seed, "optimizer": {"learning_rate": rate}}
    (folder / stages.MARK).write_text(json.dumps({"hash": name, "causes": {"recipe": recipe, "corpus": "c"}}))
    return folder


def write_score(
    run: Path, task: str, kind: Any, items: Sequence[TaskItem], trials: Sequence[Sequence[Any]], **causes: Any
) -> Path:
    """Write a finished score as an evaluation does; `trials` has the answers of each fine-tuning seed."""
    folder = run / "scores" / f"{task}-{run.name[-8:]}"
    folder.mkdir(parents=True)
    predictions = [kind.predictions(items, one) if hasattr(kind, "score_choices") else one for one in trials]
    scores = [kind.scores(items, one) for one in trials]
    by_metric = {name: tuple(one[name] for one in scores) for name in scores[0]}
    score = TaskScore(task, kind.metrics[0], "dev", "", {"pretrained": SelectedTrials({}, {"dev": by_metric})})
    (folder / SCORE_FILE).write_text(json.dumps([asdict(score)]))
    stored = {f"pretrained, seed {seed}": {"dev": one} for seed, one in enumerate(predictions)}
    (folder / PREDICTIONS).write_text(json.dumps(stored))
    (folder / QUESTIONS).write_text(json.dumps({"dev": [question_of(kind, item) for item in items]}))
    about = {"run": run.name, "task": {"name": task, "task": asdict(kind)}, "data": run.name, "labels": 0} | causes
    (folder / stages.MARK).write_text(json.dumps({"causes": about}))
    return folder


def choice_items(count: int, start: int = 0) -> list[TaskItem]:
    return [
        TaskItem(f"piqa.jsonl:{n}", (LikelihoodOptions((f"goal {n}",) * 2, (" yes", " no"), ("yes", "no")),), n % 2)
        for n in range(start, start + count)
    ]


def choice_answers(items: Sequence[TaskItem], right: Sequence[bool], size: float = 1.0) -> list[LikelihoodChoice]:
    """Answers that are right or wrong, with a margin of `size` nats."""
    return [
        LikelihoodChoice(tuple(LogP(-1.0 if (at == item.gold) == ok else -1.0 - size, 1, False) for at in range(2)))
        for item, ok in zip(items, right, strict=True)
    ]


def compare(out: Path, *words: str, tasks: Sequence[str] = ()) -> RunComparison:
    return compare_runs(find_groups(words, out), tasks, out, ignore_progress)


def rows_of(found: RunComparison) -> Mapping[str, ComparedTask]:
    return {f"{row.task} {row.metric}": row for row in found.tasks}


def test_two_runs_are_compared_question_by_question(tmp_path: Path, logged: None) -> None:
    items = choice_items(12)
    runs = [write_run(tmp_path, f"{name}-12345678", rate=rate) for name, rate in (("a", 0.1), ("b", 0.2))]
    right = [[True] * 5 + [False] * 7, [True] * 4 + [False] + [True] * 6 + [False]]
    for run, of_run in zip(runs, right, strict=True):
        write_score(run, "piqa", PIQA, items, [choice_answers(items, of_run)])
    found = compare(tmp_path, "a-12345678", "b-12345678")
    rows = rows_of(found)
    accuracy = rows["piqa accuracy"].result
    assert accuracy is not None
    assert (accuracy.first, accuracy.second) == pytest.approx((5 / 12, 10 / 12))
    assert (accuracy.wins, accuracy.losses, accuracy.questions) == (6, 1, 12)
    assert accuracy.p == pytest.approx(mcnemar(1, 6))
    assert (rows["piqa accuracy"].holm_p, accuracy.covers) == (accuracy.p, "questions")
    margin = rows["piqa margin"].result
    assert margin is not None
    assert margin.difference == pytest.approx((10 - 2) / 12 - (5 - 7) / 12)
    assert margin.low <= margin.difference <= margin.high
    assert rows["piqa margin"].holm_p is None
    assert set(rows) == {"piqa accuracy", "piqa margin", "piqa bits_per_byte"}
    values = json.loads((found.folder / comparison.RESULT).read_text())
    assert next(row["metric"] for row in values["tasks"]) == "accuracy"
    assert "another seed of the same recipe" in (found.folder / comparison.TABLE).read_text()
    assert (found.folder / comparison.FIGURE).read_bytes().startswith(b"\x89PNG")
    assert "only b-1234 is right" in (found.folder / comparison.PAGE).read_text()
    assert comparison_rows(["a", "b"], found.tasks)[0]["flips"] == "+6 -1"


def test_a_run_compared_with_itself_has_no_difference(tmp_path: Path, logged: None) -> None:
    items = choice_items(6)
    run = write_run(tmp_path, "a-12345678")
    write_score(run, "piqa", PIQA, items, [choice_answers(items, [True, False] * 3)])
    found = compare(tmp_path, str(run), str(run))
    assert [group.name for group in found.groups] == ["a-1234", "a-1234 (2)"]
    for row in found.tasks:
        assert row.result is not None
        assert (row.result.difference, row.result.low, row.result.high, row.result.p) == (0, 0, 0, 1)


def test_questions_are_paired_by_content_and_others_are_counted(tmp_path: Path, logged: None) -> None:
    """The second run has two other questions and a shuffled file."""
    one, other = choice_items(10), choice_items(10, start=2)[::-1]
    runs = [write_run(tmp_path, f"{name}-12345678", rate=rate) for name, rate in (("a", 0.1), ("b", 0.2))]
    write_score(runs[0], "piqa", PIQA, one, [choice_answers(one, [item.gold == 0 for item in one])])
    write_score(runs[1], "piqa", PIQA, other, [choice_answers(other, [item.gold == 0 for item in other])])
    row = rows_of(compare(tmp_path, "a-12345678", "b-12345678"))["piqa accuracy"]
    assert row.result is not None
    assert (row.result.questions, row.result.difference, row.only_first, row.only_second) == (8, 0, 2, 2)
    (text, *_) = comparison_rows(["a", "b"], [row])
    assert text["note"] == "2 questions only in the baseline; 2 questions only in the other"


def test_runs_without_a_common_question_are_refused_and_nothing_is_written(
    tmp_path: Path, logged: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rate, start in (("a", 0.1, 0), ("b", 0.2, 100)):
        run, items = write_run(tmp_path, f"{name}-12345678", rate=rate), choice_items(10, start=start)
        write_score(run, "piqa", PIQA, items, [choice_answers(items, [True] * 10)])
    assert main(["compare", "a-12345678", "b-12345678", "--output-dir", str(tmp_path)]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "common" in one]
    assert line == (
        "sesame: the runs cannot be compared: task piqa: the runs have no common question; evaluate them with `sesame "
        "eval` on the same files"
    )
    assert not (tmp_path / comparison.COMPARISONS).exists()


def test_seeds_of_a_recipe_are_averaged(tmp_path: Path, logged: None) -> None:
    items, rng = choice_items(40), np.random.default_rng(0)
    for rate, name, share in ((0.1, "a", 0.5), (0.2, "b", 0.9)):
        for seed in range(3):
            run = write_run(tmp_path, f"{name}-{seed}2345678", seed=seed, rate=rate)
            right = (rng.random(40) < share).tolist()
            write_score(run, "piqa", PIQA, items, [choice_answers(items, right)])
    groups = [",".join(f"{name}-{seed}2345678" for seed in range(3)) for name in "ab"]
    found = compare(tmp_path, *groups)
    row = rows_of(found)["piqa accuracy"]
    assert row.result is not None
    assert (row.result.covers, row.result.test) == ("questions and pretraining seeds", "t over seeds")
    assert [group.name for group in found.groups] == ["a-0234+1234+2234", "b-0234+1234+2234"]
    assert "pretraining seeds" in (found.folder / comparison.TABLE).read_text()
    single = rows_of(compare(tmp_path, "a-02345678", "b-02345678"))["piqa accuracy"]
    assert single.result is not None
    assert single.result.covers == "questions"


def test_metrics_that_are_no_means_are_recomputed(
    tmp_path: Path, logged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.evaluation.metrics.comparison.RECOMPUTED_DRAWS", 100)
    rng = np.random.default_rng(1)
    items = [TaskItem(f"cola.tsv:{n}", (f"sentence {n}",), int(rng.integers(2))) for n in range(40)]
    for name, share, rate in (("a", 0.6, 0.1), ("b", 0.9, 0.2)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        answers = [str(item.gold if rng.random() < share else 1 - item.gold) for item in items]
        write_score(run, "cola", COLA, items, [answers])
    rows = rows_of(compare(tmp_path, "a-12345678", "b-12345678"))
    tests = {metric: row.result.test for metric, row in rows.items() if row.result}
    assert tests == {"cola matthews": "bootstrap", "cola f1": "bootstrap", "cola accuracy": "McNemar"}
    assert all(row.result and row.result.low < row.result.difference < row.result.high for row in rows.values())


def test_a_mean_over_subsets_is_sampled_by_subset(tmp_path: Path, logged: None) -> None:
    """BLiMP: the pairs of a template are not independent."""
    blimp = LoglikelihoodChoice(choices=("{a}", "{b}"), subset="{uid}", metrics=("macro_accuracy", "accuracy"))
    items = [
        replace(item, texts=(replace(item.texts[0], subset=f"template {number % 5}"),))
        for number, item in enumerate(choice_items(40))
    ]
    rng = np.random.default_rng(2)
    for name, share, rate in (("a", 0.5, 0.1), ("b", 0.8, 0.2)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        write_score(run, "blimp", blimp, items, [choice_answers(items, (rng.random(40) < share).tolist())])
    rows = rows_of(compare(tmp_path, "a-12345678", "b-12345678"))
    macro, plain = rows["blimp macro_accuracy"].result, rows["blimp accuracy"].result
    assert macro is not None
    assert plain is not None
    assert (macro.units, macro.questions, macro.test) == (5, 40, "bootstrap")
    assert (plain.units, plain.test) == (40, "McNemar")
    assert macro.difference == pytest.approx(plain.difference)


def test_scores_are_those_of_the_evaluation(tmp_path: Path, logged: None) -> None:
    """The margin is normalized like the first accuracy, and smooth metrics are means over subsets like the main one."""
    by_length = LoglikelihoodChoice(choices=("{a}", "{b}"), metrics=("accuracy_character", "accuracy"))
    by_subset = LoglikelihoodChoice(choices=("{a}", "{b}"), subset="{u}", metrics=("macro_accuracy", "accuracy"))
    items = [
        replace(item, texts=(replace(item.texts[0], subset=f"s{max(0, number - 30)}"),))
        for number, item in enumerate(choice_items(40))
    ]
    rng = np.random.default_rng(3)
    for name, rate in (("a", 0.1), ("b", 0.2)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        for task, kind in (("length", by_length), ("subset", by_subset)):
            answers = [LikelihoodChoice(tuple(LogP(-float(x), 1, False) for x in rng.random(2))) for _ in items]
            write_score(run, task, kind, items, [answers])
    rows = rows_of(compare(tmp_path, "a-12345678", "b-12345678"))
    for at, name in enumerate("ab"):
        for task in ("length", "subset"):
            folder = tmp_path / "runs" / f"{name}-12345678" / "scores" / f"{task}-12345678"
            (score,) = json.loads((folder / SCORE_FILE).read_text())
            of_split = score["starts"]["pretrained"]["scores"]["dev"]
            for metric in ("accuracy", "margin", "bits_per_byte"):
                found = rows[f"{task} {metric}"].result
                assert found is not None
                assert (found.first, found.second)[at] == pytest.approx(of_split[metric][0])
    margin = rows["subset margin"].result
    assert margin is not None
    assert margin.units == 10


def test_a_difference_is_marked_only_if_its_p_is_below_5_percent(tmp_path: Path, logged: None) -> None:
    """Five flips of 100 questions: the bootstrap interval is above 0, but p of McNemar's test is 2 / 2^5."""
    items = choice_items(100)
    for name, rate, more in (("a", 0.1, 0), ("b", 0.2, 5)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        right = [True] * (50 + more) + [False] * (50 - more)
        write_score(run, "piqa", PIQA, items, [choice_answers(items, right)])
    row = rows_of(compare(tmp_path, "a-12345678", "b-12345678"))["piqa accuracy"]
    assert row.result is not None
    assert (row.result.p, row.result.low > 0, row.improvement) == (0.0625, True, 0)


def test_of_equal_settings_the_scores_of_the_same_files_are_compared(tmp_path: Path, logged: None) -> None:
    runs = [write_run(tmp_path, f"{name}-12345678", rate=rate) for name, rate in (("a", 0.1), ("b", 0.2))]
    old, new = choice_items(10), choice_items(10, start=100)
    for run, tasks in zip(runs, ((("old", old), ("new", new)), (("old", old),)), strict=True):
        for data, items in tasks:
            folder = write_score(run, "piqa", PIQA, items, [choice_answers(items, [True] * 10)], data=data)
            folder.rename(folder.with_name(f"piqa-{data}"))
    found = rows_of(compare(tmp_path, "a-12345678", "b-12345678"))["piqa accuracy"]
    assert found.result is not None
    assert (found.result.questions, found.only_first) == (10, 0)


def test_a_task_without_a_score_is_refused(tmp_path: Path, logged: None) -> None:
    items = choice_items(4)
    for name, rate in (("a", 0.1), ("b", 0.2)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        write_score(run, "piqa", PIQA, items, [choice_answers(items, [True, False] * 2)])
    with pytest.raises(BadInput, match="invalid --tasks: got pica, expected tasks that the runs have a score of: piqa"):
        compare(tmp_path, "a-12345678", "b-12345678", tasks=("piqa", "pica"))
    assert not (tmp_path / comparison.COMPARISONS).exists()


def test_the_figure_of_many_differences_is_bounded(
    tmp_path: Path, logged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MOST_BARS", 2)
    drawn, draw = list[tuple[str, int]](), figures.plot_differences
    monkeypatch.setattr(
        figures, "plot_differences", lambda title, bars: drawn.append((title, len(bars))) or draw(title, bars)
    )
    items = choice_items(4)
    for name, rate in (("a", 0.1), ("b", 0.2)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        write_score(run, "piqa", PIQA, items, [choice_answers(items, [True, False] * 2)])
    compare(tmp_path, "a-12345678", "b-12345678")
    assert drawn == [("b-1234 minus a-1234: the clearest 2 of 3 differences", 2)]


def test_a_table_on_a_narrow_terminal_cuts_no_number(tmp_path: Path, logged: None) -> None:
    items = choice_items(12)
    for name, rate, right in (("a", 0.1, True), ("b", 0.2, False)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        write_score(run, "piqa", PIQA, items, [choice_answers(items, [right] * 12)])
    found = compare(tmp_path, "a-12345678", "b-12345678")
    rows = comparison_rows(["a", "b"], found.tasks)
    for width in (100, 140):
        console = Console(width=width, file=io.StringIO())
        console.print(views.comparison(["a", "b"], rows, ""))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "+0 -12" in text
        assert "<0.001" in text
        assert "-100.0 worse" in text


def test_a_score_of_an_earlier_version_is_left_out_with_a_remedy(
    tmp_path: Path, logged: None, caplog: pytest.LogCaptureFixture
) -> None:
    items = choice_items(4)
    runs = [write_run(tmp_path, f"{name}-12345678", rate=rate) for name, rate in (("a", 0.1), ("b", 0.2))]
    folders = [write_score(run, "piqa", PIQA, items, [choice_answers(items, [True] * 4)]) for run in runs]
    (folders[1] / QUESTIONS).unlink()
    with pytest.raises(BadInput, match="the runs have no common task"):
        compare(tmp_path, "a-12345678", "b-12345678")
    assert "has no questions.json, because an earlier version wrote it; delete its directory" in caplog.text
    stored = [{key: value for key, value in question_of(PIQA, item).items() if key != "texts"} for item in items]
    for folder in folders:
        (folder / QUESTIONS).write_text(json.dumps({"dev": stored}))
    with pytest.raises(
        BadInput, match=r"^the runs cannot be compared: task piqa: .*texts is missing.*; repeat the `ses"
    ):
        compare(tmp_path, "a-12345678", "b-12345678")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (PREDICTIONS, '{"random, seed 0": {"dev": []}}'),
        (PREDICTIONS, '{"pretrained, seed 0": {"dev": [1]}}'),
        (PREDICTIONS, '{"pretrained, seed 0": {"te'),
        (PREDICTIONS, "[]"),
        (QUESTIONS, '{"test": []}'),
    ],
)
def test_damaged_answers_are_left_out_in_one_line(
    tmp_path: Path, logged: None, caplog: pytest.LogCaptureFixture, file: str, content: str
) -> None:
    items = choice_items(4)
    for name, rate in (("a", 0.1), ("b", 0.2)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        for task in ("piqa", "copa"):
            folder = write_score(run, task, PIQA, items, [choice_answers(items, [True, False] * 2)])
    (folder / file).write_text(content)
    found = compare(tmp_path, "a-12345678", "b-12345678")
    assert {row.task for row in found.tasks} == {"piqa"}
    (message,) = [one.getMessage() for one in caplog.records if "left out" in one.getMessage()]
    assert "\n" not in message
    assert "delete its directory" in message


def test_other_settings_are_named(tmp_path: Path, logged: None, caplog: pytest.LogCaptureFixture) -> None:
    items = choice_items(4)
    for name, rate, length in (("a", 0.1, 128), ("b", 0.2, 64)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        write_score(run, "piqa", PIQA, items, [choice_answers(items, [True, False] * 2)], length=length)
    found = compare(tmp_path, "a-12345678", "b-12345678")
    assert found.notes == ("b-1234: task piqa: the runs were evaluated with other values of length",)
    assert len(found.tasks) == 3


def test_tasks_of_only_one_run_are_named(tmp_path: Path, logged: None) -> None:
    items = choice_items(4)
    for name, rate, tasks in (("a", 0.1, ("piqa", "copa")), ("b", 0.2, ("piqa",))):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        for task in tasks:
            write_score(run, task, PIQA, items, [choice_answers(items, [True, False] * 2)])
    found = compare(tmp_path, "a-12345678", "b-12345678")
    assert found.notes == ("b-1234: task copa is not compared: b-12345678 has no score of it",)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a-12345678"], "invalid RUN: got 1 run or group, expected two or more"),
        (["a-12345678", "a-12345678,a-12345678"], "expected different runs between the commas"),
        (["a-12345678", "a-12345678,b-12345678"], "differ in recipe.optimizer.learning_rate, expected runs that"),
        (["a-12345678", ","], "expected different runs between the commas"),
    ],
)
def test_groups_that_are_no_groups_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        write_run(tmp_path, f"{name}-12345678", rate=rate)
    with pytest.raises(BadInput, match=message) as caught:
        find_groups(words, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_command_prints_a_table_or_json_and_logs_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    items = choice_items(12)
    for name, rate, right in (("a", 0.1, [True] * 12), ("b", 0.2, [True] * 2 + [False] * 10)):
        run = write_run(tmp_path, f"{name}-12345678", rate=rate)
        write_score(run, "piqa", PIQA, items, [choice_answers(items, right)])
    words = ["compare", "a-12345678", "b-12345678", "--output-dir", str(tmp_path)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "b-1234, compared with a-1234" in shown
    assert "-83.3 worse" in shown
    assert main([*words, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["tasks"][0]["result"]["p"] == pytest.approx(mcnemar(0, 10))
    folder = Path(values["folder"])
    tracked = tracking.existing_run(folder)
    assert tracked is not None
    client = client_of(tracked.uri)
    run = client.get_run(tracked.run_id)
    assert (run.info.status, run.data.tags["type"]) == ("FINISHED", "comparison")
    assert run.data.tags["command"] == shlex.join(["sesame", *words, "--json"])
    assert run.data.metrics["compare/b-1234/piqa/accuracy/difference"] == pytest.approx(-10 / 12)
    assert {one.path for one in client.list_artifacts(tracked.run_id)} == {
        "comparison.json", "figures", "questions.html", "table.md"
    }  # fmt: skip
    assert main(["compare", "a-12345678", "missing-12345678", "--output-dir", str(tmp_path)]) == 2
    assert "expected the name or the MLflow ID of a run" in capsys.readouterr().err
