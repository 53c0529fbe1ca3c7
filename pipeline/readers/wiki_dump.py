"""MediaWiki XML dumps -> articles (https://www.mediawiki.org/wiki/Help:Export).

A dump is read line by line: in all versions, `<page>` begins a page on its own line. Each page is parsed separately, so
a damaged page does not affect others.
"""

import bz2
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Final, Literal, Self
from urllib.parse import quote
from xml.etree import ElementTree

from pipeline.readers.file_ranges import FileRange, MemberSignature, member_cuts, pieces_at, text_cuts
from pipeline.readers.files import Sides, display_path, head
from pipeline.readers.lines import TextLine, drop_record
from pipeline.readers.metadata import require_fields
from pipeline.readers.plain import line_records
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, Record
from pipeline.readers.transcode import require_encoding
from pipeline.readers.wiki_names import HIDDEN, namespace
from preprocessing.spec import key, spec
from preprocessing.text import decode

BZ2_PAGES: Final = MemberSignature(
    re.compile(rb"BZh[1-9]1AY&SY"),
    re.compile(rb"  <page>\n"),
    lambda data: bz2.BZ2Decompressor().decompress(data, max_length=64),
)
_NAMESPACE: Final = re.compile(rb'<namespace key="(-?\d+)"[^>]*>([^<]+)<')
_BASE: Final = re.compile(rb"<base>([^<]*/)[^</]*</base>")
_MOST_MARKUP: Final = 1 << 21  # bytes; the limit $wgMaxArticleSize of MediaWiki: no article is longer
_MOST_BYTES: Final = 2 * _MOST_MARKUP  # bytes of a page, in which `<` is escaped as `&lt;`
_HIDDEN: Final = {b"-2", b"6", b"14"}  # namespace numbers of media, files and categories


@spec
class WikiDumpReader(FileReader):
    """MediaWiki XML dump (pages-articles); each article is a document, without markup.

    Files may be compressed.
    """

    names: ClassVar[tuple[str, ...]] = ("wiki_dump",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = ()
    metadata_fields: ClassVar[tuple[str, ...] | None] = ("date", "id", "revision_id", "title", "url")

    kind: Literal["wiki_dump"] = "wiki_dump"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    extensions: tuple[str, ...] = key(default=(), doc="File extensions to read in a directory; []: all files.")
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")
    keep: tuple[str, ...] = key(
        default=(), doc="Fields of a page to keep as metadata: date, id, revision_id, title, url."
    )

    def __post_init__(self) -> None:
        require_encoding("wiki_dump.encoding", self.encoding)
        require_fields("wiki_dump", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        is_dump = sample.start.startswith(b"<mediawiki") or b"\n<mediawiki" in sample.start[:1024]
        return cls(path=sample.path) if is_dump else None

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as wiki_dump"

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        (file,) = sides
        is_bz2 = file.compression == "bz2"
        return pieces_at(file, member_cuts(file, step, BZ2_PAGES) if is_bz2 else text_cuts(file, step))

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        start = head(piece.file.path)
        parse = partial(article, hidden=find_hidden_namespaces(start), keep=self.keep, base=find_base(start))
        return line_records(piece, begins, parse, max(limit, _MOST_BYTES), self.encoding)  # most of a page is markup


def begins(line: TextLine) -> bool:
    """Whether a page begins here."""
    return line.content.lstrip().startswith(b"<page>")


def find_hidden_namespaces(start: bytes) -> frozenset[str]:
    """Namespaces whose links show no text: the names in all languages and those in the header of the dump.

    >>> found = find_hidden_namespaces(b'<namespace key="6" case="first-letter">My_Pictures</namespace>')
    >>> sorted(found - HIDDEN), sorted(found & {"file", "datei", "画像"})
    (['my pictures'], ['datei', 'file', '画像'])
    """
    return HIDDEN.union(namespace(decode(name)[0]) for key, name in _NAMESPACE.findall(start) if key in _HIDDEN)


def find_base(start: bytes) -> str:
    """The start of the URLs of a wiki, from the URL of its main page in the header of a dump; "" if it has none.

    >>> find_base(b"<siteinfo><base>https://en.wikipedia.org/wiki/Main_Page</base>")
    'https://en.wikipedia.org/wiki/'
    """
    found = _BASE.search(start)
    return decode(found[1])[0] if found else ""


def article(label: str, block: TextLine, hidden: frozenset[str], keep: Sequence[str] = (), base: str = "") -> Record:
    """The article in the lines of a page. Its title is the first line."""
    from pipeline.readers.wikitext import TooDeep, prose  # imports the markup parser, which other formats do not need

    start, end = block.content.find(b"<page>"), block.content.rfind(b"</page>")
    if start < 0:
        return drop_record(label, block, BETWEEN)
    text, repaired = decode(block.content[start : end + len(b"</page>")])
    try:
        page = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return drop_record(label, block, "bad_xml")
    if page.findtext("ns", "0") != "0" or page.findtext("revision/model", "wikitext") != "wikitext":
        return drop_record(label, block, "not_article")
    if page.find("redirect") is not None:
        return drop_record(label, block, "redirect")
    title, markup = page.findtext("title", ""), (page.findall("revision/text") or [page])[-1].text or ""
    if len(markup.encode()) > _MOST_MARKUP:
        return drop_record(label, block, "too_long")
    try:
        body = prose(markup, hidden)
    except TooDeep:
        return drop_record(label, block, "timeout")
    record = Record(label, block.size, f"{title}\n\n{body}" if body else "", repaired, start=block.start)
    return record._replace(metadata=_metadata(page, title, keep, base)) if keep else record


def _metadata(page: ElementTree.Element, title: str, keep: Sequence[str], base: str) -> dict[str, str | None]:
    values = {
        "date": page.findtext("revision/timestamp"),
        "id": page.findtext("id"),
        "revision_id": page.findtext("revision/id"),
        "title": title or None,
        "url": base + quote(title.replace(" ", "_"), safe="/:,()!'*@") if base and title else None,
    }
    return {name: values[name] for name in keep}
