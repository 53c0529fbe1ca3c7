"""Where a large file may be cut, so that several workers read it. What is found in it is the same, however it is cut.

Plain files are cut anywhere: a range owns what begins in it (lines.py). A file of compressed members end to end (bz2
multistream dumps, .warc.gz) is cut where a member begins that begins with a document. A single .gz, .bz2 or .zst stays
whole: to read its middle one needs what stands before, or an index that takes a pass of its own (as rapidgzip's does).
"""

import bz2
import re
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from pipeline.readers.files import open_stored

_WINDOW: Final = 1 << 20  # bytes looked at a time; a bz2 block of 900 kB is whole in there
_FAR: Final = 1 << 26  # bytes in which a member must begin, or the rest of the file is no place for cuts


class Members(NamedTuple):
    """How to know the begin of a part of a file: by its mark, and by what it begins with, decompressed."""

    mark: re.Pattern[bytes]
    begin: re.Pattern[bytes]
    opened: Callable[[bytes], bytes]


BZ2_PAGES: Final = Members(
    re.compile(rb"BZh[1-9]1AY&SY"),
    re.compile(rb"  <page>\n"),
    lambda data: bz2.BZ2Decompressor().decompress(data, max_length=64),
)
GZIP_WARC: Final = Members(
    re.compile(rb"\x1f\x8b\x08"),
    re.compile(rb"WARC/1\.\d\r?\n"),
    lambda data: zlib.decompressobj(31).decompress(data, 64),
)
PLAIN_WARC: Final = Members(
    re.compile(rb"(?<=\r\n\r\n)WARC/1\.\d\r\n"), re.compile(rb"WARC/1\.\d\r\n(?:[\w-]+:.*\r\n)+"), lambda data: data
)


def ranges(cuts: list[int]) -> list[tuple[int, int | None]]:
    """[start, stop) between the cuts of a file; the last one is open.

    >>> ranges([4, 8])
    [(0, 4), (4, 8), (8, None)]
    """
    return list(zip([0, *cuts], [*cuts, None], strict=True))


def by_bytes(size: int, step: int) -> list[int]:
    """Cuts at about every `step` bytes; the last range has 0.5 to 1.5 of them."""
    return list(range(step, size - step // 2, step))


def at_members(path: str, size: int, step: int, members: Members) -> list[int]:
    """Cuts at the first members after about every `step` stored bytes."""
    cuts, at = list[int](), step
    with open_stored(path) as file:

        def following(at: int) -> int | None:
            for start in range(at, min(at + _FAR, size), _WINDOW):
                file.seek(start - 4)  # what a mark follows
                window = file.read(_WINDOW + 16)
                for match in members.mark.finditer(window, 4):
                    place = start - 4 + match.start()
                    file.seek(place)
                    if place < start + _WINDOW and _opens(file.read(_WINDOW), members):
                        return place
            return None

        while at < size - step // 2 and (place := following(at)) is not None:
            cuts.append(place)
            at = place + step
    return cuts


def _opens(data: bytes, members: Members) -> bool:
    try:
        return members.begin.match(members.opened(data)) is not None
    except (OSError, zlib.error, EOFError):
        return False  # the mark was there by chance
