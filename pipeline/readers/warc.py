"""Web archives -> documents: the main text of pages in WARC files, or the text of WET files (ISO 28500).

Pages are HTML in successful responses (`response`) or stored directly (`resource`). resiliparse detects encodings and
extracts the main text. Records about other records (requests, metadata) are not documents. Unsuccessful responses and
other content types are counted by reason.

Archives in drafts of the standard (WARC/0.17, 0.18: ClueWeb09) have bare line feeds and wrong lengths; so do damaged
ones. The reader therefore looks for a record where the previous one should end, and otherwise searches for the next
record header. Sizes are of decompressed bytes and include headers.
"""

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Literal, NamedTuple, Self

from pipeline.readers.file_ranges import FileRange, MemberSignature, member_cuts, pieces_at
from pipeline.readers.files import Sides, is_text, open_bytes
from pipeline.readers.files import describe_fault as torn
from pipeline.readers.http import BadHttp, answer_of, charset, decode_body, headers_of, is_answer, media_type
from pipeline.readers.lines import rest_of
from pipeline.readers.metadata import require_fields
from pipeline.readers.page import MOST_HTML, is_too_deep, main_text
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from preprocessing.encodings import wide
from preprocessing.spec import key, spec
from preprocessing.stand_ins import is_page
from preprocessing.text import decode

GZIP_WARC: Final = MemberSignature(
    re.compile(rb"\x1f\x8b\x08"),
    re.compile(rb"WARC/1\.\d\r?\n"),
    lambda data: zlib.decompressobj(31).decompress(data, 64),
)
PLAIN_WARC: Final = MemberSignature(
    re.compile(rb"(?<=\r\n\r\n)WARC/1\.\d\r\n"), re.compile(rb"WARC/1\.\d\r\n(?:[\w-]+:.*\r\n)+"), lambda data: data
)
_MEMBERS: Final = {
    None: PLAIN_WARC,
    "gzip": GZIP_WARC,
}  # by compression; files with any other compression are not divided
_HEADER_OF_FIELD: Final = {"date": "warc-date", "id": "warc-record-id", "url": "warc-target-uri"}
_DRAFT: Final = b"WARC/0."
_VERSION: Final = re.compile(rb"WARC/\d\.\d+[ \t]*\r?\n")
_RECORD: Final = re.compile(rb"WARC/\d\.\d+[ \t]*\r?\n(?=[A-Za-z][\w-]*[ \t]*:)")
# byte order mark and line ends, which an editor may add
_LEAD: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?=WARC/\d)")
_USUAL_GAP: Final = b"\r\n\r\n"  # after each record
_LONGEST_MARK: Final = 64  # bytes at the end of a block that may contain a partial record header
_HEADERS: Final = re.compile(rb"(?s:.*?)\r?\n\r?\n")
_GAP: Final = re.compile(rb"[\r\n]*")
_REQUEST: Final = re.compile(rb"[A-Z]{3,10} \S+ HTTP/\d")
_MOST_DIGITS: Final = 18
_HTML: Final = ("text/html", "application/xhtml+xml")
_PROSE: Final = "text/plain"
_ABOUT_OTHERS: Final = ("warcinfo", "request", "metadata")
_MOST_HEADERS: Final = 1 << 16  # bytes of HTTP headers before a page
_LOOKED_AT: Final = 8192
_RECENT: Final = 1 << 18  # bytes within which the headers of a record must end
_BLOCK: Final = 1 << 20  # bytes read at a time


