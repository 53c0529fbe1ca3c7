"""JSON array -> one document per element: a string, or the string at a key of an object. Read as a stream."""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import BinaryIO, ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import Sides, display_path, find_single_files, open_bytes, wide_encoding
from pipeline.readers.jsonl import check_field, fields_with, parse_line, require_keys, scan
from pipeline.readers.lines import TextLine, drop_record, rest_of
from pipeline.readers.metadata import require_fields
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from pipeline.readers.transcode import encoding_of, require_encoding
from preprocessing.encodings import UTF8, Encoding, codec
from preprocessing.spec import key, spec

_ENDINGS: Final = (".json",)
_BEGINS: Final = re.compile(rb'\[\s*(?:[{"]|\])')
_OPENING: Final = re.compile(r"\ufeff?\s*\[\s*")
_BETWEEN: Final = re.compile(r"[\s,]*")
_MARKS: Final = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_OBJECTS: Final = re.compile(r"(,)\s*(?={)")
_STRINGS: Final = re.compile(r'(?<=")\s*(,)\s*(?=")')
_MOST_TRIED: Final = 1000  # positions to try as the start of the next element after an invalid one
_LONGEST_WORD: Final = 16  # characters at the end of the buffer in which a value may be incomplete
_READ: Final = 1 << 18  # bytes read at a time
_AS_READ: Final = ("utf-8", "surrogateescape")


