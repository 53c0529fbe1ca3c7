"""XML and TEI -> documents: the text of elements, parsed by expat as a stream, so that every byte is counted.

In TEI (https://tei-c.org), each `TEI` element is a document. Its text is in paragraphs, lines of verse, headings and
blocks, without notes, page headers and the file header. In other XML, each element `element` is a document.
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
    Sides,
    display_path,
    find_single_files,
    head,
    open_bytes,
    plain_suffix,
    wide_encoding,
)
from pipeline.readers.lines import rest_of
from pipeline.readers.metadata import overlapping_blocks, require_fields, require_present, to_text
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from pipeline.readers.transcode import encoding_of, require_encoding
from preprocessing.encodings import UTF8, codec
from preprocessing.errors import BadInput
from preprocessing.schema import NO_METADATA
from preprocessing.spec import key, spec
from preprocessing.text import from_cesu8

_ENDINGS: Final = (".xml", ".tei")
_READ: Final = 1 << 16  # bytes read at a time
_BEGINS: Final = re.compile(rb"<\?xml\b|<(?:\w+:)?(?:TEI|teiCorpus)\b")
_DECLARED: Final = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
_TEI: Final = "TEI"
_TEI_BLOCKS: Final = frozenset(
    ("p", "l", "head", "ab", "item", "cell", "speaker", "stage", "opener", "closer", "salute", "u")
)
_TEI_BREAKS: Final = frozenset(("lb", "pb", "cb", "gb"))
# alternative readings that are left out: parent element -> its children
_TEI_ALTERNATIVES: Final = {"choice": ("sic", "orig", "abbr"), "app": ("rdg",)}
_TEI_NOT_READ: Final = frozenset(("teiHeader", "note", "fw", "figDesc", "facsimile", "sourceDoc", "standOff", "del"))
# entities that a file need not declare
_ENTITIES: Final = {name.removesuffix(";"): text for name, text in html5.items()}
_NOT_IN_XML: Final = re.compile("[\0-\b\v\f\x0e-\x1f\udc80-\udcff]")
_HALVES: Final = re.compile("\udced[\udca0-\udcaf][\udc80-\udcbf]\udced[\udcb0-\udcbf][\udc80-\udcbf]")
# a control character of two bytes; it is removed after a character above U+FFFF, and may be mojibake elsewhere
_FILLER: Final = "\x81"
_FILLED: Final = re.compile(f"(?<=[\U00010000-\U0010ffff]){_FILLER}")
_LOST: Final = "\x7f"  # replaces a byte that is invalid in XML, so that later bytes keep their positions
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
    metadata_fields: ClassVar[tuple[str, ...] | None] = None

    kind: Literal["xml"] = "xml"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    element: str = key(
        default="", doc="Name of the element that contains a document, without namespace; empty: TEI, otherwise text."
    )
    extensions: tuple[str, ...] = key(
        default=(), doc="File extensions to read in a directory; []: the default ones of the format."
    )
    encoding: str = key(default="", doc="Text encoding of all files; empty: declared by each file.")
    keep: tuple[str, ...] = key(default=(), doc="Attributes of the element to keep as metadata, e.g. [id].")

    def __post_init__(self) -> None:
        require_encoding("xml.encoding", self.encoding)
        require_fields("xml", self.keep, self.metadata_fields)

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
                f"{sample.path}: missing element {wanted!r} at the start of the XML, expected one of {have}; select "
                "the element of a document with --data xml:PATH#ELEMENT or with `element` of the source in a corpus "
                "file"
            )
        return cls(path=sample.path, element="" if wanted == "text" else wanted)

    def describe(self) -> str:
        what = f"an element {self.element!r}" if self.element else f"a {_TEI} element or an element 'text'"
        return f"{display_path(self.path, self.extensions)}: read as xml, one document per element: {what}"

    def files(self) -> list[Sides]:
        found = find_single_files(self.path, self.extensions or self.usual)
        self._require_attributes([file for (file,) in found])
        return found

    def _require_attributes(self, files: list[InputFile]) -> None:
        """Raise BadInput if no file has an attribute of `keep` in any element."""
        missing = {name: re.compile(rb"\s" + re.escape(name.encode()) + rb"\s*=") for name in self.keep}
        for file in files:
            for block in overlapping_blocks(file.path) if missing else ():
                missing = {name: pattern for name, pattern in missing.items() if not pattern.search(block)}
        start = head(files[0].path) if files and missing else b""
        have = dict.fromkeys(name.decode() for name in re.findall(rb"\s([A-Za-z_][\w:.-]*)\s*=", start))
        require_present(self.path, missing, [*have])

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        file, wide = piece.file, wide_encoding(piece.file.path)
        other = codec(self.encoding) or ("" if wide else _encoding(file))
        encoding = other or wide
        with open_bytes(file.path, encoding="" if other == "utf-8" else other) as stream:
            for record in _Parser(file.label, self, limit).records(stream):
                yield record if encoding in ("", "utf-8") else record._replace(encoding=encoding)
            yield from rest_of(stream, file.label)


def _encoding(file: InputFile) -> str:
    """The encoding of a file: UTF-8 if it is valid UTF-8, else the declared one, else the detected one."""
    found, declared = encoding_of(file), _DECLARED.search(head(file.path))
    if found == UTF8 or (name := codec(declared[1].decode() if declared else "")) == "utf-8":
        return ""
    return name or ("" if found.mixed else found.name)


def _is_xml(start: bytes) -> bool:
    """Whether a file without an XML extension or declaration is XML: it contains elements and parses without errors."""
    if not _LOOKED_AT.match(start) or b"</" not in start:
        return False
    with suppress(expat.ExpatError):
        parser = expat.ParserCreate("utf-8")
        parser.Parse(_without_lost(codecs.getincrementaldecoder("utf-8")("surrogateescape"), start, False), False)
        return True
    return False


def _without_lost(decoder: codecs.IncrementalDecoder, block: bytes, is_last: bool) -> bytes:
    """Replace bytes that are invalid in XML in the next block of a file. Positions of other bytes do not change.

    Surrogate pairs (CESU-8) become the characters that they encode, padded to the original number of bytes.
    """
    text = decoder.decode(block, is_last)
    if "\udced" in text:
        text = _HALVES.sub(_whole, text)
    return _NOT_IN_XML.sub(_LOST, text).encode()


def _whole(surrogates: re.Match[str]) -> str:
    return from_cesu8(surrogates[0].encode("utf-8", "surrogateescape")).decode() + _FILLER


def _elements(start: bytes) -> list[str]:
    """Names of the elements at the start of a file, without namespaces."""
    return [name.decode().rpartition(":")[2] for name in re.findall(rb"<([A-Za-z_][\w:.-]*)", start)]


class _Parser:
    """A parser for one pass over a file. It collects the text of elements and the ends of documents."""

    def __init__(self, label: str, source: XmlReader, limit: int) -> None:
        self.label, self.limit = label, limit
        self.wanted, self.is_tei = source.element or "text", False
        self.may_be_tei = not source.element
        self.keep, self.metadata = source.keep, NO_METADATA
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.found: list[Record] = []
        self.inside: list[str] = []  # open elements of the current document
        self.parts: list[str] = []
        # characters; depth in the document; depth in elements that are not read
        self.size = self.depth = self.hidden = 0
        self.blocks = 0  # open TEI blocks
        self.start = self.end = 0  # positions in bytes: the start of the document, the end of the previous one
        self.is_any = False  # whether a document has begun
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.UseForeignDTD(True)  # undeclared entities are then not errors
        self.parser.SkippedEntityHandler = self.skip_entity
        self.parser.ExternalEntityRefHandler = self.ignore_external
        self.parser.StartElementHandler = self.start_element
        self.parser.EndElementHandler = self.end_element
        self.parser.CharacterDataHandler = self.add_text

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        """The documents of a file, and records for the bytes between them."""
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

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self.depth:
            if name == _TEI and self.may_be_tei:
                self.is_tei = True
            elif name != self.wanted or self.is_tei:
                return
            self.add_between(self.parser.CurrentByteIndex)
            self.is_any = True
            self.start, self.parts, self.size = self.parser.CurrentByteIndex, [], 0
            if self.keep:
                self.metadata = {name: to_text(attributes.get(name)) for name in self.keep}
        self.depth += 1
        above = self.inside[-1] if self.inside else ""
        self.inside.append(name)
        if self.hidden or (self.is_tei and (name in _TEI_NOT_READ or name in _TEI_ALTERNATIVES.get(above, ()))):
            self.hidden += 1
        elif self.is_tei and name in _TEI_BLOCKS:
            self.blocks += 1
            self.append("\0")
        elif self.is_tei and name in _TEI_BREAKS and attributes.get("break") != "no":
            self.append(" ")
        elif not self.is_tei and name in _BLOCKS:
            self.append("\0")

    def add_text(self, text: str) -> None:
        if self.depth and not self.hidden and (self.blocks or not self.is_tei):
            self.append(text)

    def skip_entity(self, name: str, is_parameter: bool) -> None:
        """Replace an undeclared entity by the character in HTML, or by U+FFFD."""
        if not is_parameter:
            self.add_text(_ENTITIES.get(name, _LOST))

    def ignore_external(self, context: str | None, *place: str | None) -> int:
        """Replace an external entity by U+FFFD and ignore an external entity list: no other file is opened."""
        if context:
            self.add_text(_LOST)
        return 1

    def append(self, text: str) -> None:
        if self.size <= self.limit:
            self.parts.append(text)
            self.size += len(text)

    def end_element(self, name: str) -> None:
        if not self.depth:
            return
        self.depth -= 1
        self.inside.pop()
        name = name.rpartition(":")[2]
        if self.hidden:
            self.hidden -= 1
        elif name in (_TEI_BLOCKS if self.is_tei else _BLOCKS):
            self.blocks -= self.is_tei
            self.append("\0")
        if not self.depth:
            self.add_document()

    def add_between(self, at: int) -> None:
        """Add a record for the bytes between the last document and byte `at`."""
        if at > self.end:
            self.found.append(Record(self.label, at - self.end, fault=BETWEEN, start=self.end))
            self.end = at

    def add_document(self) -> None:
        """Add the record of the document that ends here. Its closing tag belongs to the next record."""
        at = self.parser.CurrentByteIndex
        size, self.end = at - self.end, at
        if self.size > self.limit:
            self.found.append(Record(self.label, size, fault="too_long", start=self.start))
            return
        text = _FILLED.sub("", "".join(self.parts).replace(_LOST, "\ufffd"))
        if self.is_tei or "\0" in text:
            text = "\n".join(filter(None, (_BLANKS.sub(" ", block).strip() for block in text.split("\0"))))
        record = Record(self.label, size, text, text.count("\ufffd"), start=self.start)
        self.found.append(record._replace(metadata=self.metadata) if self.keep else record)
