"""CSV and TSV -> documents, one a row, by Python's csv: line ends in quotes, any separator, each byte counted."""

import csv
import io
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.cut import Piece, pieces_at
from pipeline.readers.encodings import UTF8
from pipeline.readers.files import File, Sides, absolute, find_single, head, is_text, plain_suffix, shown
from pipeline.readers.jsonl import check_field
from pipeline.readers.lines import Line, lines
from pipeline.readers.reader import Sample
from pipeline.readers.recode import Recoder, require_encoding
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from preprocessing.errors import BadInput
from preprocessing.spec import require, spec
from preprocessing.text import decode

_ENDINGS: Final = (".csv", ".tsv", ".tab")
_SEPARATORS: Final = (",", "\t", ";", "|")
_LOOKED_AT: Final = 50  # rows by which a file without the name of a table is known as one
_ALIKE: Final = 0.9  # share of them that have as many cells as the header
_HEAD: Final = 1 << 16
_MOST_AGAIN: Final = 0.9  # share of the bytes read


@spec
class Csv:
    """Comma-separated values, or tab-separated ones; a row is a document: its cell in the column `field`.

    The first row names the columns; where `field` is a number, counted from 1, there is no such row.
    """

    names: ClassVar[tuple[str, ...]] = ("csv", "tsv")
    located: ClassVar[tuple[str, ...]] = ("path",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = _ENDINGS
    of_folder: ClassVar[bool] = False

    kind: Literal["csv"] = "csv"
    path: str
    field: str = "text"
    separator: str = ""  # one character; "": the one that the first row has
    endings: tuple[str, ...] = ()  # of the files of a folder that are read; none: the usual ones
    encoding: str = ""  # of all files; "": that of each is found

    def __post_init__(self) -> None:
        require(len(self.separator) <= 1, "csv.separator", self.separator, "one character, or none")
        require_encoding("csv.encoding", self.encoding)

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        return cls(path=place, separator="\t" if name == "tsv" else "")

    @classmethod
    def looks_like(cls, sample: Sample) -> Self | None:
        if not sample.start:
            return None
        start = decode(_in_utf8(sample.start, Recoder(sample.file)))[0]
        if plain_suffix(sample.file.path) in _ENDINGS:
            check_field(sample.path, columns(start, sample.field), sample.field)
            return cls(path=sample.path)
        return cls(path=sample.path) if _is_table(start, sample.field) else None

    def describe(self) -> str:
        what = f"one document per row, from column {self.field!r}"
        return f"{shown(self.path, self.endings)}: read as csv, {what}"

    def anchored(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single(self.path, self.endings or self.usual)

    def pieces(self, sides: Sides, step: int) -> Iterator[Piece]:
        """All of a file: a line end may be part of a cell, which only a reader of all knows."""
        return pieces_at(sides[0], [])

    def records(self, piece: Piece, limit: int) -> Iterator[Record]:
        recode = Recoder(piece.file, self.encoding)
        start = head(piece.file.path, _HEAD, recode.whole)
        if not is_text(start[:8192]):
            yield Record(piece.file.label, piece.file.size, fault="not_text", snippet=start[:SNIPPET])
            return
        for record in self._rows(piece.file, decode(_in_utf8(start, recode))[0], recode, limit):
            yield record if recode.used == UTF8 else record._replace(encoding=str(recode.used))

    def _rows(self, file: File, start: str, recode: Recoder, limit: int) -> Iterator[Record]:
        separator = self.separator or _separator(start, self.field, plain_suffix(file.path))
        feed = _Feed(lines(file.path, 0, None, limit, recode, recode.whole), limit)
        csv.field_size_limit(max(limit, csv.field_size_limit()))
        # strict: a quotation mark that is never closed would make a cell of all that follows
        rows = csv.reader(feed, delimiter=separator, quoting=_quoting(start, separator), strict=True)
        width = 0
        column = int(self.field) - 1 if _is_number(self.field) else -1
        while True:
            try:
                row, why = next(rows, None), ""
            except csv.Error:
                row, why = [], "bad_csv"
                feed.give_back()
            size, repaired, at, snippet, fault = feed.taken()
            if row is None:
                if size:
                    yield Record(file.label, size, fault=fault or BETWEEN, start=at, snippet=snippet)
                return
            why = fault or why
            if not why and not any(row):
                why = BETWEEN
            elif not why and not width:
                width = len(row)
                if column < 0 or column >= width:
                    column, why = _column(file, row, self.field), BETWEEN
            if not why and (len(row) != width or column >= width):
                why = "ragged_row"
            if why:
                yield Record(file.label, size, fault=why, start=at, snippet=snippet)
            else:
                yield Record(file.label, size, row[column], repaired, start=at)


class _Feed:
    """Lines for csv.reader, which takes several for a row; `taken` says what the last row took."""

    def __init__(self, lines: Iterator[Line], limit: int) -> None:
        self.lines, self.limit = lines, limit  # bytes of a row
        self.again = deque[Line]()  # lines that were part of a row which is none
        self.read = self.given_back = 0  # bytes, in all
        self.row, self.size, self.repaired, self.fault = list[Line](), 0, 0, ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.size > self.limit:
            self.fault = self.fault or "too_long"
            raise csv.Error(self.fault)  # the next row begins at the next line
        line = self.again.popleft() if self.again else next(self.lines)
        self.row.append(line)
        self.size += line.size
        self.read += line.size
        self.fault = self.fault or line.fault
        text, repaired = decode(line.content)
        self.repaired += repaired
        return "\n" if line.fault else text

    def give_back(self) -> None:
        """Only the first line is no row: a quotation mark in it is never closed, or closed by that of a later row.

        Unless nearly all that was read was given back before: a file may be made so that this has no end.
        """
        if self.fault or self.given_back > _MOST_AGAIN * self.read:
            return
        self.again.extendleft(reversed(self.row[1:]))
        self.given_back += sum(line.size for line in self.row[1:])
        self.row = self.row[:1]
        self.size = sum(line.size for line in self.row)

    def taken(self) -> tuple[int, int, int, bytes, str]:
        """Bytes, U+FFFD, first byte, snippet and fault of the lines since the last call."""
        start, snippet = (self.row[0].start, self.row[0].content[:SNIPPET]) if self.row else (0, b"")
        said = (self.size, self.repaired, start, snippet, self.fault)
        self.row, self.size, self.repaired, self.fault = [], 0, 0, ""
        return said


def _in_utf8(start: bytes, recode: Recoder) -> bytes:
    """The beginning of a file as far as its lines are whole."""
    lines = start.splitlines(keepends=True)
    return b"".join(map(recode, lines[:-1] if len(start) > _HEAD // 2 and len(lines) > 1 else lines))


def columns(start: str, field: str = "text") -> list[str] | None:
    """The names of the columns of a table that begins so; None where `field` is the number of one.

    >>> columns("id;text\\n1;Words"), columns("id;text", "2")
    (['id', 'text'], None)
    """
    return None if _is_number(field) else _first_row(start, _separator(start, field, ""))


def _separator(start: str, field: str, ending: str) -> str:
    """What stands between the cells: that of the header with the field, else what the first row has most of."""
    if ending in (".tsv", ".tab"):
        return "\t"
    found = [separator for separator in _SEPARATORS if field in _first_row(start, separator)]
    first = start.lstrip("\ufeff\r\n").partition("\n")[0]
    return found[0] if found else max(_SEPARATORS, key=first.count)


def _first_row(start: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(_rows_of(start, separator, csv.QUOTE_MINIMAL), [])]


def _rows_of(start: str, separator: str, quoting: Literal[0, 3]) -> Iterator[list[str]]:
    """The first rows of a text, up to one that is none."""
    with suppress(csv.Error):
        text = io.StringIO(start.lstrip("\ufeff\r\n"), newline="")
        yield from csv.reader(text, delimiter=separator, quoting=quoting, strict=True)


def _quoting(start: str, separator: str) -> Literal[0, 3]:
    r"""Whether quotation marks stand around cells. In TSV they do so rarely: only where rows are as long so alone.

    >>> _quoting('id\ttext\n1\t"A lone one.\n', "\t") == csv.QUOTE_NONE
    True
    >>> _quoting('id\ttext\n1\t"Two\nlines."\n', "\t") == csv.QUOTE_MINIMAL
    True
    """
    if separator != "\t":
        return csv.QUOTE_MINIMAL
    header = start.lstrip("\ufeff\r\n").partition("\n")[0]
    as_said = header.startswith('"') or (not _is_even(start, separator, csv.QUOTE_NONE))
    return csv.QUOTE_MINIMAL if as_said and _is_even(start, separator, csv.QUOTE_MINIMAL) else csv.QUOTE_NONE


def _is_even(start: str, separator: str, quoting: Literal[0, 3]) -> bool:
    """Whether nearly all rows have as many cells as the first one."""
    rows = [row for row in islice(_rows_of(start, separator, quoting), _LOOKED_AT + 1) if row]
    if len(start) >= _HEAD // 2 and len(rows) <= _LOOKED_AT:
        rows = rows[:-1]  # it is there in part
    return len(rows) > 1 and sum(len(row) == len(rows[0]) for row in rows[1:]) >= _ALIKE * (len(rows) - 1)


def _is_table(start: str, field: str) -> bool:
    """Whether text has a header with the field, and nearly all rows as many cells; prose has commas, too."""
    separator = _separator(start, field, "")
    header = _first_row(start, separator)
    if len(header) < 2 or field not in header or len(set(header)) < len(header):
        return False
    return _is_even(start, separator, _quoting(start, separator))


def _column(file: File, header: list[str], field: str) -> int:
    """The number of a column; BadInput where there is none of this name, or two."""
    names = [name.strip() for name in header]
    if _is_number(field):
        raise BadInput(f"{file.path}: has {len(names)} columns, not {field}; name another one with --data PATH#NUMBER")
    if names.count(field) != 1:
        have, number = ", ".join(map(repr, names[:8])), names.count(field)
        how_many = f"{number} columns" if number else "no column"
        raise BadInput(
            f"{file.path}: has {how_many} {field!r}, but {have}; name one with "
            "--data PATH#COLUMN, or as `field` of the source; a number says which, where no row names them"
        )
    return names.index(field)


def _is_number(field: str) -> bool:
    return field.isdecimal() and field != "0"
