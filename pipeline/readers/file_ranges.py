"""Where a large file may be cut, so that several workers read it. What is found in it is the same, however it is cut.

Plain files are cut anywhere: a range owns what begins in it (lines.py). A file of compressed members end to end (bz2
multistream dumps, .warc.gz) is cut where a member begins that begins with a document. A single .gz, .bz2, .zst or .xz,
and what is in a zip archive, stays whole: to read its middle one needs what stands before, or an index that takes a
pass of its own (as rapidgzip's does).
"""

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pipeline.readers.files import InputFile, ends_in_returns, is_text, open_stored, stored_head
from preprocessing.encodings import wide

_INFLATED: Final = 4  # text compresses to about a quarter
_WINDOW: Final = 1 << 20  # bytes looked at a time; a bz2 block of 900 kB is whole in there
_FAR: Final = 1 << 26  # bytes in which a member must begin, or the rest of the file is no place for cuts


class FileRange(NamedTuple):
    """A file, or a range [start, stop) of it: of its stored bytes, or of the parts of a table."""

    file: InputFile
    start: int = 0
    stop: int | None = None
    weight: int = 0  # about how many bytes of text
    beside: tuple[tuple[InputFile, int, int | None], ...] = ()  # the same lines in other languages

    @property
    def files(self) -> list[InputFile]:
        """Its file, and those beside it."""
        return [self.file, *(file for file, _, _ in self.beside)]

    @property
    def label(self) -> str:
        """The names of its files: which side of a parallel text is torn is not known from its lines."""
        return " and ".join(file.label for file in self.files)

    @property
    def stored(self) -> int:
        """The bytes of its whole files, as they are stored."""
        return sum(file.size for file in self.files)


class MemberSignature(NamedTuple):
    """How to know the begin of a part of a file: by its mark, and by what it begins with, decompressed."""

    mark: re.Pattern[bytes]
    begin: re.Pattern[bytes]
    opened: Callable[[bytes], bytes]


def weight(file: InputFile, stored: int) -> int:
    """About how many bytes of text are in so many stored bytes of a file."""
    return stored * _ratio(file)


def _ratio(file: InputFile) -> int:
    return _INFLATED if file.compression else 1


def pieces_at(file: InputFile, cuts: list[int]) -> Iterator[FileRange]:
    """A file cut at these stored bytes; in one piece without cuts."""
    for start, stop in ranges(cuts):
        yield FileRange(file, start, stop, weight(file, (file.size if stop is None else stop) - start))


def ranges(cuts: list[int]) -> list[tuple[int, int | None]]:
    """[start, stop) between the cuts of a file; the last one is open.

    >>> ranges([4, 8])
    [(0, 4), (4, 8), (8, None)]
    """
    return list(zip([0, *cuts], [*cuts, None], strict=True))


def text_cuts(file: InputFile, step: int) -> list[int]:
    """Cuts of a file of lines at about every `step` bytes; none where it is compressed, UTF-16 or UTF-32, or
    its lines have no line feeds."""
    if file.compression or file.size < 1.5 * step:
        return []
    start = stored_head(file.path)
    has_lines = is_text(start) and not wide(start) and not ends_in_returns(start, file.path)
    return by_bytes(file.size, step) if has_lines else []


def member_cuts(file: InputFile, step: int, members: MemberSignature) -> list[int]:
    """Cuts of a file of members at about every `step` bytes of text."""
    large = weight(file, file.size) >= 1.5 * step
    return at_members(file.path, file.size, step // _ratio(file), members) if large else []


def by_bytes(size: int, step: int) -> list[int]:
    """Cuts at about every `step` bytes; the last range has 0.5 to 1.5 of them."""
    return list(range(step, size - step // 2, step))


def at_members(path: str, size: int, step: int, members: MemberSignature) -> list[int]:
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


def _opens(data: bytes, members: MemberSignature) -> bool:
    try:
        return members.begin.match(members.opened(data)) is not None
    except (OSError, zlib.error, EOFError):
        return False  # the mark was there by chance
