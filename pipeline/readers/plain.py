"""Plain text: what begins a document, and how it is read."""

import re
from typing import Final

from pipeline.readers.lines import Line, dropped
from pipeline.readers.record import BETWEEN, Record
from preprocessing.text import decode

# What Project Gutenberg puts around a book, as its files of 1991 to today have it.
_START: Final = re.compile(
    r"^[ \t]*(?:\*\*\*[ \t]*START OF TH(?:E|IS) PROJECT GUTENBERG E(?:BOOK|TEXT).*"
    r"|\*END[ *]*THE SMALL PRINT.*"  # the end of the small print of 1991 to 2003, which stood before the book
    r")\n",
    re.IGNORECASE | re.MULTILINE,
)
_END: Final = re.compile(
    r"^[ \t]*(?:\*\*\*[ \t]*END OF TH(?:E|IS) PROJECT GUTENBERG E(?:BOOK|TEXT)"
    r"|(?:\*\*\*[ \t]*)?END OF (?:THE |THIS )?PROJECT GUTENBERG"
    r"|\*\*\*[ \t]*START: FULL LICENSE)",
    re.IGNORECASE | re.MULTILINE,
)
_CREDITS: Final = re.compile(
    r"\s*(?:E-?text |This e(?:-?text|book) was )?(?:produced|prepared|transcribed|scanned) (?:by|from)\b.*\n"
    r"(?:.+\n)*\s*",
    re.IGNORECASE,
)
BOOK_MARK: Final = re.compile(
    rb"\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG|\*END[ *]*THE SMALL PRINT", re.IGNORECASE
)


def never(line: Line) -> bool:
    """A file is a document."""
    return False


def always(line: Line) -> bool:
    """A line is a document."""
    return True


def is_blank(line: Line) -> bool:
    """Blank lines are between documents."""
    return not line.fault and not line.content.strip()


def document(label: str, block: Line) -> Record:
    """All of a block."""
    return Record(label, block.size, *decode(block.content), "", block.start)


def paragraph(label: str, block: Line) -> Record:
    """What stands between blank lines; the blank line that begins the block belongs to it."""
    return dropped(label, block, BETWEEN) if is_blank(block) else document(label, block)


def book(label: str, block: Line) -> Record:
    """A book without Project Gutenberg's header, credits and licence, if it has these."""
    text, repaired = decode(block.content)
    return Record(label, block.size, stripped(text.replace("\r\n", "\n")), repaired, start=block.start)


def stripped(text: str) -> str:
    r"""The book between the marks of Project Gutenberg: the last start, the first end after it.

    >>> stripped("The Project Gutenberg EBook of X\n\n*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n\n"
    ...          "Produced by Y and\nZ\n\nCall me X.\n\nEnd of Project Gutenberg's X, by Y\n\nLicence")
    'Call me X.\n\n'
    """
    starts = list(_START.finditer(text))
    if starts:
        text = text[starts[-1].end() :]
        if credits := _CREDITS.match(text):
            text = text[credits.end() :]
    end = _END.search(text)
    return text[: end.start()] if end else text
