"""Lines of a file -> the same lines in UTF-8, whatever the file is in, and however it is cut.

A line in UTF-8 stays as it is. The first one that is none asks what the file is in: some of its lines, from all of its
places, are looked at (encodings.py), so that each range of the file gets the same answer.
"""

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from pipeline.readers.files import InputFile, compression_of, is_url, open_bytes, open_stored, wide_encoding
from preprocessing.encodings import (
    CESU8,
    UTF8,
    Encoding,
    codec,
    is_cesu8,
    is_odd,
    lines_to_look_at,
    odd_lines,
    of_lines,
    to_utf8,
    whole_lines,
)
from preprocessing.spec import require

_WHOLE: Final = 1 << 24  # bytes of a file that are all looked at; of a larger one blocks
_BLOCK: Final = 1 << 16
_BLOCKS: Final = 256
_BLOCKS_FAR_AWAY: Final = 16  # each of them is a request
_HEAD: Final = 1 << 22  # bytes of a compressed file that are looked at, decompressed
_MOST_SEARCHED: Final = 1 << 30  # bytes in which the lines are searched that no block held
_WIDE: Final = ("utf-16", "utf-32")  # a line end is part of a character there: no line can be decoded alone


def require_encoding(field: str, name: str) -> None:
    """BadInput where `name`, the key `field` of a source, is neither "" nor an encoding that Python knows."""
    require(not name or codec(name) != "", field, name, "an encoding that Python knows, as windows-1251 or shift_jis")


class Transcoder:
    """Turns the lines of a file into UTF-8, and remembers in `used` what they were in, where that was something else.

    `forced` is the encoding that a user names, "" where it is to be found.
    """

    def __init__(self, file: InputFile, forced: str = "") -> None:
        self.is_forced = bool(forced)
        name = codec(forced) or wide_encoding(file.path)
        self.file, self.used = file, Encoding(name) if name not in ("", "utf-8") else UTF8
        self.whole = name if name.startswith(_WIDE) else ""  # the codec by which all of the file is opened
        self.is_known = bool(name)

    def __call__(self, line: bytes) -> bytes:
        if self.whole:
            return line
        if not self.is_forced and is_cesu8(line):
            self.used = Encoding(CESU8) if self.used == UTF8 else self.used
            return to_utf8(line, UTF8)
        if not self.is_known:
            if line.isascii() and b"\x1b" not in line and b"~{" not in line:
                return line
            self.used, self.is_known = encoding_of(self.file), True
        if self.used in (UTF8, Encoding(CESU8)) and not self.is_forced and is_odd(line):
            self.used = late_encoding_of(self.file)
        return to_utf8(line, UTF8 if self.used.name == CESU8 else self.used)


def encoding_of(file: InputFile) -> Encoding:
    """What a file is in, by lines from all of its places, or of its begin where it is compressed."""
    return _looked_at(file.path, file.size, file.changed)


def late_encoding_of(file: InputFile) -> Encoding:
    """What a file is in whose looked-at lines were UTF-8, but not all of the others."""
    return _searched(file.path, file.size, file.changed)


def blocks_of(file: InputFile) -> Iterator[bytes]:
    """Blocks of whole lines from all places of a file, or of its beginning where it is compressed, in UTF-8 if wide."""
    if wide_encoding(file.path):
        with open_bytes(file.path) as stream:
            yield stream.read(_HEAD)
        return
    yield from _blocks(file.path, file.size)


@lru_cache(maxsize=64)
def _looked_at(path: str, size: int, changed: int) -> Encoding:
    return of_lines(lines_to_look_at(_blocks(path, size)))


@lru_cache(maxsize=64)
def _searched(path: str, size: int, changed: int) -> Encoding:
    """As `_looked_at`, by the first lines of all that are none of UTF-8."""
    found, seen = list[bytes](), 0
    with open_bytes(path) as file:
        while (
            (block := file.read(_WHOLE) + file.readline()) and seen < _MOST_SEARCHED and sum(map(len, found)) < _BLOCK
        ):
            seen += len(block)
            found += odd_lines(block)
    encoding = of_lines(b"\n".join(found))
    return encoding if encoding == UTF8 else encoding._replace(mixed=True)


def _blocks(path: str, size: int) -> Iterator[bytes]:
    """Blocks of whole lines of a file, as `open_bytes` gives them."""
    compressed = compression_of(path) is not None
    if compressed or (size <= _WHOLE and not is_url(path)):
        with open_bytes(path) as file:
            most = _HEAD if compressed else _WHOLE
            block = file.read(most)
            yield whole_lines(block, first=True) if len(block) == most else block
        return
    with open_stored(path) as file:
        number = _BLOCKS_FAR_AWAY if is_url(path) else _BLOCKS
        for start in range(0, size, max(_BLOCK, -(-size // number))):
            file.seek(start, os.SEEK_SET)
            yield whole_lines(file.read(_BLOCK), first=start == 0)
