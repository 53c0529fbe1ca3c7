"""Books of Project Gutenberg: each file is one document, without headers, licenses and transcriber's notes."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.book_contents import without_contents
from pipeline.readers.book_matter import without_italics, without_notes
from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import display_path
from pipeline.readers.lines import TextLine
from pipeline.readers.metadata import require_fields
from pipeline.readers.plain import line_records, never
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import Record
from pipeline.readers.transcode import require_encoding
from preprocessing.characters import pin_characters
from preprocessing.spec import key, spec
from preprocessing.text import decode

# Marks around a book in Project Gutenberg files from 1991 to today. A mark with a long title spans several lines.
_START: Final = re.compile(
    r"^[ \t]*\*\*\*[ \t]*START\s+OF\s+TH(?:E|IS)\s+PROJECT\s+GUTENBERG\s+E(?:BOOK|TEXT)"
    r"(?:.*\*\*\*.*|[^*\n]*\n(?:[^*\n]+\n){0,3}[^*\n]*\*\*\*.*|.*)\n",
    re.IGNORECASE | re.MULTILINE,
)
# The end of the small print of 1991 to 2003, which precedes the book.
# In files with the mark above, it follows the book.
_SMALL_PRINT: Final = re.compile(r"^[ \t]*\*END[ *]*THE SMALL PRINT.*\n", re.IGNORECASE | re.MULTILINE)
_END: Final = re.compile(
    r"^[ \t]*(?:\*\*\*[ \t]*END\s+OF\s+TH(?:E|IS)\s+PROJECT\s+GUTENBERG\s+E(?:BOOK|TEXT)"
    r"|(?:\*\*\*[ \t]*)?END OF (?:THE |THIS )?PROJECT GUTENBERG"
    r"|\*\*\*[ \t]*START: FULL LICENSE)",
    re.IGNORECASE | re.MULTILINE,
)
_CREDITS: Final = re.compile(
    r"\s*(?:(?:E-?text |This e(?:-?text|book) was )?(?:produced|prepared|transcribed|scanned) (?:by|from)\b"
    r"|Note: (?:Project Gutenberg also has|Images of the original pages are available)).*\n"
    r"(?:.+\n)*\s*",
    re.IGNORECASE,
)
_LONGEST_HEADER: Final = 5_000  # characters
_HEADER_FIELDS: Final = {
    "author": re.compile(r"^Author: *(\S.*)$", re.MULTILINE),
    "date": re.compile(r"^Release Date: *(\S[^\[\n]*)", re.MULTILINE | re.IGNORECASE),
    "id": re.compile(r"\[e(?:book|text) ?#(\d+)\]", re.IGNORECASE),
    "language": re.compile(r"^Language: *(\S.*)$", re.MULTILINE),
    "title": re.compile(r"^Title: *(\S.*)$", re.MULTILINE),
}
_MARK: Final = re.compile(
    rb"\*\*\*\s?START\s+OF\s+TH(?:E|IS)\s+PROJECT\s+GUTENBERG|\*END[ *]*THE SMALL PRINT", re.IGNORECASE
)


@spec
class GutenbergReader(FileReader):
    """Books of Project Gutenberg, one per file, without its header and footer."""

    names: ClassVar[tuple[str, ...]] = ("gutenberg",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = ()
    metadata_fields: ClassVar[tuple[str, ...] | None] = ("author", "date", "id", "language", "title")

    kind: Literal["gutenberg"] = "gutenberg"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    extensions: tuple[str, ...] = key(default=(), doc="File extensions to read in a directory; []: all files.")
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")
    keep: tuple[str, ...] = key(
        default=(), doc="Fields of the header to keep as metadata: author, date, id, language, title."
    )

    def __post_init__(self) -> None:
        require_encoding("gutenberg.encoding", self.encoding)
        require_fields("gutenberg", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        return cls(path=sample.path) if _MARK.search(sample.start) else None

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as gutenberg"

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        return line_records(piece, never, partial(book, keep=self.keep), limit, self.encoding)


def book(label: str, block: TextLine, keep: Sequence[str] = ()) -> Record:
    """The record of a book, without Project Gutenberg's header and license, notes, contents and italics marks."""
    text, repaired = decode(block.content)
    text = text.replace("\r\n", "\n")
    record = Record(label, block.size, strip_boilerplate(text), repaired, start=block.start)
    return record._replace(metadata=header_fields(text, keep)) if keep else record


def header_fields(text: str, keep: Sequence[str]) -> dict[str, str | None]:
    r"""These fields of the header of a book: author, date, id (the number of the book), language, title.

    >>> header_fields("Title: X\nRelease Date: May 5, 2006 [EBook #18]\n\n*** START OF", ("id", "title", "author"))
    {'id': '18', 'title': 'X', 'author': None}
    """
    start = _START.search(text)
    header = text[: start.start() if start else _LONGEST_HEADER]
    found = {name: pattern.search(header) for name, pattern in _HEADER_FIELDS.items()}
    return {name: match[1].strip() if (match := found[name]) else None for name in keep}


@pin_characters
def strip_boilerplate(text: str) -> str:
    r"""The text of a book between the last start mark and the first end mark after it, without notes and contents.

    >>> strip_boilerplate("The Project Gutenberg EBook of X\n\n*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n\n"
    ...          "Produced by Y and\nZ\n\nCall me X.\n\nEnd of Project Gutenberg's X, by Y\n\nLicence")
    'Call me X.\n\n'
    """
    starts = list(_START.finditer(text)) or list(_SMALL_PRINT.finditer(text))
    if starts:
        text = text[starts[-1].end() :]
        while credit_lines := _CREDITS.match(text):
            text = text[credit_lines.end() :]
    end = _END.search(text)
    text = text[: end.start()] if end else text
    return without_italics(without_contents(without_notes(text)))
