"""Evaluation requests: tasks by name or file without duplicates, and hyperparameters that are valid together."""

import math
from pathlib import Path
from typing import Any

import pytest

from orchestration.config import load_task, tasks_from_words, tasks_of
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.score_plan import plan_tasks
from preprocessing.errors import BadInput
from tests.orchestration.evaluation.runs import QUICK, write_task_file


def write_table(folder: Path, name: str = "data.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"film {n} is {('bad', 'good')[n % 2]},{('no', 'yes')[n % 2]}" for n in range(40)]
    (folder / name).write_text("text,label\n" + "\n".join(lines) + "\n")
    return folder / name


def test_two_tasks_with_the_same_name_are_refused(tmp_path: Path) -> None:
    """Both tasks were once announced, but only the last one was evaluated."""
    first, second = write_task_file(tmp_path / "a"), write_task_file(tmp_path / "b")
    with pytest.raises(
        BadInput, match=f"^invalid task: got the name mine in {first} and in {second}, expected .*; rename"
    ):
        tasks_from_words(f"{first},{second}")
    with pytest.raises(BadInput, match=r"^invalid task: got the name mine in "):
        tasks_of(f"{first},{second}")
    first, second = write_table(tmp_path / "a"), write_table(tmp_path / "b")
    with pytest.raises(BadInput, match=f"got the name data in {first}:text,label and in {second}:text,label, exp"):
        tasks_from_words("", [f"{first}:text,label", f"{second}:text,label"])
    named = write_task_file(tmp_path / "c", "data")
    with pytest.raises(BadInput, match=f"got the name data in {named} and in {first}:text,label, expected"):
        tasks_from_words(str(named), [f"{first}:text,label"])


def test_task_named_twice_is_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_task_file(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    found = tasks_from_words(
        f"glue,sst2,source_classification,{file},source_classification,a/mine.yaml,a/../a/mine.yaml"
    )
    assert [task if isinstance(task, str) else task.name for task in found][-2:] == ["source_classification", "mine"]
    assert len(found) == 12
    given = f"{write_table(tmp_path)}:text,label"
    lines = list[str]()
    assert len(tasks_from_words("", [given, given], lines.append)) == 1
    assert len(lines) == 1  # the verb prints it as a plain line, because it is no warning
    assert lines[0].startswith(given.removesuffix(":text,label"))


@pytest.mark.parametrize("name", ["sst2", "source_classification", "glue", "race_text"])
def test_own_task_with_the_name_of_a_built_in_task_is_refused(name: str, tmp_path: Path) -> None:
    """Otherwise the score of a user's task would count in the GLUE average."""
    file = write_task_file(tmp_path, name)
    with pytest.raises(
        BadInput, match=f"^{file}: invalid name: got '{name}', expected a name that no task of Sesame has; ren"
    ):
        load_task(str(file))
    given = f"{write_table(tmp_path, f'{name}.csv')}:text,label"
    with pytest.raises(BadInput, match=f"^--csv {given}: invalid name: got '{name}', expected .*; rename the file$"):
        tasks_from_words("", [given])


def test_files_beside_a_task_file_are_read_first_without_task_data_dir(
    target: EvalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files of the current directory were once used instead without a warning."""
    file, other = write_task_file(tmp_path / "mine", rows=8), write_task_file(tmp_path / "other", rows=12).parent
    monkeypatch.chdir(other)
    found = {
        data: EvalRequest(tasks=tasks_from_words(str(file)), task_data_dir=data, **QUICK) for data in (None, other)
    }
    for data, rows in ((None, 8), (other, 12)):
        caplog.clear()
        (plan,) = plan_tasks(target, found[data])
        assert len(plan.items["train"]) == rows
        first, second = (file.parent, other) if data is None else (other, file.parent)
        message = f"task mine, train: reads {first / 'train.tsv'}, although {second / 'train.tsv'} also exists"
        assert message in caplog.text
        assert message.removeprefix("task mine, ") in plan.notes[0]
    (other / "train.tsv").unlink()
    (other / "dev.tsv").unlink()
    caplog.clear()
    assert len(plan_tasks(target, found[other])[0].items["train"]) == 8
    assert "train.tsv" not in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"epochs": (2.0,), "max_steps": 3},
            "--epochs and --max-steps are both given, but only one is allowed; leave one out",
        ),
        (
            {"learning_rates": (1e-3, math.nan)},
            "invalid --learning-rates: got nan, expected learning rates above 0 and below 100, e.g. 3e-5; "
            "change this value",
        ),
        (
            {"learning_rates": (1e30,)},
            "invalid --learning-rates: got 1e+30, expected learning rates above 0 and below 100, e.g. 3e-5; "
            "change this value",
        ),
        (
            {"learning_rates": (math.inf,)},
            "invalid --learning-rates: got inf, expected learning rates above 0 and below 100, e.g. 3e-5; "
            "change this value",
        ),
        (
            {"learning_rates": (-1.0,)},
            "invalid --learning-rates: got -1, expected learning rates above 0 and below 100, e.g. 3e-5; "
            "change this value",
        ),
        ({"epochs": (math.inf,)}, "invalid --epochs: got inf, expected numbers above 0; change this value"),
        ({"epochs": (0.0,)}, "invalid --epochs: got 0, expected numbers above 0; change this value"),
        ({"batch_sizes": (0,)}, "invalid --batch-sizes: got 0, expected integers of at least 1; change this value"),
    ],
)
def test_invalid_hyperparameters_are_refused_when_the_request_is_created(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        EvalRequest(tasks=[], **given)
    assert str(caught.value) == message


@pytest.mark.parametrize("words", [",", " ", ",,"])
def test_task_list_without_a_name_is_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=f"^invalid --tasks: got '{words}', expected names of tasks; `sesame tasks` lists them$"
    ):
        tasks_from_words(words, [f"{write_table(tmp_path)}:text,label"])
    assert tasks_from_words("") == tasks_from_words([]) == []
    assert [task.name for task in tasks_from_words(" sst2 , rte") if not isinstance(task, str)] == ["sst2", "rte"]
