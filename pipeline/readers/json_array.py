"""A JSON array -> documents, one an element: a string, or the string at a field of an object. Read as a stream."""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import BinaryIO, ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import display_path, open_bytes, wide_encoding
from pipeline.readers.jsonl import check_field, fields_with, parse_line, scan
from pipeline.readers.lines import TextLine, drop_record, rest_of
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
_MOST_TRIED: Final = 1000  # of what may follow an element that is no JSON
_LONGEST_WORD: Final = 16  # characters at the end in which something may be that goes on
_READ: Final = 1 << 18  # bytes at a time
_AS_READ: Final = ("utf-8", "surrogateescape")


@spec
class JsonArrayReader(FileReader):
    """JSON files with one array; each element is a document.

    An element is a string, or an object with the string at `text_key`. Files may be compressed.
    """

    names: ClassVar[tuple[str, ...]] = ("json",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = _ENDINGS

    kind: Literal["json"] = "json"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    text_key: str = key(default="text", doc="Key of the text in each object; dots separate nested keys.")
    spans_key: str = key(
        default="", doc="Key of the phrase positions in each document: [[start, stop], ...] in characters."
    )
    extensions: tuple[str, ...] = key(
        default=(), doc="File extensions to read in a directory; []: the usual ones of the format."
    )
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")

    def __post_init__(self) -> None:
        require_encoding("json.encoding", self.encoding)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        if not _BEGINS.match(sample.start):
            return None
        check_field(sample.path, fields_with(sample, _fields(sample.start)), sample.field)
        return cls(path=sample.path)

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as a JSON array, one document per element"

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        file = piece.file
        found = Encoding(codec(self.encoding)) if self.encoding else encoding_of(file)
        other = "" if found == UTF8 or found.mixed else found.name
        said = wide_encoding(file.path) or ("" if found == UTF8 or found.mixed else str(found))
        with open_bytes(file.path, encoding=other) as stream:
            for element in _Elements(stream, self.text_key, limit):
                record = _document(file.label, element, self.text_key, self.spans_key)
                yield record._replace(encoding=said) if said else record
            yield from rest_of(stream, file.label)


def _fields(start: bytes) -> list[str] | None:
    """The fields of the elements of an array that begins so; None where none of them is an object, and all there."""
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
    """The elements of an array as lines of JSON; the size of each has what stands before it since the last one.

    What is no JSON ends before the next element that has the field, so that it costs no others. Arrays of objects may
    follow one another; of strings they are rows of something, and no documents.
    """

    def __init__(self, stream: BinaryIO, field: str, limit: int) -> None:
        self.stream, self.text_key, self.limit = stream, field, limit
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.held, self.at, self.start, self.ended = "", 0, 0, False  # characters in memory, place in them and in bytes

    def __iter__(self) -> Iterator[TextLine]:
        before, why, wanted = _OPENING, "truncated", _READ
        while True:
            match = before.match(self.held, self.at)
            if match and self.held.startswith("]", match.end()):
                yield self.line(match.end() + 1, b"", BETWEEN)
                before, why = _OPENING, BETWEEN
                continue
            if not match:
                left = self.held[self.at :].strip("\ufeff \t\r\n")
                if left or self.ended:
                    why = "bad_json" if left else why
                    if (
                        last := self.line(len(self.held), left.encode(*_AS_READ), why, self.rest())
                    ).size or why != BETWEEN:
                        yield last
                    return
                self.more(_READ)
                continue
            stop, fault = self.scanned(match.end())
            if why == BETWEEN and self.held.startswith('"', match.end()):
                fault = fault or "no_field"
            if stop:
                yield self.line(stop, self.held[match.end() : stop].encode(*_AS_READ), fault)
                if fault and self.ended and self.at == len(self.held):
                    return
                before, wanted = _BETWEEN, _READ
            elif self.ended:
                yield self.line(len(self.held), self.held[match.end() :].encode(*_AS_READ), fault)
                return
            elif len(self.held) - self.at > self.limit:
                yield self.skipped(match.end())
                before, wanted = _BETWEEN, _READ
            else:
                self.more(wanted)
                wanted *= 2

    def more(self, wanted: int) -> None:
        """Hold that many more bytes, and no longer what stands before the place."""
        block = self.stream.read(wanted)
        self.held, self.at = self.held[self.at :] + self.decoder.decode(block, final=not block), 0
        self.ended = not block

    def scanned(self, first: int) -> tuple[int, str]:
        """Where the element that begins at `first` ends, 0 where that is not read yet; and what is wrong with it."""
        try:
            _, stop = scan(self.held, first)
            whole = stop < len(self.held) or self.ended or self.held[first] in '{["'  # of a number more may follow
            return (stop, "") if whole else (0, "truncated")
        except RecursionError:
            is_torn = False
        except ValueError as error:  # of a number that is too long, too
            at = error.pos if isinstance(error, json.JSONDecodeError) else first
            is_torn = "Unterminated" in str(error) or at >= len(self.held) - _LONGEST_WORD
            if is_torn and not self.ended:
                return 0, "truncated"
        following = self.following(first)
        is_torn = is_torn and not following and not self.held.rstrip().endswith("]")
        return following or (len(self.held) if self.ended else 0), "truncated" if is_torn else "bad_json"

    def following(self, first: int) -> int:
        """Where the element that is no JSON ends: before the next one that may be a document; 0 where there is none."""
        is_string = self.held.startswith('"', first)
        for match in islice((_STRINGS if is_string else _OBJECTS).finditer(self.held, first + 1), _MOST_TRIED):
            with suppress(ValueError, RecursionError):
                value, _ = scan(self.held, match.end())
                if is_string or self.text_key in value or self.text_key.partition(".")[0] in value:
                    return match.start(1)
        return 0

    def line(self, stop: int, content: bytes, why: str, more: int = 0) -> TextLine:
        """What stands up to `stop`, and so many bytes after it."""
        size = len(self.held[self.at : stop].encode(*_AS_READ)) + more
        why = why or ("too_long" if len(content) > self.limit else "")
        line = TextLine(self.start, size, content[:SNIPPET] if why else content, why)
        self.start, self.at = self.start + size, stop
        return line

    def skipped(self, first: int) -> TextLine:
        """An element that is too long, which ends where its brackets do."""
        start, snippet, size = self.start, self.held[first : first + SNIPPET].encode(*_AS_READ)[:SNIPPET], 0
        depth, in_string, place = 0, False, first
        while True:
            for mark in _MARKS.finditer(self.held, place):
                char = mark[0][-1]
                if len(mark[0]) == 1 and char == '"':
                    in_string = not in_string
                elif not in_string and char in "[]{}":
                    depth += 1 if char in "[{" else -1
                if depth <= 0 and not in_string and char in ']}"' and len(mark[0]) == 1:
                    size += self.line(mark.end(), b"", "").size
                    return TextLine(start, size, snippet, "too_long")
            kept = 1 if self.held.endswith("\\") and not self.ended else 0  # it goes with what follows
            size += self.line(len(self.held) - kept, b"", "").size
            if self.ended:
                return TextLine(start, size, snippet, "too_long")
            self.more(_READ)
            place = 0

    def rest(self) -> int:
        """How many bytes are left."""
        return sum(map(len, iter(lambda: self.stream.read(_READ), b"")))


def _document(label: str, element: TextLine, field: str, spans: str) -> Record:
    """The document of an element."""
    if element.fault:
        return drop_record(label, element, element.fault)
    if not element.content.startswith(b'"'):
        return parse_line(label, element, field, spans)
    return parse_line(label, element._replace(content=b'{"text": ' + element.content + b"}"))
