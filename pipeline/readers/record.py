"""Records that readers pass to cleaning."""

from typing import Final, NamedTuple

from preprocessing.schema import NO_METADATA, Metadata

BETWEEN: Final = "between_documents"  # fault of bytes outside of documents: blank lines, program code, headers
SKIPPED: Final = frozenset({"http_error", "not_a_page", "revisit", "unknown_record"})  # documents of other types
# faults in undamaged input; not counted as rejects
EXPECTED: Final = frozenset({BETWEEN, "redirect", "not_article"}) | SKIPPED
TORN: Final = frozenset({"truncated", "bomb"})  # the rest of the file is not read, whatever its size
TRAILING: Final = "trailing_data"  # stored bytes after a compressed file that do not belong to it
CUT_OFF: Final = "cut_off"  # an incomplete last line: the rest of the file is missing
SNIPPET: Final = 200  # bytes of input with a fault that messages show


class Record(NamedTuple):
    """A document, or a range of input that cannot become one and the reason (`fault`)."""

    source: str  # label of the file, the same on every machine
    size: int  # bytes in the decompressed input, including syntax
    text: str = ""
    repaired: int = 0  # invalid UTF-8 sequences that were replaced with U+FFFD
    fault: str = ""  # why there is no document: one of EXPECTED, "too_long", "not_text", "bad_json", ...
    start: int = 0  # position in the file, or in its range if compressed: decompressed byte or row
    snippet: bytes = b""  # the first 200 bytes of input with a fault
    spans: tuple[tuple[int, int], ...] = ()  # character ranges of the text: phrases, or sides of a translation
    encoding: str = ""  # original encoding, if not UTF-8 (encodings.py)
    metadata: Metadata = NO_METADATA  # values of the fields that the source keeps
    url: str = ""  # address of a page, if the source has it
