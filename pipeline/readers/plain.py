"""Functions that split the lines of a file into documents and parse them. Most readers use these functions."""

from collections.abc import Callable, Iterator
from typing import Final

from pipeline.readers.file_ranges import FileRange
from pipeline.readers.files import head, is_text
from pipeline.readers.lines import TextLine, blocks, lines, lines_of_range
from pipeline.readers.record import SNIPPET, Record
from pipeline.readers.transcode import Transcoder
from preprocessing.characters import get_category
from preprocessing.encodings import UTF8
from preprocessing.text import decode

_MOST_BLANKS: Final = 256  # bytes; longer lines are not tested for invisible Unicode characters
_INVISIBLE: Final = "\u115f\u1160\u2800\u3164\uffa0"  # letters and a symbol that are invisible
_BLANKS: Final = _INVISIBLE + "".join(
    char for char in map(chr, range(0x10000)) if char.isspace() or get_category(char) in ("Cc", "Cf")
)

Begins = Callable[[TextLine], bool]  # whether a document begins at this line
Parse = Callable[[str, TextLine], Record]  # label of the file, lines of a document joined -> record


def never(line: TextLine) -> bool:
    """No line begins a document: the whole file is one."""
    return False


def always(line: TextLine) -> bool:
    """Each line begins a document."""
    return True


def is_blank(line: TextLine) -> bool:
    r"""Whether a line separates documents: it has white space and invisible characters only.

    >>> [is_blank(TextLine(0, 0, content.encode())) for content in ("\n", " \t\r\n", "\u00a0\u3000\n", "a\n")]
    [True, True, True, False]
    """
    if line.fault:
        return False
    content = line.content.strip()
    return not content or (len(content) < _MOST_BLANKS and not content.decode(errors="replace").strip(_BLANKS))


def document(label: str, block: TextLine) -> Record:
    """The record of a block, with its whole text."""
    return Record(label, block.size, *decode(block.content), "", block.start)


def line_records(piece: FileRange, begins: Begins, parse: Parse, limit: int, encoding: str = "") -> Iterator[Record]:
    """The documents in the lines of a file range. Documents of more than `limit` bytes have no text.

    A file that is not text becomes one record with a fault. `encoding` is the encoding that the user sets. Without it,
    the encoding is detected (transcode.py) and recorded in the records.
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
