"""Division of a large file into ranges for several workers. The records do not depend on the division.

Plain files are divided anywhere: a range owns the documents that begin in it (lines.py). A file of concatenated
compressed members (bz2 multistream dumps, .warc.gz) is divided at members that begin with a document. A single .gz,
.bz2, .zst or .xz stream and a zip member are not divided. Reading from the middle would require the preceding bytes,
or an index from a separate pass (as in rapidgzip).
"""

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pipeline.readers.files import InputFile, ends_in_returns, is_text, open_stored, read_stored_head
from preprocessing.encodings import wide

_COMPRESSION_RATIO: Final = 4  # compression ratio of text, about 4
_WINDOW: Final = 1 << 20  # bytes to search at a time: more than a bz2 block of 900 kB
_SEARCH_LIMIT: Final = 1 << 26  # bytes in which a member must begin; otherwise the rest of the file is not divided


class FileRange(NamedTuple):
    """A file, or a range [start, stop) of it: of stored bytes, or of row groups or record batches of a table."""

    file: InputFile
    start: int = 0
    stop: int | None = None
    weight: int = 0  # approximate number of bytes of text
    beside: tuple[tuple[InputFile, int, int | None], ...] = ()  # the aligned ranges in other languages

    @property
    def files(self) -> list[InputFile]:
        """The file and its aligned files."""
        return [self.file, *(file for file, _, _ in self.beside)]

    @property
    def label(self) -> str:
        """The names of all files, because a damaged document of a parallel text may come from any of them."""
        return " and ".join(file.label for file in self.files)

    @property
    def stored(self) -> int:
        """Stored size of the whole files in bytes."""
        return sum(file.size for file in self.files)


class MemberSignature(NamedTuple):
    """How to recognize the start of a member: its signature, and a pattern of its decompressed content."""

    mark: re.Pattern[bytes]
    begin: re.Pattern[bytes]
    opened: Callable[[bytes], bytes]


def weight(file: InputFile, stored: int) -> int:
    """Approximate number of bytes of text in `stored` bytes of a file."""
    return stored * _ratio(file)


def _ratio(file: InputFile) -> int:
    return _COMPRESSION_RATIO if file.compression else 1


def pieces_at(file: InputFile, cuts: list[int]) -> Iterator[FileRange]:
    """Ranges of a file between these positions in bytes; one range if there are none."""
    for start, stop in ranges(cuts):
        yield FileRange(file, start, stop, weight(file, (file.size if stop is None else stop) - start))


def ranges(cuts: list[int]) -> list[tuple[int, int | None]]:
    """Ranges [start, stop) between cuts; the last one is open-ended.

    >>> ranges([4, 8])
    [(0, 4), (4, 8), (8, None)]
    """
    return list(zip([0, *cuts], [*cuts, None], strict=True))


def text_cuts(file: InputFile, step: int) -> list[int]:
    """Positions in bytes at which to divide a file of lines, about `step` bytes apart.

    Returns [] if the file is compressed, is UTF-16 or UTF-32, or has no line feeds.
    """
    if file.compression or file.size < 1.5 * step:
        return []
    start = read_stored_head(file.path)
    has_lines = is_text(start) and not wide(start) and not ends_in_returns(start, file.path)
    return by_bytes(file.size, step) if has_lines else []


def member_cuts(file: InputFile, step: int, members: MemberSignature) -> list[int]:
    """Positions at which to divide a file of compressed members, about `step` bytes of text apart."""
    large = weight(file, file.size) >= 1.5 * step
    return at_members(file.path, file.size, step // _ratio(file), members) if large else []


def by_bytes(size: int, step: int) -> list[int]:
    """Positions about `step` bytes apart; the last range has 0.5 to 1.5 times `step` bytes."""
    return list(range(step, size - step // 2, step))


def at_members(path: str, size: int, step: int, members: MemberSignature) -> list[int]:
    """Positions of the first members after every `step` stored bytes."""
    cuts, at = list[int](), step
    with open_stored(path) as file:

        def following(at: int) -> int | None:
            for start in range(at, min(at + _SEARCH_LIMIT, size), _WINDOW):
                file.seek(start - 4)  # the bytes before a signature
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


def _opens(data: bytes, members: MemberSignature) -> bool:
    try:
        return members.begin.match(members.opened(data)) is not None
    except (OSError, zlib.error, EOFError):
        return False  # the signature occurred by chance
