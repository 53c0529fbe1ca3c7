"""Parquet and Arrow files of `datasets`: names of labels, nested columns, shards, and messages about other files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.errors import BadInput
from training.evaluation import files
from training.evaluation.files import DatasetsFormat, ParquetFormat
from training.evaluation.tasks import Classification, ExtractiveQA, Regression, SplitRecords, TaskFile, TaskItem

LABEL = {"names": ["unacceptable", "acceptable"], "_type": "ClassLabel"}
SENTENCES = ["The sailors rode .", "They drank the pub .", "Who ?"]


def write(file: Path, columns: dict[str, Any], features: dict[str, Any] | None = None) -> None:
    """A Parquet file, or an Arrow stream as save_to_disk writes it."""
    table = pa.table(columns)
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".arrow":
        with pa.ipc.new_stream(str(file), table.schema) as stream:
            stream.write_table(table)
    else:
        pq.write_table(table, file)


def cola(folder: Path, file: str, labels: list[int], *, names: bool = True) -> None:
    write(folder / file, {"sentence": SENTENCES[: len(labels)], "label": labels}, {"label": LABEL} if names else None)


def task(kind: Any, path: str, format: Any, **keys: Any) -> TaskFile:
    dev = SplitRecords(paths=(path,), format=format, **keys)
    return TaskFile(name="mine", description="", citation="", files={"dev": dev}, task=kind)


ACCEPTABLE = Classification(text="sentence", label="label", labels=("acceptable", "unacceptable"))


def golds(task: TaskFile, folder: Path) -> list[Any]:
    return [item.gold for item in task.items("dev", folder)[0]]


def test_class_labels_are_read_as_their_names(tmp_path: Path) -> None:
    cola(tmp_path, "a.parquet", [1, 0, -1])
    records = files.read(tmp_path, "a.parquet", ParquetFormat())
    assert [row["label"] for row in records.rows] == ["acceptable", "unacceptable", -1]
    assert records.places == ["a.parquet:1", "a.parquet:2", "a.parquet:3"]
    items = task(ACCEPTABLE, "a.parquet", ParquetFormat()).items("dev", tmp_path)[0]
    assert items == [TaskItem(f"a.parquet:{n}", (SENTENCES[n - 1],), gold) for n, gold in ((1, 0), (2, 1), (3, None))]


def test_tags_of_words_are_read_as_their_names(tmp_path: Path) -> None:
    tag = {"names": ["O", "B-PER"], "_type": "ClassLabel"}
    for feature in ({"feature": tag, "_type": "List"}, {"feature": tag, "_type": "Sequence"}, [tag]):
        write(tmp_path / "a.parquet", {"words": [["Mary", "left"]], "tags": [[1, 0]]}, {"tags": feature})
        assert files.read(tmp_path, "a.parquet", ParquetFormat()).rows == [
            {"words": ["Mary", "left"], "tags": ["B-PER", "O"]}
        ]


def test_a_float32_is_the_decimal_number_of_a_text_file(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"a": ["x"] * 4, "y": pa.array([3.8, 4.75, -1.0, None], pa.float32())})
    similar = task(Regression(text="a", label="y", min_value=0, max_value=5), "a.parquet", ParquetFormat())
    assert golds(similar, tmp_path) == [3.8, 4.75, None, None]


@pytest.mark.parametrize(
    ("file", "path", "split"),
    [
        ("cola/validation-00000-of-00001.parquet", "cola", "validation"),
        ("cola/validation-00000-of-00001-0a1b2c3d.parquet", "cola", "validation"),
        ("cola/data/validation-00000-of-00001.parquet", "cola", "validation"),
        ("cola/validation/0000.parquet", "cola", "validation"),
        ("cola/validation/data-00000-of-00001.arrow", "cola", "validation"),
        ("cola/data-00000-of-00001.arrow", "cola", ""),
    ],
)
def test_each_layout_of_a_dataset_is_found(file: str, path: str, split: str, tmp_path: Path) -> None:
    cola(tmp_path, file, [1, 0, 1])
    cola(tmp_path, "cola/validation_mismatched-00000-of-00001.parquet", [0])
    cola(tmp_path, "cola/cache-0123.arrow", [0])
    read = task(ACCEPTABLE, path, DatasetsFormat(split=split))
    assert golds(read, tmp_path) == [0, 1, 0]
    absolute = task(ACCEPTABLE, str(tmp_path / path), DatasetsFormat(split=split))
    assert golds(absolute, Path()) == [0, 1, 0]


def test_shards_are_read_in_order_and_all_of_them_are_required(tmp_path: Path) -> None:
    cola(tmp_path, "train-00001-of-00002.parquet", [0])
    with pytest.raises(BadInput, match=r"got 1 files, expected all 2 shards; download the dataset again"):
        files.read(tmp_path, "train-*.parquet", ParquetFormat())
    cola(tmp_path, "train-00000-of-00002.parquet", [1, 1])
    records = files.read(tmp_path, "train-*.parquet", ParquetFormat())
    assert [row["label"] for row in records.rows] == ["acceptable", "acceptable", "unacceptable"]
    assert records.places[2] == "train-00001-of-00002.parquet:1"
    assert len(files.read(tmp_path, "train-00001-of-00002.parquet", ParquetFormat())) == 1
    cola(tmp_path, "train-00000-of-00001.parquet", [1])
    with pytest.raises(BadInput, match=r"got 3 files, expected all 1 or 2 shards"):
        files.read(tmp_path, "train-*.parquet", ParquetFormat())


def test_answers_of_squad_are_nested_columns(tmp_path: Path) -> None:
    context = ["Rome is old .", "Rome is old .", "Rome is old .", "Rome is old ."]
    answers = [
        {"text": ["Rome", " "], "answer_start": [0, 4]},
        {"text": ["old"], "answer_start": [7]},  # not at this place
        {"text": [], "answer_start": []},
        None,
    ]
    columns = {"id": list("abcd"), "question": ["What ?"] * 4, "context": context, "answers": answers}
    write(tmp_path / "squad_v2/validation-00000-of-00001.parquet", columns)
    named = {"answers": "answers.text", "starts": "answers.answer_start"}
    expected: dict[int, list[Any]] = {
        1: [("a", ["Rome"], [0]), ("b", ["old"], [-1]), None],
        2: [("a", ["Rome"], [0]), ("b", ["old"], [-1]), ("c", [], [])],
    }
    for version in (1, 2):
        of = ExtractiveQA(squad_version=version)  # type: ignore[arg-type]
        read = task(of, "squad_v2", DatasetsFormat(split="validation"), columns=named)
        items, records = read.items("dev", tmp_path)
        assert [item.gold for item in items] == expected[version]
        assert items[0].texts == ("What ?", "Rome is old .")
        assert len(records.malformed) == 1
        assert "missing column answers.text" in records.malformed[0]
    strange = task(ExtractiveQA(), "squad_v2", DatasetsFormat(split="validation"), columns={"answer": "x"})
    with pytest.raises(BadInput, match=r"invalid columns of a split: got answer, expected question, context, id, "):
        strange.items("dev", tmp_path)
    unlike = task(ExtractiveQA(), "squad_v2", DatasetsFormat(split="validation"), columns=named | {"answers": "id"})
    with pytest.raises(BadInput, match=r":1: invalid id: got 'a', expected a list of texts; 2 more of 3 rows"):
        unlike.items("dev", tmp_path)


def line(read: TaskFile, folder: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read.items("dev", folder)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("task mine, dev: ")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    cola(tmp_path, "a.parquet", [1])
    other = replace(ACCEPTABLE, text="question")
    assert line(task(other, "a.parquet", ParquetFormat()), tmp_path) == (
        "a.parquet:1: missing column question; the columns are sentence, label"
    )


def test_numbers_without_names_are_explained(tmp_path: Path) -> None:
    cola(tmp_path, "a.parquet", [1, 0], names=False)
    read = task(ACCEPTABLE, "a.parquet", ParquetFormat())
    assert line(read, tmp_path) == (
        "a.parquet:1: invalid label: got 1, expected acceptable or unacceptable; 1 more of 2 rows cannot be used; "
        "column label has numbers without names (no ClassLabel in the metadata of the file): map them to labels with "
        "`value_map` of the split"
    )
    mapped = task(
        ACCEPTABLE, "a.parquet", ParquetFormat(), value_map={"label": {"0": "unacceptable", "1": "acceptable"}}
    )
    assert golds(mapped, tmp_path) == [0, 1]


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    read = task(ACCEPTABLE, "a.parquet", ParquetFormat())
    file.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n")
    assert "a Git LFS pointer, not the file itself; fetch the files with `git lfs pull`" in line(read, tmp_path)
    file.write_text("sentence\tlabel\nGood .\t1\n")
    assert line(read, tmp_path) == (
        f"{file}: invalid Parquet file: got other bytes, expected PAR1 at the start; save or download it again"
    )
    cola(tmp_path, "b.arrow", [1])
    file.write_bytes((tmp_path / "b.arrow").read_bytes())
    assert "got an Arrow file; use a format of kind datasets for its directory" in line(read, tmp_path)
    cola(tmp_path, "a.parquet", [1])
    whole = file.read_bytes()
    for damaged in (whole[:-20], whole[:4] + b"\0" * 40 + whole[44:]):
        file.write_bytes(damaged)
        assert "a.parquet: damaged after row 0 (" in line(read, tmp_path)
    write(tmp_path / "data/train-00000-of-00001.parquet", {"a": ["x"]})
    (tmp_path / "data/train-00000-of-00001.parquet").write_text("text")
    saved = task(ACCEPTABLE, "data", DatasetsFormat(split="train"))
    assert line(saved, tmp_path).endswith("expected Parquet or Arrow; save or download it again")
    absent = task(ACCEPTABLE, "data", DatasetsFormat(split="test"))
    assert line(absent, tmp_path) == (
        f"{tmp_path}: no such file: data (a dataset with split test); set the directory with --task-data-dir"
    )


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], ["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=r"ambiguous column: 2 columns are named 'a'; rename the others"):
        files.read(tmp_path, "a.parquet", ParquetFormat())


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    column = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=r"a\.parquet: "):
        files.read(tmp_path, "a.parquet", ParquetFormat())


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([10**8], pa.date32()), "column x: a value cannot be read (OverflowError: date value out of range); "),
        (pa.array([1], pa.timestamp("s", "Mars/Phobos")), "column x: a value cannot be read ("),
    ],
)
def test_a_value_that_python_does_not_have_is_named(column: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": column})
    with pytest.raises(BadInput) as caught:
        files.read(tmp_path, "a.parquet", ParquetFormat())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
