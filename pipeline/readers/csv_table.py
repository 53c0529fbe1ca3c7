"""CSV and TSV -> one document per row, parsed with Python's csv module.

Quoted cells may contain line ends. The delimiter is detected. Every byte of a file belongs to exactly one record.
"""

from collections.abc import Iterator
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import (
    InputFile,
    display_path,
    ends_in_returns,
    head,
    is_text,
    plain_suffix,
)
from pipeline.readers.jsonl import check_field
from pipeline.readers.lines import TextLine, lines
from pipeline.readers.metadata import require_fields, require_present
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, CUT_OFF, SNIPPET, Record
from pipeline.readers.transcode import Transcoder, require_encoding
from preprocessing.encodings import UTF8
from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from preprocessing.tables import HEAD, detect_quoting, first_row, is_table, rows, separator_of
from preprocessing.text import decode

_ENDINGS: Final = (".csv", ".tsv", ".tab")


@spec
class CsvReader(FileReader):
    """CSV or TSV files; each row is a document.

    The document is the cell in column `text_key`. The first row has the column names. If `text_key` is a number,
    counted from 1, the file has no header.
    """

    names: ClassVar[tuple[str, ...]] = ("csv", "tsv")
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = _ENDINGS
    metadata_fields: ClassVar[tuple[str, ...] | None] = None

    kind: Literal["csv"] = "csv"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    text_key: str = key(default="text", doc="Name of the text column, or its number from 1 if there is no header.")
    url_key: str = key(default="", doc="Name of the column of the URL of each document, for clean.urls.")
    delimiter: str = key(default="", doc="Delimiter, one character; empty: detected from the first row.")
    extensions: tuple[str, ...] = key(
        default=(), doc="File extensions to read in a directory; []: the default ones of the format."
    )
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")
    keep: tuple[str, ...] = key(default=(), doc="Columns to keep as metadata, e.g. [url, id], or numbers.")

    def __post_init__(self) -> None:
        require(len(self.delimiter) <= 1, "csv.delimiter", self.delimiter, "one character or an empty string")
        require_encoding("csv.encoding", self.encoding)
        require_fields("csv", self.keep, self.metadata_fields)

    @classmethod
    def from_name(cls, name: str, place: str) -> Self:
        return cls(path=place, delimiter="\t" if name == "tsv" else "")

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        if not sample.start:
            return None
        start = decode(_in_utf8(sample.start, Transcoder(sample.file)))[0]
        if plain_suffix(sample.file.path) in _ENDINGS:
            check_field(sample.path, columns(start, sample.field), sample.field)
            return cls(path=sample.path)
        return cls(path=sample.path) if is_table(start, sample.field) else None

    def describe(self) -> str:
        what = f"one document per row, from column {self.text_key!r}"
        return f"{display_path(self.path, self.extensions)}: read as csv, {what}"

    # A file is one range and cannot be divided at line ends, because a cell may contain a line end.
    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        recode = Transcoder(piece.file, self.encoding)
        start = head(piece.file.path, HEAD, recode.whole)
        if not is_text(start[:8192]):
            yield Record(piece.file.label, piece.file.size, fault="not_text", snippet=start[:SNIPPET])
            return
        for record in self._rows(piece.file, decode(_in_utf8(start, recode))[0], recode, limit):
            yield record if recode.used == UTF8 else record._replace(encoding=str(recode.used))

    def _rows(self, file: InputFile, start: str, recode: Transcoder, limit: int) -> Iterator[Record]:
        separator = self.delimiter or separator_of(start, self.text_key, plain_suffix(file.path))
        read = _Lines(lines(file.path, 0, None, limit, recode, recode.whole))
        width, url = 0, -1
        column = int(self.text_key) - 1 if _is_number(self.text_key) else -1
        kept = dict[str, int]()
        for row in rows(iter(read), separator, detect_quoting(start, separator), limit, lambda line: decode(line)):
            why = row.fault
            if not why and not any(row.cells):
                why = BETWEEN
            elif not why and not width:
                width = len(row.cells)
                kept = _find_kept_columns(file, row.cells, self.keep, has_header=column < 0)
                if column < 0 or column >= width:
                    column, why = _column(file, row.cells, self.text_key), BETWEEN
                if self.url_key:
                    url = _url_column(file, row.cells, self.url_key)
            if not why and (len(row.cells) != width or column >= width):
                why = "ragged_row"
            if why in ("ragged_row", "bad_csv") and width and read.breaks_off(row.start + row.size):
                why = CUT_OFF
            if why:
                yield Record(file.label, row.size, fault=why, start=row.start, snippet=row.snippet)
            else:
                address = row.cells[url] if url >= 0 else ""
                record = Record(file.label, row.size, row.cells[column], row.repaired, start=row.start, url=address)
                values = {name: row.cells[at] or None for name, at in kept.items()}
                yield record._replace(metadata=values) if kept else record