@spec
class WarcReader(FileReader):
    """Web archives: main text of HTML responses in WARC files, or text of WET files.

    Files may be compressed (.gz).
    """

    names: ClassVar[tuple[str, ...]] = ("warc",)
    leads: ClassVar[tuple[str, ...]] = (".warc", ".wet")
    usual: ClassVar[tuple[str, ...]] = leads
    metadata_fields: ClassVar[tuple[str, ...] | None] = ("date", "id", "url")

    kind: Literal["warc"] = "warc"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    keep: tuple[str, ...] = key(default=(), doc="Headers of a record to keep as metadata: date, id, url.")

    def __post_init__(self) -> None:
        require_fields("warc", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        is_archive = _VERSION.match(sample.inside)  # the first page may be compressed, or an image
        return cls(path=sample.path) if is_archive else None

    @property
    def has_urls(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.path}: read as warc"

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        (file,) = sides
        members = _MEMBERS.get(file.compression)
        return pieces_at(file, member_cuts(file, step, members) if members else [])

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        return documents(piece.file.label, piece.file.path, piece.start, piece.stop, limit, self.keep)


class _ArchiveRecord(NamedTuple):
    """A record of an archive, or bytes that are not a record."""

    start: int
    size: int
    headers: dict[str, str]
    content: bytes  # the first bytes of a long record
    fault: str = ""


class _Records:
    """Iterator over the records of an archive. Damage to a record or a wrong length does not affect other records.

    A record ends at its declared length if a gap, another record or the end of the file follows; otherwise before the
    next record.
    """

    def __init__(self, file: io.BufferedReader, left: int, most: int, is_last: bool) -> None:
        self.file, self.left, self.most, self.is_last = file, left, most, is_last
        self.buffer, self.at = b"", 0  # buffer and position in it
        self.start, self.ended = 0, False  # position in the archive

    def __iter__(self) -> Iterator[_ArchiveRecord]:
        while self.more(_RECENT):
            yield self.record()

    def more(self, wanted: int) -> bool:
        """Fill the buffer with up to `wanted` bytes from the current position. Returns whether there are any."""
        if len(self.buffer) - self.at >= wanted or self.ended:
            return self.at < len(self.buffer)
        blocks, size = [self.buffer[self.at :]], len(self.buffer) - self.at
        while size < wanted and not self.ended:
            block = self.file.read(min(self.left, max(_BLOCK, wanted - size)))
            self.ended = not block
            self.left -= len(block)
            size += len(block)
            blocks.append(block)
        self.buffer, self.at = b"".join(blocks), 0
        return bool(self.buffer)

    def record(self) -> _ArchiveRecord:
        if not self.start and (lead := _LEAD.match(self.buffer)) and lead.end():
            return self.take(lead.end(), {}, b"", BETWEEN)
        is_record = _VERSION.match(self.buffer, self.at) is not None
        match = _HEADERS.match(self.buffer, self.at, self.at + _RECENT) if is_record else None
        if match is None:
            is_cut = self.ended and is_record and _RECORD.search(self.buffer, self.at + 1) is None
            return self.up_to_next(1, {}, "truncated" if is_cut else "bad_warc")
        begin, headers = len(match[0]), headers_of(match[0].partition(b"\n")[2])
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or len(length) > _MOST_DIGITS:
            return self.up_to_next(begin, headers, "bad_warc")
        end = begin + int(length)
        if int(length) > self.most:
            return self.up_to_next(begin, headers, "", int(length))
        self.more(end + _LONGEST_MARK)
        first, last = self.at + begin, self.at + end
        gap = _GAP.match(self.buffer, min(last, len(self.buffer)))
        assert gap is not None
        is_end = gap.end() == len(self.buffer) or _VERSION.match(self.buffer, gap.end()) is not None
        if len(self.buffer) >= last and (
            is_end or (gap[0] == _USUAL_GAP and not self.buffer.startswith(_DRAFT, self.at))
        ):
            return self.take(gap.end(), headers, self.buffer[first:last])
        return self.up_to_next(begin, headers, "", int(length))

    def up_to_next(self, begin: int, headers: dict[str, str], fault: str, length: int = 0) -> _ArchiveRecord:
        """A record up to the next record header. If it is too long, its content is shortened.

        The fault is "truncated" if the archive ends before `length` bytes, except in drafts, whose lengths are wrong,
        and for records that continue in another range.
        """
        content_start, dropped, is_draft = b"", 0, self.buffer.startswith(_DRAFT, self.at)
        while (match := _RECORD.search(self.buffer, self.at + begin)) is None and not self.ended:
            if len(self.buffer) - self.at > begin + self.most:
                first, last = self.at + begin, len(self.buffer) - _LONGEST_MARK
                content_start = content_start or self.buffer[first : first + self.most + 1]
                dropped, self.at, begin = dropped + last - self.at, last, 0
            self.more(len(self.buffer) - self.at + _BLOCK)
        end = match.start() if match else len(self.buffer)
        content = content_start or self.buffer[self.at + begin : end].rstrip(b"\r\n")
        if match is None and not fault and dropped + end - self.at - begin < length:
            fault = "truncated" if torn(self.file) or (self.is_last and not is_draft) else ""
        if fault and not content:
            content = self.buffer[self.at : self.at + SNIPPET]
        found = self.take(end, headers, content, fault)
        self.start += dropped
        return found._replace(size=found.size + dropped)

    def take(self, end: int, headers: dict[str, str], content: bytes, fault: str = "") -> _ArchiveRecord:
        """The record that ends at position `end` of the buffer; moves the current position there."""
        found = _ArchiveRecord(self.start, end - self.at, headers, content, fault)
        self.start, self.at = self.start + found.size, end
        return found


def documents(
    label: str, path: str, start: int, stop: int | None, limit: int, keep: Sequence[str] = ()
) -> Iterator[Record]:
    """The documents of a file, or of a range [start, stop) of its stored bytes that begins with a record."""
    with open_bytes(path, start, stop) as file:
        offset, left = start if file.seekable() else 0, 1 << 62
        if file.seekable() and stop is not None:
            left = stop - start
        if offset:
            file.seek(offset)
        why = ""
        for found in _Records(file, left, max(limit, MOST_HTML) + _MOST_HEADERS, stop is None):
            why = torn(file) if found.fault == "truncated" else ""
            found = found._replace(fault=why or found.fault)
            record = _document(label, found, limit)._replace(start=offset + found.start, size=found.size)
            if not record.fault:
                record = record._replace(url=_url(found.headers))
            yield record._replace(metadata=_metadata(found.headers, keep)) if keep else record
        if not why:
            yield from (record._replace(start=offset) for record in rest_of(file, label))


def _metadata(headers: dict[str, str], keep: Sequence[str]) -> dict[str, str | None]:
    """The values of these fields."""
    values = {name: headers.get(_HEADER_OF_FIELD[name]) for name in keep}
    if values.get("url"):
        values["url"] = _url(headers)
    return values


def _url(headers: dict[str, str]) -> str:
    """The address of a page; "" if there is none. wget writes it in angle brackets."""
    return headers.get(_HEADER_OF_FIELD["url"], "").strip().removeprefix("<").removesuffix(">")


def _document(label: str, found: _ArchiveRecord, limit: int) -> Record:
    """The document of a record, without size and position."""
    snippet = found.content[:SNIPPET]
    if found.fault:
        return Record(label, 0, fault=found.fault, snippet=snippet)
    try:
        return _text(label, found, limit)
    except BadHttp:
        return Record(label, 0, fault="bad_http", snippet=snippet)
    except (ValueError, OSError, RuntimeError, LookupError) as error:  # raised by a library for one page
        return Record(label, 0, fault=f"broke_{type(error).__name__}", snippet=snippet)


def _text(label: str, found: _ArchiveRecord, limit: int) -> Record:
    kind, content = found.headers.get("warc-type", "").lower() or _kind_of(found), found.content
    if kind in _ABOUT_OTHERS:
        return Record(label, 0, fault=BETWEEN)
    header = found.headers.get("content-type", "")
    of_type, charset_name = media_type(header), charset(header)
    if kind == "response":
        answer = answer_of(content)
        if answer.status and not 200 <= answer.status < 300:
            return Record(label, 0, fault="http_error")
        if answer.headers or of_type == "application/http":
            of_type, charset_name = answer.type, answer.charset
        of_type = of_type or _sniff(answer.body)
        if of_type not in _HTML:
            return Record(label, 0, fault="not_a_page")
        content = decode_body(answer, MOST_HTML)
    elif kind not in ("resource", "conversion"):
        return Record(label, 0, fault="revisit" if kind == "revisit" else "unknown_record")
    of_type = of_type or _sniff(content) or ("text/plain" if kind == "conversion" else "")
    if of_type not in (*_HTML, _PROSE):
        return Record(label, 0, fault="not_a_page")
    is_text_only = of_type == _PROSE
    if len(content) > (limit if is_text_only else MOST_HTML):
        return Record(label, 0, fault="too_long", snippet=content[:SNIPPET])
    if is_text_only:
        return Record(label, 0, *decode(content))
    if content and not is_text(content[:_LOOKED_AT]) and not wide(content[:_LOOKED_AT]):
        return Record(label, 0, fault="not_text", snippet=content[:SNIPPET])
    if is_too_deep(content):
        return Record(label, 0, fault="timeout", snippet=content[:SNIPPET])
    return Record(label, 0, main_text(content, charset_name))


def _kind_of(found: _ArchiveRecord) -> str:
    """The type of a record without a type header."""
    if is_answer(found.content):
        return "response"
    if _REQUEST.match(found.content) or media_type(found.headers.get("content-type", "")) == "application/warc-fields":
        return "request"
    return "resource"


def _sniff(content: bytes) -> str:
    """The type of content without a type header: HTML or unknown ("")."""
    return "text/html" if is_page(content) else ""
