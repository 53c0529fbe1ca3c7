"""Tables: TSV as distributed by GLUE, CSV, and user tables in other forms."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, Literal

from preprocessing.encodings import UTF8, Encoding, codec, of_content, to_utf8
from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from preprocessing.tables import HEAD, TextLine, detect_quoting, rows, separator_of
from preprocessing.text import decode
from training.evaluation.files.record import Record, RecordFault, text_of

_LONGEST: Final = 2**31 - 1  # maximum characters of a cell
_USUAL: Final = "cp1252"  # preferred among several likely encodings
_ENCODINGS: Final = "an encoding of Python, such as windows-1251 or shift_jis"
_QUOTED: Final = re.compile(r'(?:^|(?<=[,\r\n]))"[^"]*(?:""[^"]*)*("|$)')  # a quoted cell, and its closing mark


@spec
class TsvFormat:
    """Tab-separated values, one row per line; quotation marks are text (GLUE).

    With the usual rules of CSV, QNLI's dev set would lose 65 rows without a message: its quotation marks open and close
    across lines.
    """

    kind: Literal["tsv"] = "tsv"
    # Without a header, columns have numbers only.
    header: bool = key(default=True, doc="Whether the first row has the column names.")
    list_delimiter: str = key(
        default="", doc="Text between the elements of a cell, which is then a list; empty: no lists."
    )

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        names, text = list[str](), text_of(content)
        end = "\n" if "\n" in text else "\r"  # old Macintosh files
        for number, line in enumerate(text.split(end), 1):
            cells = line.removesuffix("\r").split("\t")
            if self.header and number == 1:
                names = _make_names_unique(cells)
            elif line.strip("\r"):
                yield number, self._with_lists(_record(cells, names))

    def _with_lists(self, record: Record | RecordFault) -> Record | RecordFault:
        if not self.list_delimiter or isinstance(record, RecordFault):
            return record
        return {name: cell.split(self.list_delimiter) if cell else [] for name, cell in record.items()}


@spec
class CsvFormat:
    """Comma-separated values; cells in quotation marks may contain commas and line breaks.

    A quotation mark that is not closed, or closed before the end of its cell, makes the row and all its lines unusable.
    """

    kind: Literal["csv"] = "csv"
    header: bool = key(default=True, doc="Whether the first row has the column names.")

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        text, names, begins = text_of(content), list[str](), 1
        csv.field_size_limit(_LONGEST)  # a global setting; the default of 131,072 is too low
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                lines = list(io.StringIO(text, newline=""))[begins - 1 : reader.line_num]
                yield (
                    begins,
                    RecordFault(
                        f"lines {begins} to {reader.line_num} are not a valid row: {_why(lines, begins, error)}"
                    ),
                )
            else:
                if self.header and begins == 1:
                    names = _make_names_unique(cells)
                elif cells:
                    yield begins, _record(cells, names)
            begins = reader.line_num + 1


@spec
class TableFormat:
    """Table of the user, with the delimiter and the encoding detected, as in a corpus.

    Cells are separated by commas, tabs, semicolons or bars, and may be in quotation marks. The delimiter is detected by
    `column`, a name in the first row. A quotation mark that is never closed makes its line unusable. Rows with only
    empty cells are ignored.
    """

    kind: Literal["table"] = "table"
    header: bool = key(default=True, doc="Whether the first row has the column names.")
    column: str = key(default="", doc="Name of a column in the first row, to detect the delimiter.")
    delimiter: str = key(default="", doc="Delimiter, one character; empty: detected.")
    encoding: str = key(default="", doc="Text encoding; empty: detected.")

    def __post_init__(self) -> None:
        require(len(self.delimiter) <= 1, "delimiter", self.delimiter, "one character, or none")
        require(not self.encoding or codec(self.encoding) != "", "encoding", self.encoding, _ENCODINGS)

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        found = Encoding(codec(self.encoding)) if self.encoding else of_content(content)
        if not found.name:
            likely = f", perhaps {' or '.join(found.likely)}" if found.likely else ""
            raise BadInput(f"unknown encoding{likely}; convert the file to UTF-8, or set `encoding` in its format")
        if found.name.startswith(("utf-16", "utf-32")):  # a line end has several bytes in these encodings
            content, found = to_utf8(content, found), UTF8
        content = content if b"\n" in content else content.replace(b"\r", b"\n")  # old Macintosh files
        lines = [to_utf8(line, found) for line in content.split(b"\n")]
        lines = [*(line + b"\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]
        start = decode(b"".join(lines)[:HEAD])[0]
        separator = self.delimiter or separator_of(start, self.column, "")
        given = (TextLine(0, len(line), line) for line in lines)
        names, begins, is_first = list[str](), 1, self.header
        for row in rows(given, separator, detect_quoting(start, separator), _LONGEST, decode):
            if row.fault:
                yield (
                    begins,
                    RecordFault("invalid row: a quotation mark is not closed, or is closed before the end of its cell"),
                )
            elif row.repaired:
                yield begins, RecordFault(f"{row.repaired:,} characters are invalid in {found}")
            elif any(row.cells) and is_first:
                names, is_first = _make_names_unique([cell.strip() for cell in row.cells]), False
            elif any(row.cells):
                yield begins, _record(row.cells, names)
            begins += row.lines


def guess_encoding(content: bytes) -> tuple[str, str]:
    r"""Return the guessed encoding of a table ("" if no guess is needed), and a note ("" for UTF-8).

    >>> guess_encoding("t,y\nschön,1\n".encode("latin-1"))
    ('cp1252', 'read as cp1252, which is likely but not sure')
    """
    encoding = of_content(content)
    if encoding == UTF8:
        return "", ""
    if encoding.name:
        return "", f"read as {encoding}"
    likely = [codec(name) for name in encoding.likely]
    name = _USUAL if _USUAL in likely else next(iter(likely), "")
    return name, f"read as {name}, which is likely but not sure" if name else ""


def _why(lines: Sequence[str], begins: int, error: csv.Error) -> str:
    """The reason why the lines of a row are malformed; the first line has the number `begins`."""
    row = "".join(lines)
    quoted = [found for found in _QUOTED.finditer(row) if not found[1]]
    if not quoted:
        return str(error)
    line = begins + len(list(io.StringIO(row[: quoted[-1].start() + 1], newline=""))) - 1
    return f"the quotation mark of line {line} is not closed, so {len(lines):,} lines are lost"


def _make_names_unique(names: Sequence[str]) -> list[str]:
    """The column names of the first line. If several columns have the same name, it gets a suffix.

    Raises BadInput if a name is the number of another column.

    >>> _make_names_unique(["text", "label", "label"])
    ['text', 'label (named twice on line 1)', 'label (named twice on line 1)']
    """
    numbers = _numbers(len(names))
    for at, name in enumerate(names):
        if name in numbers and name not in (numbers[at], numbers[at - len(names)]):
            reason = f"has a column named {name}, which is the number of another column (from 0, or from the end)"
            raise BadInput(f"line 1 {reason}; rename it, or set header: false if the line is a row")
    counted = Counter(names)
    return [f"{name} (named twice on line 1)" if name and counted[name] > 1 else name for name in names]


def _record(cells: Sequence[str], names: Sequence[str]) -> Record | RecordFault:
    """The cells by number, from 0 and from the end (-1 is the last), and by name.

    A fault if the number of cells is wrong, since a tab or comma inside a text would shift later columns.
    """
    if names and len(cells) != len(names):
        return RecordFault(f"got {len(cells)} columns, expected {len(names)} as in the first line")
    record = dict(zip(_numbers(len(cells)), [*cells, *cells], strict=True))
    record.update(zip(names, cells, strict=bool(names)))
    return record


@cache
def _numbers(count: int) -> tuple[str, ...]:
    """The numbers of the columns of a row, from 0 and from the end.

    >>> _numbers(2)
    ('0', '1', '-2', '-1')
    """
    return tuple(map(str, (*range(count), *range(-count, 0))))
