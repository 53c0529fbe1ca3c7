"""`sesame tasks`: the list of tasks, and the availability of their data."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from orchestration.cli import main
from orchestration.config import list_names, tasks_of
from orchestration.reports import find_available_tasks
from orchestration.terminal import views
from tests.orchestration.evaluation.runs import write_task_file
from training.evaluation.tasks import SplitAvailability


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Parts of GLUE: RTE without test, SST-2 with a malformed row, CoLA with an invalid label."""
    for folder in ("RTE", "glue/SST-2", "CoLA"):
        (tmp_path / folder).mkdir(parents=True)
    rte = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n"
    for name in ("train", "dev"):
        (tmp_path / f"RTE/{name}.tsv").write_text(rte)
    (tmp_path / "glue/SST-2/dev.tsv").write_text("sentence\tlabel\ngood\t1\nshort\nbad\t0\n")
    (tmp_path / "glue/SST-2/test.tsv").write_text("index\tsentence\n0\tgood\n")
    (tmp_path / "CoLA/dev.tsv").write_text("gj04\t2\t\tA sentence.\n")
    return tmp_path


def render(part: object, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(part)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_each_task_has_a_line_with_examples_per_split(data: Path) -> None:
    tasks = tasks_of("rte,sst2,cola,xquad")
    lines = render(views.tasks(tasks, find_available_tasks(tasks, data)))
    assert lines[0].split() == ["task", "kind", "metric", "train", "dev", "test", "others"]
    assert [line.split() for line in lines[1:5]] == [
        ["rte", "classification", "accuracy", "2", "2", "-"],
        ["sst2", "classification", "accuracy", "-", "2!", "1*", "0", "of", "1"],
        ["cola", "classification", "matthews", "-", "!", "-"],
        ["xquad", "extractive_qa", "f1", "-", "-", "0", "of", "11"],
    ]
    assert lines[5] == "examples per split; -: no file, *: without labels, !: malformed (see below)"
    message = " ".join(lines[6:])
    assert "task sst2, dev: malformed rows are left out: glue/SST-2/dev.tsv:3: got 1 columns" in message
    assert "task cola, dev: CoLA/dev.tsv:1: invalid 1: got '2', expected 0 or 1" in message


def test_task_list_fits_eighty_columns(data: Path) -> None:
    tasks = tasks_of()
    for found in ({}, find_available_tasks(tasks, data)):
        lines = render(views.tasks(tasks, found))
        assert {line.split()[0] for line in lines if line.strip()} >= set(list_names("tasks"))
        assert max(map(len, lines)) <= 80
    named = [
        line
        for line in render(views.tasks(tasks, find_available_tasks(tasks, data)))
        if line.split()[0] in list_names("tasks")
    ]
    assert len(named) == len(tasks)  # with data, each task has its own line


def test_tasks_command_prints_text_and_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "glue", "--task-data-dir", str(data)]) == 0
    out = capsys.readouterr().out
    assert "rte" in out
    assert "next  sesame tasks ax --task-data-dir" in out
    assert main(["tasks", "rte", "--task-data-dir", str(data), "--json"]) == 0
    rte = json.loads(capsys.readouterr().out)["rte"]
    assert (rte["kind"], rte["metrics"], rte["reported_keys"]) == ("classification", ["accuracy"], ["glue.rte"])
    assert {name: one["rows"] for name, one in rte["at_hand"].items()} == {"train": 2, "dev": 2, "test": 0}
    assert rte["grids"]["albert"]["max_steps"] == 800
    assert main(["tasks"]) == 0
    assert "Named entity recognition of emerging and rare entities" in capsys.readouterr().out


def test_single_task_is_shown_with_files_and_grids(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "rte", "--task-data-dir", str(data)]) == 0
    out = capsys.readouterr().out
    assert "dev: 2" in out
    assert "test: - glue/RTE/test.tsv or RTE/test.tsv" in out
    assert "roberta_code: 2e-5 x batches of 16 x 2,036 steps (README.glue.md of fairseq@1ffc48f)" in out
    assert "bert: 5e-5 4e-5 3e-5 2e-5 x batches of 32 x 3 epochs (section 4.1; best rate on dev, from memory)" in out


def test_likelihood_task_is_shown_as_scored_without_training(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "BLiMP.zip").write_bytes(b"")
    assert main(["tasks", "blimp", "--task-data-dir", str(data)]) == 0
    out = capsys.readouterr().out
    assert (
        "loglikelihood_choice: macro_accuracy, accuracy; scored without fine-tuning, at the sequence length of the "
        "model" in out
    )
    assert "BLiMP.zip" in out  # not a valid archive
    assert main(["tasks", "wikitext103", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["wikitext103"]
    assert (found["kind"], found["way"], found["reported_keys"]) == ("perplexity", "scored", ["wikitext103.perplexity"])
    assert main(["tasks", "rte", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rte"]["way"] == "tuned"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tasks", "--task-data-dir", "/no/such"], "--task-data-dir /no/such: no such directory; check the path"),
        (
            ["run", "bert_base", "--task-data-dir", "/no/such"],
            "--task-data-dir /no/such: no such directory; check the path",
        ),
        (
            ["eval", "bert_base", "--task-data-dir", "/no/such"],
            "--task-data-dir /no/such: no such directory; check the path",
        ),
        (
            ["tasks", "glu"],
            "invalid task: got glu, expected a name that `sesame tasks` lists, or a .yaml file; did you mean glue?",
        ),
        (["tasks", "unavailable"], "invalid task: got unavailable, expected a name that `sesame tasks` lists, or a"),
        (["tasks", "no/such.yaml"], "no/such.yaml: cannot read the file (No such file or directory); check"),
    ],
)
def test_invalid_tasks_command_gives_one_line_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    lines = capsys.readouterr()
    assert lines.out == ""
    assert lines.err.splitlines()[-1].startswith(f"sesame: {message}")


def test_files_beside_a_task_file_are_shown_and_the_next_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`next sesame tasks mine` once suggested a task that cannot be found by its name."""
    first, second = write_task_file(tmp_path / "a b", "one"), write_task_file(tmp_path / "b", "two")
    monkeypatch.chdir(tmp_path / "b")
    assert main(["tasks", str(first)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"train: 8 {tmp_path / 'a b' / 'train.tsv'}" in out.replace("a b / ", "a b/")
    assert main(["tasks", f"{first},{second}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split("next  ")[1] == f"sesame tasks '{first}'"
    assert main(["tasks", f"{first},sst2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split("next  ")[1] == f"sesame tasks '{first}'"
    assert main(["tasks", f"sst2,{second}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split("next  ")[1] == "sesame tasks sst2"
    assert main(["tasks", ","]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == "sesame: invalid task: got ',', expected names of tasks; see `sesame tasks`"
    )


def test_empty_split_is_not_marked_as_unlabeled() -> None:
    (task,) = tasks_of("rte")
    found = {
        task.name: {
            "train": SplitAvailability(),
            "dev": SplitAvailability(rows=3),
            "test": SplitAvailability(rows=2, labelled=2),
        }
    }
    assert render(views.tasks([task], found))[1].split()[-3:] == ["0", "3*", "2"]
