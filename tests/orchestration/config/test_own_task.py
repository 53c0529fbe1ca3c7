"""A user's own table as a task: labels and columns are found, and said."""

import json
from pathlib import Path

import pytest

from orchestration.config import task_of_csv
from preprocessing.errors import BadInput
from training.tasks import Classify, Regress


def table(folder: Path, name: str = "my.csv", rows: int = 200) -> Path:
    path = folder / name
    texts = [f'"Text {n // 2}, said ""so"""' for n in range(rows)]
    path.write_text("text,label\n" + "".join(f"{text},{('neg', 'pos')[n % 2]}\n" for n, text in enumerate(texts)))
    return path


def test_labels_are_found_in_the_file_and_said(tmp_path: Path) -> None:
    path = table(tmp_path)
    task, said = task_of_csv(f"{path}:text,label")
    items = {split: task.items(split, Path("/"))[0] for split in task.files}
    sizes = ", ".join(f"{split} {len(found)}" for split, found in items.items())
    assert said == f"{path}: 200 rows ({sizes}), 2 labels: neg (100), pos (100)"
    assert isinstance(task.task, Classify)
    assert (task.name, task.task.labels, task.metric) == ("my", ("neg", "pos"), "accuracy")
    assert sum(map(len, items.values())) == 200
    assert len(items["train"]) > 120
    texts = {split: {item.texts for item in found} for split, found in items.items()}
    assert not texts["train"] & texts["dev"]
    assert not (texts["train"] | texts["dev"]) & texts["test"]
    assert ('Text 0, said "so"',) in texts["train"] | texts["dev"] | texts["test"]


def test_two_texts_and_other_formats(tmp_path: Path) -> None:
    path = tmp_path / "pairs: mine [1].jsonl"
    path.write_text("".join(json.dumps({"a": f"a{n}", "b": "b", "y": n % 3}) + "\n" for n in range(60)))
    task, said = task_of_csv(f"{path}:a, b ,y")
    assert said.endswith("), 3 labels: 0 (20), 1 (20), 2 (20)")
    assert isinstance(task.task, Classify)
    assert (task.task.text, task.task.pair) == ("a", "b")
    assert task.items("train", Path("/"))[0][0].texts[1] == "b"
    path = tmp_path / "my.tsv"
    path.write_text('t\ty\n"open quote\t1.5\nb\t4\nshort\n')
    task, said = task_of_csv(f"{path}:t,y")
    sizes = "(train 2, dev 0, test 0)"
    assert said == f"{path}: 2 rows {sizes}, y is a number from 1.5 to 4; 1 malformed rows, the first: my.tsv:4: " + (
        "1 columns, the first line names 2"
    )
    assert isinstance(task.task, Regress)
    assert (task.task.least, task.task.most) == (1.5, 4)


def test_whole_numbers_are_labels_in_the_order_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("t,y\n" + "".join(f"x{n},{n % 11}\n" for n in range(33)))
    task, _ = task_of_csv(f"{path}:t,y")
    assert isinstance(task.task, Classify)
    assert task.task.labels == tuple(map(str, range(11)))
    path.write_text("t,y\na,nan\nb,1.5\n")
    assert isinstance(task_of_csv(f"{path}:t,y")[0].task, Classify)


@pytest.mark.parametrize(
    ("columns", "content", "said"),
    [
        ("text", None, "allowed is FILE:TEXT,LABEL or FILE:TEXT,SECOND_TEXT,LABEL, as my.csv:text,label"),
        ("text,", None, "allowed is FILE:TEXT,LABEL or FILE:TEXT,SECOND_TEXT,LABEL, as my.csv:text,label"),
        ("text,gold", None, "has no column gold; its columns are text, label"),
        ("text,label", "text,label\n", "no row in it"),
        ("text,label", "text,label\na,x\nb,x\n", "label has 1 labels, allowed are 2 to 50"),
        ("text,label", "text,label\n" + "".join(f"a,l{n}\n" for n in range(51)), "label has 51 labels"),
    ],
)
def test_what_is_wrong_is_one_line(columns: str, content: str | None, said: str, tmp_path: Path) -> None:
    path = table(tmp_path)
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput) as caught:
        task_of_csv(f"{path}:{columns}")
    assert str(caught.value).startswith(f"--csv {path}:{columns}: ")
    assert said in str(caught.value)


def test_a_file_that_is_not_there_or_no_table_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"my\.csv is not there$"):
        task_of_csv(f"{tmp_path / 'my.csv'}:text,label")
    with pytest.raises(BadInput, match=r"my\.xlsx is none of \.csv, \.tsv, \.jsonl$"):
        task_of_csv("my.xlsx:text,label")
    with pytest.raises(BadInput, match="allowed is FILE:TEXT,LABEL"):
        task_of_csv("my.csv")


def test_the_name_of_a_table_becomes_one_of_a_file(tmp_path: Path) -> None:
    task, _ = task_of_csv(f"{table(tmp_path, 'my reviews: (2) .csv')}:text,label")
    assert task.name == "my_reviews_2"
    assert task_of_csv(f"{table(tmp_path, '-+-.csv')}:text,label")[0].name == "table"
