"""Files of cleaned documents, written by the text job and read by the corpus job."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.schema import NO_METADATA, Metadata
from preprocessing.shards import METADATA, metadata_type
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
    metadata: Metadata = NO_METADATA  # values of the fields that the source keeps


def write_documents(part: Path, documents: Iterable[Document], fields: Sequence[str] = ()) -> None:
    """Write documents to an Arrow file, a few MB of them at a time. `fields` are the fields of their metadata."""
    schema = COLUMNS.append(pa.field(METADATA, metadata_type(fields))) if fields else COLUMNS

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in _batches(documents, schema):
                writer.write_batch(batch)

    write_atomic(part, write)


def _batches(documents: Iterable[Document], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows, size = list[Document](), 0
    for document in documents:
        rows.append(document)
        size += len(document.text) + sum(len(value or "") for value in document.metadata.values())
        if size >= _BATCH_BYTES:
            yield _batch(rows, schema)
            rows, size = [], 0
    if rows:
        yield _batch(rows, schema)


def _batch(rows: list[Document], schema: pa.Schema) -> pa.RecordBatch:
    *columns, metadata = zip(*rows, strict=True)
    values = [*columns, [_check(row) for row in rows], metadata][: len(schema)]
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema)


def _check(document: Document) -> int:
    covered: tuple[object, ...] = (document.key, document.source, document.spans)
    if document.metadata:
        covered = (*covered, sorted(document.metadata.items()))
    return xxhash.xxh3_64_intdigest(repr(covered).encode())


def origin_hash(source: str, metadata: Metadata) -> int:
    """xxh3-64 of the name of a source and of the metadata of one of its documents."""
    return xxhash.xxh3_64_intdigest((source if not metadata else repr((source, sorted(metadata.items())))).encode())


def fields_of(part: Path) -> tuple[str, ...]:
    """The fields of the metadata in a part; () if it has none."""
    with pa.memory_map(str(part)) as file:
        schema = pa.ipc.open_file(file).schema
    return tuple(field.name for field in schema.field(METADATA).type) if METADATA in schema.names else ()


def batches(part: Path) -> Iterator[pa.RecordBatch]:
    """The documents of a part in memory-mapped batches of a few MB. Raises ArrowInvalid or OSError if it is damaged."""
    with pa.memory_map(str(part)) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def documents(batch: pa.RecordBatch) -> Iterator[Document]:
    """The documents of a batch."""
    text, source, key, spans = (batch.column(name).to_pylist() for name in COLUMNS.names[:-1])
    metadata = metadata_of(batch)
    for values in zip(text, source, key, spans, metadata, strict=True):
        yield Document(values[0], values[1], values[2], tuple(values[3]), values[4])


def metadata_of(batch: pa.RecordBatch) -> list[Metadata]:
    """The metadata of each document of a batch."""
    return batch.column(METADATA).to_pylist() if METADATA in batch.schema.names else [NO_METADATA] * batch.num_rows


def rows_of(part: Path, row_K: np.ndarray) -> list[pa.RecordBatch]:
    """Copies of the rows with these indices (ascending). Raises BadInput if the part is missing or damaged."""
    try:
        taken, first = list[pa.RecordBatch](), 0
        for batch in batches(part):
            here = row_K[np.searchsorted(row_K, first) : np.searchsorted(row_K, first + batch.num_rows)] - first
            batch.validate()
            if not _is_schema(batch.schema):
                raise make_damage_error(part)
            if len(here):
                columns = [batch.column(name) for name in ("text", "source", "spans")]
                if METADATA in batch.schema.names:
                    columns += batch.column(METADATA).flatten()
                if not all(_in_bounds(column, here) for column in columns):
                    raise make_damage_error(part)
                taken.append(batch.take(pa.array(here)))
            first += batch.num_rows
        if sum(batch.num_rows for batch in taken) == len(row_K):
            return taken
    except (OSError, pa.ArrowException):
        pass
    raise make_damage_error(part)


def _is_schema(schema: pa.Schema) -> bool:
    *columns, last = schema
    if last.name == METADATA:
        is_text = pa.types.is_struct(last.type) and all(pa.types.is_string(field.type) for field in last.type)
        return is_text and pa.schema(columns).equals(COLUMNS)
    return bool(schema.equals(COLUMNS))


def _in_bounds(column: pa.Array, row_K: np.ndarray) -> bool:
    """Whether the offsets of rows are inside of a column. pyarrow does not check this, e.g. after a bit flip."""
    offset_N1 = np.frombuffer(column.buffers()[1], np.int32)[column.offset :]
    start_K, stop_K = offset_N1[row_K], offset_N1[row_K + 1]
    size = len(column.values) if pa.types.is_list(column.type) else column.buffers()[2].size
    return bool((start_K >= 0).all() and (start_K <= stop_K).all() and (stop_K <= size).all())


def documents_at(batch: pa.RecordBatch, row_K: np.ndarray, part: Path) -> list[Document]:
    """The rows of a batch of `part`. Raises BadInput if one of them is damaged."""
    try:
        found = list(documents(batch.take(pa.array(row_K))))
        check_K = batch.column("check").take(pa.array(row_K)).to_pylist()
        if all(text_key(each.text) == each.key for each in found) and list(map(_check, found)) == check_K:
            return found
    except (TypeError, ValueError):  # invalid UTF-8 or a missing value
        pass
    raise make_damage_error(part)


def make_damage_error(part: Path) -> BadInput:
    """The one-line error for a part that cannot be used."""
    return BadInput(
        f"{part}: missing or damaged; delete {part.with_name('text.json')} and repeat the command (complete parts are "
        "reused)"
    )
