"""Files of cleaned documents, written by the text job and read by the corpus job."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.text import text_key

COLUMNS: Final = pa.schema(
    [
        *(("text", pa.string()), ("source", pa.string()), ("key", pa.binary(16)), ("spans", pa.list_(pa.int32()))),
        ("check", pa.uint64()),  # checksum of the columns that the key does not cover
    ]
)
_BATCH_BYTES: Final = 4 << 20


class Document(NamedTuple):
    text: str
    source: str
    key: bytes  # xxh3-128 of the text
    spans: tuple[int, ...] = ()  # start, stop, start, stop, ... in characters of the text


def write_documents(part: Path, documents: Iterable[Document]) -> None:
    """Write documents to an Arrow file, a few MB of them at a time."""

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, COLUMNS) as writer:
            for batch in _batches(documents):
                writer.write_batch(batch)

    write_atomic(part, write)


def _batches(documents: Iterable[Document]) -> Iterator[pa.RecordBatch]:
    rows, size = list[Document](), 0
    for document in documents:
        rows.append(document)
        size += len(document.text)
        if size >= _BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[Document]) -> pa.RecordBatch:
    columns = [*zip(*rows, strict=True), [_check(row) for row in rows]]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)], COLUMNS
    )


def _check(document: Document) -> int:
    return xxhash.xxh3_64_intdigest(repr((document.key, document.source, document.spans)).encode())


def batches(part: Path) -> Iterator[pa.RecordBatch]:
    """The documents of a part in memory-mapped batches of a few MB. Raises ArrowInvalid or OSError if it is damaged."""
    with pa.memory_map(str(part)) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def documents(batch: pa.RecordBatch) -> Iterator[Document]:
    """The documents of a batch."""
    text, source, key, spans = (batch.column(name).to_pylist() for name in COLUMNS.names[:-1])
    for values in zip(text, source, key, spans, strict=True):
        yield Document(values[0], values[1], values[2], tuple(values[3]))


def rows_of(part: Path, row_K: np.ndarray) -> list[pa.RecordBatch]:
    """Copies of the rows with these indices (ascending). Raises BadInput if the part is missing or damaged."""
    try:
        taken, first = list[pa.RecordBatch](), 0
        for batch in batches(part):
            here = row_K[np.searchsorted(row_K, first) : np.searchsorted(row_K, first + batch.num_rows)] - first
            batch.validate()
            if not batch.schema.equals(COLUMNS):
                raise make_damage_error(part)
            if len(here):
                if not all(_in_bounds(batch.column(name), here) for name in ("text", "source", "spans")):
                    raise make_damage_error(part)
                taken.append(batch.take(pa.array(here)))
            first += batch.num_rows
        if sum(batch.num_rows for batch in taken) == len(row_K):
            return taken
    except (OSError, pa.ArrowException):
        pass
    raise make_damage_error(part)


def _in_bounds(column: pa.Array, row_K: np.ndarray) -> bool:
    """Whether the offsets of rows are inside of a column. pyarrow does not check this, e.g. after a bit flip."""
    offset_N1 = np.frombuffer(column.buffers()[1], np.int32)[column.offset :]
    start_K, stop_K = offset_N1[row_K], offset_N1[row_K + 1]
    size = len(column.values) if pa.types.is_list(column.type) else column.buffers()[2].size
    return bool((start_K >= 0).all() and (start_K <= stop_K).all() and (stop_K <= size).all())


def document_at(batch: pa.RecordBatch, row: int, part: Path) -> Document:
    """A row of a batch of `part`. Raises BadInput if the row is damaged."""
    try:
        text, source, key, spans, check = (batch.column(name)[row].as_py() for name in COLUMNS.names)
        document = Document(text, source, key, tuple(spans))
        if text_key(text) == key and _check(document) == check:
            return document
    except (TypeError, ValueError):  # invalid UTF-8 or a missing value
        pass
    raise make_damage_error(part)


def make_damage_error(part: Path) -> BadInput:
    """The one-line error for a part that cannot be used."""
    return BadInput(
        f"{part}: missing or damaged; delete {part.with_name('text.json')} and repeat the command (complete parts are "
        "reused)"
    )
