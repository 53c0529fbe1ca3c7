"""dropped.arrow of a corpus, a sample of the dropped documents: up to 20 for each reason.

It has the beginnings of their texts and of the values of their fields and, for a document that repeats another, those
of the kept one. The documents with the smallest keys (hashes of the text) are sampled, each text once. So the sample is
random, but it depends neither on the order of the input, nor on its division, nor on the workers. If cleaning masks
personal data, it is masked in the texts here too.
"""

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import xxhash

from preprocessing.files import write_atomic
from preprocessing.schema import NO_METADATA, Metadata
from preprocessing.shard import METADATA, metadata_type

DROPPED: Final = "dropped.arrow"
MOST_PER_REASON: Final = 20
SHOWN_CHARS: Final = 500  # characters of a text, or of a value of a field, that are stored
_CHECK: Final = b"sesame.check"  # checksum of the rows, in the metadata of the schema
_KEPT_METADATA: Final = f"kept_{METADATA}"
_COLUMNS: Final = [
    *(("reason", pa.string()), ("key", pa.string()), ("source", pa.string()), ("chars", pa.int64())),
    *(("text", pa.string()), ("kept_key", pa.string()), ("kept_source", pa.string()), ("kept_text", pa.string())),
]


class DroppedDocument(NamedTuple):
    """A dropped document; the fields `kept_` are those of the document that it repeats, empty for other reasons."""

    reason: str
    key: str  # xxh3-128 of the text in hexadecimal digits: of the text as read, or as cleaned if it repeats another
    source: str
    chars: int  # length of this text
    text: str  # its first 500 characters
    kept_key: str = ""
    kept_source: str = ""
    kept_text: str = ""
    metadata: Metadata = NO_METADATA
    kept_metadata: Metadata = NO_METADATA


class DroppedSample:
    """For each reason the documents with the smallest keys, then sources, then metadata; each key once."""

    def __init__(self) -> None:
        self._of_reason: dict[str, list[tuple[tuple[str, str, str], DroppedDocument]]] = {}

    def add(
        self, reason: str, key: str, source: str, metadata: Metadata, document: Callable[[], DroppedDocument]
    ) -> None:
        """Add a document if it belongs to the sample; only then is `document` called."""
        found = self._of_reason.setdefault(reason, [])
        if len(found) == MOST_PER_REASON and key > found[-1][0][0]:
            return
        place = (key, source, repr(sorted(metadata.items())))
        at = bisect_left(found, place, key=lambda each: each[0])
        if at and found[at - 1][0][0] == key:
            return
        if at < len(found) and found[at][0][0] == key:
            if found[at][0] == place:
                return
            del found[at]
        insort(found, (place, document()), key=lambda each: each[0])
        del found[MOST_PER_REASON:]

    def update(self, documents: Iterable[DroppedDocument]) -> None:
        """Add documents of another sample."""
        for each in documents:
            self.add(each.reason, each.key, each.source, each.metadata, lambda each=each: each)  # type: ignore[misc]

    def __iter__(self) -> Iterator[DroppedDocument]:
        for reason in sorted(self._of_reason):
            yield from (document for _, document in self._of_reason[reason])

    def __bool__(self) -> bool:
        return bool(self._of_reason)


def write_dropped(path: Path, documents: Iterable[DroppedDocument], fields: Sequence[str]) -> None:
    """Write a sample as an Arrow file. Two columns have the metadata if there are `fields`.

    A field that the source of a document does not keep is None.
    """
    schema = pa.schema(_COLUMNS)
    for name in (METADATA, _KEPT_METADATA) if fields else ():
        schema = schema.append(pa.field(name, metadata_type(fields)))
    rows = [_select_columns(plain_dropped(each), schema.names, fields) for each in documents]
    schema = schema.with_metadata({_CHECK: _digest(rows)})
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]

    def write(file: object) -> None:
        with pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(pa.record_batch(columns, schema))

    write_atomic(path, write)


def plain_dropped(document: DroppedDocument) -> dict[str, Any]:
    """A dropped document as JSON stores it; its metadata is None if it has none, and long values are cut."""
    plain = document._asdict()
    return plain | {name: _shorten(plain[name]) or None for name in (METADATA, _KEPT_METADATA)}


def _shorten(metadata: Metadata) -> dict[str, str | None]:
    return {name: value and value[:SHOWN_CHARS] for name, value in metadata.items()}


def _select_columns(row: dict[str, Any], names: Sequence[str], fields: Sequence[str]) -> dict[str, Any]:
    """The columns of a row as `read_dropped` reads them: metadata has all fields, or is None."""
    every = dict.fromkeys(sorted(fields))
    return {name: every | row[name] if isinstance(row[name], dict) else row[name] for name in names}


def from_plain(row: Mapping[str, Any]) -> DroppedDocument:
    """The dropped document of `plain_dropped`, or of a row of a file."""
    return DroppedDocument(**{name: value for name, value in row.items() if value is not None})


def _digest(rows: list[dict[str, Any]]) -> bytes:
    return xxhash.xxh3_128_hexdigest(json.dumps(rows, sort_keys=True).encode()).encode()


def read_dropped(path: Path) -> list[DroppedDocument]:
    """The documents of a sample. Raises OSError if the file is missing or damaged."""
    try:
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            table.validate(full=True)
            rows = table.to_pylist()
            if (table.schema.metadata or {}).get(_CHECK) != _digest(rows):
                raise ValueError("its content has changed")
            return [from_plain(row) for row in rows]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise OSError(f"{path}: damaged: {error}") from None
