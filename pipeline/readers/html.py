"""HTML files -> one document per file: the main text of the page, extracted as for web archives."""

import re
from collections.abc import Iterator
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import describe_fault, display_path, open_bytes, plain_suffix, wide_encoding
from pipeline.readers.lines import rest_of
from pipeline.readers.metadata import require_fields
from pipeline.readers.page import MOST_HTML, is_too_deep, page_fields, text_of
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import SNIPPET, Record
from pipeline.readers.transcode import require_encoding
from preprocessing.encodings import UTF8, Encoding, codec, is_utf8, of_lines, read_declared_codec, to_utf8
from preprocessing.spec import key, spec
from preprocessing.text import decode

_ENDINGS: Final = (".html", ".htm", ".xhtml", ".shtml")
_HEAD: Final = 4096  # bytes in which a page declares its encoding
_CHARSET: Final = re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_BEGINS: Final = re.compile(
    rb"(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)


@spec
class HtmlReader(FileReader):
    """HTML files; each main text is a document, without menus, headers and footers."""

    names: ClassVar[tuple[str, ...]] = ("html",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = _ENDINGS
    metadata_fields: ClassVar[tuple[str, ...] | None] = ("language", "title", "url")

    kind: Literal["html"] = "html"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    extensions: tuple[str, ...] = key(
        default=(), doc="File extensions to read in a directory; []: the default ones of the format."
    )
    encoding: str = key(default="", doc="Text encoding of all files; empty: declared by each page, or detected.")
    keep: tuple[str, ...] = key(default=(), doc="Fields of a page to keep as metadata: language, title, url.")

    def __post_init__(self) -> None:
        require_encoding("html.encoding", self.encoding)
        require_fields("html", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        is_page = _BEGINS.match(sample.start) or (sample.start and plain_suffix(sample.file.path) in _ENDINGS)
        return cls(path=sample.path) if is_page else None

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as html"

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
        if encoding.mixed:  # the lines of a page in two encodings are converted one by one
            content = b"\n".join(to_utf8(line, encoding) for line in content.split(b"\n"))
        html, lost = decode(content if encoding.mixed else to_utf8(content, encoding))
        encoding_name = wide or ("" if encoding == UTF8 else str(encoding))
        record = Record(file.label, size, text_of(html), lost, encoding=encoding_name)
        yield record._replace(metadata=page_fields(html, self.keep)) if self.keep else record


def _encoding(content: bytes) -> Encoding:
    r"""The encoding of a page: UTF-8 if it is valid UTF-8, else the declared one, else the detected one.

    >>> _encoding(b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251"><p>\xef\xf0\xe8').name
    'cp1251'
    """
    if is_utf8(content):
        return of_lines(content) if content.isascii() else UTF8  # ISO-2022-JP and HZ consist of ASCII bytes
    charset = _CHARSET.search(content[:_HEAD])
    return (
        Encoding(name) if charset and (name := read_declared_codec(charset[1].decode(), content)) else of_lines(content)
    )
