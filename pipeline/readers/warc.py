"""Web archives -> documents: main text of the HTML responses of WARC files, texts of WET files (ISO 28500).

Records are found by fastwarc, encodings and main text by resiliparse. Other records (requests, metadata, pictures) are
no documents. Bytes are counted decompressed, with the headers.

Archives of drafts of the standard (WARC/0.17, 0.18: ClueWeb09) have bare line feeds and wrong lengths, by which
fastwarc loses records: these are cut where a record begins, and each is mended before fastwarc reads it.
"""

import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from pipeline.readers.cut import Members, Piece, member_cuts, pieces_at
from pipeline.readers.files import Sides, absolute, fault, find_single, open_bytes
from pipeline.readers.page import MOST_HTML, is_too_deep, main_text
from pipeline.readers.reader import Sample
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from preprocessing.spec import spec
from preprocessing.text import decode

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

# fastwarc and resiliparse are imported where they are used: their libraries are loaded for web archives only.
GZIP_WARC: Final = Members(
    re.compile(rb"\x1f\x8b\x08"),
    re.compile(rb"WARC/1\.\d\r?\n"),
    lambda data: zlib.decompressobj(31).decompress(data, 64),
)
PLAIN_WARC: Final = Members(
    re.compile(rb"(?<=\r\n\r\n)WARC/1\.\d\r\n"), re.compile(rb"WARC/1\.\d\r\n(?:[\w-]+:.*\r\n)+"), lambda data: data
)
_MEMBERS: Final = {None: PLAIN_WARC, "gzip": GZIP_WARC}  # by compression; another one is a single stream
_DRAFT: Final = b"WARC/0."
_DRAFT_RECORD: Final = re.compile(rb"WARC/0\.\d+\r?\n(?=[A-Z][\w-]*:)")
_LENGTH: Final = re.compile(rb"^Content-Length:[ \t]*(\d+)[ \t\r]*$", re.IGNORECASE | re.MULTILINE)
_HTML: Final = ("text/html", "application/xhtml+xml")
_HEADERS: Final = re.compile(rb"(?s:.*?)\r?\n\r?\n")
_GAP: Final = b"\r\n\r\n"  # after each record
_RECENT: Final = 1 << 18  # bytes of what was read last, in which the headers of a record must be
_BLOCK: Final = 1 << 20  # bytes of a draft's archive that are read at a time


