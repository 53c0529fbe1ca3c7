"""Tables -> one document per row, by pyarrow: Parquet, Arrow files and streams, and saved Hugging Face datasets.

A part is a row group (Parquet) or a record batch (Arrow). Complete batches of a truncated Arrow file are read. A
truncated Parquet file cannot be read, because its metadata is at the end.
"""

import glob
import json
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import pyarrow as pa

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import (
    TORN,
    InputFile,
    Sides,
    find,
    is_text,
    is_url,
    local,
    open_stored,
    raise_if_ours,
    read_stored_head,
)
from pipeline.readers.jsonl import as_spans, check_field
from pipeline.readers.metadata import require_fields, require_present, to_text
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import SNIPPET, Record
from pipeline.readers.zip_archive import is_member
from preprocessing.errors import BadInput
from preprocessing.spec import key, spec
from preprocessing.text import decode

# pyarrow.parquet and pyarrow.compute are imported inside of functions: they take 60 ms, which checks do not need.
_PARQUET: Final = b"PAR1"
_ARROW_FILE: Final = b"ARROW1\x00\x00"
_SPLIT: Final = "train"
_LISTS: Final = {"state.json": "_data_files", "dataset_dict.json": "splits"}  # files of a saved dataset and their lists
_ROWS: Final = 256  # rows of a row group read at a time


