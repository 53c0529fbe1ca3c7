"""Web archives -> documents: main text of the HTML responses of WARC files, texts of WET files (ISO 28500).

Records are found by fastwarc, encodings and main text by resiliparse. Other records (requests, metadata, pictures) are
no documents. Bytes are counted decompressed, with the headers.
"""

import io
import re
from collections.abc import Iterator
from typing import Any, Final

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

from pipeline.readers.files import fault, open_bytes
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from preprocessing.text import decode

ENDINGS: Final = (".warc", ".wet")
_HTML: Final = ("text/html", "application/xhtml+xml")
_HEADERS: Final = re.compile(rb"(?s:.*?)\r?\n\r?\n")
_GAP: Final = b"\r\n\r\n"  # after each record
_RECENT: Final = 1 << 18  # bytes of what was read last, in which the headers of a record must be
_MOST_HTML: Final = 1 << 24  # bytes: no page for people is longer
# Elements left open nest without end, and the parser's time grows with the depth squared: 10,000 take 2 s.
_DEEPEST: Final = 1000
_TAG: Final = re.compile(rb"<(/?)([a-z][a-z0-9]*)([^<>]*?)(/?)>", re.IGNORECASE)
_CLOSE_THEMSELVES: Final = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd option tr td th tbody thead"
    b" tfoot colgroup rp rt script style".split()
)


class _Watched:
    """The bytes of a file on the way to fastwarc, which does not say where a record ends or what is behind the last."""

    def __init__(self, file: io.BufferedReader, most: int) -> None:
        self.file, self.most, self.size, self.recent = file, most, 0, b""

    def tell(self) -> int:
        return self.size

    def seek(self, offset: int, whence: int = 0) -> int:
        raise io.UnsupportedOperation("seek")

    def close(self) -> None:
        """The file is closed by who opened it."""

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(min(size if size >= 0 else self.most, self.most - self.size))
        self.size += len(data)
        self.recent = (self.recent + data)[-_RECENT:]
        return data

    def end(self, record: WarcRecord) -> int | None:
        """Where a record ends whose headers have just been read; None where they do not tell."""
        headers = _HEADERS.match(self.recent, max(0, record.stream_pos - self.size + len(self.recent)))
        length = str(record.headers.get("Content-Length"))
        if headers is None or not (length.isascii() and length.isdigit()):
            return None
        return int(record.stream_pos) + headers.end() - headers.start() + int(length) + len(_GAP)


def documents(label: str, path: str, start: int, stop: int | None, limit: int) -> Iterator[Record]:
    """The records of a file, or of the range [start, stop) of its stored bytes, which must begin with a record."""
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


def _archive(file: _Watched) -> Iterator[WarcRecord]:
    """The records of an archive; it ends where fastwarc finds none any more."""
    try:
        yield from ArchiveIterator(
            file, WarcRecordType.any_type, parse_http=True, auto_decode="all", stream_detect=False
        )
    except (OSError, ValueError):
        return


def _document(label: str, record: Any, limit: int) -> Record:
    """The text of a record; its size and place are known later."""
    is_text = record.record_type == WarcRecordType.conversion
    if not is_text and (record.record_type != WarcRecordType.response or record.http_content_type not in _HTML):
        return Record(label, 0, fault=BETWEEN)
    most = limit if is_text else _MOST_HTML
    content = record.reader.read(most + 1)
    if len(content) > most:
        return Record(label, 0, fault="too_long", snippet=content[:SNIPPET])
    if is_text:
        return Record(label, 0, *decode(content))
    if _is_too_deep(content):
        return Record(label, 0, fault="timeout", snippet=content[:SNIPPET])
    encoding = str(record.http_charset or detect_encoding(content, from_html_meta=True))
    return Record(label, 0, _main_text(content, encoding))


def _main_text(content: bytes, encoding: str) -> str:
    try:
        html = bytes_to_str(content, encoding)
    except LookupError:  # a server may say anything
        html = bytes_to_str(content, str(detect_encoding(content, from_html_meta=True)))
    return str(extract_plain_text(html, main_content=True, list_bullets=False, alt_texts=False))


def _is_too_deep(html: bytes) -> bool:
    """Whether elements nest deeper than any page for people has them."""
    depth = 0
    for closing, name, _, itself in _TAG.findall(html):
        if name.lower() not in _CLOSE_THEMSELVES and not itself:
            depth = max(0, depth - 1) if closing else depth + 1
            if depth > _DEEPEST:
                return True
    return False
