"""Texts in memory -> one Arrow file, named after its content, that a `table` source reads.

Sesame reads its text several times and in several processes, so objects of Python are written once. The name of the
file is a hash of the texts, and its time is fixed: the same texts are the same source, also after another process has
written them. Texts are read one by one, so a generator or an iterable dataset needs no memory for all of them.

No library of tables is imported: an object is recognized by its methods.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from preprocessing.errors import BadInput, with_article
from preprocessing.files import TEMPORARY, write_atomic

_SCHEMA: Final = pa.schema([("text", pa.string())])
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 10_000
_ROWS_AT_ONCE: Final = 1000
_TIME: Final = 946_684_800  # 2000-01-01: a source with another time of change has another hash
_TEXT: Final = "text"
_TRAIN: Final = "train"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STRINGS: Final = ("string", "large_string", "string_view")
_NO_ROW: Final = object()
_LONGEST_STEP: Final = 255  # bytes of a file name
_LONGEST_PATH: Final = 4095
_EXPECTED: Final = (
    "a path, the name of a corpus, a list of them, or texts: a Dataset, a DataFrame, an Arrow table, or an iterable of "
    "strings or mappings"
)


def is_in_memory(data: object) -> bool:
    """Whether `data` has texts, and not paths. A string, a path, and a list or tuple of them are paths.

    A list of strings has texts only if at least one of them cannot be a path, because it has several lines or is too
    long, and none of them exists. `iter(texts)` is never a list of paths.

    >>> is_in_memory("my text"), is_in_memory(["a.txt", "b.txt"]), is_in_memory(iter(["One text."]))
    (False, False, True)
    >>> is_in_memory([{"text": "One text."}]), is_in_memory(["One text.", "Another text.\\nIt has two lines."])
    (True, True)
    """
    if data is None or isinstance(data, str | bytes | PathLike | int | float):
        return False
    if not isinstance(data, list | tuple):
        return True
    if any(isinstance(one, Mapping) for one in data):
        return True
    words = [one for one in data if isinstance(one, str)]
    are_strings = 0 < len(words) == len(data)
    return are_strings and any(map(_is_no_path, words)) and not any(map(os.path.lexists, words))


def _is_no_path(word: str) -> bool:
    steps = (len(step.encode(errors="replace")) for step in word.split("/"))
    return "\n" in word or "\0" in word or len(word) > _LONGEST_PATH or max(steps) > _LONGEST_STEP


def save_texts(data: object, folder: Path, text_key: str = "") -> tuple[Path, str]:
    """Write the texts of `data` to a file in `folder`; returns its path, and a line about what was read.

    `text_key` is the column or key of the text; "" selects `text`, or the only column of strings. Raises BadInput for
    an object without texts, and for the first row whose text is not a string.
    """
    texts, what = _open_texts(data, text_key)
    digest, counts = hashlib.sha256(), [0]

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, _SCHEMA) as writer:
            for batch in _batches(_require_strings(texts)):
                for text in batch:
                    digest.update(len(text).to_bytes(8, "little") + text)
                counts[0] += len(batch)
                writer.write_batch(pa.record_batch([pa.array(batch, pa.binary()).cast(pa.string())], _SCHEMA))
        if not counts[0]:
            raise BadInput(f"invalid data: got {what} without a row, expected one or more texts; pass other texts")

    temporary = folder / f"{TEMPORARY}texts-{uuid.uuid4().hex}"
    write_atomic(temporary, write)
    path = folder / f"texts-{digest.hexdigest()[:16]}.arrow"
    if path.exists():
        temporary.unlink()
    else:
        os.utime(temporary, (_TIME, _TIME))
        os.replace(temporary, path)
    rows = f"{counts[0]:,} texts" if counts[0] > 1 else "1 text"
    return path, f"data: {rows} from {what}, written to {path}"


def _require_strings(texts: Iterable[Any]) -> Iterator[bytes]:
    """The texts in UTF-8; unpaired surrogates become U+FFFD. Raises BadInput with the row number for a non-string."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            got = repr(text) if isinstance(text, int | float | None) else with_article(type(text).__name__)
            raise BadInput(f"invalid data: got {got} in row {row:,}, expected text; remove or correct this row")
        try:
            yield text.encode()
        except UnicodeEncodeError:
            yield _SURROGATE.sub("\ufffd", text).encode()