@spec
class JsonArrayReader(FileReader):
    """JSON files with one array; each element is a document.

    An element is a string, or an object with the string at `text_key`. Files may be compressed.
    """

    names: ClassVar[tuple[str, ...]] = ("json",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = _ENDINGS
    metadata_fields: ClassVar[tuple[str, ...] | None] = None

    kind: Literal["json"] = "json"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    text_key: str = key(default="text", doc="Key of the text in each object; dots separate nested keys.")
    spans_key: str = key(
        default="", doc="Key of the phrase positions in each document: [[start, stop], ...] in characters."
    )
    url_key: str = key(default="", doc="Key of the URL of each document, for clean.urls.")
    extensions: tuple[str, ...] = key(
        default=(), doc="File extensions to read in a directory; []: the default ones of the format."
    )
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")
    keep: tuple[str, ...] = key(default=(), doc="Keys to keep as metadata, e.g. [url, id]; dots separate nested keys.")

    def __post_init__(self) -> None:
        require_encoding("json.encoding", self.encoding)
        require_fields("json", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        if not _BEGINS.match(sample.start):
            return None
        check_field(sample.path, fields_with(sample, _fields(sample.start)), sample.field)
        return cls(path=sample.path)

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as a JSON array, one document per element"

    def files(self) -> list[Sides]:
        found = find_single_files(self.path, self.extensions or self.usual)
        require_keys(self.path, [file for (file,) in found], self.text_key, self.keep, self.encoding)
        return found

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        file = piece.file
        detected = Encoding(codec(self.encoding)) if self.encoding else encoding_of(file)
        other = "" if detected == UTF8 or detected.mixed else detected.name
        name = wide_encoding(file.path) or ("" if detected == UTF8 or detected.mixed else str(detected))
        with open_bytes(file.path, encoding=other) as stream:
            for element in _Elements(stream, self.text_key, limit):
                record = _document(file.label, element, self)
                yield record._replace(encoding=name) if name else record
            yield from rest_of(stream, file.label)


def _fields(start: bytes) -> list[str] | None:
    """Keys of the elements at the start of an array; None if no complete element is an object."""
    text, found = start.decode(errors="replace"), dict[str, None]()
    at = len(text) - len(text.lstrip("\ufeff \t\r\n[,"))
    with suppress(ValueError, RecursionError):
        while at < len(text):
            value, stop = scan(text, at)
            found |= dict.fromkeys(value) if isinstance(value, dict) else {}
            between = _BETWEEN.match(text, stop)
            at = between.end() if between else len(text)
    return list(found) or None


class _Elements:
    """Iterator over the elements of an array as lines of JSON.

    The size of an element includes the bytes since the previous one. An invalid element ends before the next element
    that has the text key, so it does not affect others. Several arrays of objects may follow each other. Arrays of
    strings may not: they would be rows of a table, not documents.
    """

    def __init__(self, stream: BinaryIO, field: str, limit: int) -> None:
        self.stream, self.text_key, self.limit = stream, field, limit
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        # buffer in characters; position in the buffer; position in bytes
        self.buffer, self.at, self.start, self.ended = "", 0, 0, False

    def __iter__(self) -> Iterator[TextLine]:
        before, why, num_bytes = _OPENING, "truncated", _READ
        while True:
            match = before.match(self.buffer, self.at)
            if match and self.buffer.startswith("]", match.end()):
                yield self.take_line(match.end() + 1, b"", BETWEEN)
                before, why = _OPENING, BETWEEN
                continue
            if not match:
                left = self.buffer[self.at :].strip("\ufeff \t\r\n")
                if left or self.ended:
                    why = "bad_json" if left else why
                    if (
                        last := self.take_line(len(self.buffer), left.encode(*_AS_READ), why, self.count_rest())
                    ).size or why != BETWEEN:
                        yield last
                    return
                self.read_more(_READ)
                continue
            stop, fault = self.find_end(match.end())
            if why == BETWEEN and self.buffer.startswith('"', match.end()):
                fault = fault or "no_field"
            if stop:
                yield self.take_line(stop, self.buffer[match.end() : stop].encode(*_AS_READ), fault)
                if fault and self.ended and self.at == len(self.buffer):
                    return
                before, num_bytes = _BETWEEN, _READ
            elif self.ended:
                yield self.take_line(len(self.buffer), self.buffer[match.end() :].encode(*_AS_READ), fault)
                return
            elif len(self.buffer) - self.at > self.limit:
                yield self.skip_element(match.end())
                before, num_bytes = _BETWEEN, _READ
            else:
                self.read_more(num_bytes)
                num_bytes *= 2

    def read_more(self, num_bytes: int) -> None:
        """Read `num_bytes` more bytes into the buffer and drop everything before the current position."""
        block = self.stream.read(num_bytes)
        self.buffer, self.at = self.buffer[self.at :] + self.decoder.decode(block, final=not block), 0
        self.ended = not block

    def find_end(self, first: int) -> tuple[int, str]:
        """End of the element that begins at `first` and its fault. The end is 0 if it is not yet in the buffer."""
        try:
            _, stop = scan(self.buffer, first)
            whole = stop < len(self.buffer) or self.ended or self.buffer[first] in '{["'  # a number may continue
            return (stop, "") if whole else (0, "truncated")
        except RecursionError:
            is_torn = False
        except ValueError as error:  # also raised for a number that is too long
            at = error.pos if isinstance(error, json.JSONDecodeError) else first
            is_torn = "Unterminated" in str(error) or at >= len(self.buffer) - _LONGEST_WORD
            if is_torn and not self.ended:
                return 0, "truncated"
        next_start = self.find_next(first)
        is_torn = is_torn and not next_start and not self.buffer.rstrip().endswith("]")
        return next_start or (len(self.buffer) if self.ended else 0), "truncated" if is_torn else "bad_json"

    def find_next(self, first: int) -> int:
        """End of an invalid element: the position before the next one that may be a document, or 0 if there is none."""
        is_string = self.buffer.startswith('"', first)
        for match in islice((_STRINGS if is_string else _OBJECTS).finditer(self.buffer, first + 1), _MOST_TRIED):
            with suppress(ValueError, RecursionError):
                value, _ = scan(self.buffer, match.end())
                if is_string or self.text_key in value or self.text_key.partition(".")[0] in value:
                    return match.start(1)
        return 0

    def take_line(self, stop: int, content: bytes, why: str, more: int = 0) -> TextLine:
        """A line with the bytes up to `stop`, plus `more` bytes after it in its size."""
        size = len(self.buffer[self.at : stop].encode(*_AS_READ)) + more
        why = why or ("too_long" if len(content) > self.limit else "")
        line = TextLine(self.start, size, content[:SNIPPET] if why else content, why)
        self.start, self.at = self.start + size, stop
        return line

    def skip_element(self, first: int) -> TextLine:
        """Skip an element that is too long, up to its closing bracket."""
        start, snippet, size = self.start, self.buffer[first : first + SNIPPET].encode(*_AS_READ)[:SNIPPET], 0
        depth, in_string, place = 0, False, first
        while True:
            for mark in _MARKS.finditer(self.buffer, place):
                char = mark[0][-1]
                if len(mark[0]) == 1 and char == '"':
                    in_string = not in_string
                elif not in_string and char in "[]{}":
                    depth += 1 if char in "[{" else -1
                if depth <= 0 and not in_string and char in ']}"' and len(mark[0]) == 1:
                    size += self.take_line(mark.end(), b"", "").size
                    return TextLine(start, size, snippet, "too_long")
            # a backslash belongs to the next character
            num_kept = 1 if self.buffer.endswith("\\") and not self.ended else 0
            size += self.take_line(len(self.buffer) - num_kept, b"", "").size
            if self.ended:
                return TextLine(start, size, snippet, "too_long")
            self.read_more(_READ)
            place = 0

    def count_rest(self) -> int:
        """Read to the end and return the number of bytes."""
        return sum(map(len, iter(lambda: self.stream.read(_READ), b"")))


def _document(label: str, element: TextLine, source: JsonArrayReader) -> Record:
    """The record of an element."""
    if element.fault:
        return drop_record(label, element, element.fault)
    if not element.content.startswith(b'"'):
        return parse_line(label, element, source.text_key, source.spans_key, source.url_key, source.keep)
    return parse_line(label, element._replace(content=b'{"text": ' + element.content + b"}"), keep=source.keep)
