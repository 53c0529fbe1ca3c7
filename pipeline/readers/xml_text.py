"""XML and TEI -> documents: what stands in an element, read by expat as a stream, so that each byte is counted.

TEI (https://tei-c.org): a document is a `TEI` element; of it what `element` holds in paragraphs, lines of verse,
headings and blocks, without notes, page headers and the header of the file. Of other XML a document is each element
`element`.
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from html.entities import html5
from typing import BinaryIO, ClassVar, Final, Literal, Self
from xml.parsers import expat

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import (
    InputFile,
    display_path,
    head,
    open_bytes,
    plain_suffix,
    wide_encoding,
)
from pipeline.readers.lines import rest_of
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from pipeline.readers.transcode import encoding_of, require_encoding
from preprocessing.encodings import UTF8, codec
from preprocessing.errors import BadInput
from preprocessing.spec import key, spec
from preprocessing.text import from_cesu8

_ENDINGS: Final = (".xml", ".tei")
_READ: Final = 1 << 16  # bytes at a time
_BEGINS: Final = re.compile(rb"<\?xml\b|<(?:\w+:)?(?:TEI|teiCorpus)\b")
_DECLARED: Final = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
_TEI: Final = "TEI"
_TEI_BLOCKS: Final = frozenset(
    ("p", "l", "head", "ab", "item", "cell", "speaker", "stage", "opener", "closer", "salute", "u")
)
_TEI_BREAKS: Final = frozenset(("lb", "pb", "cb", "gb"))
_TEI_OTHERS: Final = {"choice": ("sic", "orig", "abbr"), "app": ("rdg",)}  # beside what is read of an element
_TEI_NOT_READ: Final = frozenset(("teiHeader", "note", "fw", "figDesc", "facsimile", "sourceDoc", "standOff", "del"))
_ENTITIES: Final = {name.removesuffix(";"): text for name, text in html5.items()}  # that a file need not declare
_NOT_IN_XML: Final = re.compile("[\0-\b\v\f\x0e-\x1f\udc80-\udcff]")
_HALVES: Final = re.compile("\udced[\udca0-\udcaf][\udc80-\udcbf]\udced[\udcb0-\udcbf][\udc80-\udcbf]")
_FILLER: Final = "\x81"  # two bytes, a control; elsewhere it is part of mojibake, which is repaired by it
_FILLED: Final = re.compile(f"(?<=[\U00010000-\U0010ffff]){_FILLER}")
_LOST: Final = "\x7f"  # stands for a byte that XML cannot hold, so that the bytes behind it keep their places
_LOOKED_AT: Final = re.compile(rb"<[A-Za-z_!?]")
_BLOCKS: Final = frozenset(
    ("p", "para", "paragraph", "div", "sec", "section", "title", "head", "br", "li", "item", "tr")
)
_BLANKS: Final = re.compile(r"\s+")


@spec
class XmlReader(FileReader):
    """XML files; each element with a given name is a document.

    In TEI files, the documents are the prose and verse of each `TEI` element.
    """

    names: ClassVar[tuple[str, ...]] = ("xml", "tei")
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = _ENDINGS

    kind: Literal["xml"] = "xml"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    element: str = key(
        default="", doc="Name of the element of a document, without namespace; empty: TEI, otherwise text."
    )
    extensions: tuple[str, ...] = key(
        default=(), doc="File extensions to read in a directory; []: the usual ones of the format."
    )
    encoding: str = key(default="", doc="Text encoding of all files; empty: declared by each file.")

    def __post_init__(self) -> None:
        require_encoding("xml.encoding", self.encoding)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        named = plain_suffix(sample.file.path) in _ENDINGS and _LOOKED_AT.match(sample.start)
        if not (named or _BEGINS.match(sample.start) or _is_xml(sample.start)):
            return None
        found = _elements(sample.start)
        wanted = sample.field
        if _TEI not in found and wanted not in found:
            have = ", ".join(list(dict.fromkeys(found))[:12])
            raise BadInput(
                f"{sample.path}: XML that begins without an element {wanted!r}; its elements are {have}: name the one "
                "that holds a document with --data xml:PATH#ELEMENT, or as `element` of the source in a corpus file"
            )
        return cls(path=sample.path, element="" if wanted == "text" else wanted)

    def describe(self) -> str:
        what = f"an element {self.element!r}" if self.element else f"a {_TEI} element, or an element 'text'"
        return f"{display_path(self.path, self.extensions)}: read as xml, a document is {what}"

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        file, wide = piece.file, wide_encoding(piece.file.path)
        other = codec(self.encoding) or ("" if wide else _encoding(file))
        said = other or wide
        with open_bytes(file.path, encoding="" if other == "utf-8" else other) as stream:
            for record in _Parser(file.label, self.element, limit).records(stream):
                yield record if said in ("", "utf-8") else record._replace(encoding=said)
            yield from rest_of(stream, file.label)


def _encoding(file: InputFile) -> str:
    """What a file is in: UTF-8 where it can be read as that, else what it declares, else what it looks like."""
    found, declared = encoding_of(file), _DECLARED.search(head(file.path))
    if found == UTF8 or (name := codec(declared[1].decode() if declared else "")) == "utf-8":
        return ""
    return name or ("" if found.mixed else found.name)


def _is_xml(start: bytes) -> bool:
    """Whether a file without the name or the first line of XML is some: elements, and all of them whole."""
    if not _LOOKED_AT.match(start) or b"</" not in start:
        return False
    with suppress(expat.ExpatError):
        parser = expat.ParserCreate("utf-8")
        parser.Parse(_without_lost(codecs.getincrementaldecoder("utf-8")("surrogateescape"), start, False), False)
        return True
    return False


def _without_lost(decoder: codecs.IncrementalDecoder, block: bytes, is_last: bool) -> bytes:
    """The next block of a file, with something that XML can hold for each byte that it cannot hold.

    Characters in halves (CESU-8) become what they stand for, filled up to the bytes that they took.
    """
    text = decoder.decode(block, is_last)
    if "\udced" in text:
        text = _HALVES.sub(_whole, text)
    return _NOT_IN_XML.sub(_LOST, text).encode()


def _whole(halves: re.Match[str]) -> str:
    return from_cesu8(halves[0].encode("utf-8", "surrogateescape")).decode() + _FILLER


def _elements(start: bytes) -> list[str]:
    """The names of the elements in the beginning of a file, without their namespaces."""
    return [name.decode().rpartition(":")[2] for name in re.findall(rb"<([A-Za-z_][\w:.-]*)", start)]


class _Parser:
    """One pass over a file: what of its elements is text, and where the documents end."""

    def __init__(self, label: str, wanted: str, limit: int) -> None:
        self.label, self.limit = label, limit
        self.wanted, self.is_tei = wanted or "text", False
        self.may_be_tei = not wanted
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.found: list[Record] = []
        self.inside: list[str] = []  # the open elements of the document
        self.parts: list[str] = []
        self.size = self.depth = self.hidden = 0  # characters; open elements of the document; of those not read
        self.blocks = 0  # open paragraphs of TEI
        self.start = self.end = 0  # bytes: where the document begins, where the last one ended
        self.is_any = False  # whether a document has begun
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.UseForeignDTD(True)  # so that an entity that no one declared is no error
        self.parser.SkippedEntityHandler = self.skips
        self.parser.ExternalEntityRefHandler = self.leaves
        self.parser.StartElementHandler = self.opens
        self.parser.EndElementHandler = self.closes
        self.parser.CharacterDataHandler = self.says

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        """The documents of a file; what stands around them belongs to no document."""
        total, why = 0, ""
        while not why:
            block = stream.read(_READ)
            total += len(block)
            try:
                self.parser.Parse(_without_lost(self.decoder, block, not block), not block)
            except expat.ExpatError:
                why = "bad_xml"
            yield from self.found
            self.found.clear()
            if not block:
                break
        rest = sum(map(len, iter(lambda: stream.read(_READ), b"")))
        if total + rest > self.end:
            snippet = f"{expat.ErrorString(self.parser.ErrorCode)}, line {self.parser.ErrorLineNumber}" if why else ""
            size = total + rest - self.end
            why = why or (BETWEEN if self.is_any else "no_element")
            yield Record(self.label, size, fault=why, start=self.end, snippet=snippet.encode()[:SNIPPET])

    def opens(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self.depth:
            if name == _TEI and self.may_be_tei:
                self.is_tei = True
            elif name != self.wanted or self.is_tei:
                return
            self.between(self.parser.CurrentByteIndex)
            self.is_any = True
            self.start, self.parts, self.size = self.parser.CurrentByteIndex, [], 0
        self.depth += 1
        above = self.inside[-1] if self.inside else ""
        self.inside.append(name)
        if self.hidden or (self.is_tei and (name in _TEI_NOT_READ or name in _TEI_OTHERS.get(above, ()))):
            self.hidden += 1
        elif self.is_tei and name in _TEI_BLOCKS:
            self.blocks += 1
            self.adds("\0")
        elif self.is_tei and name in _TEI_BREAKS and attributes.get("break") != "no":
            self.adds(" ")
        elif not self.is_tei and name in _BLOCKS:
            self.adds("\0")

    def says(self, text: str) -> None:
        if self.depth and not self.hidden and (self.blocks or not self.is_tei):
            self.adds(text)

    def skips(self, name: str, is_parameter: bool) -> None:
        """An entity that no one declared: as in HTML, or lost."""
        if not is_parameter:
            self.says(_ENTITIES.get(name, _LOST))

    def leaves(self, context: str | None, *place: str | None) -> int:
        """An entity that stands in another file, or the list of them: no other file is opened."""
        if context:
            self.says(_LOST)
        return 1

    def adds(self, text: str) -> None:
        if self.size <= self.limit:
            self.parts.append(text)
            self.size += len(text)

    def closes(self, name: str) -> None:
        if not self.depth:
            return
        self.depth -= 1
        self.inside.pop()
        name = name.rpartition(":")[2]
        if self.hidden:
            self.hidden -= 1
        elif name in (_TEI_BLOCKS if self.is_tei else _BLOCKS):
            self.blocks -= self.is_tei
            self.adds("\0")
        if not self.depth:
            self.document()

    def between(self, at: int) -> None:
        """What stands between the last document and byte `at` is no document."""
        if at > self.end:
            self.found.append(Record(self.label, at - self.end, fault=BETWEEN, start=self.end))
            self.end = at

    def document(self) -> None:
        """The document that ends here; the tag that ends it belongs to what follows."""
        at = self.parser.CurrentByteIndex
        size, self.end = at - self.end, at
        if self.size > self.limit:
            self.found.append(Record(self.label, size, fault="too_long", start=self.start))
            return
        text = _FILLED.sub("", "".join(self.parts).replace(_LOST, "\ufffd"))
        if self.is_tei or "\0" in text:
            text = "\n".join(filter(None, (_BLANKS.sub(" ", block).strip() for block in text.split("\0"))))
        self.found.append(Record(self.label, size, text, text.count("\ufffd"), start=self.start))
