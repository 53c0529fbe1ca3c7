"""What the readers hand to the cleaner."""

from typing import Final, NamedTuple

BETWEEN: Final = "between_documents"  # the fault of bytes that are no document: blank lines, program code, headers
SKIPPED: Final = frozenset({"http_error", "not_a_page", "revisit", "unknown_record"})  # documents of other kinds
EXPECTED: Final = frozenset({BETWEEN, "redirect", "not_article"}) | SKIPPED  # faults of sound input: no rejects
TORN: Final = frozenset({"truncated", "bomb"})  # what follows in the file is not read, however much that is
TRAILING: Final = "trailing_data"  # stored bytes behind a compressed file that are no part of it
CUT_OFF: Final = "cut_off"  # the last line of a file, which ends in its middle: what stood behind it is not there
SNIPPET: Final = 200  # bytes that show what has a fault


class Record(NamedTuple):
    """A document as it was read, or a stretch of input that cannot become one, and why."""

    source: str  # where it is from, the same on every machine
    size: int  # bytes it took in the input, decompressed, syntax included
    text: str = ""
    repaired: int = 0  # invalid UTF-8 sequences that became U+FFFD
    fault: str = ""  # why there is no document: one of EXPECTED, or "too_long", "not_text", "bad_json", ...
    start: int = 0  # where it begins in its file, or in its range of a compressed one: byte, decompressed, or row
    snippet: bytes = b""  # of what has a fault, its first 200 bytes
    spans: tuple[tuple[int, int], ...] = ()  # ranges of characters of the text: phrases, sides of a translation
    encoding: str = ""  # what it was in, where that was not UTF-8 (encodings.py)
