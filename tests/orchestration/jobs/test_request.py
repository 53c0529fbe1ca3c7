"""What an evaluation is asked for: tasks by name and file, each of them once, and values that go together."""

from pathlib import Path

import pytest

from orchestration.config import load_task, tasks_of
from orchestration.jobs.request import asked_for
from preprocessing.errors import BadInput

TASK = """
name: {name}
title: is this review positive
source: my own
files:
  train: {{paths: [train.tsv], format: {{kind: tsv}}}}
  dev: {{paths: [dev.tsv], format: {{kind: tsv}}}}
task: {{kind: classify, text: review, label: stars, labels: ["0", "1"]}}
"""


def own(folder: Path, name: str = "mine", file: str = "mine.yaml", rows: int = 8) -> Path:
    """A task file with its data beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(TASK.format(name=name))
    lines = [f"the film is {('bad', 'good')[n % 2]}\t{n % 2}" for n in range(rows)]
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("review\tstars\n" + "\n".join(lines) + "\n")
    return folder / file


def table(folder: Path, name: str = "data.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"film {n} is {('bad', 'good')[n % 2]},{('no', 'yes')[n % 2]}" for n in range(40)]
    (folder / name).write_text("text,label\n" + "\n".join(lines) + "\n")
    return folder / name


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    """The last one won, and the other was not done, though both were announced."""
    first, second = own(tmp_path / "a"), own(tmp_path / "b")
    with pytest.raises(BadInput, match=f"^two tasks are named mine: {first} and {second}; rename one of them$"):
        asked_for(f"{first},{second}")
    with pytest.raises(BadInput, match="^two tasks are named mine: "):
        tasks_of(f"{first},{second}")
    first, second = table(tmp_path / "a"), table(tmp_path / "b")
    with pytest.raises(BadInput, match=f"^two tasks are named data: {first}:text,label and {second}:text,label; "):
        asked_for("", [f"{first}:text,label", f"{second}:text,label"])
    named = own(tmp_path / "c", "data")
    with pytest.raises(BadInput, match=f"^two tasks are named data: {named} and {first}:text,label; "):
        asked_for(str(named), [f"{first}:text,label"])


def test_a_task_that_is_named_twice_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = own(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    found = asked_for(f"glue,sst2,source,{file},source,a/mine.yaml,a/../a/mine.yaml")
    assert [task if isinstance(task, str) else task.name for task in found][-2:] == ["source", "mine"]
    assert len(found) == 12
    given = f"{table(tmp_path)}:text,label"
    assert len(asked_for("", [given, given])) == 1


@pytest.mark.parametrize("name", ["sst2", "source", "glue", "race_text"])
def test_a_task_of_ones_own_with_the_name_of_another_one_is_refused(name: str, tmp_path: Path) -> None:
    """Its score would have stood in the average of GLUE."""
    file = own(tmp_path, name)
    with pytest.raises(BadInput, match=f"^{file}: name is '{name}', which Sesame's own task has; give it another name"):
        load_task(str(file))
    given = f"{table(tmp_path, f'{name}.csv')}:text,label"
    with pytest.raises(BadInput, match=f"^--csv {given}: name is '{name}', which Sesame's own .*; rename the file$"):
        asked_for("", [given])
