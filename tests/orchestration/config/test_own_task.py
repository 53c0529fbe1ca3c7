"""A user's own table as a task: labels and columns are detected and reported."""

import csv
import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestration.config import task_of_csv
from pipeline.readers import CsvReader
from preprocessing.errors import BadInput
from tests.pipeline.readers.reading import texts
from training.evaluation.tasks import Classification, Regression, TaskFile


def table(folder: Path, name: str = "my.csv", rows: int = 200) -> Path:
    path = folder / name
    texts = [f'"Text {n // 2}, said ""so"""' for n in range(rows)]
    path.write_text("text,label\n" + "".join(f"{text},{('neg', 'pos')[n % 2]}\n" for n, text in enumerate(texts)))
    return path


def test_labels_are_detected_in_the_file_and_reported(tmp_path: Path) -> None:
    path = table(tmp_path)
    task, actual = task_of_csv(f"{path}:text,label")
    items = {split: task.items(split, Path("/"))[0] for split in task.files}
    sizes = ", ".join(f"{split} {len(found)}" for split, found in items.items())
    assert actual == f"{path}: 200 rows ({sizes}), 2 labels: neg (100), pos (100)"
    assert isinstance(task.task, Classification)
    assert (task.name, task.task.labels, task.metric) == ("my", ("neg", "pos"), "accuracy")
    assert sum(map(len, items.values())) == 200
    assert len(items["train"]) > 120
    texts = {split: {item.texts for item in found} for split, found in items.items()}
    assert not texts["train"] & texts["dev"]
    assert not (texts["train"] | texts["dev"]) & texts["test"]
    assert ('Text 0, said "so"',) in texts["train"] | texts["dev"] | texts["test"]


def test_two_text_columns_and_other_formats_are_supported(tmp_path: Path) -> None:
    path = tmp_path / "pairs: mine [1].jsonl"
    path.write_text("".join(json.dumps({"a": f"a{n}", "b": "b", "y": n % 3}) + "\n" for n in range(60)))
    task, actual = task_of_csv(f"{path}:a, b ,y")
    assert actual.endswith("), 3 labels: 0 (20), 1 (20), 2 (20)")
    assert isinstance(task.task, Classification)
    assert (task.task.text, task.task.text_pair) == ("a", "b")
    assert task.items("train", Path("/"))[0][0].texts[1] == "b"
    path = tmp_path / "my.tsv"
    path.write_text('t\ty\n"open quote\t1.5\nb\t4\nshort\n')
    task, actual = task_of_csv(f"{path}:t,y")
    sizes = "(train 2, dev 0, test 0)"
    assert actual == f"{path}: 2 rows {sizes}, y is a number from 1.5 to 4; 1 malformed rows, the first: my.tsv:4: " + (
        "got 1 columns, expected 2 as in the first line"
    )
    assert isinstance(task.task, Regression)
    assert (task.task.min_value, task.task.max_value) == (1.5, 4)


def test_whole_numbers_are_labels_in_numerical_order(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("t,y\n" + "".join(f"x{n},{n % 11}\n" for n in range(33)))
    task, _ = task_of_csv(f"{path}:t,y")
    assert isinstance(task.task, Classification)
    assert task.task.labels == tuple(map(str, range(11)))


@pytest.mark.parametrize(
    ("columns", "content", "message"),
    [
        ("text", None, "expected FILE:TEXT,LABEL or FILE:TEXT,SECOND_TEXT,LABEL; write it like my.csv:text,label"),
        ("text,", None, "expected FILE:TEXT,LABEL or FILE:TEXT,SECOND_TEXT,LABEL; write it like my.csv:text,label"),
        ("text,gold", None, "invalid column: got gold, expected one of text, label; use one of these columns"),
        (
            "text,label",
            "text,label\n",
            "invalid table: got no valid row, expected rows with text and label; use another file",
        ),
        (
            "text,label",
            "text,label,label\na,x,y\n",
            "invalid column: got label, expected one of text, label (named twice on line 1); use one",
        ),
        (
            "text,label",
            "text,label\na,x\nb,x\n",
            "invalid label: got 1 different labels, expected 2 to 50; use another column",
        ),
        (
            "text,label",
            "text,label\n" + "".join(f"a,l{n}\n" for n in range(51)),
            "invalid label: got 51 different labels, expected 2 to 50; use another column",
        ),
        (
            "text,label",
            "text,label\n" + "".join(f"a,{n}\n" for n in range(72)),
            "invalid label: got 72 different labels, expected 2 to 50; for scores, write a task file with "
            "task: {kind: regression, text: text, label: label, min_value: 0, max_value: 71}",
        ),
    ],
)
def test_an_invalid_table_is_a_one_line_error(columns: str, content: str | None, message: str, tmp_path: Path) -> None:
    path = table(tmp_path)
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput) as caught:
        task_of_csv(f"{path}:{columns}")
    assert str(caught.value).startswith((f"--csv {path}:{columns}: ", f"invalid --csv: got {path}:{columns}, "))
    assert message in str(caught.value)


