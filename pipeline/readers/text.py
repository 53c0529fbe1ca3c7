"""Plain text: a file, a line, or what blank lines separate is a document."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.cut import Piece, pieces_at, text_cuts
from pipeline.readers.files import Sides, absolute, find_single, shown
from pipeline.readers.lines import Line, dropped
from pipeline.readers.plain import always, document, is_blank, line_records, never
from pipeline.readers.reader import Sample
from pipeline.readers.recode import require_encoding
from pipeline.readers.record import BETWEEN, Record
from preprocessing.spec import spec

Unit = Literal["document", "line", "paragraphs"]


@spec
class Text:
    """Plain text, optionally compressed. What a document is: a file, a line, or what blank lines separate."""

    names: ClassVar[tuple[str, ...]] = ("text", "line", "paragraphs")
    located: ClassVar[tuple[str, ...]] = ("path",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = ()
    of_folder: ClassVar[bool] = False

    kind: Literal["text"] = "text"
    path: str
    unit: Unit = "document"
    endings: tuple[str, ...] = ()  # of the files of a folder that are read; none: all files
    encoding: str = ""  # of all files; "": that of each is found

    def __post_init__(self) -> None:
        require_encoding("text.encoding", self.encoding)

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        return cls(path=place, unit=_UNITS[name])

    @classmethod
    def looks_like(cls, sample: Sample) -> Self | None:
        """Any text: one file by its blank lines, or by its lines where it has none; of several each is a document."""
        if not sample.start:
            return None
        if not sample.alone:
            return cls(path=sample.path)
        return cls(path=sample.path, unit="paragraphs" if b"\n\n" in sample.start.replace(b"\r", b"") else "line")

    def describe(self) -> str:
        unit = {"document": "file", "line": "line", "paragraphs": "paragraph"}[self.unit]
        return f"{shown(self.path, self.endings)}: read as text, one document per {unit}"

    def anchored(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single(self.path, self.endings)

    def pieces(self, sides: Sides, step: int) -> Iterator[Piece]:
        (file,) = sides
        return pieces_at(file, [] if self.unit == "document" else text_cuts(file, step))

    def records(self, piece: Piece, limit: int) -> Iterator[Record]:
        begins = {"document": never, "line": always, "paragraphs": is_blank}[self.unit]
        parse = paragraph if self.unit == "paragraphs" else document
        return line_records(piece, begins, parse, limit, self.encoding)


_UNITS: Final[dict[str, Unit]] = {"text": "document", "line": "line", "paragraphs": "paragraphs"}


def paragraph(label: str, block: Line) -> Record:
    """What stands between blank lines; the blank line that begins the block belongs to it."""
    return dropped(label, block, BETWEEN) if is_blank(block) else document(label, block)
