"""Documents among the lines of a file: what begins one, and how one is read. Most readers are made of this."""

from collections.abc import Callable, Iterator
from typing import Final
from unicodedata import category

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import head, is_text
from pipeline.readers.lines import TextLine, blocks, lines, lines_of_range
from pipeline.readers.record import SNIPPET, Record
from pipeline.readers.transcode import Transcoder
from preprocessing.encodings import UTF8
from preprocessing.text import decode

_MOST_BLANKS: Final = 256  # bytes of a line of blanks of Unicode
_INVISIBLE: Final = "\u115f\u1160\u2800\u3164\uffa0"  # letters and a symbol that show nothing
_BLANKS: Final = _INVISIBLE + "".join(
    char for char in map(chr, range(0x10000)) if char.isspace() or category(char) in ("Cc", "Cf")
)

Begins = Callable[[TextLine], bool]  # whether a document begins with this line
Parse = Callable[[str, TextLine], Record]  # label of the file, lines of a document as one -> its record


def never(line: TextLine) -> bool:
    """A file is a document."""
    return False


def always(line: TextLine) -> bool:
    """A line is a document."""
    return True


def is_blank(line: TextLine) -> bool:
    r"""Blank lines are between documents, whatever they hold that shows nothing.

    >>> [is_blank(TextLine(0, 0, content.encode())) for content in ("\n", " \t\r\n", "\u00a0\u3000\n", "a\n")]
    [True, True, True, False]
    """
    if line.fault:
        return False
    content = line.content.strip()
    return not content or (len(content) < _MOST_BLANKS and not content.decode(errors="replace").strip(_BLANKS))


def document(label: str, block: TextLine) -> Record:
    """All of a block."""
    return Record(label, block.size, *decode(block.content), "", block.start)


def line_records(piece: FileRange, begins: Begins, parse: Parse, limit: int, encoding: str = "") -> Iterator[Record]:
    """The documents in the lines of a piece, those of more than `limit` bytes without their text.

    A file that is no text is one record, a fault. `encoding` is what the file is in, where a user says so; else it is
    found (transcode.py), and the records have its name.
    """
    file, recode = piece.file, Transcoder(piece.file, encoding)
    if piece.start == 0 and not is_text(start := head(file.path, encoding=recode.whole)):
        yield Record(file.label, file.size, fault="not_text", snippet=start[:SNIPPET])
        return
    found = lines(file.path, piece.start, piece.stop, limit, recode, recode.whole)
    if not file.compression:
        found = lines_of_range(found, piece.stop, begins)
    for block in found if begins is always else blocks(found, begins, limit):
        if block.fault:
            yield Record(file.label, block.size, fault=block.fault, start=block.start, snippet=block.content)
        else:
            record = parse(file.label, block)
            yield record if recode.used == UTF8 else record._replace(encoding=str(recode.used))
