"""Output of WikiExtractor (https://github.com/attardi/wikiextractor) -> articles, from <doc> tags or JSON Lines."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from html import unescape
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange, pieces_at, text_cuts
from pipeline.readers.files import Sides, display_path, head
from pipeline.readers.jsonl import fields_of_line, is_json_lines, parse_line
from pipeline.readers.lines import TextLine, drop_record
from pipeline.readers.metadata import require_fields
from pipeline.readers.plain import always, is_blank, line_records
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, Record
from pipeline.readers.transcode import require_encoding
from preprocessing.spec import key, spec
from preprocessing.text import decode

_TITLE: Final = re.compile(rb'\btitle="(.*?)"(?=\s*>|\s+\w+=")')  # quotation marks in a title are not always escaped

_ATTRIBUTE: Final = re.compile(rb'\b(\w+)="(.*?)"(?=\s*>|\s+\w+=")')


@spec
class WikiExtractorReader(FileReader):
    """Output of WikiExtractor; each article is a document.

    The format is `<doc id= url= title=>`, lines, `</doc>`, or its JSON. Files may be compressed.
    """

    names: ClassVar[tuple[str, ...]] = ("wikiextractor",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = ()
    metadata_fields: ClassVar[tuple[str, ...] | None] = ("id", "revid", "title", "url")

    kind: Literal["wikiextractor"] = "wikiextractor"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    extensions: tuple[str, ...] = key(default=(), doc="File extensions to read in a directory; []: all files.")
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")
    keep: tuple[str, ...] = key(default=(), doc="Attributes of an article to keep as metadata: id, revid, title, url.")

    def __post_init__(self) -> None:
        require_encoding("wikiextractor.encoding", self.encoding)
        require_fields("wikiextractor", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        is_ours = sample.start.startswith(b"<doc ") or (is_json_lines(sample) and is_its_json(sample.start))
        return cls(path=sample.path) if is_ours else None

    @property
    def has_urls(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as wikiextractor"

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        (file,) = sides
        return pieces_at(file, text_cuts(file, step))

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        start = head(piece.file.path)
        if is_json(start):
            return line_records(piece, always, partial(json_article, keep=self.keep), limit, self.encoding)
        return line_records(piece, begins, partial(article, keep=self.keep), limit, self.encoding)


def begins(line: TextLine) -> bool:
    """Whether an article begins here."""
    return line.content.startswith(b"<doc ")


def is_json(start: bytes) -> bool:
    """Whether a file with these first bytes contains JSON Lines."""
    return start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def is_its_json(start: bytes) -> bool:
    """Whether the first line is JSON from WikiExtractor.

    >>> is_its_json(b'{"id": "1", "url": "u", "title": "t", "text": "x"}'), is_its_json(b'{"text": "x"}')
    (True, False)
    """
    fields = fields_of_line(decode(start.lstrip().partition(b"\n")[0])[0])
    return {"id", "url", "title", "text"} <= {*fields} <= {"id", "revid", "url", "title", "text"}


def article(label: str, block: TextLine, keep: Sequence[str] = ()) -> Record:
    """The article between <doc> tags."""
    if not begins(block):
        return drop_record(label, block, BETWEEN if is_blank(block) else "no_doc_tag")
    tag, _, rest = block.content.partition(b"\n")
    before, closed, after = rest.rpartition(b"</doc>")
    text, repaired = decode(before if closed else after)
    title, attributes = _TITLE.search(tag), _attributes(tag)
    text = prepend_title(decode(title[1])[0] if title else "", text)
    record = Record(label, block.size, text, repaired, "", block.start, url=attributes.get("url", ""))
    return record._replace(metadata={name: attributes.get(name) for name in keep}) if keep else record


def _attributes(tag: bytes) -> dict[str, str]:
    return {decode(name)[0]: unescape(decode(value)[0]) for name, value in _ATTRIBUTE.findall(tag)}


def json_article(label: str, block: TextLine, keep: Sequence[str] = ()) -> Record:
    """The article in a line of JSON."""
    record = parse_line(label, block, url="url", keep=keep)
    if record.fault:
        return record
    title = parse_line(label, block, field="title")
    return record._replace(text=prepend_title(title.text, record.text), repaired=record.repaired + title.repaired)


def prepend_title(title: str, text: str) -> str:
    r"""An article in the form of a dump: title, blank line, text; "" if there is only a title.

    With tags, WikiExtractor repeats the title in the first line of the text; in JSON it does not.

    >>> escaped = prepend_title("Q&amp;A", "Q&amp;A\n\nA form.\n")
    >>> escaped, prepend_title("Q&A", "A form."), prepend_title("Q&A", "Q&A\n\n")
    ('Q&A\n\nA form.', 'Q&A\n\nA form.', '')
    """
    from pipeline.readers.wiki_leftovers import without_leftovers  # imports the markup parser

    title, text = " ".join(unescape(title).split()), text.strip()
    first, _, rest = text.partition("\n")
    if title and " ".join(unescape(first).split()) == title:
        text = rest
    text = without_leftovers(text).strip()
    if not title or not text:
        return text
    return f"{title}\n\n{text}" if text != title else ""
