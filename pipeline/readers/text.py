"""Plain text: each file, line or paragraph is a document. Blank lines separate paragraphs."""

import re
from collections.abc import Iterator
from statistics import median
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange, pieces_at, text_cuts
from pipeline.readers.files import Sides, display_path
from pipeline.readers.lines import TextLine, drop_record
from pipeline.readers.plain import always, document, is_blank, line_records, never
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, Record
from pipeline.readers.transcode import blocks_of, require_encoding
from pipeline.readers.walk import report_skipped
from preprocessing.spec import key, spec

Unit = Literal["document", "line", "paragraphs"]


@spec
class TextReader(FileReader):
    """Plain text files; each file, line or paragraph is a document.

    Blank lines separate paragraphs. Files may be compressed.
    """

    names: ClassVar[tuple[str, ...]] = ("text", "line", "paragraphs")
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = ()

    kind: Literal["text"] = "text"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    document_unit: Unit = key(default="document", doc="Unit of a document: a whole file, a line, or a paragraph.")
    extensions: tuple[str, ...] = key(default=(), doc="File extensions to read in a directory; []: all files.")
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")

    def __post_init__(self) -> None:
        require_encoding("text.encoding", self.encoding)

    @classmethod
    def from_name(cls, name: str, place: str) -> Self:
        return cls(path=place, document_unit=_UNITS[name])

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        """Recognizes any text. The unit is detected for a single file; several files are one document each."""
        if not sample.start:
            return None
        if not sample.alone:
            return cls(path=sample.path)
        return cls(path=sample.path, document_unit=_unit(sample))

    def describe(self) -> str:
        unit = {"document": "file", "line": "line", "paragraphs": "paragraph"}[self.document_unit]
        return f"{display_path(self.path, self.extensions)}: read as text, one document per {unit}"

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        (file,) = sides
        return pieces_at(file, [] if self.document_unit == "document" else text_cuts(file, step))

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        begins = {"document": never, "line": always, "paragraphs": is_blank}[self.document_unit]
        parse = paragraph if self.document_unit == "paragraphs" else document
        return line_records(piece, begins, parse, limit, self.encoding)


def _unit(sample: FileProbe) -> Unit:
    """The unit of a document in one file: paragraphs if blank lines separate them, otherwise lines.

    If the first blank line occurs after 64 KB, the length of the lines decides: long lines are documents, and short
    lines form paragraphs.
    """
    if _has_blank_lines(sample.start):
        return "paragraphs"
    lengths = list[int]()
    is_any = False
    for block in blocks_of(sample.file):
        is_any = is_any or _has_blank_lines(block)
        lengths += map(len, block.split(b"\n")[:_MOST_LINES])
    if not is_any:
        return "line"
    unit: Unit = "paragraphs" if median(lengths) < _LONG_LINE else "line"
    other = "paragraphs" if unit == "line" else "line"
    report_skipped(
        f"{sample.path}: ambiguous blank lines, the first one after 64 kB: read with one document per "
        f"{'paragraph' if unit == 'paragraphs' else 'line'}; to change this, pass {other}:{sample.path}"
    )
    return unit


def _has_blank_lines(content: bytes) -> bool:
    return _BLANK_LINE.search(content) is not None


_BLANK_LINE: Final = re.compile(
    rb"\n(?:[\0-\x09\x0b-\x20\x7f]|\xc2[\x80-\xa0\xad]|\xd8\x9c|\xe1\x85[\x9f\xa0]|\xe1\x9a\x80|\xe1\xa0\x8e"
    rb"|\xe2\x80[\x80-\x8f\xa8-\xaf]|\xe2\x81[\x9f-\xaf]|\xe2\xa0\x80|\xe3\x80\x80|\xe3\x85\xa4|\xef\xbb\xbf"
    rb"|\xef\xbe\xa0)*\n"
)
_LONG_LINE: Final = 400  # bytes; most sentences are shorter, most documents longer
_MOST_LINES: Final = 1000  # of a block
_UNITS: Final[dict[str, Unit]] = {"text": "document", "line": "line", "paragraphs": "paragraphs"}


def paragraph(label: str, block: TextLine) -> Record:
    """The record of a paragraph. A block includes its leading blank line."""
    return drop_record(label, block, BETWEEN) if is_blank(block) else document(label, block)
