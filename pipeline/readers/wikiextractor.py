"""What WikiExtractor writes (https://github.com/attardi/wikiextractor) -> articles: its tags, or its JSON lines."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from pipeline.readers.cut import Piece, pieces_at, text_cuts
from pipeline.readers.files import Sides, absolute, find_single, head
from pipeline.readers.jsonl import is_json_lines, parsed
from pipeline.readers.lines import Line, dropped
from pipeline.readers.plain import always, is_blank, line_records
from pipeline.readers.reader import Sample
from pipeline.readers.record import BETWEEN, Record
from preprocessing.spec import spec
from preprocessing.text import decode


@spec
class WikiExtractor:
    """What WikiExtractor writes: `<doc id= url= title=>`, lines, `</doc>`, or its JSON; optionally .gz, .bz2, .zst."""

    names: ClassVar[tuple[str, ...]] = ("wikiextractor",)
    located: ClassVar[tuple[str, ...]] = ("path",)
    leads: ClassVar[tuple[str, ...]] = ()

    kind: Literal["wikiextractor"] = "wikiextractor"
    path: str

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        return cls(path=place)

    @classmethod
    def looks_like(cls, sample: Sample) -> Self | None:
        is_ours = sample.start.startswith(b"<doc ") or (is_json_lines(sample) and is_its_json(sample.start))
        return cls(path=sample.path) if is_ours else None

    def describe(self) -> str:
        return f"{self.path}: read as wikiextractor"

    def anchored(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single(self.path)

    def pieces(self, sides: Sides, step: int) -> Iterator[Piece]:
        (file,) = sides
        return pieces_at(file, text_cuts(file, step))

    def records(self, piece: Piece, limit: int) -> Iterator[Record]:
        start = head(piece.file.path)
        if is_json(start):
            return line_records(piece, always, parsed, limit)
        return line_records(piece, begins, article, limit)


def begins(line: Line) -> bool:
    """Whether an article begins here."""
    return line.content.startswith(b"<doc ")


def is_json(start: bytes) -> bool:
    """Whether a file with this beginning has articles as JSON lines."""
    return start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def is_its_json(start: bytes) -> bool:
    """Whether the first JSON line is one that WikiExtractor wrote.

    >>> is_its_json(b'{"id": "1", "url": "u", "title": "t", "text": "x"}'), is_its_json(b'{"text": "x"}')
    (True, False)
    """
    try:
        value = json.loads(start.lstrip().partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and {"id", "url", "title", "text"} <= set(value) <= {
        "id", "revid", "url", "title", "text",
    }  # fmt: skip


def article(label: str, block: Line) -> Record:
    """What stands between the tags of an article."""
    if not begins(block):
        return dropped(label, block, BETWEEN if is_blank(block) else "no_doc_tag")
    body = block.content.partition(b"\n")[2].rpartition(b"</doc>")
    return Record(label, block.size, *decode(body[0] or body[2]), "", block.start)
