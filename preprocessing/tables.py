"""Read CSV and TSV files as people write them, with Python's csv: delimiters, quotation marks, line ends in cells.

Corpora and tasks both read their tables with this module.
"""

import csv
import io
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, Literal, NamedTuple

Quoting = Literal[0, 3]
"""csv.QUOTE_MINIMAL or csv.QUOTE_NONE."""

HEAD: Final = 1 << 16  # size of the beginning of a text from which a table is detected
SNIPPET: Final = 200  # bytes of a row in messages
_SEPARATORS: Final = (",", "\t", ";", "|")
_TABS: Final = (".tsv", ".tab")
_LOOKED_AT: Final = 50  # rows from which a table is detected
_ALIKE: Final = 0.9  # smallest fraction of these rows that have as many cells as the header
_MOST_AGAIN: Final = 0.9  # maximum fraction of the bytes that are read twice


class TextLine(NamedTuple):
    """A line of a file, or several lines in one."""

    start: int  # offset in the decompressed file
    size: int  # bytes in the decompressed file, with the line end
    content: bytes  # only the first 200 bytes if the line has a fault
    fault: str = ""  # "too_long" or "trailing_data"; "truncated" or "bomb" if a compressed file cannot be read further


class TableRow(NamedTuple):
    """The cells of a row, empty if it has a fault, and the lines that it spans."""

    cells: list[str]
    fault: str = ""  # the fault of a line, or "bad_csv"
    start: int = 0  # offset of the first byte
    size: int = 0  # bytes
    lines: int = 0
    repaired: int = 0  # undecodable characters that became U+FFFD
    snippet: bytes = b""


def rows(
    lines: Iterator[TextLine],
    separator: str,
    quoting: Quoting,
    limit: int,
    decode: Callable[[bytes], tuple[str, int]],
) -> Iterator[TableRow]:
    """The rows of a table, of at most `limit` bytes each, including empty and malformed rows.

    `decode` returns the text of a line and the number of its undecodable characters. If a quotation mark is not closed,
    or is closed by a mark of a later row, only the line with the first mark is malformed.
    """
    feed = _Feed(lines, limit, decode)
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    # strict, because otherwise an unclosed quotation mark turns the rest of the file into one cell
    reader = csv.reader(feed, delimiter=separator, quoting=quoting, strict=True)
    while True:
        try:
            cells, why = next(reader, None), ""
        except csv.Error:
            cells, why = [], "bad_csv"
            feed.give_back()
        row = feed.end_row(cells or [], why)
        if cells is not None or row.size:
            yield row
        if cells is None:
            return


class _Feed:
    """The lines for csv.reader, which reads one or more for a row; `end_row` returns the row of the lines read."""

    def __init__(self, lines: Iterator[TextLine], limit: int, decode: Callable[[bytes], tuple[str, int]]) -> None:
        self.lines, self.limit, self.decode = lines, limit, decode
        self.again = deque[TextLine]()  # lines of a malformed row, to be read again
        self.read = self.given_back = 0  # bytes in total
        self.row, self.size, self.repaired, self.fault = list[TextLine](), 0, 0, ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.size > self.limit:
            self.fault = self.fault or "too_long"
            raise csv.Error(self.fault)  # the next row starts at the next line
        line = self.again.popleft() if self.again else next(self.lines)
        self.row.append(line)
        self.size += line.size
        self.read += line.size
        self.fault = self.fault or line.fault
        text, repaired = self.decode(line.content)
        self.repaired += repaired
        return "\n" if line.fault else text

    def give_back(self) -> None:
        """After a malformed row, read all of its lines except the first one again.

        The first line has a quotation mark that is never closed, or closed by one of a later row. Lines are not read
        again if nearly all bytes were already read twice, so that a malicious file cannot take unlimited time.
        """
        if self.fault or self.given_back > _MOST_AGAIN * self.read:
            return
        self.again.extendleft(reversed(self.row[1:]))
        self.given_back += sum(line.size for line in self.row[1:])
        self.row = self.row[:1]
        self.size = sum(line.size for line in self.row)

    def end_row(self, cells: list[str], why: str) -> TableRow:
        """The row with these cells and the lines that were read since the last call."""
        start, snippet = (self.row[0].start, self.row[0].content[:SNIPPET]) if self.row else (0, b"")
        fault = self.fault or why
        row = TableRow([] if fault else cells, fault, start, self.size, len(self.row), self.repaired, snippet)
        self.row, self.size, self.repaired, self.fault = [], 0, 0, ""
        return row


def separator_of(start: str, column: str, ending: str) -> str:
    """The delimiter of a table with this beginning.

    For the extensions .tsv and .tab it is a tab. Otherwise it is a delimiter that splits the header so that it has the
    column. If there is none, it is a delimiter that gives rows of equal length, the most frequent one in the first row.

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
    """The cells of the first row, without surrounding white space."""
    return [cell.strip() for cell in next(_rows_of(start, separator, csv.QUOTE_MINIMAL), [])]


def _rows_of(start: str, separator: str, quoting: Quoting) -> Iterator[list[str]]:
    """The rows of a text, up to the first malformed one."""
    with suppress(csv.Error):
        text = io.StringIO(start.lstrip("\ufeff\r\n"), newline="")
        yield from csv.reader(text, delimiter=separator, quoting=quoting, strict=True)


def detect_quoting(start: str, separator: str) -> Quoting:
    r"""Whether quotation marks enclose cells.

    In TSV, they do if the header is quoted, or if rows have equal lengths only with quoting.

    >>> detect_quoting('id\ttext\n1\t"A lone one.\n', "\t") == csv.QUOTE_NONE
    True
    >>> detect_quoting('id\ttext\n1\t"Two\nlines."\n', "\t") == csv.QUOTE_MINIMAL
    True
    """
    if separator != "\t":
        return csv.QUOTE_MINIMAL
    header = start.lstrip("\ufeff\r\n").partition("\n")[0]
    is_quoted = header.startswith('"') or (not is_even(start, separator, csv.QUOTE_NONE))
    return csv.QUOTE_MINIMAL if is_quoted and is_even(start, separator, csv.QUOTE_MINIMAL) else csv.QUOTE_NONE


def is_even(start: str, separator: str, quoting: Quoting) -> bool:
    """Whether nearly all rows have as many cells as the first row."""
    table = [row for row in islice(_rows_of(start, separator, quoting), _LOOKED_AT + 1) if row]
    if len(start) >= HEAD // 2 and len(table) <= _LOOKED_AT:
        table = table[:-1]  # the last row is incomplete
    return len(table) > 1 and sum(len(row) == len(table[0]) for row in table[1:]) >= _ALIKE * (len(table) - 1)


def is_table(start: str, column: str) -> bool:
    """Whether a text has a header with the column, and nearly all rows have as many cells; prose also has commas."""
    separator = separator_of(start, column, "")
    header = first_row(start, separator)
    if len(header) < 2 or column not in header or len(set(header)) < len(header):
        return False
    return is_even(start, separator, detect_quoting(start, separator))
