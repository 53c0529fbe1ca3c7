"""Task files: splits and grids; reading them does not import torch."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from preprocessing.errors import BadInput
from training.evaluation.files import CsvFormat, JsonlFormat, TsvFormat
from training.evaluation.tasks import (
    Classification,
    Grid,
    Kinds,
    Regression,
    Scored,
    SplitAvailability,
    SplitRecords,
    TaskFile,
    Tuned,
    Way,
    as_text,
    split_availability,
)

KIND = Classification(text="t", label="y", labels=("a", "b"))
ROWS = [{"t": f"text {n // 2}", "y": "AB-"[n % 3], "lang": ("en", "de")[n % 2]} for n in range(120)]


def split(**keys: Any) -> SplitRecords:
    return SplitRecords(
        paths=("dev.jsonl",), format=JsonlFormat(), **({"value_map": {"y": {"A": "a", "B": "b"}}} | keys)
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def test_rows_are_selected_and_values_are_mapped(data: Path) -> None:
    task = TaskFile(name="x", description="x", citation="x", files={"dev": split(exclude={"y": ("-",)})}, task=KIND)
    items, records = task.items("dev", data)
    assert (len(items), records.left_out, [item.gold for item in items[:2]]) == (80, 40, [0, 1])
    found = split(include={"lang": ("de",)}).records(data)
    assert (len(found), found.left_out, found.others) == (60, 0, 60)
    assert {row["lang"] for row in found.rows} == {"de"}
    assert found.places[0] == "dev.jsonl:2"


def test_unused_rows_are_counted_in_one_line_for_each_reason(data: Path) -> None:
    (data / "dev.jsonl").write_text((data / "dev.jsonl").read_text() + "{torn\n")
    records = split(exclude={"y": ("-",)}, include={"lang": ("de",)}).records(data)
    assert [note.split(" (")[0] for note in records.notes] == [
        "malformed rows are left out: dev.jsonl:121: not JSON",
        "20 of 121 rows are left out, because the task file excludes their values",
        "60 of 121 rows are not in this split: the task file includes other values",
    ]


@pytest.mark.parametrize("keys", [{}, {"value_map": {"3": {"A": "a"}}}, {"exclude": {"3": ("-",)}}])
@pytest.mark.parametrize("format", [TsvFormat(header=False), CsvFormat(header=False)])
def test_rows_without_a_required_column_are_malformed(keys: Any, format: Any, tmp_path: Path) -> None:
    """Only the columns that the task reads are required."""
    rows = [["1", "x", "one", "a"], ["2", "x"], ["3", "x", "two", "b", "more"], ["4"], ["5", "x", "three"]]
    (tmp_path / "in.txt").write_text("".join(("\t" if format.kind == "tsv" else ",").join(row) + "\n" for row in rows))
    files = {"dev": SplitRecords(paths=("in.txt",), format=format, columns={"text": "2", "label": "3"}, **keys)}
    task = TaskFile(name="x", description="x", citation="x", files=files, task=KIND)
    items, records = task.items("dev", tmp_path)
    assert [(item.place, item.texts, item.gold) for item in items] == [
        ("in.txt:1", ("one",), 0),
        ("in.txt:3", ("two",), 1),
    ]
    assert records.malformed == [
        f"in.txt:{line}: missing column 3: the row has {columns} columns (the first one is 0)"
        for line, columns in ((2, 2), (4, 1), (5, 3))
    ]
    assert split_availability(task, tmp_path)["dev"].malformed == tuple(records.malformed)
    wrong = replace(files["dev"], columns={"text": "7", "label": "3"})
    with pytest.raises(BadInput, match=r"task x, dev: in.txt:1: missing column 7; the columns are 4 without names"):
        replace(task, files={"dev": wrong}).items("dev", tmp_path)


def test_folds_partition_all_rows_and_keep_equal_values_together(data: Path) -> None:
    parts = [split(folds=(tenth,), fold_by="t").records(data).rows for tenth in range(10)]
    assert sum(map(len, parts)) == len(ROWS)
    texts = [{row["t"] for row in part} for part in parts]
    assert sum(map(len, texts)) == len({row["t"] for row in ROWS})
    assert len([part for part in parts if part]) > 6
    alone = [len(split(folds=(tenth,)).records(data)) for tenth in range(10)]
    assert sum(alone) == len(ROWS)
    assert max(alone) < 40


def test_fallback_files_have_their_own_formats_and_columns(tmp_path: Path) -> None:
    other = SplitRecords(paths=("a*.tsv", "b.tsv"), format=TsvFormat(header=False), columns={"text": "1", "label": "0"})
    task = TaskFile(name="x", description="x", citation="x", files={"dev": split(fallbacks=(other,))}, task=KIND)
    with pytest.raises(BadInput, match=r"task x, dev: .* no such file: dev\.jsonl or a\*\.tsv or b\.tsv"):
        task.items("dev", tmp_path)
    assert split_availability(task, tmp_path) == {"dev": SplitAvailability(is_there=False)}
    (tmp_path / "b.tsv").write_text("b\tThe text\n")
    assert [(item.texts, item.gold) for item in task.items("dev", tmp_path)[0]] == [(("The text",), 1)]
    assert split_availability(task, tmp_path) == {
        "dev": SplitAvailability(rows=1, labelled=1, file=str(tmp_path / "b.tsv"))
    }


def test_brackets_in_file_names_and_absolute_paths_are_supported(tmp_path: Path) -> None:
    path = tmp_path / "my [1].jsonl"
    path.write_text(json.dumps(ROWS[0]))
    for paths in ("my [1].jsonl", str(path)):
        assert len(replace(split(), paths=(paths,)).records(tmp_path)) == 1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"max_steps": 10},
            "invalid epochs: got '1 epochs and 10 steps', expected epochs or max_steps, one of the two",
        ),
        ({"epochs": ()}, "invalid epochs: got '0 epochs and 0 steps', expected epochs or max_steps, one of the two"),
        ({"learning_rates": ()}, "invalid learning_rates: got [], expected one learning rate or more"),
        (
            {"warmup_steps": 100},
            "invalid warmup_steps: got 100, expected a fraction of the steps, or fewer steps than `max_steps`",
        ),
        ({"epochs": (), "max_steps": 10, "warmup_steps": 10}, "invalid warmup_steps: got 10, expected"),
        ({"citation": " "}, "invalid citation: got ' ', expected the section, table or file"),
    ],
)
def test_an_invalid_grid_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        Grid(**({"learning_rates": (1e-5,), "batch_sizes": (16,), "epochs": (3,), "citation": "table 1"} | keys))
    assert message in str(caught.value)


def test_trials_of_a_grid_are_all_combinations() -> None:
    cells = Grid(
        learning_rates=(1e-5, 2e-5), batch_sizes=(8, 16), epochs=(2, 3), num_seeds=2, max_grad_norm=0, citation="x"
    ).cells()
    assert len({(cell.learning_rate, cell.batch_size, cell.epochs, cell.seed) for cell in cells}) == 16
    (cell,) = Grid(
        learning_rates=(1e-5,),
        batch_sizes=(8,),
        max_steps=1_000,
        warmup_steps=250,
        lr_schedule="constant",
        citation="x",
    ).cells()
    assert (cell.max_steps, cell.warmup_ratio, cell.lr_schedule) == (1_000, 0.25, "constant")


def test_each_kind_states_its_way_of_evaluation() -> None:
    assert {one.way for one in get_args(Tuned)} == {"tuned"}
    assert {one.way for one in get_args(Scored)} == {"scored"}
    assert {*get_args(Tuned), *get_args(Scored)} <= set(get_args(Kinds))
    assert {one.way for one in get_args(Kinds)} <= set(get_args(Way))


def test_a_task_file_is_read_without_torch() -> None:
    code = "import sys, training.evaluation.tasks; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False).returncode == 0


@pytest.mark.parametrize("name", ["../../esc", "a/b c", ".hidden", "", "a" * 61, "new\nline", "-rf"])
def test_an_invalid_name_is_refused(name: str) -> None:
    """`../../esc` used to be written outside of the directory of the run."""
    allowed = "expected at most 60 letters, digits, _, - and ., starting with a letter or digit"
    with pytest.raises(ValueError, match=f"^invalid name: got {re.escape(repr(name))}, {allowed}$"):
        TaskFile(name=name, description="x", citation="x", files={"dev": split()}, task=KIND)
    for given in ({"files": {f"dev_{name}/x": split()}}, {"leaderboard_files": {"dev": f"{name}/x"}}):
        with pytest.raises(ValueError, match=f"(files|leaderboard_files.dev): got '.*', {allowed}$"):
            TaskFile(
                **{"name": "x", "description": "x", "citation": "x", "files": {"dev": split()}, "task": KIND} | given
            )


@pytest.mark.parametrize("keys", [{"include": {"lang": ("de",)}}, {"exclude": {"y": ("-",)}}, {"folds": (0,)}])
def test_a_submission_split_must_contain_all_rows(keys: Any) -> None:
    """Excluded rows used to shift the answers after them."""
    about = {"name": "x", "description": "x", "citation": "x", "task": KIND, "leaderboard_files": {"dev": "x.tsv"}}
    for one in (split(**keys), split(fallbacks=(split(**keys),))):
        with pytest.raises(ValueError, match=r"invalid leaderboard_files: got 'dev', expected a split without include"):
            TaskFile(**about, files={"dev": one})
    assert TaskFile(**about, files={"dev": split()}).leaderboard_files


def test_a_name_may_have_letters_of_any_script() -> None:
    names = {"dev_zh-Hans.2": split(), "test_{variant}": split()}
    assert TaskFile(name="отзывы_1.0-a", description="x", citation="x", variants=("de",), files=names, task=KIND).name


TABLE = SplitRecords(paths=("dev.tsv",), format=TsvFormat())


@pytest.mark.parametrize(
    ("content", "given", "expected_message"),
    [
        ("", {}, "dev.tsv has no rows; give a file with data"),
        ("t\ty\n\n", {}, "dev.tsv has no rows; give a file with data"),
        ("t\ty\n\n", {"folds": (0,), "include": {"y": ("c",)}}, "dev.tsv has no rows; give a file with data"),
        (
            "t\ty\nx\ta\nx\tb\n",
            {"include": {"y": ("c",)}},
            "none of the 2 rows of dev.tsv has the values of `include`; correct them in the task file",
        ),
        (
            "t\ty\nx\ta\n",
            {"exclude": {"y": ("a",)}},
            "`exclude` leaves out all 1 rows of dev.tsv; correct it in the task file",
        ),
    ],
)
def test_a_file_without_rows_is_refused_as_empty(
    content: str, given: dict[str, Any], expected_message: str, tmp_path: Path
) -> None:
    """The message used to say that the file did not exist."""
    (tmp_path / "dev.tsv").write_text(content)
    one = replace(TABLE, **given)
    task = TaskFile(name="x", description="x", citation="x", files={"dev": one}, task=KIND)
    line = f"task x, dev: {expected_message.replace('dev.tsv', str(tmp_path / 'dev.tsv'))}"
    with pytest.raises(BadInput, match=f"^{re.escape(line)}$"):
        task.items("dev", tmp_path)
    assert split_availability(task, tmp_path)["dev"].wrong == line
    if "include" in given:  # the file of all languages has no rows of one language, but those of the others count
        task = replace(task, variants=("de",), files={"dev_de": replace(one, folds=())})
        assert (split_availability(task, tmp_path)["dev_de"].wrong == "") == bool(content.strip("ty\t\n"))


def test_a_fold_of_a_few_rows_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("t\ty\nx\ta\n")
    found = [
        len(
            TaskFile(
                name="x", description="x", citation="x", files={"dev": replace(TABLE, folds=(n,))}, task=KIND
            ).items("dev", tmp_path)[0]
        )
        for n in range(10)
    ]
    assert sorted(found) == [0] * 9 + [1]


@pytest.mark.parametrize(
    "kind", [replace(KIND, text="0", label="1"), Regression(text="0", label="-1", min_value=0, max_value=5)]
)
@pytest.mark.parametrize("format", [TsvFormat(), CsvFormat()])
def test_a_data_row_read_as_a_header_is_refused(kind: Kinds, format: TsvFormat | CsvFormat, tmp_path: Path) -> None:
    """With numbered columns, the first row used to be lost silently."""
    mark, label = ("\t" if format.kind == "tsv" else ","), "a" if kind.kind == "classification" else "3.5"
    (tmp_path / "dev.tsv").write_text(f"good{mark}{label}\nbad{mark}{label}\n")

    def items(one: SplitRecords, of: Kinds = kind) -> int:
        return len(
            TaskFile(name="x", description="x", citation="x", files={"dev": one}, task=of).items("dev", tmp_path)[0]
        )

    one = replace(TABLE, format=format)
    message = (
        f"^task x, dev: {tmp_path / 'dev.tsv'}: line 1 is read as a header, but has the label '{label}' in column -?1"
    )
    for of in (kind, as_text(kind, "x")):
        with pytest.raises(BadInput, match=f"{message}; set header: false in the format$"):
            items(one, of)
    assert items(replace(one, format=replace(format, header=False))) == 2
    (tmp_path / "dev.tsv").write_text(f"t{mark}y\ngood{mark}{label}\nbad{mark}{label}\n")
    assert items(one) == 2
    assert items(replace(one, value_map={"1": {"c": "a"}})) == 2
    if kind.kind == "classification":  # the name of a label in the file
        (tmp_path / "dev.tsv").write_text(f"good{mark}c\nbad{mark}c\n")
        with pytest.raises(BadInput, match="line 1 is read as a header, but has the label 'c' in column 1"):
            items(replace(one, value_map={"1": {"c": "a"}}))