def _batches(texts: Iterator[bytes]) -> Iterator[list[bytes]]:
    rows, size = list[bytes](), 0
    for text in texts:
        rows.append(text)
        size += len(text)
        if size >= _BATCH_BYTES or len(rows) == _BATCH_ROWS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _open_texts(data: Any, text_key: str) -> tuple[Iterable[Any], str]:
    """The values of the text column of an object, and the name of its type with the column."""
    what = with_article(type(data).__name__)
    if isinstance(data, Mapping):
        return _texts_of_split(data, text_key, what)
    if hasattr(data, "select_columns") and hasattr(data, "with_format"):  # datasets.Dataset, datasets.IterableDataset
        return _texts_of_dataset(data, text_key, what)
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas.DataFrame
        names = [str(name) for name in data.columns]
        strings = [name for at, name in enumerate(names) if _has_strings(data.iloc[:, at])]
        key = _choose(names, strings, text_key, what)
        return data.iloc[:, names.index(key)], f"{what}, column {key!r}"
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # polars.LazyFrame
        raise BadInput(f"invalid data: got {what}, expected rows; pass data.collect()")
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return (value.as_py() for value in data), what
    if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "to_list"):  # an Arrow table or reader; polars, duckdb
        return _texts_of_stream(pa.RecordBatchReader.from_stream(data), text_key, what)
    if isinstance(data, pa.RecordBatch):
        return _texts_of_stream(pa.Table.from_batches([data]).to_reader(), text_key, what)
    if any(hasattr(data, name) for name in ("columns", "column_names", "schema")):  # iterating may give its columns
        raise BadInput(f"invalid data: got {what}, expected {_EXPECTED}; convert it to one of these")
    if isinstance(data, Set):
        raise BadInput(f"invalid data: got {what}, expected texts in an order; pass sorted(data)")
    if isinstance(data, Iterable):
        return _texts_of_rows(iter(data), text_key, what)
    raise BadInput(f"invalid data: got {what}, expected {_EXPECTED}; change the argument")


def _has_strings(column: Any) -> bool:
    return next((isinstance(value, str) for value in column if value is not None and value == value), False)


def _texts_of_split(data: Mapping[Any, Any], text_key: str, what: str) -> tuple[Iterable[Any], str]:
    """The texts of one split of a dictionary of datasets: `train`, or the only one."""
    if not data or not all(hasattr(one, "with_format") for one in data.values()):
        remedy = "pass a list of mappings, e.g. [{'text': ...}], or a table of a library"
        raise BadInput(f"invalid data: got {what}, expected {_EXPECTED}; {remedy}")
    names = [str(name) for name in data]
    split = _TRAIN if _TRAIN in names else names[0]
    if split != _TRAIN and len(names) > 1:
        raise BadInput(
            f"invalid data: got {what} with the splits {', '.join(names)}, expected one named {_TRAIN}; pass data[NAME]"
        )
    texts, of_split = _texts_of_dataset(data[split], text_key, f"{what}, split {split!r}")
    others = ", ".join(name for name in names if name != split)
    return texts, of_split + (f" (not read: {others})" if others else "")


def _texts_of_dataset(data: Any, text_key: str, what: str) -> tuple[Iterable[Any], str]:
    names = data.column_names
    if getattr(data, "format", {}).get("type") == "custom":  # `with_transform` makes the rows as they are read
        return _texts_of_rows(iter(data), text_key, what)
    if names is None:  # an iterable dataset without features
        return _texts_of_rows(iter(data.with_format(None)), text_key, what)
    features = data.features or {}
    strings = [name for name in names if getattr(features.get(name), "dtype", "") in _STRINGS]
    key = _choose(names, strings, text_key, what)
    batches = data.select_columns([key]).with_format(None).iter(batch_size=_ROWS_AT_ONCE)
    return chain.from_iterable(batch[key] for batch in batches), f"{what}, column {key!r}"


def _texts_of_stream(reader: pa.RecordBatchReader, text_key: str, what: str) -> tuple[Iterable[Any], str]:
    strings = [field.name for field in reader.schema if str(field.type) in _STRINGS]
    key = _choose(reader.schema.names, strings, text_key, what)
    at = reader.schema.names.index(key)
    return chain.from_iterable(batch.column(at).to_pylist() for batch in reader), f"{what}, column {key!r}"


def _texts_of_rows(rows: Iterator[Any], text_key: str, what: str) -> tuple[Iterable[Any], str]:
    """The texts of strings, or of mappings that all have the same text key."""
    first = next(rows, _NO_ROW)
    if not isinstance(first, Mapping):
        return ([] if first is _NO_ROW else chain([first], rows)), what
    key = _choose(list(first), [name for name, value in first.items() if isinstance(value, str)], text_key, what)
    return (_value(row, key, number) for number, row in enumerate(chain([first], rows))), f"{what}, key {key!r}"


def _value(row: Any, key: str, number: int) -> Any:
    if not isinstance(row, Mapping) or key not in row:
        got = (
            f"keys {', '.join(map(repr, list(row)[:8]))}"
            if isinstance(row, Mapping)
            else with_article(type(row).__name__)
        )
        raise BadInput(f"invalid data: got {got} in row {number:,}, expected the key {key!r}; correct this row")
    return row[key]


def _choose(names: Sequence[Any], strings: Sequence[Any], text_key: str, what: str) -> Any:
    """The column of the text: `text_key`, `text`, or the only one of strings.

    Raises BadInput if there is none, or if two columns have its name.
    """
    wanted = text_key or _TEXT
    if wanted not in names and not text_key and len(strings) == 1:
        wanted = strings[0]
    if (count := list(names).count(wanted)) > 1:
        raise BadInput(f"invalid data: got {what} with {count} columns {wanted!r}, expected one; rename the others")
    if count:
        return wanted
    listed = ", ".join(map(repr, names[:8])) or "none"
    raise BadInput(
        f"invalid data: got {what} without the column {wanted!r}, expected one of {listed}; select it with "
        "text_key=NAME"
    )
