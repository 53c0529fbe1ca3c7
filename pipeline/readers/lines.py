"""Files -> lines and blocks of lines. A bad byte, a torn archive or an endless line stops nothing; each byte counts.

Large files are read in ranges, by several workers. A range of bytes owns the lines from the first boundary (where a
document may begin) at or after its start up to the first boundary at or after its stop, so that ranges that touch share
no line and miss none, whatever the format.
"""

import io
import sys
from collections.abc import Callable, Iterator
from typing import Final

from pipeline.readers.files import compression_of, count_trailing_bytes, describe_fault, open_lines
from pipeline.readers.record import SNIPPET, TRAILING, Record
from preprocessing.tables import TextLine

_SKIPPED: Final = 1 << 20  # bytes in memory while the rest of a line that is too long is skipped


def lines(
    path: str, start: int, stop: int | None, limit: int, recode: Callable[[bytes], bytes] = bytes, encoding: str = ""
) -> Iterator[TextLine]:
    """The lines of a file from the first that begins at or after byte `start`; of one over `limit` bytes only its size.

    `recode` turns what a line has into UTF-8; `encoding` is that of the whole file, as for `open_bytes`. Sizes are of
    the bytes of the file.

    They go on beyond `stop`, where the caller stops; there are none where none begins in [start, stop). A range of a
    compressed file is of compressed bytes and whole in itself (see file_ranges.py): lines end there, and start counts
    from it.
    """
    whole = compression_of(path) is not None
    with open_lines(path, start, stop, encoding) as file:
        at = 0 if whole else start
        if start and not whole:  # a line that ends right before `start` is not ours, one that begins there is
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
    """Read to the end of the line, or on to `most` bytes or a little more; returns how many bytes that were."""
    size = 0
    while size < most and (piece := file.readline(_SKIPPED)):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def lines_of_range(
    lines: Iterator[TextLine], stop: int | None, begins: Callable[[TextLine], bool]
) -> Iterator[TextLine]:
    """Of lines from the start of a range on, those that the range owns; the begin of a file is a boundary, too."""
    inside = False
    for line in lines:
        if line.start == 0 or begins(line):
            if stop is not None and line.start >= stop:
                return
            inside = True
        if inside:
            yield line


def blocks(lines: Iterator[TextLine], begins: Callable[[TextLine], bool], limit: int) -> Iterator[TextLine]:
    """Lines from one begin up to the next, joined as one; of a block longer than `limit` bytes only its size."""
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
    """The record of a block that is no document."""
    return Record(label, block.size, fault=why, start=block.start, snippet=block.content[:SNIPPET])


def rest_of(file: io.BufferedReader, label: str) -> Iterator[Record]:
    """The records of what a compressed file that was read to its end does not give: the rest of it, what is behind."""
    if why := describe_fault(file):
        yield Record(label, 0, fault=why)
    if left := count_trailing_bytes(file):
        yield Record(label, left, fault=TRAILING)
