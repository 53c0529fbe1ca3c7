"""What the readers hand to the cleaner."""

from typing import Final, NamedTuple

BETWEEN: Final = "between_documents"  # the fault of bytes that are no document: blank lines, program code


class Record(NamedTuple):
    """A document as it was read, or a stretch of input that cannot become one, and why."""

    source: str  # where it is from, the same on every machine
    size: int  # bytes it took in the input, decompressed, syntax included
    text: str = ""
    repaired: int = 0  # invalid UTF-8 sequences that became U+FFFD
    fault: str = ""  # why there is no document: BETWEEN, "too_long", "not_text", "bad_json", ...