@spec
class TableReader(FileReader):
    """Parquet or Arrow files, or a dataset saved by Hugging Face `datasets`; each row is a document."""

    names: ClassVar[tuple[str, ...]] = ("table",)
    leads: ClassVar[tuple[str, ...]] = (".parquet", ".arrow", ".arrows", ".feather", ".ipc")
    usual: ClassVar[tuple[str, ...]] = leads
    metadata_fields: ClassVar[tuple[str, ...] | None] = None

    kind: Literal["table"] = "table"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    text_key: str = key(default="text", doc="Name of the text column.")
    spans_key: str = key(default="", doc="Column of the phrase positions: [[start, stop], ...] in characters.")
    url_key: str = key(default="", doc="Column of the URL of each document, for clean.urls.")
    split: str = key(default=_SPLIT, doc="Split of a dataset directory with several splits.")
    keep: tuple[str, ...] = key(default=(), doc="Columns to keep as metadata, e.g. [url, id].")

    def __post_init__(self) -> None:
        require_fields("table", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        if sample.first and is_saved(sample.path):
            have = columns(files_of_saved_dataset(sample.path, _SPLIT)[0])
        elif is_table(sample.stored):
            have = columns(sample.file)
        else:
            return None
        check_field(sample.path, have, sample.field)
        _check_once(sample.path, have, sample.field)
        return cls(path=sample.path)

    def describe(self) -> str:
        others = self._list_other_splits()
        what = f"it, pass --data {self.path}/{others[0]}" if len(others) == 1 else f"one, pass --data {self.path}/SPLIT"
        left = f", split {self.split!r}; not read: {', '.join(others)} (to read {what})" if others else ""
        return f"{self.path}: read as table{left}"

    def _list_other_splits(self) -> list[str]:
        return [name for name in splits_of(self.path) if name != self.split]

    def list_left_out(self) -> list[InputFile]:
        """The tables of the other splits of a directory saved by `datasets`."""
        found = list[InputFile]()
        for name in self._list_other_splits():
            with suppress(BadInput):  # a split whose files are missing has none to report
                found += files_of_saved_dataset(self.path, name)
        return found

    @property
    def of_folder(self) -> bool:
        return is_saved(self.path)

    def files(self) -> list[Sides]:
        """The tables at the path. For a directory saved by `datasets`, the listed files only: others are its caches."""
        found = files_of_saved_dataset(self.path, self.split) if is_saved(self.path) else find(self.path, self.usual)
        return [(file,) for file in found]

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        (file,) = sides
        start = read_stored_head(file.path) if file.size else b""
        if len(start) > len(_ARROW_FILE) and is_text(start) and not is_table(start):
            raise BadInput(
                f"{file.path}: invalid table: got text, expected Parquet or Arrow; select a text format instead of "
                "`table`"
            )
        return ranges_of_parts(file, part_sizes(file, self), step)

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        return documents(piece.file, piece.start, piece.stop, self, limit)


class Batch(NamedTuple):
    part: int
    row: int  # index of the first row
    columns: pa.RecordBatch


def is_table(start: bytes) -> bool:
    """Whether these are the first bytes of a table: Parquet, an Arrow file or an Arrow stream."""
    return start.startswith((_PARQUET, _ARROW_FILE, b"\xff\xff\xff\xff"))


def files_of_saved_dataset(path: str, split: str = "train") -> list[InputFile]:
    """Files that a directory saved by `datasets` lists. Raises BadInput if there are none or the split is missing."""
    found = list[InputFile]()
    for folder in _find_saved(path, split):
        prefix = folder[len(path) :].strip("/")
        for name in _read_list(folder, "state.json"):
            (file,) = find(posixpath.join(folder, name))
            found.append(file._replace(label=posixpath.join(prefix, name)))
    if not found:
        raise BadInput(f"{path}: dataset without files; save it again or pass another")
    return sorted(found)


def is_saved(path: str) -> bool:
    """Whether a path is a directory saved by `datasets`: a dataset, or a dictionary of splits."""
    return not glob.has_magic(path) and any(_holds(path, name) for name in ("state.json", "dataset_dict.json"))


def _holds(folder: str, name: str) -> bool:
    try:
        return bool(find(posixpath.join(folder, name)))
    except BadInput:
        return False


def splits_of(path: str) -> list[str]:
    """The splits of a directory saved by `datasets` as a dictionary; [] for any other path."""
    if glob.has_magic(path) or not _holds(path, "dataset_dict.json"):
        return []
    return _read_list(path, "dataset_dict.json")


def _find_saved(path: str, split: str) -> list[str]:
    """The directories of a dataset saved by `datasets`; for a dictionary of splits, that of one split."""
    have = splits_of(path)
    if not have:
        return [path]
    if split not in have:
        raise BadInput(
            f"{path}: invalid split: got {split!r}, expected one of {', '.join(have)}; set `split` of the "
            f"source, or pass --data {path}/{have[0]}"
        )
    return [posixpath.join(path, split)]


def _read_list(folder: str, name: str) -> list[str]:
    """The list in a JSON file of a dataset. Raises BadInput if it is missing."""
    path = local(posixpath.join(folder, name))
    try:
        with open_stored(path) as file:
            found = list(json.load(file)[_LISTS[name]])
        return [str(each["filename"] if isinstance(each, dict) else each) for each in found]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadInput(f"{path}: not a valid file of the library `datasets`; save the dataset again") from None


def columns(file: InputFile) -> list[str] | None:
    """The names of the columns; None if the file cannot be opened."""
    import pyarrow.parquet as pq

    try:
        with _open(file.path) as stored:
            return list((pq.read_schema(stored) if _starts(stored, _PARQUET) else _stream(stored).schema).names)
    except TORN as error:
        raise_if_ours(error)
        return None


def part_sizes(file: InputFile, source: TableReader) -> list[int]:
    """Approximate size of each part in bytes; [] if the file is damaged. Raises BadInput if a column is missing."""
    have = columns(file)
    if have is None:
        return []
    for name in filter(None, (source.text_key, source.spans_key, source.url_key)):
        if name not in have:
            listed = ", ".join(map(repr, have[:8])) or "none"
            raise BadInput(
                f"{file.path}: missing column {name!r}, expected one of {listed}; set `text_key` of the source"
            )
        _check_once(file.path, have, name)
    require_present(file.path, source.keep, have)
    for name in source.keep:
        _check_once(file.path, have, name)
    try:
        with _open(file.path) as stored:
            return _parquet_sizes(stored) if _starts(stored, _PARQUET) else _arrow_sizes(file, stored)
    except TORN as error:
        raise_if_ours(error)
        return []


def _check_once(path: str, have: list[str] | None, name: str) -> None:
    """Raise BadInput if several columns have this name."""
    if have is not None and have.count(name) > 1:
        raise BadInput(f"{path}: ambiguous column: {have.count(name)} columns are named {name!r}; rename the others")


def _parquet_sizes(stored: pa.NativeFile) -> list[int]:
    import pyarrow.parquet as pq

    metadata = pq.ParquetFile(stored).metadata
    return [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]


def _arrow_sizes(file: InputFile, stored: pa.NativeFile) -> list[int]:
    number = sum(1 for _ in _arrow_batches(stored, [])) if not is_url(file.path) else 1
    return [file.size // max(1, number)] * number


def ranges_of_parts(file: InputFile, sizes: list[int], step: int) -> Iterator[FileRange]:
    """Consecutive parts of a table in ranges of about `step` bytes."""
    if sum(sizes) < 1.5 * step:
        yield FileRange(file, 0, None, max(file.size, sum(sizes)))
        return
    start, weight = 0, 0
    for part, size in enumerate(sizes, start=1):
        weight += size
        if weight >= step or part == len(sizes):
            yield FileRange(file, start, part if part < len(sizes) else None, weight)
            start, weight = part, 0


def documents(file: InputFile, start: int, stop: int | None, source: TableReader, limit: int) -> Iterator[Record]:
    """The rows in parts [start, stop) of a table as records. Texts of more than `limit` bytes are omitted."""
    row = 0
    try:
        with _open(file.path) as stored:
            wanted = (source.text_key, source.spans_key, source.url_key, *source.keep)
            names = list(dict.fromkeys(filter(None, wanted)))
            parquet = _starts(stored, _PARQUET)
            batches = _parquet_batches(stored, names, start, stop) if parquet else _arrow_batches(stored, names)
            for batch in batches:
                row = batch.row
                if stop is not None and batch.part >= stop:
                    return
                if batch.part >= start:
                    yield from _rows(file.label, batch, source, limit)
                row += batch.columns.num_rows
    except TORN as error:
        raise_if_ours(error)
        yield Record(file.label, 0, fault="truncated", start=row)


def _open(path: str) -> pa.NativeFile:
    return pa.PythonFile(open_stored(path)) if is_url(path) or is_member(path) else pa.OSFile(path)


def _starts(stored: pa.NativeFile, mark: bytes) -> bool:
    stored.seek(0)
    start = stored.read(len(mark))
    stored.seek(0)
    return start == mark


def _parquet_batches(stored: pa.NativeFile, names: list[str], start: int, stop: int | None) -> Iterator[Batch]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(stored, buffer_size=1 << 20)
    groups = range(table.metadata.num_row_groups)
    row = sum(table.metadata.row_group(group).num_rows for group in groups[:start])
    for group in groups[start:stop]:
        for columns in table.iter_batches(_ROWS, row_groups=[group], columns=names, use_threads=False):
            yield Batch(group, row, columns)
            row += columns.num_rows


def _stream(stored: pa.NativeFile, fields: list[int] | None = None) -> Any:
    """The stream of batches with selected columns. An Arrow file is a stream after its signature."""
    stored.seek(len(_ARROW_FILE) if _starts(stored, _ARROW_FILE) else 0)
    return pa.ipc.open_stream(stored, options=pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields))


def _arrow_batches(stored: pa.NativeFile, names: list[str]) -> Iterator[Batch]:
    row = 0
    fields = [_stream(stored).schema.names.index(name) for name in names]
    for part, columns in enumerate(_stream(stored, fields or [0])):  # an empty list would select all columns
        yield Batch(part, row, columns)
        row += columns.num_rows


def _rows(label: str, batch: Batch, source: TableReader, limit: int) -> Iterator[Record]:
    import pyarrow.compute as pc

    texts = _as_binary(batch.columns.column(source.text_key))
    if texts is None:
        yield from (
            Record(label, 0, fault="not_a_string", start=batch.row + row) for row in range(batch.columns.num_rows)
        )
        return
    ranges = batch.columns.column(source.spans_key) if source.spans_key else None
    addresses = batch.columns.column(source.url_key) if source.url_key else None
    kept = {name: _as_texts(batch.columns.column(name)) for name in source.keep}
    for row, size in enumerate(pc.binary_length(texts).to_pylist()):
        at = batch.row + row
        if size is None:
            yield Record(label, 0, fault="not_a_string", start=at)
            continue
        content = texts[row].as_buffer()
        text, repaired = decode(bytes(content)) if size <= limit else ("", 0)
        found = as_spans(ranges[row].as_py(), text) if ranges is not None and size <= limit else ()
        if why := "too_long" if size > limit else "bad_spans" if found is None else "":
            yield Record(label, size, fault=why, start=at, snippet=bytes(content[:SNIPPET]))
        else:
            address = addresses[row].as_py() if addresses is not None else ""
            address = address if isinstance(address, str) else ""
            record = Record(label, size, text, repaired, start=at, spans=found or (), url=address)
            values = {name: column[row] for name, column in kept.items()}
            yield record._replace(metadata=values) if kept else record


def _as_texts(column: pa.Array) -> list[str | None]:
    """A column of any type as texts, None for null. Offsets are validated, because a file may be damaged."""
    column.validate(full=True)
    kind = column.type
    if not any(is_kind(kind) for is_kind in (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary)):
        with suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):
            column = column.cast(pa.large_string())
    return [to_text(value) for value in column.to_pylist()]


def _as_binary(column: pa.Array) -> pa.Array | None:
    """A string column as bytes, with validated offsets (a damaged file must not be read beyond its end); else None."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        column = column.view(pa.large_binary())
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
    else:
        return None
    column.validate(full=True)
    return column
