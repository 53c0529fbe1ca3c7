"""Rows of CSV and TSV as people have them, by Python's csv: what stands between cells, quotation marks, line ends in
cells. For the tables of a corpus and those of a task alike."""

import csv
import io
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, Literal, NamedTuple

Quoting = Literal[0, 3]
"""csv.QUOTE_MINIMAL or csv.QUOTE_NONE."""

HEAD: Final = 1 << 16  # of a text, by which a table is known
SNIPPET: Final = 200  # bytes of a row to show
_SEPARATORS: Final = (",", "\t", ";", "|")
_TABS: Final = (".tsv", ".tab")
_LOOKED_AT: Final = 50  # rows by which a file without the name of a table is known as one
_ALIKE: Final = 0.9  # share of them that have as many cells as the header
_MOST_AGAIN: Final = 0.9  # share of the bytes read


class TextLine(NamedTuple):
    """A line, or several as one."""

    start: int  # where it begins in the file, decompressed
    size: int  # bytes there, the line end included
    content: bytes  # its first 200 bytes where there is a fault
    fault: str = ""  # "too_long", or "truncated" or "bomb" where a compressed file cannot be read on, "trailing_data"


class TableRow(NamedTuple):
    """The cells of a row, none where it has a fault, and the lines that it took."""

    cells: list[str]
    fault: str = ""  # that of a line, or "bad_csv"
    start: int = 0  # first byte
    size: int = 0  # bytes
    lines: int = 0
    repaired: int = 0  # U+FFFD in the place of what was no text
    snippet: bytes = b""


def rows(
    lines: Iterator[TextLine],
    separator: str,
    quoting: Quoting,
    limit: int,
    decode: Callable[[bytes], tuple[str, int]],
) -> Iterator[TableRow]:
    """The rows of a table of at most `limit` bytes each; empty ones, and what is none, with their bytes too.

    `decode`: the text of a line, and how many of its characters could not be read. A quotation mark that is never
    closed, or by that of a later row, costs the line that it stands in.
    """
    feed = _Feed(lines, limit, decode)
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    # strict: a quotation mark that is never closed would make a cell of all that follows
    reader = csv.reader(feed, delimiter=separator, quoting=quoting, strict=True)
    while True:
        try:
            cells, why = next(reader, None), ""
        except csv.Error:
            cells, why = [], "bad_csv"
            feed.give_back()
        taken = feed.taken(cells or [], why)
        if cells is not None or taken.size:
            yield taken
        if cells is None:
            return


class _Feed:
    """Lines for csv.reader, which takes several for a row; `taken` says what the last row took."""

    def __init__(self, lines: Iterator[TextLine], limit: int, decode: Callable[[bytes], tuple[str, int]]) -> None:
        self.lines, self.limit, self.decode = lines, limit, decode
        self.again = deque[TextLine]()  # lines that were part of a row which is none
        self.read = self.given_back = 0  # bytes, in all
        self.row, self.size, self.repaired, self.fault = list[TextLine](), 0, 0, ""

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
        text, repaired = self.decode(line.content)
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

    def taken(self, cells: list[str], why: str) -> TableRow:
        """The row of these cells and of the lines since the last call."""
        start, snippet = (self.row[0].start, self.row[0].content[:SNIPPET]) if self.row else (0, b"")
        fault = self.fault or why
        said = TableRow([] if fault else cells, fault, start, self.size, len(self.row), self.repaired, snippet)
        self.row, self.size, self.repaired, self.fault = [], 0, 0, ""
        return said


def separator_of(start: str, column: str, ending: str) -> str:
    """What stands between the cells of a table that begins so: that of the header with the column, else what all rows
    have as often, and the first one most often; tabs, where the ending of its name says so.

    >>> separator_of("id;text\\n1;One, two", "text", ".csv"), separator_of("a,b", "text", ".tsv")
    (';', '\\t')
    """
    if ending in _TABS:
        return "\t"
    found = [separator for separator in _SEPARATORS if column in first_row(start, separator)]
    if found:
        return found[0]
    first = start.lstrip("\ufeff\r\n").partition("\n")[0]
    even = [
        separator for separator in _SEPARATORS if separator in first and is_even(start, separator, csv.QUOTE_MINIMAL)
    ]
    return max(even or _SEPARATORS, key=first.count)


def first_row(start: str, separator: str) -> list[str]:
    """The cells of the first row, without blanks around them."""
    return [cell.strip() for cell in next(_rows_of(start, separator, csv.QUOTE_MINIMAL), [])]


def _rows_of(start: str, separator: str, quoting: Quoting) -> Iterator[list[str]]:
    """The first rows of a text, up to one that is none."""
    with suppress(csv.Error):
        text = io.StringIO(start.lstrip("\ufeff\r\n"), newline="")
        yield from csv.reader(text, delimiter=separator, quoting=quoting, strict=True)


def quoting_of(start: str, separator: str) -> Quoting:
    r"""Whether quotation marks stand around cells. In TSV they do so rarely: only where rows are as long so alone.

    >>> quoting_of('id\ttext\n1\t"A lone one.\n', "\t") == csv.QUOTE_NONE
    True
    >>> quoting_of('id\ttext\n1\t"Two\nlines."\n', "\t") == csv.QUOTE_MINIMAL
    True
    """
    if separator != "\t":
        return csv.QUOTE_MINIMAL
    header = start.lstrip("\ufeff\r\n").partition("\n")[0]
    as_said = header.startswith('"') or (not is_even(start, separator, csv.QUOTE_NONE))
    return csv.QUOTE_MINIMAL if as_said and is_even(start, separator, csv.QUOTE_MINIMAL) else csv.QUOTE_NONE


def is_even(start: str, separator: str, quoting: Quoting) -> bool:
    """Whether nearly all rows have as many cells as the first one."""
    found = [row for row in islice(_rows_of(start, separator, quoting), _LOOKED_AT + 1) if row]
    if len(start) >= HEAD // 2 and len(found) <= _LOOKED_AT:
        found = found[:-1]  # it is there in part
    return len(found) > 1 and sum(len(row) == len(found[0]) for row in found[1:]) >= _ALIKE * (len(found) - 1)


def is_table(start: str, column: str) -> bool:
    """Whether text has a header with the column, and nearly all rows as many cells; prose has commas, too."""
    separator = separator_of(start, column, "")
    header = first_row(start, separator)
    if len(header) < 2 or column not in header or len(set(header)) < len(header):
        return False
    return is_even(start, separator, quoting_of(start, separator))
