r"""HTTP responses in a web archive -> status, content type and decoded body.

Archives store bodies as sent, or decoded but with the original headers. A header about the body is therefore used only
if the body agrees with it.
"""

import re
import zlib
from typing import Final, NamedTuple

import pyarrow as pa

_LINE: Final = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})", re.IGNORECASE)
_END: Final = re.compile(rb"\r?\n\r?\n|\Z")
_CHUNK: Final = re.compile(rb"[ \t]*([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_MARKUP: Final = re.compile(rb"[\xef\xbb\xbf\s]*<[a-zA-Z!?]")
_GZIP, _GZIP_MARK = 31, b"\x1f\x8b"  # zlib's window value for gzip; signature of a gzip member
_CHARSET: Final = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';,]+)""", re.IGNORECASE)


class BadHttp(ValueError):
    """An HTTP response whose body can be read neither with nor without the decoding that its headers declare."""


class HttpResponse(NamedTuple):
    status: int  # 0 if there is no status line
    headers: dict[str, str]  # names in lower case; values of repeated headers are joined with commas
    body: bytes  # before decoding

    @property
    def type(self) -> str:
        """The content type in lower case, without parameters; "" if there is none."""
        return media_type(self.headers.get("content-type", ""))

    @property
    def charset(self) -> str:
        return charset(self.headers.get("content-type", ""))


def media_type(header: str) -> str:
    """The media type in a Content-Type header, in lower case.

    >>> media_type(" Text/HTML ; charset=UTF-8")
    'text/html'
    """
    return header.partition(";")[0].partition(",")[0].strip().lower()


def charset(header: str) -> str:
    """The charset in a Content-Type header; "" if there is none.

    >>> charset('text/html; Charset="iso-8859-2"'), charset("text/html")
    ('iso-8859-2', '')
    """
    return found[1] if (found := _CHARSET.search(header)) else ""


def headers_of(lines: bytes) -> dict[str, str]:
    r"""Headers with names in lower case. Line ends may vary; a line that begins with a blank continues the previous
    one.

    >>> headers_of(b"content-type: a\r\nX: 1\n 2\r\nno header\r\nX: 3\n")
    {'content-type': 'a', 'x': '1 2, 3'}
    """
    found, last = dict[str, str](), ""
    for line in lines.decode("utf-8", "replace").replace("\r", "").split("\n"):
        if line[:1] in (" ", "\t") and last:
            found[last] += f" {line.strip()}"
            continue
        name, colon, value = line.partition(":")
        if colon:
            last = name.strip().lower()
            found[last] = f"{found[last]}, {value.strip()}" if last in found else value.strip()
    return found


def is_answer(content: bytes) -> bool:
    """Whether content begins with an HTTP status line."""
    return _LINE.match(content) is not None


def answer_of(content: bytes) -> HttpResponse:
    """Parse an HTTP response. Content without a status line becomes a body without headers."""
    line = _LINE.match(content)
    if line is None:
        return HttpResponse(0, {}, content)
    end = _END.search(content, line.end())
    assert end is not None
    return HttpResponse(
        int(line[1]), headers_of(content[line.end() : end.start()].partition(b"\n")[2]), content[end.end() :]
    )


def decode_body(answer: HttpResponse, most: int) -> bytes:
    """The decoded body, up to a little more than `most` bytes.

    A body that is not chunked or not compressed, although its headers declare it, is returned unchanged. Raises BadHttp
    if the decoding fails after a valid beginning.
    """
    body = answer.body
    if "chunked" in answer.headers.get("transfer-encoding", "").lower():
        body = _without_chunks(body)
    for coding in reversed(re.split(r"[,\s]+", answer.headers.get("content-encoding", "").lower())):
        body = _inflate(body, coding, most)
    return _inflate(body, "gzip", most)  # some servers compress without a header


def _without_chunks(body: bytes) -> bytes:
    """Join the chunks of a body; a body that does not begin with a chunk is returned unchanged."""
    parts, at = list[bytes](), 0
    while match := _CHUNK.match(body, at):
        size = int(match[1], 16)
        chunk = body[match.end() : match.end() + size]
        at = match.end() + size
        after = body[at : at + 2]
        is_whole = len(chunk) == size and (not after or after.startswith((b"\r\n", b"\n")) or size == 0)
        if not is_whole and not parts and len(chunk) == size:
            return body  # the first line is a number by chance
        if size == 0 or not chunk:
            return b"".join(parts)
        if not is_whole and at < len(body):
            raise BadHttp("chunk length does not match its header")
        parts.append(chunk)
        at += 2 if after.startswith(b"\r\n") else 1 if after.startswith(b"\n") else 0
        if at >= len(body):
            return b"".join(parts)
    if parts:
        raise BadHttp("invalid data after the last chunk")
    return body


def _inflate(body: bytes, coding: str, most: int) -> bytes:
    if coding in ("gzip", "x-gzip"):
        return _by_zlib(body, most, _GZIP) if body.startswith(_GZIP_MARK) else body
    if coding == "deflate":
        try:
            return _by_zlib(body, most, 15)
        except BadHttp:
            return body if _MARKUP.match(body) else _by_zlib(body, most, -15)
    if coding in ("br", "zstd") and not _MARKUP.match(body):
        try:
            return _by_arrow(body, most, "brotli" if coding == "br" else "zstd")
        except (OSError, pa.ArrowException) as error:
            raise BadHttp(str(error)) from None
    return body


def _by_zlib(body: bytes, most: int, window: int) -> bytes:
    """Decompressed body, up to a little more than `most` bytes. For gzip, all members are read."""
    parts, size, rest = list[bytes](), 0, body
    while size <= most and rest and (not parts or (window == _GZIP and rest.startswith(_GZIP_MARK))):
        decoder = zlib.decompressobj(window)
        try:
            parts.append(decoder.decompress(rest, most + 1 - size))
        except zlib.error as error:
            raise BadHttp(str(error)) from None
        size, rest = size + len(parts[-1]), decoder.unused_data
    return b"".join(parts)


def _by_arrow(body: bytes, most: int, codec: str) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        return bytes(stream.read(most + 1))