def test_a_missing_file_or_one_that_is_no_table_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"invalid file: got .*my\.csv, expected a file that exists; check the path$"):
        task_of_csv(f"{tmp_path / 'my.csv'}:text,label")
    with pytest.raises(
        BadInput, match=r"got my\.xlsx, expected a file with one of the endings \.csv, \.tsv, \.jsonl; convert it$"
    ):
        task_of_csv("my.xlsx:text,label")
    with pytest.raises(BadInput, match="expected FILE:TEXT,LABEL"):
        task_of_csv("my.csv")


def test_the_task_name_is_a_valid_file_name_derived_from_the_table(tmp_path: Path) -> None:
    task, _ = task_of_csv(f"{table(tmp_path, 'my reviews: (2) .csv')}:text,label")
    assert task.name == "my_reviews_2"
    assert task_of_csv(f"{table(tmp_path, '-+-.csv')}:text,label")[0].name == "table"


def labels_of(task: TaskFile) -> set[str]:
    assert isinstance(task.task, Classification)
    items = [item for split in task.files for item in task.items(split, Path("/"))[0]]
    return {task.task.labels[item.gold] for item in items}


def test_rows_without_a_label_are_left_out_and_labels_are_stripped(tmp_path: Path) -> None:
    """The empty label used to be a class, and "neg " and "neg" used to be two classes."""
    path = tmp_path / "my.csv"
    path.write_text("t,y\n" + "".join(f"x{n},{('pos', ' neg ', 'neg', '', '  ')[n % 5]}\n" for n in range(200)))
    task, actual = task_of_csv(f"{path}:t,y")
    assert actual.endswith(", 2 labels: neg (80), pos (40); left out 80 rows without a label")
    assert f"{path}: 120 rows (train " in actual
    assert labels_of(task) == {"neg", "pos"}
    notes = [note for split in task.files for note in task.items(split, Path("/"))[1].notes]
    assert sum(int(note.split(" of ")[0]) for note in notes) == 80
    path.write_text("t,y\n" + "".join(f"x{n},{('1.5 ', '', '2')[n % 3]}\n" for n in range(99)))
    task, actual = task_of_csv(f"{path}:t,y")
    assert actual.endswith("y is a number from 1.5 to 2; left out 33 rows without a label")
    assert {item.gold for item in task.items("train", Path("/"))[0]} == {1.5, 2}