class _Lines:
    """Iterator over the lines of a file that records whether the last line is complete."""

    def __init__(self, lines: Iterator[TextLine]) -> None:
        self.lines, self.end, self.is_whole = lines, 0, True

    def __iter__(self) -> Iterator[TextLine]:
        for line in self.lines:
            self.end, self.is_whole = line.start + line.size, bool(line.fault) or line.content.endswith(b"\n")
            yield line

    def breaks_off(self, end: int) -> bool:
        """Whether byte `end` is the end of a file whose last line has no line end."""
        return not self.is_whole and end == self.end


def _in_utf8(start: bytes, recode: Transcoder) -> bytes:
    """The first bytes of a file in UTF-8. An incomplete last line is omitted."""
    start = start.replace(b"\r", b"\n") if ends_in_returns(start, recode.file.path, recode.whole) else start
    lines = start.splitlines(keepends=True)
    return b"".join(map(recode, lines[:-1] if len(start) > HEAD // 2 and len(lines) > 1 else lines))


def columns(start: str, field: str = "text") -> list[str] | None:
    """Column names in the first row of a table; None if `field` is a column number.

    >>> columns("id;text\\n1;Words"), columns("id;text", "2")
    (['id', 'text'], None)
    """
    return None if _is_number(field) else first_row(start, separator_of(start, field, ""))


def _column(file: InputFile, header: list[str], field: str) -> int:
    """The index of a column. Raises BadInput if the column is missing or ambiguous."""
    names = [name.strip() for name in header]
    if _is_number(field):
        raise BadInput(
            f"{file.path}: invalid column number: got {field}, expected 1 to {len(names)}; select a column with "
            "--data PATH#NUMBER"
        )
    if (number := names.count(field)) > 1:
        raise BadInput(f"{file.path}: ambiguous column: {number} columns are named {field!r}; rename the others")
    if not number:
        raise BadInput(
            f"{file.path}: missing column {field!r}, expected one of {', '.join(map(repr, names[:8]))}; select "
            "a column with --data PATH#COLUMN or with `text_key` of the source, by its number if the file has no header"
        )
    return names.index(field)


def _find_kept_columns(file: InputFile, first: list[str], keep: tuple[str, ...], has_header: bool) -> dict[str, int]:
    """The index of each column of `keep`, by name or by number. Raises BadInput if one is missing."""
    names = [name.strip() for name in first] if has_header else [str(number + 1) for number in range(len(first))]
    require_present(file.path, keep, names)
    if twice := [name for name in keep if names.count(name) > 1]:
        raise BadInput(
            f"{file.path}: ambiguous column: {names.count(twice[0])} columns are named {twice[0]!r}; rename the others"
        )
    return {name: names.index(name) for name in keep}


def _url_column(file: InputFile, header: list[str], field: str) -> int:
    """The index of the column of the URLs: a name of the header, or a number from 1. Raises BadInput if missing."""
    if _is_number(field) and int(field) <= len(header):
        return int(field) - 1
    names = [name.strip() for name in header]
    if field not in names:
        shown = ", ".join(map(repr, names[:8]))
        raise BadInput(
            f"{file.path}: missing column {field!r}, expected one of {shown}; correct `url_key` of the source"
        )
    return names.index(field)


def _is_number(field: str) -> bool:
    return field.isdecimal() and field != "0"
