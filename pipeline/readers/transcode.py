"""Lines of a file -> the same lines in UTF-8, whatever the encoding of the file and its division into ranges.

A line in UTF-8 stays unchanged. At the first other line, the encoding is detected from sampled lines of the whole file
(encodings.py). The result is therefore the same in each range.
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

_WHOLE: Final = 1 << 24  # bytes of a file that are examined completely; larger files are sampled in blocks
_BLOCK: Final = 1 << 16
_BLOCKS: Final = 256
_BLOCKS_FAR_AWAY: Final = 16  # for a URL, where reading a block takes a request
_HEAD: Final = 1 << 22  # decompressed bytes of a compressed file that are examined
_MOST_SEARCHED: Final = 1 << 30  # bytes searched for lines that are not UTF-8
# line ends are parts of characters in these encodings: no line can be decoded separately
_WIDE: Final = ("utf-16", "utf-32")


def require_encoding(field: str, name: str) -> None:
    """Raise ValueError if `name`, the value of key `field`, is neither "" nor an encoding of Python."""
    require(not name or codec(name) != "", field, name, "a Python encoding, e.g. windows-1251 or shift_jis")


class Transcoder:
    """Converts the lines of a file to UTF-8. `used` is the original encoding.

    `forced` is the encoding that the user sets; "" means that it is detected.
    """

    def __init__(self, file: InputFile, forced: str = "") -> None:
        self.is_forced = bool(forced)
        name = codec(forced) or wide_encoding(file.path)
        self.file, self.used = file, Encoding(name) if name not in ("", "utf-8") else UTF8
        self.whole = name if name.startswith(_WIDE) else ""  # the codec for opening the whole file
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
    """The encoding of a file, from lines sampled in the whole file, or at its start if it is compressed."""
    return _detect_sampled(file.path, file.size, file.changed)


def late_encoding_of(file: InputFile) -> Encoding:
    """The encoding of a file whose sampled lines are UTF-8, but some other line is not."""
    return _search_encoding(file.path, file.size, file.changed)


def blocks_of(file: InputFile) -> Iterator[bytes]:
    """Blocks of whole lines sampled in a file, or at its start if it is compressed. UTF-16 and UTF-32 become UTF-8."""
    if wide_encoding(file.path):
        with open_bytes(file.path) as stream:
            yield stream.read(_HEAD)
        return
    yield from _blocks(file.path, file.size)


@lru_cache(maxsize=64)
def _detect_sampled(path: str, size: int, changed: int) -> Encoding:
    return of_lines(lines_to_look_at(_blocks(path, size)))


@lru_cache(maxsize=64)
def _search_encoding(path: str, size: int, changed: int) -> Encoding:
    """The encoding of the first lines of the file that are not UTF-8."""
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
    """Blocks of whole lines of a file, decompressed."""
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
