"""Files -> lines of bytes. A bad byte, a torn archive or an endless line stops nothing, and each byte is accounted for.

Large files are read in ranges, by several workers. A range of bytes owns the lines from the first boundary (where a
document may begin) at or after its start up to the first boundary at or after its stop, so that ranges that touch share
no line and miss none, whatever the format.
"""

import glob
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa

from preprocessing.errors import BadInput

COMPRESSED: Final = {".gz": "gzip", ".zst": "zstd"}
_TEAR: Final = (
    1 << 13
)  # bytes decompressed at a time: at most so many are lost before the place where a file breaks off
_SKIPPED: Final = 1 << 20  # bytes held at a time while the rest of a line that nobody keeps goes by
_CONTROLS: Final = [*range(1, 9), *range(14, 27), *range(28, 32)]  # all but NUL, white space and escape
_MARKS: Final = (
    b"\xff\xfe",
    b"\xfe\xff",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"PK\x03\x04",
    b"BZh",
    b"\xfd7zXZ",
    b"\x89PNG",
    b"%PDF",
)


class File(NamedTuple):
    """An input file; `label` is its name inside of the folder that was given, the same on every machine."""

    label: str
    path: str
    size: int  # bytes on disk
    changed: int  # time of the last change, ns

    @property
    def compression(self) -> str | None:
        return COMPRESSED.get(Path(self.path).suffix)


class Line(NamedTuple):
    start: int  # where it begins in the file, decompressed
    size: int  # bytes there, the line end included
    content: bytes  # b"" where there is a fault
    fault: str = ""  # "too_long", or "truncated" where a compressed file breaks off


def find(path: str, endings: tuple[str, ...] = ()) -> list[File]:
    """The files that a path, a folder or a glob names, in order; BadInput where there are none.

    Folders are searched in depth, hidden files apart, for names with one of `endings` (all names, without endings).
    """
    top = Path(path)
    if top.is_dir():
        found = [Path(folder, name) for folder, _, names in os.walk(top) for name in names]
        inside = [file for file in found if not any(part.startswith(".") for part in file.relative_to(top).parts)]
        files = [(str(file.relative_to(top)), file) for file in inside if not endings or plain_suffix(file) in endings]
        if not files:
            raise BadInput(f"{path}: a folder without {' or '.join(endings) or 'any'} files; name one that holds text")
    elif top.exists():
        files = [(top.name, top)]
    elif glob.has_magic(path):
        fixed = Path(*(part for part in _until(top.parts, glob.has_magic)))
        files = [
            (os.path.relpath(name, fixed), Path(name))
            for name in glob.glob(path, recursive=True)
            if os.path.isfile(name)
        ]
        if not files:
            raise BadInput(f"{path}: no file matches; check the pattern")
    else:
        raise BadInput(f"{path}: no such file or folder; check the path")
    for _, file in files:
        if not os.access(file, os.R_OK):
            raise BadInput(f"{file}: cannot be read; check its permissions")
    stats = ((label, file, file.stat()) for label, file in files)
    return sorted(File(label, str(file), stat.st_size, stat.st_mtime_ns) for label, file, stat in stats)


def plain_suffix(name: Path | str) -> str:
    """The ending of a name, compression apart.

    >>> plain_suffix("wiki.jsonl.zst")
    '.jsonl'
    """
    path = Path(name)
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix


def _until(parts: tuple[str, ...], stop: Callable[[str], bool]) -> Iterator[str]:
    for part in parts:
        if stop(part):
            return
        yield part


def open_bytes(path: str) -> BinaryIO:
    """A file as a stream of bytes, decompressed where its name ends in .gz or .zst."""
    compression = COMPRESSED.get(Path(path).suffix)
    if compression is None:
        return open(path, "rb")
    return io.BufferedReader(pa.input_stream(path, compression=compression), _TEAR)


def head(path: str, size: int = 8192) -> bytes:
    """The first bytes of a file, decompressed; b"" where it cannot be decompressed."""
    try:
        with open_bytes(path) as file:
            return file.read(size)
    except (OSError, pa.ArrowInvalid):
        return b""


def is_text(start: bytes) -> bool:
    r"""Whether a file that starts so is text: no other format's mark, hardly any control characters, some NULs at most.

    >>> is_text(b"plain\x00 text"), is_text("plain text".encode("utf-16-le")), is_text(b"\x7fELF\x01\x02")
    (True, False, False)
    """
    controls = sum(start.count(byte) for byte in _CONTROLS)
    return not start.startswith(_MARKS) and start.count(0) <= 0.25 * len(start) and controls <= 0.03 * len(start)


def lines(path: str, start: int, stop: int | None, limit: int) -> Iterator[Line]:
    """The lines of a file from the first that begins at or after byte `start`; of one over `limit` bytes only its size.

    They go on beyond `stop`, where the caller stops; there are none where none begins in [start, stop).
    """
    with open_bytes(path) as file:
        at = start
        if start:  # a line that ends right before `start` is not ours, one that begins there is
            file.seek(start - 1)
            at += _skip_line(file, sys.maxsize if stop is None else stop - start + 1) - 1
            if stop is not None and at >= stop:
                return
        while True:
            try:
                content = file.readline(limit)
                size, fault = len(content), ""
                if size == limit and not content.endswith(b"\n"):
                    size, fault = size + _skip_line(file), "too_long"
            except (OSError, pa.ArrowInvalid) as error:
                if getattr(error, "errno", None) is not None:
                    raise  # the disk, not the archive
                yield Line(at, 0, b"", "truncated")
                return
            if not size:
                return
            yield Line(at, size, b"" if fault else content, fault)
            at += size


def _skip_line(file: BinaryIO, most: int = sys.maxsize) -> int:
    """Read to the end of the line, or on to `most` bytes or a little more; returns how many bytes that were."""
    size = 0
    while size < most and (piece := file.readline(_SKIPPED)):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def owned(lines: Iterator[Line], stop: int | None, begins: Callable[[Line], bool]) -> Iterator[Line]:
    """Of lines from the start of a range on, those that the range owns; the begin of a file is a boundary, too."""
    inside = False
    for line in lines:
        if line.start == 0 or begins(line):
            if stop is not None and line.start >= stop:
                return
            inside = True
        if inside:
            yield line
