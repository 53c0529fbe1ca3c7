"""Files -> lines and blocks of lines. An invalid byte, a damaged archive or an endless line does not stop reading.

Every byte is counted. Several workers read ranges of a large file. A boundary is a place where a document may begin. A
range of bytes owns the lines from the first boundary at or after its start to the first boundary at or after its stop.
Adjacent ranges therefore neither share nor miss a line, whatever the format.
"""

import io
import sys
from collections.abc import Callable, Iterator
from typing import Final

from pipeline.readers.files import compression_of, count_trailing_bytes, describe_fault, open_lines
from pipeline.readers.record import SNIPPET, TRAILING, Record
from preprocessing.tables import TextLine

_SKIPPED: Final = 1 << 20  # bytes in memory while the rest of an overlong line is skipped


def lines(
    path: str, start: int, stop: int | None, limit: int, recode: Callable[[bytes], bytes] = bytes, encoding: str = ""
) -> Iterator[TextLine]:
    """The lines of a file from the first one that begins at or after byte `start`. Overlong lines have only a size.

    A line is overlong if it has more than `limit` bytes. `recode` converts the content of a line to UTF-8. `encoding`
    is a codec for the whole file, as for `open_bytes`. Sizes are in bytes of the file.

    Iteration continues beyond `stop`; the caller ends it. It is empty if no line begins in [start, stop). A range of a
    compressed file is in stored bytes and consists of whole members (see file_ranges.py). Its lines end at `stop`, and
    positions count from its start.
    """
    is_compressed = compression_of(path) is not None
    with open_lines(path, start, stop, encoding) as file:
        at = 0 if is_compressed else start
        # a line that begins exactly at `start` belongs to this range, so reading starts one byte earlier
        if start and not is_compressed:
            file.seek(start - 1)
            at += _skip_line(file, sys.maxsize if stop is None else stop - start + 1) - 1
            if stop is not None and at >= stop:
                return
        while content := file.readline(limit):
            size, why = len(content), ""
            if not content.endswith(b"\n"):
                if size == limit:
                    rest = _skip_line(file)
                    size, why = size + rest, "too_long" if rest else ""
                why = describe_fault(file) or why
            yield TextLine(at, size, content[:SNIPPET] if why else recode(content), why)
            at += size
            if why and describe_fault(file):
                return
        if why := describe_fault(file):
            yield TextLine(at, 0, b"", why)
        if left := count_trailing_bytes(file):
            yield TextLine(at, left, b"", TRAILING)


def _skip_line(file: io.BufferedReader, most: int = sys.maxsize) -> int:
    """Skip to the end of the line, or until a little more than `most` bytes. Returns the number of bytes skipped."""
    size = 0
    while size < most and (piece := file.readline(_SKIPPED)):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def lines_of_range(
    lines: Iterator[TextLine], stop: int | None, begins: Callable[[TextLine], bool]
) -> Iterator[TextLine]:
    """The lines that a range owns, from all lines after its start. The beginning of a file is also a boundary."""
    inside = False
    for line in lines:
        if line.start == 0 or begins(line):
            if stop is not None and line.start >= stop:
                return
            inside = True
        if inside:
            yield line


def blocks(lines: Iterator[TextLine], begins: Callable[[TextLine], bool], limit: int) -> Iterator[TextLine]:
    """Lines joined to blocks, from one boundary to the next. Blocks of more than `limit` bytes have only a size."""
    start, size, why, content = 0, 0, "", list[bytes]()
    for line in lines:
        if content and (begins(line) or line.fault == TRAILING):
            yield TextLine(start, size, b"".join(content), why)
            content = []
        if not content:
            start, size, why = line.start, 0, ""
        size += line.size
        if why:
            continue
        content.append(line.content)
        if line.fault or size > limit:
            why = line.fault or "too_long"
            content = [b"".join(content)[:SNIPPET]]
    if content:
        yield TextLine(start, size, b"".join(content), why)


def drop_record(label: str, block: TextLine, why: str) -> Record:
    """The record of a block that does not become a document."""
    return Record(label, block.size, fault=why, start=block.start, snippet=block.content[:SNIPPET])


def rest_of(file: io.BufferedReader, label: str) -> Iterator[Record]:
    """Records for the unreadable rest of a compressed file, and for bytes after it.

    The file must have been read to its end.
    """
    if why := describe_fault(file):
        yield Record(label, 0, fault=why)
    if left := count_trailing_bytes(file):
        yield Record(label, left, fault=TRAILING)
