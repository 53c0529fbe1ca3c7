"""A JSON array -> documents, one an element: a string, or the string at a field of an object. Read as a stream."""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, Literal, Self

from pipeline.readers.cut import Piece, pieces_at
from pipeline.readers.encodings import UTF8
from pipeline.readers.files import Sides, absolute, fault, find_single, open_bytes
from pipeline.readers.jsonl import check_field, parsed
from pipeline.readers.lines import Line, dropped
from pipeline.readers.reader import Sample
from pipeline.readers.recode import encoding_of, require_encoding
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from preprocessing.spec import spec

_BEGINS: Final = re.compile(rb'\[\s*(?:[{"]|\])')
_OPENING: Final = re.compile(r"\ufeff?\s*\[\s*")
_BETWEEN: Final = re.compile(r"[\s,]*")
_READ: Final = 1 << 18  # bytes at a time


@spec
class JsonArray:
    """One JSON array a file, optionally compressed; an element is a document: a string, or the string at `field`."""

    names: ClassVar[tuple[str, ...]] = ("json",)
    located: ClassVar[tuple[str, ...]] = ("path",)
    leads: ClassVar[tuple[str, ...]] = ()

    kind: Literal["json"] = "json"
    path: str
    field: str = "text"
    spans: str = ""  # field with [[start, stop], ...], as for Jsonl
    endings: tuple[str, ...] = (".json",)  # of the files of a folder that are read
    encoding: str = ""  # of all files; "": that of each is found

    def __post_init__(self) -> None:
        require_encoding("json.encoding", self.encoding)

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        return cls(path=place)

    @classmethod
    def looks_like(cls, sample: Sample) -> Self | None:
        if not _BEGINS.match(sample.start):
            return None
        check_field(sample.path, _fields(sample.start), sample.field)
        return cls(path=sample.path)

    def describe(self) -> str:
        return f"{self.path}: read as a JSON array, one document per element"

    def anchored(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single(self.path, self.endings)

    def pieces(self, sides: Sides, step: int) -> Iterator[Piece]:
        return pieces_at(sides[0], [])

    def records(self, piece: Piece, limit: int) -> Iterator[Record]:
        file = piece.file
        found = encoding_of(file) if not self.encoding else UTF8._replace(name=self.encoding)
        other = "" if found in (UTF8, UTF8._replace(name="")) else found.name
        with open_bytes(file.path, encoding=other) as stream:
            for element in _elements(stream, limit):
                record = _document(file.label, element, self.field, self.spans)
                yield record._replace(encoding=str(found)) if other else record
            if why := fault(stream):
                yield Record(file.label, 0, fault=why)


def _fields(start: bytes) -> list[str] | None:
    """The fields of the first element of an array that begins so; None where that is no object, or not all there."""
    text = start.decode(errors="replace")
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip("\ufeff \t\r\n[,"))
    except (ValueError, RecursionError):
        return None
    return list(value) if isinstance(value, dict) else None


def _elements(stream: BinaryIO, limit: int) -> Iterator[Line]:
    """The elements of an array as lines of JSON; the size of each has what stands before it since the last one."""
    decoder, scan = codecs.getincrementaldecoder("utf-8")("surrogateescape"), json.JSONDecoder().raw_decode
    held, at, start, ended, before, wanted = "", 0, 0, False, _OPENING, _READ
    while True:
        match = before.match(held, at)
        first = match.end() if match else len(held)
        if held[first : first + 1] == "]":
            yield Line(
                start, len(_bytes(held[at:])) + sum(map(len, iter(lambda: stream.read(_READ), b""))), b"", BETWEEN
            )
            return
        with suppress(ValueError, RecursionError):
            _, stop = scan(held, first)
            size = len(_bytes(held[at:stop]))
            yield Line(start, size, _bytes(held[first:stop]))
            start, at, before, wanted = start + size, stop, _BETWEEN, _READ
            continue
        if ended or len(held) - at > limit:
            why = "too_long" if not ended else "bad_json" if first < len(held) else "truncated"
            rest = _bytes(held[at:])
            yield Line(start, len(rest) + _rest(stream), rest[:SNIPPET], why)
            return
        block = stream.read(wanted)
        held, at, ended, wanted = held[at:] + decoder.decode(block, final=not block), 0, not block, 2 * wanted


def _rest(stream: BinaryIO) -> int:
    """How many bytes are left."""
    return sum(map(len, iter(lambda: stream.read(_READ), b"")))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _document(label: str, element: Line, field: str, spans: str) -> Record:
    """The document of an element."""
    if element.fault:
        return dropped(label, element, element.fault)
    if not element.content.startswith(b'"'):
        return parsed(label, element, field, spans)
    return parsed(label, element._replace(content=b'{"text": ' + element.content + b"}"))
