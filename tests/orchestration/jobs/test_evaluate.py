"""Scores of tasks of files: what is planned, what is kept, what goes on, what is told in one line."""

import json
import logging
import math
import re
import shutil
import threading
import zipfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orchestration import launch
from orchestration.cli import main
from orchestration.config import load_cluster
from orchestration.jobs import Flags, cluster_of, evaluate, score_plan, stages, subject
from orchestration.jobs.score_plan import Subject, Wanted, asked_for, fitting, grid_of, planned
from orchestration.launch import cell as launch_cell
from orchestration.launch.cell import Cell, drawn, evaluate_cell
from orchestration.progress import ignore
from preprocessing.errors import BadInput, DataError, Diverged, SesameError
from tests.orchestration.jobs.runs import finished_run, folder_of_transformers, questions, reviews
from training.evaluation import Evaluated
from training.formats import load_weights
from training.specs import Machine
from training.tasks import STARTS, Blank, Blanks, CellScore, Chosen, Classify, Item, TaskScore
from training.tasks import Task as HeldOut
from training.tasks.part import Examples

QUICK: dict[str, Any] = {"rates": (3e-3,), "batches": (8,), "steps": 2, "seeds": 2}


@pytest.fixture
def net(tmp_path: Path) -> Subject:
    return subject.of_run(finished_run(tmp_path / "out" / "runs" / "bert_base_tiny-12345678"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return reviews(tmp_path / "data")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the cells that are done, here and not on Ray."""
    names: list[str] = []

    def grid(cells: Sequence[Cell], room: Any, on_done: Callable[[int, Any], str], *more: Any) -> dict[int, Any]:
        failed: dict[int, SesameError] = {}
        for number, cell in enumerate(cells):
            names.append(cell.name)
            try:
                on_done(number, evaluate_cell(cell))
            except SesameError as error:
                failed[number] = error
        return failed

    monkeypatch.setattr(launch, "grid", grid)
    monkeypatch.setattr(launch, "ray_session", lambda *_, **__: nullcontext())
    return names


def wanted(data: Path | None, tasks: str = "sst2", **more: Any) -> Wanted:
    return Wanted(tasks=asked_for(tasks), data=data, **QUICK | more)


def scored(net: Subject, asked: Wanted) -> Any:
    (score,) = evaluate.evaluate(net.folder, planned(net, asked), load_cluster("local"), ignore)
    return score


def test_a_task_is_scored_from_both_starts_and_kept(net: Subject, data: Path, done: list[str]) -> None:
    score = scored(net, wanted(data, against_random=True))
    assert (score.task, score.metric, score.split, score.chance) == ("sst2", "accuracy", "dev", 0.5)
    assert {start: len(score.values(start)) for start in score.starts} == {"pretrained": 2, "random": 2}
    assert score.paper == {"glue.sst2": 93.5}
    assert len(done) == 4
    (folder,) = (net.folder / "scores").glob("sst2-*")
    answers = json.loads((folder / evaluate.PREDICTIONS).read_text())
    assert set(answers) == {f"{start}, seed {seed}" for start in ("pretrained", "random") for seed in (0, 1)}
    assert len(answers["random, seed 1"]["dev"]) == 12
    assert "| sst2 | accuracy | dev |" in (net.folder / "scores" / "table.md").read_text()
    assert "sst2,,,pretrained,dev,accuracy,1," in (net.folder / "scores" / "table.csv").read_text()


def test_what_of_held_out_documents_is_not_read_is_said_beside_the_score(
    net: Subject, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_plan.hold_out, "too_few", lambda *_: {})
    row = {
        "ids": np.array([2, 10, 3], np.int32),
        "segments": np.zeros(3, np.int8),
        "labels": np.full(3, -100, np.int32),
    }
    half, notes = Examples([row] * 200, np.arange(200) % 2), ("3 of 9 documents are cut",)
    held_out = {
        "cloze": Blanks([Blank(np.array([10, 11, 12]), 1)], notes),
        "source": HeldOut("source", ("a", "b"), half, half, notes),
    }
    monkeypatch.setattr(launch_cell, "made", lambda name, *_: held_out[name])
    for name in held_out:
        assert set(notes) <= set(scored(net, wanted(None, name, seeds=1)).notes)


def test_what_is_done_is_not_done_again_and_has_the_same_bytes(net: Subject, data: Path, done: list[str]) -> None:
    first = scored(net, wanted(data))
    files = {path: path.read_bytes() for path in (net.folder / "scores").rglob("*") if path.is_file()}
    assert scored(net, wanted(data)) == first
    assert len(done) == 2
    assert {path: path.read_bytes() for path in files} == files
    for path in files:
        path.unlink()
    scored(net, wanted(data))
    assert {path: path.read_bytes() for path in files} == files


def test_likelihoods_of_the_same_net_and_pairs_have_the_same_bytes(
    net: Subject, done: list[str], tmp_path: Path
) -> None:
    (tmp_path / "blimp/data").mkdir(parents=True)
    pairs = [
        (f"the {thing} is {how}", f"the {thing} {how} is") for thing in ("film", "plot") for how in ("good", "bad")
    ]
    rows = [{"sentence_good": good, "sentence_bad": bad, "UID": good[4:8]} for good, bad in pairs]
    written = "".join(json.dumps(row | {"linguistics_term": "s-selection"}) + "\n" for row in rows)
    (tmp_path / "blimp/data/x.jsonl").write_text(written)
    first = scored(net, wanted(tmp_path, "blimp"))
    scores = first.starts["pretrained"].scores["test"]
    assert scores["accuracy_in_argument_structure"] == scores["macro_accuracy"]  # of two halves, one area
    (folder,) = (net.folder / "scores").glob("blimp-*")
    (answers,) = json.loads((folder / evaluate.PREDICTIONS).read_text()).values()
    assert len(answers["test"]) == len({str(one["nats"]) for one in answers["test"]}) == 4
    files = {path: path.read_bytes() for path in (net.folder / "scores").rglob("*") if path.is_file()}
    shutil.rmtree(net.folder / "scores")
    assert scored(net, wanted(tmp_path, "blimp")) == first
    assert len(done) == 2
    assert {path: path.read_bytes() for path in (net.folder / "scores").rglob("*") if path.is_file()} == files


def test_a_wider_grid_does_the_new_cells_only(net: Subject, data: Path, done: list[str]) -> None:
    scored(net, wanted(data))
    score = scored(net, wanted(data, rates=(3e-3, 1e-3)))
    assert len(done) == 4
    assert (score.chosen_on, score.starts["pretrained"].how["peak"] in (3e-3, 1e-3)) == ("dev", True)


def test_the_page_has_all_finished_scores_of_a_run_in_whichever_order_they_were_asked_for(
    net: Subject, data: Path, done: list[str], tmp_path: Path
) -> None:
    (data / "mine.csv").write_text((data / "SST-2/train.tsv").read_text().replace("\t", ","))
    mine = Wanted(tasks=asked_for("", [f"{data}/mine.csv:sentence,label"]), **QUICK)
    asked = [wanted(data), mine, wanted(data, rates=(1e-3,)), wanted(data, labels=(12, 10_000))]
    pages = []
    for order in (asked, asked[::-1]):
        shutil.rmtree(net.folder / "scores", ignore_errors=True)
        scores = [evaluate.evaluate(net.folder, planned(net, one), load_cluster("local"), ignore) for one in order]
        assert [len(found) for found in scores] == [1 if len(one.labels) == 0 else 2 for one in order]
        assert evaluate.evaluate(net.folder, [], load_cluster("local"), ignore) == []  # nothing fits
        pages.append([(net.folder / "scores" / name).read_text() for name in ("table.md", "table.csv")])
    assert pages[0] == pages[1]
    hashes = [planned(net, one)[0].stage.hash[:8] for one in (asked[0], asked[2])]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in pages[0][0].splitlines() if line.startswith("|")]
    assert rows[2:] == ["mine", "sst2", *(f"sst2 ({one})" for one in sorted(hashes))]
    assert f"* sst2 ({hashes[1]}), pretrained: " in pages[0][0]


def test_an_interrupted_grid_goes_on_with_the_missing_cells(
    net: Subject, data: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_it = launch.grid

    def interrupted(cells: Sequence[Cell], room: Any, on_done: Any, *more: Any) -> Any:
        all_of_it(cells[:1], room, on_done, *more)
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "grid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scored(net, wanted(data))
    monkeypatch.setattr(launch, "grid", all_of_it)
    scored(net, wanted(data))
    assert len(done) == len(set(done)) == 2


def test_a_kind_of_task_whose_numbers_moved_is_scored_anew(
    net: Subject, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = planned(net, wanted(data))
    monkeypatch.setattr(Classify, "numerics", 1)
    (now,) = planned(net, wanted(data))
    assert now.stage.hash != before.stage.hash
    assert {now.file_of(cell).name for cell in now.cells}.isdisjoint(before.file_of(cell).name for cell in before.cells)


def test_other_rows_of_the_data_are_another_score_and_other_words_about_it_are_not(net: Subject, data: Path) -> None:
    def folder(asked: Wanted) -> str:
        (plan,) = planned(net, asked)
        return plan.stage.folder.name

    before = folder(wanted(data))
    file = data / "SST-2/dev.tsv"
    (task,) = asked_for("sst2")
    assert not isinstance(task, str)
    assert folder(replace(wanted(data), tasks=[replace(task, title="another title", note="a note")])) == before
    file.write_text(file.read_text().replace("the film is bad", "a film is bad"))
    assert folder(wanted(data)) != before
    assert folder(wanted(data, labels=(12,))) != folder(wanted(data))


def test_several_numbers_of_labels_are_a_score_each(net: Subject, data: Path, done: list[str]) -> None:
    plans = planned(net, wanted(data, labels=(20, 8, 12, 10_000)))
    rows = len(plans[-1].items["train"])
    assert [plan.labels for plan in plans] == [8, 12, 20, rows]
    assert plans[-1].stage.folder == planned(net, wanted(data))[0].stage.folder  # all rows are all rows
    (whole,) = evaluate.evaluate(net.folder, planned(net, wanted(data)), load_cluster("local"), ignore)
    scores = evaluate.evaluate(net.folder, [*plans[:2], plans[-1]], load_cluster("local"), ignore)
    assert (whole.labels, [score.labels for score in scores]) == (0, [8, 12, rows])  # kept, and said as it is asked for
    assert "sst2,,12,pretrained,dev,accuracy,1," in (net.folder / "scores" / "table.csv").read_text()
    assert "* sst2 with 8 labels, pretrained:" in (net.folder / "scores" / "table.md").read_text()
    assert len(done) == 6


def test_a_task_for_which_nothing_is_trained_is_done_once(net: Subject, tmp_path: Path) -> None:
    (tmp_path / "blimp/data").mkdir(parents=True)
    row = {"sentence_good": "the film is good", "sentence_bad": "the film are good", "linguistics_term": "agreement"}
    (tmp_path / "blimp/data/agreement.jsonl").write_text(
        json.dumps(row | {"UID": "agreement", "field": "syntax"}) + "\n"
    )
    (plan,) = planned(net, wanted(tmp_path, "blimp", labels=(8, 12)))
    assert plan.labels == 0
    (longer,) = planned(net, wanted(tmp_path, "blimp", length=64))
    assert longer.stage.folder == plan.stage.folder


def test_rows_that_are_longer_than_those_of_the_pretraining_are_told(
    net: Subject, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = replace(net, longest_row=64)
    (plan,) = planned(short, wanted(data))
    said = "task sst2: its rows have up to 128 tokens, those of the pretraining had 64: later positions begin untrained"
    assert said in caplog.text
    assert {cell.length for cell in plan.cells} == {128}
    caplog.clear()
    (cut,) = planned(short, wanted(data, length=64))
    assert ({cell.length for cell in cut.cells}, caplog.text) == ({64}, "")
    assert cut.stage.folder != plan.stage.folder
    for grid in ("roberta", "bert"):  # one says its own length
        (plan,) = planned(short, wanted(data, grid=grid, length=48))
        assert {cell.how["length"] for cell in plan.cells} == {48}


@pytest.mark.parametrize("labels", [(1,), (200, -5)])
def test_numbers_of_labels_below_two_are_one_line(labels: tuple[int, ...], data: Path) -> None:
    with pytest.raises(BadInput, match=r"labels are .*, allowed are numbers from 2 up"):
        wanted(data, labels=labels)


def test_a_grid_that_takes_the_best_weights_on_dev_wants_them(net: Subject, data: Path) -> None:
    (task,) = asked_for("sst2")
    assert not isinstance(task, str)
    grid = replace(task.grids["bert"], rates=(1e-3,), dev_evaluations=2)
    mine = replace(task, grids={"mine": grid})
    asked = Wanted(tasks=[mine], data=data, grid="mine", seeds=1)
    assert planned(net, asked)[0].cells
    with pytest.raises(BadInput, match=r"give cluster\.machine\.zero=2"):
        planned(net, replace(asked, machine=Machine(precision="bf16", zero=3)))
    (data / "SST-2/test-labeled.tsv").write_text((data / "SST-2/dev.tsv").read_text())
    (data / "SST-2/dev.tsv").unlink()
    with pytest.raises(BadInput, match="takes the weights that are best on dev, and no labelled dev split is at hand"):
        planned(net, asked)


def test_scores_along_labels_are_drawn_a_line_for_each_start() -> None:
    def score(labels: int, value: float, step: int | None = None) -> TaskScore:
        starts = {start: Chosen({}, {"dev": {"accuracy": (value,)}}) for start in STARTS}
        return TaskScore("sst2", "accuracy", "dev", "", starts, labels=labels, step=step)

    pictures = evaluate._pictures([score(200, 0.5), score(1_000, 0.75)])
    (axes,) = pictures["scores_by_labels"].axes
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "labelled rows")
    assert {line.get_label(): list(line.get_xdata()) for line in axes.lines} == {
        f"sst2, accuracy, {start}": [200, 1_000] for start in STARTS
    }
    assert set(evaluate._pictures([score(0, 0.5)])) == {"scores"}
    both = evaluate._pictures([score(n, 0.5, at) for at in (10, 20) for n in (200, 1_000)])
    assert [line.get_label() for line in both["scores_by_step"].axes[0].lines][:2] == [
        "sst2, accuracy, pretrained, 200 labels", "sst2, accuracy, random, 200 labels",
    ]  # fmt: skip


def test_a_failed_cell_is_named_and_the_others_count(
    net: Subject, data: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate_cell

    def diverges(cell: Cell, count: Path | None = None) -> Any:
        if cell.tuning and cell.tuning.seed == 1:
            raise Diverged("loss nan; lower the rate")
        return whole(cell, count)

    monkeypatch.setattr("tests.orchestration.jobs.test_evaluate.evaluate_cell", diverges)
    score = scored(net, wanted(data))
    assert len(score.values("pretrained")) == 1
    assert score.failed == ("sst2, pretrained, 0.003 x 8 x 2 steps, seed 1: loss nan; lower the rate",)
    assert "no score of sst2, pretrained" in (net.folder / "scores" / "table.md").read_text()
    (plan,) = planned(net, wanted(data))
    assert plan.stage.state == "begun"  # the same command tries it again
    monkeypatch.setattr("tests.orchestration.jobs.test_evaluate.evaluate_cell", whole)
    assert scored(net, wanted(data)).failed == ()
    assert plan.stage.state == "done"


def test_a_task_of_which_all_cells_fail_is_named_beside_one_that_has_scores(
    net: Subject, data: Path, done: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = evaluate_cell

    def refuses(cell: Cell, count: Path | None = None) -> Any:
        if cell.name.startswith("mine"):
            raise BadInput("its rows are too long")
        return whole(cell, count)

    monkeypatch.setattr("tests.orchestration.jobs.test_evaluate.evaluate_cell", refuses)
    (data / "mine.csv").write_text((data / "SST-2/train.tsv").read_text().replace("\t", ","))
    tasks = asked_for("sst2", [f"{data}/mine.csv:sentence,label"])
    plans = planned(net, Wanted(tasks=tasks, data=data, **QUICK))
    scores = evaluate.evaluate(net.folder, plans, load_cluster("local"), ignore)
    assert [score.task for score in scores] == ["sst2"]
    assert "left out: task mine: its rows are too long" in caplog.text


def test_random_weights_alone_are_no_score(
    net: Subject, data: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate_cell

    def diverges(cell: Cell, count: Path | None = None) -> Any:
        if cell.start == "pretrained":
            raise Diverged("loss nan")
        return whole(cell, count)

    monkeypatch.setattr("tests.orchestration.jobs.test_evaluate.evaluate_cell", diverges)
    with pytest.raises(Diverged, match="loss nan"):
        scored(net, wanted(data, against_random=True))


def test_a_task_of_which_all_cells_fail_raises_what_the_first_did(
    net: Subject, data: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(cell: Cell, count: Path | None = None) -> Any:
        raise Diverged(f"{cell.name}: nan")

    monkeypatch.setattr("tests.orchestration.jobs.test_evaluate.evaluate_cell", diverges)
    with pytest.raises(Diverged, match="seed 0: nan"):
        scored(net, wanted(data))


# What is asked for


def test_the_verb_on_a_folder_of_transformers(
    data: Path, tmp_path: Path, done: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(folder_of_transformers(tmp_path / "bert-base-uncased"))
    how = ["--out", str(tmp_path / "out"), "--progress", "none"]
    assert main(["eval", folder, *how]) == 2
    assert "names no tasks; name some with --tasks; `sesame tasks` lists them" in capsys.readouterr().err
    quick = ["--data-dir", str(data), "--rates", "3e-3", "--batches", "8", "--steps", "2", "--seeds", "1"]
    assert main(["eval", folder, "--tasks", "sst2", *how, *quick, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert Path(found["folder"]).parent == tmp_path / "out" / "evals"
    assert [(score["task"], score["paper"]) for score in found["scores"]] == [("sst2", {"glue.sst2": 93.5})]
    assert done == ["sst2, pretrained, 0.003 x 8 x 2 steps, seed 0"]
    assert "sesame export" not in said.err + said.out
    refused = ["eval", folder, "--tasks", "blimp", *how, "--data-dir", str(data / "b"), "--grid", "nonsense"]
    rows = {"sentence_good": "it is", "sentence_bad": "is it", "UID": "x", "field": "y", "linguistics_term": "z"}
    (data / "b/blimp/data").mkdir(parents=True)
    (data / "b/blimp/data/x.jsonl").write_text(json.dumps(rows) + "\n")
    assert main(refused) == 2
    assert "sesame: --grid: no effect on blimp (no fine-tuning, or one on held-out text," in capsys.readouterr().err


def test_the_grid_is_that_of_the_paper_of_the_net_and_small_nets_have_larger_rates(net: Subject) -> None:
    (task,) = asked_for("sst2")
    assert not isinstance(task, str)
    large = {"parameters": 110_000_000}
    for name, grid in (("bert_base", "bert"), ("roberta_large", "roberta"), ("electra_base", "electra_base")):
        assert grid_of(replace(net, name=name, **large), task, "")[0] == grid
    assert grid_of(net, task, "")[1] is score_plan.SMALL
    assert grid_of(net, task, "miniatures")[0] == "miniatures"
    with pytest.raises(BadInput, match="task sst2: has no grid burt; its grids are bert, "):
        grid_of(net, task, "burt")


@pytest.mark.parametrize(
    ("name", "grid", "said"),
    [
        ("xlnet_base", "", "xlnet_base has no grid for this task, BERT's is used"),
        ("xlnet_base", "roberta", ""),
        ("bert_base", "", ""),
        ("albert_base", "", ""),
    ],
)
def test_a_net_without_a_grid_of_its_own_is_told(net: Subject, data: Path, name: str, grid: str, said: str) -> None:
    (plan,) = planned(replace(net, name=name, parameters=110_000_000), Wanted(asked_for("sst2"), data, grid=grid))
    assert plan.remarks == ((said,) if said else ())
    assert said in plan.said


def test_each_cell_of_the_papers_grid_is_planned(net: Subject, data: Path) -> None:
    asked = Wanted(tasks=asked_for("sst2"), data=data, grid="bert", seeds=3)
    (plan,) = planned(net, asked)
    assert [cell.tuning.peak for cell in plan.cells if cell.tuning][::3] == [5e-5, 4e-5, 3e-5, 2e-5]
    assert {cell.tuning.epochs for cell in plan.cells if cell.tuning} == {3}
    assert plan.said.startswith("sst2: grid bert: 5e-5 4e-5 3e-5 2e-5 x batches of 32 x 3 epochs, 3 runs each")


@pytest.mark.parametrize(
    ("grid", "given", "runs", "said"),
    [
        ("roberta", {}, 5, "5 runs each (section 5.1, table 10, from memory)"),
        ("roberta", {"seeds": 3}, 3, "3 runs each (section 5.1, table 10, from memory); 5 runs in its paper"),
        ("bert", {}, 3, "3 runs each (section 4.1; best rate on dev, from memory)"),
        ("best", {}, 2, "2 runs each (me); its paper reports the best run, the score here is the median"),
        ("one", {}, 1, "4 epochs (me)"),
        ("albert", {}, 3, "20,935 steps, 3 runs each (table 14, from memory)"),
        ("albert", {"steps": 100}, 3, "100 steps, 3 runs each (table 14, from memory); warm-up over 6 % of the steps,"),
        ("albert", {"epochs": (3.0,)}, 3, "(table 14, from memory); warm-up over 6 % of the steps, as in the grid"),
        ("bert", {"steps": 100}, 3, "100 steps, 3 runs each (section 4.1; best rate on dev, from memory)"),
    ],
)
def test_runs_and_warm_up_are_those_of_the_grid_and_what_is_asked_for_counts(
    net: Subject, data: Path, grid: str, given: dict[str, Any], runs: int, said: str
) -> None:
    (task,) = asked_for("sst2")
    assert not isinstance(task, str)
    best = replace(score_plan.SMALL, runs=2, select="best", source="me")
    mine = replace(task, grids={**task.grids, "best": best, "one": replace(best, runs=1)})
    (plan,) = planned(net, Wanted(tasks=[mine], data=data, grid=grid, **given))
    assert {cell.tuning.seed for cell in plan.cells if cell.tuning} == set(range(runs))
    assert said in plan.said
    share = 1256 / 20_935 if grid == "albert" else 0.06 if grid == "roberta" else 0.1
    assert {cell.tuning.warmup for cell in plan.cells if cell.tuning} == {share}


def test_features_of_a_frozen_net_are_asked_for_and_what_does_not_go_with_them_is_one_line(
    net: Subject, data: Path
) -> None:
    (plan,) = planned(net, wanted(data, features="last_four"))
    assert {cell.tuning.features for cell in plan.cells if cell.tuning} == {"last_four"}
    assert "x 2 steps, 2 runs each, last_four of a frozen net (" in plan.said
    with pytest.raises(BadInput, match=r"task sst2, grid electra_base: layer_decay is .*; give another grid with"):
        planned(net, wanted(data, grid="electra_base", features="last"))


def test_a_row_of_too_few_tokens_and_a_folder_that_is_not_there_are_one_line(data: Path) -> None:
    with pytest.raises(BadInput, match="length is 4, allowed are numbers of tokens from 8 up"):
        wanted(data, length=4)
    with pytest.raises(BadInput, match=r"^--data-dir /nope: no such folder; check the path$"):
        wanted(Path("/nope"), tasks="glue")


def test_what_python_gives_is_checked_as_what_the_command_gives(net: Subject, data: Path) -> None:
    for name in ("steps", "seeds"):
        with pytest.raises(BadInput, match=f"^{name} is -1, allowed is a whole number from 0 up$"):
            wanted(data, **{name: -1})
    with pytest.raises(BadInput, match=r"^task sst2, grid .*: features is 'mean', allowed is none or last or "):
        planned(net, wanted(data, features="mean"))


def test_a_flag_that_no_task_obeys_is_refused_and_one_that_some_do_not_is_told(
    net: Subject, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Wanted(tasks=asked_for("sst2"), data=data)
    (sst2,) = planned(net, asked)
    blimp, source = (
        replace(sst2, task="blimp", cells=[replace(sst2.cells[0], tuning=None)]),
        replace(sst2, task="source", kind=None),
    )
    every: dict[str, Any] = {"grid": "bert", "rates": (1e-3,), "batches": (8,), "epochs": (1.0,), "length": 32}
    every |= {"features": "last"}
    some: dict[str, Any] = {"steps": 2, "seeds": 2, "labels": (8,)}
    score_plan.check_flags([sst2], replace(asked, **every, **some))
    score_plan.check_flags([source], replace(asked, **some))
    score_plan.check_flags([blimp, source], asked)
    assert caplog.text == ""
    for name, value in every.items():
        with pytest.raises(BadInput, match=f"^--{name}: no effect on blimp, source "):
            score_plan.check_flags([blimp, source], replace(asked, **{name: value}))
    for name, value in some.items():
        with pytest.raises(BadInput, match=f"^--{name}: no effect on blimp "):
            score_plan.check_flags([blimp], replace(asked, **{name: value}))
    score_plan.check_flags([sst2, blimp, source], replace(asked, rates=(1e-3,), seeds=2))
    assert "--rates: no effect on blimp, source (" in caplog.text
    assert "--seeds: no effect on blimp (" in caplog.text


def test_hyperparameters_are_never_chosen_on_test(net: Subject, data: Path) -> None:
    (data / "SST-2/dev.tsv").rename(data / "SST-2/test-labeled.tsv")
    with pytest.raises(BadInput, match=r"2 hyper-parameters are to be compared, and no labelled dev split is at hand"):
        planned(net, wanted(data, rates=(1e-3, 2e-3)))
    (plan,) = planned(net, wanted(data))
    assert (plan.split, plan.chosen_on) == ("test_labelled", "")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("train.tsv", "has no train split of it; looked for glue/SST-2/train.tsv"),
        ("dev.tsv", "has no labelled dev or test split of it; looked for glue/SST-2/dev.tsv"),
    ],
)
def test_a_missing_split_is_one_line(net: Subject, data: Path, missing: str, said: str) -> None:
    (data / "SST-2" / missing).unlink()
    with pytest.raises(BadInput, match=said) as caught:
        planned(net, wanted(data))
    assert "\n" not in str(caught.value)


def test_a_net_that_is_to_learn_to_write_wants_something_to_learn_from(
    net: Subject, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was asked as it is, without a word, and stood beside figures of nets that had learned."""
    asked = Wanted(tasks=asked_for("squad1_text"), data=questions(tmp_path / "data"), rates=(1e-3,), seeds=1)
    assert [cell.tuning is not None for cell in planned(net, asked)[0].cells] == [True]
    (tmp_path / "data/train-v1.1.json").unlink()
    with pytest.raises(BadInput, match=r"^task squad1_text: .* has no train split of it; looked for .*as_it_is: true"):
        planned(net, asked)
    assert fitting(net, asked) == []  # `sesame run`
    assert "left out: task squad1_text: " in caplog.text
    (task,) = asked.tasks
    as_it_is = replace(task.task, writing=replace(task.task.writing, as_it_is=True))  # type: ignore[union-attr]
    (plan,) = planned(net, replace(asked, tasks=[replace(task, task=as_it_is)]))  # type: ignore[type-var]
    assert [cell.tuning for cell in plan.cells] == [None]


@pytest.mark.parametrize("task", ["xsum", "cnndm"])
def test_a_sample_of_summaries_is_no_score_beside_the_papers(net: Subject, tmp_path: Path, task: str) -> None:
    row = {"document": "it is a film", "summary": "a film"} | {"article": "it is a film", "highlights": "a film"}
    for name in ("fixtures/hf/tests_samples/xsum/sample.json", "xsum/train.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    for name, member in (("cnn_dailymail/train.csv", ""), ("summaries/cnndm_sample.zip", "train_sample.csv")):
        (tmp_path / name).parent.mkdir(parents=True)
        table = f"{','.join(row)}\n{','.join(row.values())}\n"
        if member:
            zipfile.ZipFile(tmp_path / name, "w").writestr(member, table)
        else:
            (tmp_path / name).write_text(table)
    with pytest.raises(BadInput, match=f"task {task}: its score is of test, and .* has no labelled file of that"):
        planned(net, wanted(tmp_path, task))


def test_a_split_to_learn_from_wants_labels(net: Subject, data: Path) -> None:
    (task,) = asked_for("sst2")
    assert not isinstance(task, str)
    unlabelled = replace(task.files["train"], columns={"label": ""})
    asked = replace(wanted(data), tasks=[replace(task, files={**task.files, "train": unlabelled})])
    with pytest.raises(BadInput, match=r"^task sst2: .* has no labelled train split of it"):
        planned(net, asked)


def test_without_a_folder_of_data_the_option_is_named(net: Subject) -> None:
    with pytest.raises(BadInput, match="task sst2: its files are not known; name the folder that has them with --data"):
        planned(net, wanted(None))


def test_tasks_without_files_are_left_out_in_one_line(
    net: Subject, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert fitting(net, wanted(None, tasks="glue,sst5,squad1")) == []
    assert caplog.text.count("left out: ") == 1
    assert "left out: glue, sst5, squad1: name the folder that has their files with --data-dir DIR" in caplog.text


def test_a_wrong_label_is_one_line_before_anything_is_done(net: Subject, data: Path, done: list[str]) -> None:
    file = data / "SST-2/train.tsv"
    file.write_text(file.read_text().replace("\t1\n", "\t7\n", 1))
    with pytest.raises(BadInput, match=r"task sst2, train: SST-2/train.tsv:3: 1 is '7', allowed is 0 or 1"):
        scored(net, wanted(data))
    assert not done


def test_every_task_that_cannot_be_done_is_a_line(net: Subject, data: Path) -> None:
    with pytest.raises(BadInput) as caught:
        planned(net, wanted(data, tasks="rte,sst2,cola"))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["task rte", "task cola"]


def test_of_the_tasks_of_a_recipe_those_that_cannot_be_done_are_left_out_with_a_word(
    net: Subject, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plans = fitting(net, wanted(data, tasks="rte,sst2"))
    assert [plan.task for plan in plans] == ["sst2"]
    assert "left out: task rte: " in caplog.text


def test_malformed_rows_are_named(net: Subject, data: Path, done: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with (data / "SST-2/dev.tsv").open("a") as file:
        file.write("no label\n")
        file.write("nor here\n")
    with caplog.at_level(logging.WARNING):
        score = scored(net, wanted(data))
    assert "task sst2, dev: malformed rows are left out: SST-2/dev.tsv:14" in caplog.text
    assert score.notes[0].startswith("dev: malformed rows are left out: SST-2/dev.tsv:14")
    page = (net.folder / "scores/table.md").read_text()
    assert "* sst2: dev: malformed rows are left out: SST-2/dev.tsv:14" in page
    assert "(and 1 more)" in page


def test_notes_are_those_of_the_chosen_cells_and_name_a_seed_that_differs(net: Subject, data: Path) -> None:
    """A threshold of another rate stood beside the score."""
    (plan,) = planned(net, wanted(data, rates=(1e-3, 3e-3), against_random=True))
    results = []
    for cell in plan.cells:
        assert cell.tuning is not None
        own = f"threshold of {cell.start}, {cell.tuning.peak}, {cell.tuning.seed}"
        scores = {"dev": {"accuracy": cell.tuning.peak}}
        results.append((cell, Evaluated(scores, {"dev": []}, notes=["all say this", own])))
    score = evaluate._summed_up(plan, results, {})
    assert score.starts["pretrained"].how["peak"] == 3e-3
    assert score.notes == ("all say this", *(f"seed {n}: threshold of pretrained, 0.003, {n}" for n in range(2)))
    assert evaluate._summed_up(plan, results[-4:], {}).notes == score.notes


@pytest.mark.parametrize(("dev", "best", "warnings"), [("dev", "1", 0), ("test_labelled", "0", 1)])
def test_the_seed_of_a_submission_is_chosen_on_dev_or_not_at_all(
    net: Subject, data: Path, caplog: pytest.LogCaptureFixture, dev: str, best: str, warnings: int
) -> None:
    (plan,) = planned(net, wanted(data))
    cells = [
        (cell, Evaluated({dev: {"accuracy": accuracy}}, {"test": [str(number)]}))
        for number, (cell, accuracy) in enumerate(zip(plan.cells, (0.5, 0.75), strict=True))
    ]
    assert evaluate._best(replace(plan, split=dev), cells).predictions == {"test": [best]}
    assert caplog.text.count("no labelled dev split is at hand to choose a seed on") == warnings


def test_what_a_reader_must_know_of_a_task_stands_beside_its_score(
    net: Subject, data: Path, done: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = asked_for("sst2")
    assert not isinstance(task, str)
    noted = replace(wanted(data, seeds=1), tasks=[replace(task, note="two of three options")])
    assert scored(net, noted).notes[0] == "two of three options"
    assert "* sst2: two of three options\n" in (net.folder / "scores/table.md").read_text()
    assert planned(net, noted)[0].stage == planned(net, wanted(data, seeds=1))[0].stage
    assert "two of three options" not in caplog.text  # it warns of nothing


def test_a_table_of_ones_own_is_a_task(net: Subject, tmp_path: Path, done: list[str]) -> None:
    rows = [f"the film number {n} is {('bad', 'good')[n % 2]},{('no', 'yes')[n % 2]}" for n in range(60)]
    (tmp_path / "mine.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    asked = Wanted(tasks=asked_for("", [f"{tmp_path}/mine.csv:text,label"]), **QUICK)  # no folder of data
    score = scored(net, asked)
    assert (score.task, score.split) == ("mine", "test")


def test_the_first_option_that_is_always_right_is_no_majority(net: Subject, tmp_path: Path) -> None:
    """Where a file lists the right option first, the most frequent answer would be right at 100 %."""
    (task,) = asked_for("wsc273")
    assert not isinstance(task, str)
    file = tmp_path / task.files["test"].paths[0]
    file.parent.mkdir(parents=True)
    row = {"context_options": ["the film is", "the book is"], "continuation": "so good", "gold": 0}
    file.write_text(json.dumps(row) + "\n")
    (plan,) = planned(net, Wanted(tasks=[replace(task, task=replace(task.task, label=""))], data=tmp_path))
    assert (plan.metric, plan.chance) == ("accuracy", None)


LANGUAGES = """
name: mine
title: is it good, in three languages
source: me
each: [de, fr, th]
scored: ["test_{each}"]
files:
  train: {paths: [SST-2/train.tsv], format: {kind: tsv}}
  dev: {paths: [SST-2/dev.tsv], format: {kind: tsv}}
  "test_{each}": {paths: ["{each}.tsv"], format: {kind: tsv}}
task: {kind: classify, text: sentence, label: label, labels: ["0", "1"]}
"""


def test_a_task_is_scored_on_the_splits_that_it_names_and_on_no_other(
    net: Subject, data: Path, done: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As XQuAD, which learns English and is compared on English dev, and XNLI."""
    (data / "mine.yaml").write_text(LANGUAGES)
    asked = wanted(data, tasks=f"{data}/mine.yaml", seeds=1)
    said = f"task mine: its score is of test_de, test_fr, test_th, and {data} has no labelled file of that; looked for"
    with pytest.raises(BadInput, match=re.escape(said)):
        planned(net, asked)
    assert fitting(net, asked) == []
    assert f"left out: {said} de.tsv" in caplog.text
    (data / "de.tsv").write_text("sentence\tlabel\nthe film is good\t1\nthe book is good\t1\n")
    score = scored(net, asked)
    assert (score.split, score.chance) == ("test_de", 1)
    assert f"; it is of test_de alone: {data} has no labelled test_fr, test_th" in caplog.text
    (data / "th.tsv").write_text("sentence\tlabel\nthe film is bad\t0\nthe book is good\t1\n")
    score = scored(net, asked)
    assert (score.split, score.chance) == ("mean", 0.75)
    assert f"; it is the mean over test_de, test_th: {data} has no labelled test_fr" in caplog.text
    by_split = {split: metrics["accuracy"][0] for split, metrics in score.starts["pretrained"].scores.items()}
    assert list(by_split) == ["dev", "test_de", "test_th", "mean"]
    page = (net.folder / "scores" / "table.md").read_text()
    assert re.search(r"^\* mine \(\w{8}\): mean: over test_de, test_th$", page, re.MULTILINE)
    assert score.values("pretrained") == ((by_split["test_de"] + by_split["test_th"]) / 2,)
    assert len(done) == 2


def test_the_diagnostic_set_is_no_dev_split_of_mnli(
    net: Subject, data: Path, done: list[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    mnli(data)
    (data / "AX").mkdir()
    for task, split in (("ax", "test_labelled"), ("hans", "test_lexical_overlap, .*")):
        with pytest.raises(
            BadInput, match=f"task {task}: its score is of {split}, and .* has no labelled file of that"
        ):
            planned(net, wanted(data, tasks=task))
    (data / "AX/AX.tsv").write_text("index\tsentence1\tsentence2\n0\tthe film is good\tit is\n")
    plans = planned(net, wanted(data, tasks="ax", submit=True, seeds=1))
    assert "the figure is of dev, and no score of this task" in caplog.text
    scores = evaluate.evaluate(net.folder, plans, load_cluster("local"), ignore)
    assert evaluate.submit(plans, scores, tmp_path / "to") == ["AX.tsv"]


LABELS = ("contradiction", "entailment", "neutral")


def mnli(data: Path) -> Path:
    """MNLI as GLUE distributes it, train and matched dev."""
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", LABELS[n % 3]]) for n in range(9)]
    (data / "MNLI").mkdir(parents=True)
    for split in ("train", "dev_matched"):
        (data / f"MNLI/{split}.tsv").write_text("\n".join(["\t".join([*"0123456789", "gold_label"]), *lines]) + "\n")
    return data


def test_hans_has_a_score_for_each_heuristic(
    net: Subject, done: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file has all three of them in one table."""
    columns = "gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1"
    columns += " sentence2 pairID heuristic subcase template"
    rows = [columns.split()]
    for n, heuristic in enumerate(("lexical_overlap", "subsequence", "constituent", "subsequence")):
        label = ("non-entailment", "entailment")[n % 2]
        rows.append([label, *"abcd", "the film is good", "so it is", f"ex{n}", heuristic, f"{heuristic}_x", "t1"])
    data = mnli(tmp_path / "nli")
    (data / "heuristics_evaluation_set.txt").write_text("".join("\t".join(row) + "\n" for row in rows))
    drawn: list[Any] = []
    monkeypatch.setattr(evaluate.figures, "confusion", lambda title, *what: drawn.append(what))
    (plan,) = planned(net, wanted(data, tasks="hans", seeds=1))
    assert {split: len(items) for split, items in plan.items.items() if split.startswith("test")} == {
        "test_lexical_overlap": 1,
        "test_subsequence": 2,
        "test_constituent": 1,
    }
    (score,) = evaluate.evaluate(net.folder, [plan], load_cluster("local"), ignore)
    by_split = {split: metrics["accuracy"][0] for split, metrics in score.starts["pretrained"].scores.items()}
    tests = [value for split, value in by_split.items() if split.startswith("test_")]
    assert (score.split, len(tests), score.values("pretrained")) == ("mean", 3, (pytest.approx(sum(tests) / 3),))
    page = (net.folder / "scores/table.md").read_text()
    assert all(f"test_{one} accuracy" in page for one in ("lexical_overlap", "subsequence", "constituent"))
    evaluate._confusion(plan, evaluate._results(plan), score)
    ((labels, counts, _),) = drawn
    assert (labels, sum(map(sum, counts))) == (["non-entailment", "entailment"], 4)


def test_the_labelled_diagnostic_set_is_scored_by_the_correlation_of_three_classes(tmp_path: Path) -> None:
    """Gorodkin's R_K, from the counts of what was said for what."""
    columns = "Lexical Semantics,Predicate-Argument Structure,Logic,Knowledge,Domain,Premise,Hypothesis,Label"
    said = ["entailment", "neutral", "neutral", "contradiction", "entailment", "entailment", "neutral", "neutral"]
    gold = ["entailment", "neutral", "contradiction", "contradiction", "neutral", "entailment", "neutral", "entailment"]
    rows = [["Lexical entailment", "", "", "", "News", f"Premise {n}.", "It is.", one] for n, one in enumerate(gold)]
    (tmp_path / "diagnostic").mkdir()
    lines = ["\t".join(row) + "\n" for row in (columns.split(","), *rows)]
    (tmp_path / "diagnostic/diagnostic-full.tsv").write_text("".join(lines))
    (task,) = asked_for("ax")
    assert not isinstance(task, str)
    items, records = task.items("test_labelled", tmp_path)
    assert (items[3].texts, [LABELS[item.gold] for item in items]) == (("Premise 3.", "It is."), gold)
    assert records.notes == []

    def products(one: list[str], other: list[str]) -> int:
        return sum(one.count(label) * other.count(label) for label in LABELS)

    hits, square = sum(map(str.__eq__, gold, said)), len(gold) ** 2
    expected = (len(gold) * hits - products(gold, said)) / math.sqrt(
        (square - products(gold, gold)) * (square - products(said, said))
    )
    assert task.task.scores(items, said) == {"matthews": pytest.approx(expected), "accuracy": hits / len(gold)}  # type: ignore[union-attr]


def test_no_figure_of_a_paper_is_beside_a_sample(net: Subject, tmp_path: Path) -> None:
    (tmp_path / "summaries").mkdir()
    with zipfile.ZipFile(tmp_path / "summaries/cnndm_sample.zip", "w") as archive:
        archive.writestr("train_sample.csv", "article,highlights\na film,good\n")
    writer = replace(net, expected={"tldr": {"rouge_1": 29.34}})
    (plan,) = planned(writer, wanted(tmp_path, tasks="cnndm_tldr"))
    assert (plan.split, plan.paper) == ("test_sample", {})
    (tmp_path / "cnn_dm").mkdir()
    (tmp_path / "cnn_dm/test.csv").write_text("article,highlights\na film,good\n")
    (plan,) = planned(writer, wanted(tmp_path, tasks="cnndm_tldr"))
    assert (plan.split, plan.paper) == ("test", {"tldr.rouge_1": 29.34})


def test_labelled_rows_are_drawn_by_the_seed() -> None:
    items = [Item(str(n), (str(n),), n) for n in range(10)]
    assert drawn(items, 4, seed=0) == drawn(items, 4, seed=0) != drawn(items, 4, seed=1)
    assert drawn(items, 40, seed=0) != items
    assert sorted(drawn(items, 40, seed=0), key=lambda item: item.gold) == items


def test_a_run_that_is_not_finished_is_one_line(net: Subject) -> None:
    (net.folder / stages.MARK).unlink()
    with pytest.raises(BadInput, match="this run is not finished; go on with `sesame train`"):
        subject.subject_of(Flags(recipe=str(net.folder)))


def test_held_out_text_that_is_too_little_for_all_tasks_is_one_line_each(
    net: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_plan.hold_out, "too_few", lambda corpus, tasks, labels: {t: f"{t}: few" for t in tasks})
    with pytest.raises(DataError, match="source: few\nfollows: few"):
        planned(net, wanted(None, tasks="source,follows"))


def test_a_submission_has_a_file_for_each_split_without_labels(
    net: Subject, data: Path, done: list[str], tmp_path: Path
) -> None:
    (data / "SST-2/test.tsv").write_text("index\tsentence\n0\tthe film is good\n1\tthe film is bad\n")
    plans = planned(net, wanted(data, submit=True))
    scores = evaluate.evaluate(net.folder, plans, load_cluster("local"), ignore)
    assert evaluate.submit(plans, scores, tmp_path / "to") == ["SST-2.tsv"]
    lines = (tmp_path / "to/SST-2.tsv").read_text().splitlines()
    assert (lines[0], [line.split("\t")[0] for line in lines[1:]]) == ("index\tprediction", ["0", "1"])
    assert {line.split("\t")[1] for line in lines[1:]} <= {"0", "1"}
    failed = replace(plans[0], task="of which all cells failed")
    assert evaluate.submit([failed, *plans], scores, tmp_path / "to") == ["SST-2.tsv"]
    plans = planned(net, wanted(data))
    with pytest.raises(BadInput, match="none of these tasks has an unlabelled split at hand"):
        evaluate.submit(plans, evaluate.evaluate(net.folder, plans, load_cluster("local"), ignore), tmp_path / "to")


GLUE = {  # the columns of a task and the number of the label, of train and dev; of test; the labels
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


def glue(data: Path) -> Path:
    """All of GLUE as it is distributed, eight rows to learn from and two without labels."""
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


def test_a_submission_to_glue_has_all_eleven_files(net: Subject, done: list[str], tmp_path: Path) -> None:
    data = glue(tmp_path / "glue")
    plans = planned(net, wanted(data, tasks="glue", submit=True, seeds=1, steps=1))
    scores = evaluate.evaluate(net.folder, plans, load_cluster("local"), ignore)
    files = [name for task in GLUE for name in FILES.get(task, (task,))]
    assert len(files) == 11
    assert evaluate.submit(plans, scores, tmp_path / "to") == sorted(f"{name}.tsv" for name in files)
    for task, (_, _, labels) in GLUE.items():
        for name in FILES.get(task, (task,)):
            head, *lines = (tmp_path / "to" / f"{name}.tsv").read_text().splitlines()
            assert (head, [line.split("\t")[0] for line in lines]) == ("index\tprediction", ["0", "1"])
            answers = [line.split("\t")[1] for line in lines]
            if task == "STS-B":
                assert all(re.fullmatch(r"[0-5]\.\d{3}", answer) for answer in answers)
            else:
                assert set(answers) <= {*labels.split(), *(["neutral"] if task == "MNLI" else [])}


def test_weights_of_several_steps_make_a_curve(net: Subject, data: Path, done: list[str]) -> None:
    for step in (10, 20, 25):
        shutil.copytree(net.folder / "weights", net.folder / f"weights-{step}")
    (net.folder / "result.json").write_text('{"step": 30}')
    nets = subject.at_steps(net, 10)
    assert [one.step for one in nets] == [10, 20, 30]
    plans = [plan for one in nets for plan in planned(one, wanted(data, seeds=1))]
    scores = evaluate.evaluate(net.folder, plans, load_cluster("local"), ignore)
    assert [score.step for score in scores] == [10, 20, 30]
    assert len({plan.stage.folder for plan in plans}) == len(done) == 3
    (whole,) = planned(net, wanted(data, seeds=1))
    assert whole.stage == replace(plans[-1].stage)  # that of the last step is that of the run
    assert whole.stage.state == "done"
    assert len({score.values("pretrained") for score in scores}) == 1  # the weights are the same
    with pytest.raises(BadInput, match=r"--every 7: .* has weights of the steps 10, 20, 25; train with"):
        subject.at_steps(net, 7)


def test_checkpoints_that_a_run_kept_are_scored_too(
    net: Subject, data: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run kept weights where `cluster.weights_every` was set before it began, and no others were scored."""
    for step in (10, 20, 30):
        checkpoint = net.folder / "checkpoints" / f"step-{step:09d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_text("{}")
    shutil.copytree(net.folder / "weights", net.folder / "weights-20")
    (net.folder / "result.json").write_text('{"step": 30}')
    nets = subject.at_steps(net, 10)
    assert [(one.step, one.weights) for one in nets] == [
        (10, "checkpoints/step-000000010"), (20, "weights-20"), (30, "weights"),
    ]  # fmt: skip
    _, weights = load_weights(net.folder / "weights")
    read = list[Path]()

    def weights_of(path: Path) -> Any:
        read.append(path)
        return {**weights, "a buffer": torch.zeros(1)}

    monkeypatch.setattr("training.checkpoint.weights_of", weights_of)
    scores = [scored(one, wanted(data, seeds=1)) for one in nets]
    assert read == [net.folder / "checkpoints/step-000000010"]
    assert len({score.values("pretrained") for score in scores}) == 1  # the weights are the same
    with pytest.raises(BadInput, match=r"--every 7: .* has weights of the steps 10, 20; train with"):
        subject.at_steps(net, 7)


def test_a_grid_that_begins_with_another_task_is_fine_tuned_on_that_first(
    net: Subject, data: Path, done: list[str]
) -> None:
    """RoBERTa's RTE begins with a net that was fine-tuned on MNLI."""
    rows = [f"{n}\tthe film is {('bad', 'good')[n % 2]}\tso it is\t{('not_', '')[n % 2]}entailment" for n in range(12)]
    (data / "RTE").mkdir()
    for split in ("train", "dev"):
        (data / f"RTE/{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n")
    asked = wanted(data, tasks="rte", grid="roberta", seeds=1)
    with pytest.raises(BadInput, match="task rte: its grid begins with a net that was fine-tuned on mnli, whose"):
        planned(net, asked)
    (data / "MNLI").mkdir()
    labels = ("contradiction", "entailment", "neutral")
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", labels[n % 3]]) for n in range(9)]
    head = "\t".join([*"0123456789", "gold_label"])
    (data / "MNLI/train.tsv").write_text("\n".join([head, *lines]) + "\n")
    (plan,) = planned(net, asked)
    (cell,) = plan.cells
    assert cell.begin is not None
    more = planned(net, replace(asked, rates=(1e-3, 3e-3), batches=(4, 8), seeds=3))[0].cells
    assert [one.begin[1].seed for one in more if one.begin] == [0, 1, 2] * 4
    assert len({repr(CellScore.of(one.start, one.how, {}).how) for one in more}) == 4  # of three seeds each
    assert planned(net, replace(asked, seeds=3))[0].chosen_on == ""  # one configuration
    quick = replace(cell, begin=(cell.begin[0], replace(cell.begin[1], epochs=1.0, batch=4)))
    alone = replace(cell, begin=None, tuning=replace(cell.tuning, start=""))  # type: ignore[type-var]
    assert evaluate_cell(quick).losses != evaluate_cell(alone).losses


@pytest.fixture
def on_mnli(net: Subject, data: Path) -> Cell:
    """A cell of SST-2 that begins with a net that was fine-tuned on MNLI."""
    (data / "MNLI").mkdir()
    labels = ("contradiction", "entailment", "neutral")
    lines = ["\t".join([str(n), *"abcdefg", "the film is good", "so it is", labels[n % 3]]) for n in range(9)]
    head = "\t".join([*"0123456789", "gold_label"])
    (data / "MNLI/train.tsv").write_text("\n".join([head, *lines]) + "\n")
    cell = planned(net, wanted(data))[0].cells[0]
    (before,) = asked_for("mnli")
    assert not isinstance(before, str)
    assert cell.tuning is not None
    return replace(cell, begin=(before, replace(cell.tuning, batch=4)), tuning=replace(cell.tuning, start="mnli"))


def in_a_new_process(cell: Cell) -> Any:
    """As it would be in a process that has no net in memory."""
    launch_cell._begun.cache_clear()
    return evaluate_cell(cell)


def test_what_cells_begin_with_is_made_once_for_a_run_and_kept(on_mnli: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    made, before = list[str](), launch_cell._tuned_before

    def tuned(cell: Cell, *more: Any) -> Any:
        made.append(cell.name)
        return before(cell, *more)

    monkeypatch.setattr(launch_cell, "_tuned_before", tuned)
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
    on_mnli: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = in_a_new_process(on_mnli)
    (place,) = (on_mnli.folder / launch_cell.BEGUN).glob("mnli-*.lock")
    found = list[Any]()
    monkeypatch.setattr(launch_cell, "_tuned_before", lambda *_: pytest.fail("made twice"))
    with launch_cell._lock(place, waits=True):
        other = threading.Thread(target=lambda: found.append(in_a_new_process(on_mnli)), daemon=True)
        other.start()
        other.join(0.5)
        assert (other.is_alive(), found) == (True, [])
        with launch_cell._lock(place, waits=False):
            pass  # a group of workers goes on
    other.join(60)
    assert found == [first]


def test_keys_of_a_recipe_beside_a_run_that_is_trained_are_told_and_those_of_the_cluster_count(net: Subject) -> None:
    with pytest.raises(BadInput, match=r"optim.peak=1: .* is trained, and no key of its recipe changes it"):
        subject.subject_of(Flags(recipe=str(net.folder), overrides=("optim.peak=1", "cluster.workers=2")))
    given = Flags(recipe=str(net.folder), overrides=("cluster.tuning_workers=2", "cluster.machine.threads=3"))
    assert subject.subject_of(given) == net
    cluster = cluster_of(given)
    assert (cluster.tuning_workers, cluster.machine.threads) == (2, 3)
    with pytest.raises(BadInput, match="tuning_workers is 0, allowed is a number of workers from 1 up"):
        cluster_of(Flags(recipe="bert_base", overrides=("cluster.tuning_workers=0",)))
