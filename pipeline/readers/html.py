"""Files of HTML -> documents: the main text of each page, as of the pages of a web archive."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange, pieces_at
from pipeline.readers.files import (
    Sides,
    absolute,
    describe_fault,
    display_path,
    find_single_files,
    open_bytes,
    plain_suffix,
    wide_encoding,
)
from pipeline.readers.lines import rest_of
from pipeline.readers.page import MOST_HTML, is_too_deep, text_of
from pipeline.readers.reader import FileProbe
from pipeline.readers.record import SNIPPET, Record
from pipeline.readers.transcode import require_encoding
from preprocessing.encodings import UTF8, Encoding, codec, declared, is_utf8, of_lines, to_utf8
from preprocessing.spec import spec
from preprocessing.text import decode

_ENDINGS: Final = (".html", ".htm", ".xhtml", ".shtml")
_HEAD: Final = 4096  # bytes in which a page says what it is in
_CHARSET: Final = re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_BEGINS: Final = re.compile(
    rb"(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)


@spec
class HtmlReader:
    """A file is a page in HTML; its main text is the document, without menus, headers and footers."""

    names: ClassVar[tuple[str, ...]] = ("html",)
    located: ClassVar[tuple[str, ...]] = ("path",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = _ENDINGS
    of_folder: ClassVar[bool] = False

    kind: Literal["html"] = "html"
    path: str
    extensions: tuple[str, ...] = ()  # of the files of a folder that are read; none: the usual ones
    encoding: str = ""  # of all files; "": what a page says of itself, or else seems to be in

    def __post_init__(self) -> None:
        require_encoding("html.encoding", self.encoding)

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        return cls(path=place)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        is_page = _BEGINS.match(sample.start) or (sample.start and plain_suffix(sample.file.path) in _ENDINGS)
        return cls(path=sample.path) if is_page else None

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as html"

    def anchored(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single_files(self.path, self.extensions or self.usual)

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        return pieces_at(sides[0], [])

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        file, wide = piece.file, wide_encoding(piece.file.path)
        with open_bytes(file.path) as stream:
            content = stream.read(MOST_HTML + 1)
            size = len(content) + sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
            why = describe_fault(stream) or (
                "too_long" if size > MOST_HTML else "timeout" if is_too_deep(content) else ""
            )
            yield from () if describe_fault(stream) else rest_of(stream, file.label)
        if why:
            yield Record(file.label, size, fault=why, snippet=content[:SNIPPET])
            return
        encoding = UTF8 if wide else Encoding(codec(self.encoding)) if self.encoding else _encoding(content)
        if encoding.mixed:  # each line in one of both
            content = b"\n".join(to_utf8(line, encoding) for line in content.split(b"\n"))
        html, lost = decode(content if encoding.mixed else to_utf8(content, encoding))
        said = wide or ("" if encoding == UTF8 else str(encoding))
        yield Record(file.label, size, text_of(html), lost, encoding=said)


def _encoding(content: bytes) -> Encoding:
    r"""What a page is in: UTF-8 where it can be read as that, else what it says, else what it looks like.

    >>> _encoding(b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251"><p>\xef\xf0\xe8').name
    'cp1251'
    """
    if is_utf8(content):
        return of_lines(content) if content.isascii() else UTF8  # ISO-2022-JP and HZ are written in ASCII
    said = _CHARSET.search(content[:_HEAD])
    return Encoding(name) if said and (name := declared(said[1].decode(), content)) else of_lines(content)
