"""Paths, patterns and archives -> the bytes of files, in an order that does not depend on the machine."""

import bz2
import gzip
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

from preprocessing.errors import BadInput
from preprocessing.stand_ins import LOOKED_AT, require_itself

_OPEN: Final[Mapping[str, Callable[..., IO[Any]]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MAGIC: Final[Mapping[bytes, Callable[..., IO[Any]]]] = {  # what the first bytes of a compressed tar say of it
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"]\x00\x00": lzma.open,
}
MOST_BYTES: Final = 4 << 30  # that an archive or a compressed file may become: all of it is held in memory
MOST_TIMES: Final = 200  # as many bytes as it has: text that people write becomes a fifth to a twentieth
FEW_BYTES: Final = 64 << 20  # that any may become
MOST_MEMBERS: Final = 200_000
_CHUNK: Final = 1 << 20  # bytes that are unpacked at once: Python takes memory for all that is asked for
_BY_HAND: Final = "if it is what it should be, unpack it by hand and name the files that come of it"


def contents(folder: Path, pattern: str, member: str = "") -> Iterator[tuple[str, bytes]]:
    """The files of a pattern below a folder, by name, each with its name there; of an archive the `member` files.

    Both may have *, ? and [...]. Raises BadInput where none is there, or one cannot be read, or becomes far larger than
    text can when it is unpacked, has links or leads elsewhere.
    """
    paths = _paths(folder, pattern)
    if not paths:
        raise BadInput(f"{folder / pattern}: is not there")
    for path in sorted(paths):
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
        require_itself(path)
        try:
            for inside, content in _members(path, name, member) if member else [(name, _plain(path))]:
                require_itself(path, content[:LOOKED_AT])
                yield inside, content
        except BadInput:
            raise
        except (
            OSError,
            EOFError,
            RuntimeError,
            ValueError,  # of a name in a zip that is no UTF-8, of a size below 0
            LookupError,
            ArithmeticError,
            zlib.error,
            lzma.LZMAError,
            struct.error,
            tarfile.TarError,
            zipfile.BadZipFile,
        ) as error:
            raise BadInput(f"{path}: cannot be read ({error}); fetch it again") from None


def plain_ending(path: Path) -> str:
    """The ending of the name of a file, without that of a compression, in lower case.

    >>> plain_ending(Path("My.CSV.gz")), plain_ending(Path("my.tsv"))
    ('.csv', '.tsv')
    """
    return (path.with_suffix("") if path.suffix.lower() in _OPEN else path).suffix.lower()


def exists(folder: Path, pattern: str) -> bool:
    """Whether a pattern below a folder leads to a file."""
    return bool(_paths(folder, pattern))


def _paths(folder: Path, pattern: str) -> list[Path]:
    """A name is taken as it stands first: a file may have a bracket in it."""
    if (folder / pattern).is_file():
        return [folder / pattern]
    if Path(pattern).is_absolute() or not any(mark in pattern for mark in "*?["):
        return []
    return [path for path in folder.glob(pattern) if path.is_file()]


def _plain(path: Path) -> bytes:
    opened = _OPEN.get(path.suffix.lower())
    if opened is None:
        return path.read_bytes()
    with opened(path, "rb") as file:
        bounded = _Bounded(file, path)
        return b"".join(iter(lambda: bounded.read(_CHUNK), b""))


class _Bounded:
    """An unpacked stream that ends in BadInput where it becomes larger than it may."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path, self._left = file, path, _most(path)

    def read(self, size: int) -> bytes:
        found = self._file.read(min(size, self._left + 1))
        self._left -= len(found)
        if self._left < 0:
            raise _too_large(self._path)
        return found


def _most(path: Path) -> int:
    """Bytes that the content of a file may have."""
    return min(MOST_BYTES, max(FEW_BYTES, MOST_TIMES * path.stat().st_size))


def _too_large(path: Path) -> BadInput:
    size, most = path.stat().st_size / 1e6, _most(path) / 1e6
    return BadInput(
        f"{path}: becomes more than {most:,.0f} MB, and has {size:,.1f} MB: allowed are {MOST_TIMES} times as many "
        f"bytes, and at most {MOST_BYTES / 1e6:,.0f} MB; {_BY_HAND}"
    )


def _members(path: Path, name: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    found = dict(_zipped(path, pattern) if zipfile.is_zipfile(path) else _tarred(path, pattern))
    if not found:
        raise BadInput(f"{path}: has no {pattern} in it")
    for inside in sorted(found):
        yield f"{name}/{inside}", found[inside]


def _zipped(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _require_few(path, len(members))
        wanted = [info for info in members if not info.is_dir() and fnmatchcase(info.filename, pattern)]
        if sum(info.file_size for info in wanted) > _most(path):  # what is read is never more than that
            raise _too_large(path)
        for info in wanted:
            _require_inside(path, info.filename, is_link=stat.S_ISLNK(info.external_attr >> 16))
            yield info.filename, archive.read(info)


def _tarred(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        head = file.read(6)
    plain: Callable[..., IO[Any]] = open
    opened = next((opened for magic, opened in _MAGIC.items() if head.startswith(magic)), plain)
    with opened(path, "rb") as unpacked:
        stream: Any = _Bounded(unpacked, path)
        yield from _of_stream(path, pattern, stream)


def _of_stream(path: Path, pattern: str, stream: Any) -> Iterator[tuple[str, bytes]]:
    left = _most(path)  # a sparse file becomes far more than the stream: its holes are zeros that nobody wrote
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, info in enumerate(archive):
            _require_few(path, number)
            cast(Any, archive).members.clear()  # of a stream they lead nowhere, and it keeps them all
            if info.isdir() or not fnmatchcase(info.name, pattern):
                continue
            _require_inside(path, info.name, is_link=info.issym() or info.islnk())
            left -= info.size
            if left < 0:
                raise _too_large(path)
            if content := archive.extractfile(info):
                yield info.name, content.read()


def _require_few(path: Path, members: int) -> None:
    if members > MOST_MEMBERS:
        raise BadInput(f"{path}: has more than {MOST_MEMBERS:,} files in it; {_BY_HAND}")


def _require_inside(path: Path, name: str, is_link: bool) -> None:
    """BadInput for a file that stands elsewhere, or says so."""
    if is_link:
        raise BadInput(f"{path}: {name} in it is a link, and no file; {_BY_HAND}")
    if ".." in PurePosixPath(name).parts:
        raise BadInput(f"{path}: {name} in it leads out of the folder in which it is unpacked; fetch it again")
