"""Records -> cleaned documents: an Arrow file for each split, with a seal that holds its ledger."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa

from pipeline.record import BETWEEN, Record
from pipeline.sources import Split, records
from pipeline.spec import Clean
from pipeline.stage import seal, sealed
from preprocessing.files import write_atomic
from preprocessing.manifest import Ledger
from preprocessing.text import normalise, text_key

TEXTS: Final = pa.schema([("text", pa.string()), ("source", pa.string()), ("key", pa.binary(16))])
_BATCH_BYTES: Final = 4 << 20


class Document(NamedTuple):
    text: str
    source: str
    key: bytes  # xxh3-128 of the text


def clean_split(split: Split, folder: str, clean: Clean) -> None:
    """Write the cleaned documents of a split, unless they are there and whole."""
    part = Path(folder) / split.name
    if sealed(part) is not None:
        return
    ledger = Ledger()
    repaired = [0, 0]  # documents, UTF-8 sequences

    def write(file: BinaryIO) -> None:
        documents = cleaned(records(split, clean.max_chars), clean, ledger, repaired)
        with pa.ipc.new_file(file, TEXTS) as writer:
            for batch in _batches(documents):
                writer.write_batch(batch)

    write_atomic(part, write)
    seal(part, ledger=ledger.to_dict(), repaired=repaired)


def cleaned(records: Iterable[Record], clean: Clean, ledger: Ledger, repaired: list[int]) -> Iterator[Document]:
    """The documents that are kept. Each byte read goes to `ledger`; `repaired` counts documents and sequences.

    What cleaning takes from a document that is kept (tags, blanks, control characters) is dropped as "trimmed", less
    what it adds: a repair may lengthen a text.
    """
    for record in records:
        if record.fault == BETWEEN:
            ledger.see(0, bytes=record.size)
            ledger.drop(BETWEEN, 0, bytes=record.size)
            continue
        text = normalise(record.text)
        size = len(text.encode())
        ledger.see(bytes=record.size)
        if reason := record.fault or _unfit(text, clean):
            ledger.drop(reason, bytes=record.size)
            continue
        ledger.keep(bytes=size)
        ledger.drop("trimmed", 0, bytes=record.size - size)
        repaired[0] += record.repaired > 0
        repaired[1] += record.repaired
        yield Document(text, record.source, text_key(text))


def _unfit(text: str, clean: Clean) -> str:
    """Why a cleaned text is not kept, or "" where it is."""
    if not text:
        return "empty"
    if len(text) < clean.min_chars:
        return "too_short"
    return "too_long" if len(text) > clean.max_chars else ""


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
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), TEXTS, strict=True)], TEXTS
    )


def open_texts(part: Path) -> pa.Table:
    """The documents of a split, mapped into memory."""
    with pa.memory_map(str(part)) as file:
        return pa.ipc.open_file(file).read_all()
