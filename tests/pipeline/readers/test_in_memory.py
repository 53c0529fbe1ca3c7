"""Texts in memory become one file; equal texts in any object become equal files."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.readers import TableReader, is_in_memory, plan_splits, records, save_texts
from pipeline.readers.in_memory import _BATCH_ROWS
from preprocessing.errors import BadInput

TEXTS = ["One text.", "Two lines.\nAnd more.", "", "\u00fc \U0001f600"]


def _dataset() -> Any:
    import datasets  # slow to import

    return datasets.Dataset.from_dict({"number": list(range(4)), "text": TEXTS})


def _iterable(names_known: bool) -> Any:
    import datasets

    known = _dataset().to_iterable_dataset()
    return known if names_known else datasets.IterableDataset.from_generator(lambda: ({"text": text} for text in TEXTS))


def _splits() -> Any:
    import datasets

    return datasets.DatasetDict({"test": _dataset().select([0]), "train": _dataset()})


def _data_frame(name: str = "text") -> Any:
    import pandas as pd

    return pd.DataFrame({"number": range(4), name: TEXTS})


TABLE = pa.table({"number": range(4), "text": TEXTS})
OBJECTS: dict[str, Callable[[], Any]] = {
    "dataset": _dataset,
    "iterable_dataset": lambda: _iterable(True),
    "iterable_dataset_without_features": lambda: _iterable(False),
    "dataset_dict": _splits,
    "data_frame": _data_frame,
    "data_frame_with_one_string_column": lambda: _data_frame("body"),
    "series": lambda: _data_frame()["text"],
    "table": lambda: TABLE,
    "reader": TABLE.to_reader,
    "record_batch": lambda: TABLE.to_batches()[0],
    "large_strings": lambda: TABLE.cast(pa.schema([("number", pa.int64()), ("text", pa.large_string())])),
    "array": lambda: pa.array(TEXTS),
    "chunked_array": lambda: pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    "mappings": lambda: [{"text": text} for text in TEXTS],
    "other_key": lambda: ({"body": text, "number": 1} for text in TEXTS),
    "generator": lambda: (text for text in TEXTS),
    "iterator": lambda: iter(TEXTS),
    "list": lambda: TEXTS,
}


def _texts(path: Path) -> list[str]:
    return [record.text for split in plan_splits([TableReader(path=str(path))]) for record in records(split, 10**6)]


@pytest.mark.parametrize("name", OBJECTS)
def test_equal_texts_of_any_object_are_the_same_file(name: str, tmp_path: Path) -> None:
    expected, _ = save_texts(iter(TEXTS), tmp_path / "expected")
    data = OBJECTS[name]()
    assert is_in_memory(data)
    path, note = save_texts(data, tmp_path)
    assert path.name == expected.name
    assert path.read_bytes() == expected.read_bytes()
    assert path.stat().st_mtime_ns == expected.stat().st_mtime_ns
    assert _texts(path) == TEXTS
    assert note.startswith("data: 4 texts from a")
    assert note.endswith(f"written to {path}")


def test_the_column_is_named_with_the_splits_that_are_not_read(tmp_path: Path) -> None:
    assert "split 'train', column 'text' (not read: test)" in save_texts(_splits(), tmp_path)[1]
    frame = _data_frame()
    frame["title"] = ["a", "b", "c", "d"]
    assert "column 'title'" in save_texts(frame, tmp_path, "title")[1]


def test_a_text_beyond_one_batch_is_read_completely_without_keeping_all_of_it(tmp_path: Path) -> None:
    alive, most = 0, 0

    class Text(str):
        def __init__(self, _: str) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    num = 3 * _BATCH_ROWS + 5
    path, _ = save_texts((Text(f"Text {number}.") for number in range(num)), tmp_path)
    assert most < 10
    assert len(_texts(path)) == num
    assert pa.ipc.open_file(pa.memory_map(str(path))).num_record_batches == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: iter(["x", None]), "got None in row 1, expected text"),
        (lambda: iter(["x", 3]), "got 3 in row 1"),
        (lambda: iter(["x", b"y"]), "got a bytes in row 1"),
        (lambda: [{"text": "x"}, {"text": None}], "got None in row 1"),
        (lambda: [{"text": "x"}, {"body": "y"}], "got keys 'body' in row 1, expected the key 'text'"),
        (lambda: [{"text": "x"}, "y"], "got a str in row 1, expected the key 'text'"),
        (lambda: pa.table({"text": ["x", None]}), "got None in row 1"),
        (lambda: _data_frame().assign(text=["x", None, float("nan"), "y"]), "got (None|nan) in row 1"),
        (lambda: pa.table({"a": ["x"], "b": ["y"]}), "without the column 'text', expected one of 'a', 'b'; select"),
        (lambda: pa.table({"a": [1]}), "without the column 'text', expected one of 'a'; select"),
        (lambda: iter([]), "got a list_iterator without a row"),
        (lambda: {"text": ["x"]}, r"got a dict, expected .*; pass a list of mappings"),
        (lambda: {"b", "a"}, r"got a set, expected texts in an order; pass sorted\(data\)"),
        (lambda: object(), "got an object, expected a path"),
    ],
)
def test_an_object_without_texts_is_refused_in_one_line_and_leaves_no_file(
    data: Callable[[], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        save_texts(data(), tmp_path)
    assert str(caught.value).startswith("invalid data: ")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_generator_is_raised_and_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield "One."
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        save_texts(broken(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unpaired_surrogate_becomes_a_replacement_character(tmp_path: Path) -> None:
    path, _ = save_texts(iter(["a\ud800b"]), tmp_path)
    assert _texts(path) == ["a\ufffdb"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a text", False),
        (Path("a"), False),
        ((), False),
        ([], False),
        (["a.txt", "b.txt"], False),
        (["Call me Ishmael."], False),
        (["Call me Ishmael.", "x" * 300], True),
        (["Two lines.\nA text."], True),
        ([Path("a"), "Two lines.\nA text."], False),
        ([{"text": "x"}], True),
        (b"x", False),
        (None, False),
    ],
)
def test_strings_are_paths_unless_one_of_a_list_cannot_be_one(data: Any, expected: bool) -> None:
    assert is_in_memory(data) is expected


def test_no_library_of_tables_is_imported() -> None:
    import subprocess

    code = "import sys, pipeline.readers; print({'pandas', 'datasets', 'polars'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame([["a", "b", 1]], columns=["text", "text", "x"])
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array([1])], names=["body", "body"])
    for data, columns in ((frame, "2 columns 'text'"), (table, "2 columns 'body'")):
        with pytest.raises(
            BadInput, match=rf"^invalid data: got a \w+ with {columns}, expected one; rename the others$"
        ):
            save_texts(data, tmp_path)
    assert not [*tmp_path.iterdir()]
    path, _ = save_texts(pd.DataFrame([[1, "a"]], columns=["x", 0]), tmp_path)
    assert _texts(path) == ["a"]


def test_a_first_row_without_text_is_named_and_not_the_end(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^invalid data: got None in row 0, expected text"):
        save_texts(iter([None, "One text."]), tmp_path)


def test_the_transform_of_a_dataset_is_applied(tmp_path: Path) -> None:
    shouted = _dataset().with_transform(lambda batch: {"text": [text.upper() for text in batch["text"]]})
    path, _ = save_texts(shouted, tmp_path)
    assert _texts(path) == [text.upper() for text in TEXTS]