def test_null_means_that_the_label_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    rows = [{"t": f"x{n}", "y": (None, 0, 1, 1)[n % 4]} for n in range(80)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task, actual = task_of_csv(f"{path}:t,y")
    assert actual.endswith("2 labels: 0 (20), 1 (40); left out 20 rows without a label")
    assert labels_of(task) == {"0", "1"}
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"t": "a", "y": "None"}]))
    with pytest.raises(
        BadInput,
        match=r"invalid y: got 'None' \(my\.jsonl:81\) and null \(my\.jsonl:1\), expected only one of them; rename",
    ):
        task_of_csv(f"{path}:t,y")
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"t": "lacks its label"}]))
    actual = task_of_csv(f"{path}:t,y")[1]
    assert actual.endswith("1 malformed rows, the first: my.jsonl:81: has no column y; its columns are t")
    path.write_text(json.dumps({"t": "lacks its label"}) + "\n")
    with pytest.raises(BadInput, match=r"invalid column: got y, expected one of t; use one of these columns$"):
        task_of_csv(f"{path}:t,y")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('{"t": "a", "y": "x"}\n{"t": "b", "y": [0]}\n', "invalid y: got [0] (my.jsonl:2), expected text or a number"),
        ('{"t": "a", "y": "x"}\n{"t": "b", "y": {}}\n', "invalid y: got {} (my.jsonl:2), expected text or a number"),
        ('{"t": "a", "y": 1}\n{"t": "b", "y": NaN}\n', "invalid y: got nan (my.jsonl:2), expected text or a number"),
        ('{"t": "a", "y": "NaN"}\n', "invalid y: got 'NaN' (my.jsonl:1), expected text or a number, or nothing if"),
    ],
)
def test_an_invalid_label_is_refused(rows: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text(rows)
    with pytest.raises(BadInput) as caught:
        task_of_csv(f"{path}:t,y")
    assert str(caught.value).startswith(f"--csv {path}:t,y: {message}")


def test_a_table_without_a_header_is_refused_if_columns_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("".join(f"x{n},{('neg', 'pos')[n % 2]}\n" for n in range(20)))
    with pytest.raises(
        BadInput,
        match=r"invalid header: got the label 'neg' in column 1 of line 1, expected names of columns; add a line",
    ):
        task_of_csv(f"{path}:0,1")


SAID = ("Das Essen war schön, und die Bedienung höflich; {}", "Nie wieder, die Suppe war völlig versalzen | {}")
ROWS = [(SAID[n % 2].format(n), ("neg", "pos")[n % 2]) for n in range(60)]
TABLES = {
    "semicolon": ("my.csv", ";", "utf-8"),
    "tab in a csv": ("my.csv", "\t", "utf-8"),
    "bar": ("my.csv", "|", "utf-8"),
    "latin-1": ("my.csv", ",", "latin-1"),
    "latin-1, semicolon": ("my.csv", ";", "cp1252"),
    "utf-16": ("my.csv", ",", "utf-16"),
    "byte order mark": ("my.csv", ";", "utf-8-sig"),
    "tsv": ("my.tsv", "\t", "latin-1"),
    "tab": ("my.tab", "\t", "utf-8"),
    "packed": ("my.csv.gz", ";", "utf-8"),
}


def packed(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize(("name", "mark", "encoding"), TABLES.values(), ids=TABLES)
def test_a_table_is_read_like_a_table_of_a_corpus(name: str, mark: str, encoding: str, tmp_path: Path) -> None:
    """Tables with other delimiters used to be read as a single column, and encodings other than UTF-8 were refused."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=mark).writerows([("t", "y"), *ROWS])
    packed(tmp_path / name, text.getvalue().encode(encoding))
    task, actual = task_of_csv(f"{tmp_path / name}:t,y")
    assert "60 rows (train " in actual
    assert "2 labels: neg (30), pos (30)" in actual
    assert ("; read as cp1252" in actual) == (encoding in ("latin-1", "cp1252"))
    items = [item for split in task.files for item in task.items(split, Path("/"))[0]]
    assert sorted(item.texts[0] for item in items) == sorted(text for text, _ in ROWS)
    named = {"latin-1": "cp1252", "cp1252": "cp1252"}.get(encoding, "")
    assert texts(CsvReader(path=str(tmp_path / name), text_key="t", encoding=named)) == [text for text, _ in ROWS]


@pytest.mark.parametrize("lacking", ["t", "y"])
def test_an_object_without_a_column_is_left_out(lacking: str, tmp_path: Path) -> None:
    """It used to make the whole table fail."""
    rows = [{"t": f"x{n}", "y": n % 2} for n in range(40)]
    del rows[5][lacking]
    (tmp_path / "my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task, actual = task_of_csv(f"{tmp_path / 'my.jsonl'}:t,y")
    assert actual.endswith(
        f"1 malformed rows, the first: my.jsonl:6: has no column {lacking}; its columns are {'ty'.replace(lacking, '')}"
    )
    assert sum(len(task.items(split, Path("/"))[0]) for split in task.files) == 39


def test_numbers_with_decimal_commas_are_scores(tmp_path: Path) -> None:
    """They used to be eleven classes such as 0,0 and 0,5."""
    path = tmp_path / "my.csv"
    path.write_text("t;y\n" + "".join(f"x{n};{n % 11 / 2}".replace(".", ",") + "\n" for n in range(60)) + "x;\n")
    task, actual = task_of_csv(f"{path}:t,y")
    assert "y is a number from 0 to 5, read with decimal commas; left out 1 rows without a label" in actual
    items = [item for split in task.files for item in task.items(split, Path("/"))[0]]
    assert sorted(item.gold for item in items) == sorted(n % 11 / 2 for n in range(60))


def test_commas_that_may_separate_thousands_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("t;y\n" + "".join(f"x{n};{n % 5},000\n" for n in range(60)))
    with pytest.raises(
        BadInput, match=r"invalid y: got '0,000', which may be a fraction or thousands, expected numbers with a dec"
    ):
        task_of_csv(f"{path}:t,y")


@pytest.mark.parametrize("odd", ["inf", "n/a", "?", "2,5"])
@pytest.mark.parametrize("count", [9, 60])
def test_a_value_that_is_not_a_number_is_named(odd: str, count: int, tmp_path: Path) -> None:
    """It used to turn each number into a class, and many numbers were reported as too many labels."""
    path = tmp_path / "my.csv"
    path.write_text("t;y\n" + "".join(f"x{n};{n / 2}\n" for n in range(count)) + f"x;{odd}\n")
    with pytest.raises(
        BadInput, match=rf"invalid y: got '{re.escape(odd)}', expected a number, as in the other rows; correct it"
    ):
        task_of_csv(f"{path}:t,y")


def test_column_names_are_stripped(tmp_path: Path) -> None:
    """Column names are also stripped in tables of a corpus."""
    path = tmp_path / "my.csv"
    path.write_text(" t , y \n" + "".join(f"x{n},{n % 2}\n" for n in range(60)))
    assert "60 rows (train " in task_of_csv(f"{path}:t,y")[1]
    assert len(texts(CsvReader(path=str(path), text_key="t"))) == 60


def test_an_unclosed_quotation_mark_makes_its_row_malformed(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("t,y\n" + "".join(f"x{n},{n % 2}\n" for n in range(40)) + '"so,1\n' + "y,0\n" * 9)
    actual = task_of_csv(f"{path}:t,y")[1]
    assert "49 rows" in actual
    assert actual.endswith(
        "1 malformed rows, the first: my.csv:42: invalid row: "
        "a quotation mark is not closed, or is closed before the end "
        "of its cell"
    )


def test_an_encoding_other_than_utf8_is_reported(tmp_path: Path) -> None:
    path, french = tmp_path / "my.csv", "Le café était froid et la crème brûlée trop sucrée"
    path.write_bytes("".join(["t,y\n", *(f"{french} {n},{n % 2}\n" for n in range(40))]).encode("cp1252"))
    task, actual = task_of_csv(f"{path}:t,y")
    assert actual.endswith("2 labels: 0 (20), 1 (20); read as cp1252")
    assert task.items("train", Path("/"))[0][0].texts[0].startswith(french)


@pytest.mark.parametrize(
    ("rows", "expected_message"),
    [
        (
            [("same", str(n), n % 2) for n in range(40)],
            "1 different texts in a in 40 rows",
        ),
        (
            [(f"x{n % 2}", str(n), n % 2) for n in range(40)],
            "2 different texts in a in 40 rows",
        ),
    ],
)
def test_rows_that_share_their_first_text_are_refused(rows: list[Any], expected_message: str, tmp_path: Path) -> None:
    """The message used to name the directory "." and did not mention the equal texts."""
    path = tmp_path / "my.csv"
    path.write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    with pytest.raises(BadInput) as caught:
        task_of_csv(f"{path}:a,b,y")
    assert str(caught.value).startswith(f"--csv {path}:a,b,y: invalid table: got {expected_message}")
    remedy = "add more texts to a, or name the other column of a pair first"
    assert str(caught.value).endswith(f"(rows with equal texts stay in one split); {remedy}")


@pytest.mark.parametrize("values", [("1.5", ""), ("1.5", "1.50"), ("0,5", "0,5")])
def test_equal_numbers_in_all_rows_are_refused(values: tuple[str, str], tmp_path: Path) -> None:
    """The range of the task used to raise a ValueError."""
    path = tmp_path / "my.csv"
    path.write_text("t;y\n" + "".join(f"x{n};{values[n % 2]}\n" for n in range(40)))
    with pytest.raises(
        BadInput, match=r"^--csv .*: invalid y: got (1|0)\.5 in all rows, expected different values; use"
    ):
        task_of_csv(f"{path}:t,y")


def test_a_list_as_text_is_a_one_line_error(tmp_path: Path) -> None:
    """Lists used to raise the error "unhashable type"."""
    path = tmp_path / "my.jsonl"
    path.write_text("".join(json.dumps({"t": [f"x{n}"], "y": n % 2}) + "\n" for n in range(60)))
    task, _ = task_of_csv(f"{path}:t,y")
    with pytest.raises(BadInput, match=r"my\.jsonl:\d+"):
        task.items("train", Path("/"))


@pytest.mark.parametrize("values", [(True, False), ("true", "false")])
def test_json_booleans_are_labels(values: tuple[Any, Any], tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text("".join(json.dumps({"t": f"x{n}", "y": values[n % 2]}) + "\n" for n in range(60)))
    task, actual = task_of_csv(f"{path}:t,y")
    assert actual.lower().endswith("2 labels: false (30), true (30)")
    assert len(labels_of(task)) == 2