@spec
class Warc:
    """Web archives: the main text of the HTML responses of WARC files, the texts of WET files; .gz or not."""

    names: ClassVar[tuple[str, ...]] = ("warc",)
    located: ClassVar[tuple[str, ...]] = ("path",)
    leads: ClassVar[tuple[str, ...]] = (".warc", ".wet")
    usual: ClassVar[tuple[str, ...]] = leads
    of_folder: ClassVar[bool] = False

    kind: Literal["warc"] = "warc"
    path: str

    @property
    def place(self) -> str:
        return self.path

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        return cls(path=place)

    @classmethod
    def looks_like(cls, sample: Sample) -> Self | None:
        return cls(path=sample.path) if sample.start.startswith(b"WARC/") else None

    def describe(self) -> str:
        return f"{self.path}: read as warc"

    def anchored(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single(self.path, self.usual)

    def pieces(self, sides: Sides, step: int) -> Iterator[Piece]:
        (file,) = sides
        members = _MEMBERS.get(file.compression)
        return pieces_at(file, member_cuts(file, step, members) if members else [])

    def records(self, piece: Piece, limit: int) -> Iterator[Record]:
        return documents(piece.file.label, piece.file.path, piece.start, piece.stop, limit)


class _Watched:
    """The bytes of a file as fastwarc reads them: it reports neither the end of a record nor what follows the last."""

    def __init__(self, file: io.BufferedReader, most: int) -> None:
        self.file, self.most, self.size, self.recent = file, most, 0, b""

    def tell(self) -> int:
        return self.size

    def seek(self, offset: int, whence: int = 0) -> int:
        raise io.UnsupportedOperation("seek")

    def close(self) -> None:
        """The caller closes the file."""

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(min(size if size >= 0 else self.most, self.most - self.size))
        self.size += len(data)
        self.recent = (self.recent + data)[-_RECENT:]
        return data

    def end(self, record: "WarcRecord") -> int | None:
        """Where a record ends whose headers have just been read; None where they do not have its length."""
        headers = _HEADERS.match(self.recent, max(0, record.stream_pos - self.size + len(self.recent)))
        length = str(record.headers.get("Content-Length"))
        if headers is None or not (length.isascii() and length.isdigit()):
            return None
        return int(record.stream_pos) + headers.end() - headers.start() + int(length) + len(_GAP)


def documents(label: str, path: str, start: int, stop: int | None, limit: int) -> Iterator[Record]:
    """The records of a file, or of the range [start, stop) of its stored bytes, which must begin with a record."""
    if start == 0 and _is_draft(path):
        yield from _draft_documents(label, path, limit)
        return
    with open_bytes(path, start, stop) as file:
        offset = start if file.seekable() else 0
        if offset:
            file.seek(offset)
        watched = _Watched(file, stop - start if stop is not None and file.seekable() else 1 << 62)
        end, last = 0, Record(label, 0)
        for record in _archive(watched):
            ends = watched.end(record)
            if ends is None:
                break
            if last.size:
                yield last
            last = _document(label, record, limit)._replace(start=offset + record.stream_pos, size=ends - end)
            end = ends
        while watched.read(_RECENT):
            pass
        missing = end - watched.size
        if missing > 0:
            last = Record(label, last.size - missing, fault=fault(file) or "truncated", start=last.start)
        if last.size:
            yield last
        if missing < 0 or (missing == 0 and fault(file)):
            yield Record(label, -missing, fault=fault(file) or "bad_warc", start=offset + end)


def _is_draft(path: str) -> bool:
    with open_bytes(path) as file:
        return bool(file.read(len(_DRAFT)) == _DRAFT)


def _draft_documents(label: str, path: str, limit: int) -> Iterator[Record]:
    """The records of an archive of a draft, which is not cut: its one piece is the file."""
    with open_bytes(path) as file:
        start = 0
        for content, damage in _draft_records(file):
            if damage:
                record = Record(label, 0, fault=damage)
            elif content.startswith(_DRAFT):
                record = _draft_document(label, content, limit)
            else:  # the rest of a record that is too long
                record = Record(label, 0, fault=BETWEEN)
            yield record._replace(start=start, size=len(content))
            start += len(content)


def _draft_records(file: io.BufferedReader) -> Iterator[tuple[bytes, str]]:
    """The bytes from the beginning of a record to that of the next, a long one in parts; the damage of the last one."""
    held, searched = b"", 1
    while block := file.read(_BLOCK):
        held, start = held + block, 0
        for match in _DRAFT_RECORD.finditer(held, searched):
            yield held[start : match.start()], ""
            start = match.start()
        held = held[start:]
        if len(held) > 2 * MOST_HTML:
            yield held[:-_BLOCK], ""
            held = held[-_BLOCK:]
        searched = max(1, len(held) - 64)  # a mark may lie across the end of a block
    if held:
        yield held, fault(file)


def _draft_document(label: str, content: bytes, limit: int) -> Record:
    """A record with the line ends and the length that the standard wants, as fastwarc reads it."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    headers = _HEADERS.match(content)
    stated = headers and _LENGTH.search(headers[0])
    if headers is None or stated is None:
        return Record(label, 0, fault="bad_warc", snippet=content[:SNIPPET])
    rest = content[headers.end() :]
    body, gap = rest[: int(stated[1])], rest[int(stated[1]) :]
    body = rest.rstrip(b"\r\n") if gap.strip() else body
    lines = headers[0][: stated.start()] + b"Content-Length: %d" % len(body) + headers[0][stated.end() :]
    mended = b"\r\n".join(lines.replace(b"\r", b"").rstrip(b"\n").split(b"\n")[1:])
    archive = io.BytesIO(b"WARC/1.0\r\n" + mended + b"\r\n\r\n" + body + _GAP)
    found = ArchiveIterator(
        archive, WarcRecordType.any_type, parse_http=True, auto_decode="all", quirks_mode=True, stream_detect=False
    )
    try:
        return next((_document(label, record, limit) for record in found), Record(label, 0, fault="bad_warc"))
    except (OSError, ValueError):
        return Record(label, 0, fault="bad_warc", snippet=content[:SNIPPET])


def _archive(file: _Watched) -> Iterator["WarcRecord"]:
    """The records of an archive, up to the last that fastwarc finds."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    try:
        yield from ArchiveIterator(
            file, WarcRecordType.any_type, parse_http=True, auto_decode="all", stream_detect=False
        )
    except (OSError, ValueError):
        return


def _document(label: str, record: Any, limit: int) -> Record:
    """The text of a record, without its size and place."""
    from fastwarc.warc import WarcRecordType

    is_text = record.record_type == WarcRecordType.conversion
    if not is_text and (record.record_type != WarcRecordType.response or record.http_content_type not in _HTML):
        return Record(label, 0, fault=BETWEEN)
    most = limit if is_text else MOST_HTML
    content = record.reader.read(most + 1)
    if len(content) > most:
        return Record(label, 0, fault="too_long", snippet=content[:SNIPPET])
    if is_text:
        return Record(label, 0, *decode(content))
    if is_too_deep(content):
        return Record(label, 0, fault="timeout", snippet=content[:SNIPPET])
    return Record(label, 0, main_text(content, record.http_charset))
