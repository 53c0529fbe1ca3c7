"""Read the bytes of files from paths, patterns and archives, in an order that does not depend on the machine."""

import bz2
import gzip
import lzma
import re
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
_MAGIC: Final[
    Mapping[bytes, Callable[..., IO[Any]]]
] = {  # first bytes of a tar file -> function that opens this compression
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"]\x00\x00": lzma.open,
}
_SHARD: Final = re.compile(r"-\d{5}-of-(\d{5})(?:-[0-9a-f]+)?\.\w+$")  # the name of a shard of `datasets`
MOST_BYTES: Final = 4 << 30  # maximum unpacked size; all of it is held in memory
MOST_TIMES: Final = 200  # maximum compression ratio; natural text has ratios of 5 to 20
FEW_BYTES: Final = 64 << 20  # unpacked size that is always allowed
MOST_MEMBERS: Final = 200_000
_CHUNK: Final = 1 << 20  # bytes unpacked at once, since Python allocates the requested size
_BY_HAND: Final = "if the file is trusted, unpack it by hand and set the paths to the unpacked files"


def contents(folder: Path, pattern: str, member: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of the files that match a pattern below a directory, or of members of an archive.

    Both patterns may have *, ? and [...]. Raises BadInput if there is no file, or a file cannot be read. Raises
    BadInput also if an archive unpacks to too many bytes, or has links or paths outside the archive.
    """
    paths = _paths(folder, pattern)
    if not paths:
        raise BadInput(f"{folder / pattern}: no such file; correct the path")
    if not (folder / pattern).is_file():
        _require_all_shards(paths, folder / pattern)
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
            ValueError,  # a name in a zip file that is not UTF-8, or a negative size
            LookupError,
            ArithmeticError,
            zlib.error,
            lzma.LZMAError,
            struct.error,
            tarfile.TarError,
            zipfile.BadZipFile,
        ) as error:
            raise BadInput(f"{path}: cannot be read ({error}); download it again") from None


def plain_ending(path: Path) -> str:
    """The extension of a file name in lower case, without the extension of a compression.

    >>> plain_ending(Path("My.CSV.gz")), plain_ending(Path("my.tsv"))
    ('.csv', '.tsv')
    """
    return (path.with_suffix("") if path.suffix.lower() in _OPEN else path).suffix.lower()


def exists(folder: Path, pattern: str) -> bool:
    """Whether a pattern below a directory matches a file."""
    return bool(_paths(folder, pattern))


def _paths(folder: Path, pattern: str) -> list[Path]:
    """The matching files; an exact name comes first, because file names may have brackets."""
    if (folder / pattern).is_file():
        return [folder / pattern]
    if not any(mark in pattern for mark in "*?["):
        return []
    base, parts = folder, list(Path(pattern).parts)
    while len(parts) > 1 and (base / parts[0]).is_dir():  # names of directories may have brackets, too
        base = base / parts.pop(0)
    if Path(parts[0]).is_absolute():
        return []
    return [path for path in base.glob(str(Path(*parts))) if path.is_file()]


def _require_all_shards(paths: list[Path], where: Path) -> None:
    """Raise BadInput if some of the shards NAME-00000-of-00002.EXT are missing, since rows would be missing."""
    totals = {int(shard[1]) for path in paths if (shard := _SHARD.search(path.name))}
    if totals and (totals != {len(paths)}):
        expected = " or ".join(map(str, sorted(totals)))
        raise BadInput(f"{where}: got {len(paths)} files, expected all {expected} shards; download the dataset again")


def _plain(path: Path) -> bytes:
    opened = _OPEN.get(path.suffix.lower())
    if opened is None:
        return path.read_bytes()
    with opened(path, "rb") as file:
        bounded = _Bounded(file, path)
        return b"".join(iter(lambda: bounded.read(_CHUNK), b""))


class _Bounded:
    """An unpacked stream that raises BadInput if it exceeds its maximum size."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path, self._left = file, path, _most(path)

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._path)
        return data


def _most(path: Path) -> int:
    """The maximum size of the unpacked content, in bytes."""
    return min(MOST_BYTES, max(FEW_BYTES, MOST_TIMES * path.stat().st_size))


def _too_large(path: Path) -> BadInput:
    size, most = path.stat().st_size / 1e6, _most(path) / 1e6
    return BadInput(
        f"{path}: too large: {size:,.1f} MB unpack to more than {most:,.0f} MB, "
        f"expected at most {MOST_TIMES} times the "
        f"size and {MOST_BYTES / 1e6:,.0f} MB; {_BY_HAND}"
    )


def _members(path: Path, name: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    contents_by_name = dict(_read_zip(path, pattern) if zipfile.is_zipfile(path) else _read_tar(path, pattern))
    if not contents_by_name:
        raise BadInput(f"{path}: no member {pattern}; correct `archive_member`")
    for inside in sorted(contents_by_name):
        yield f"{name}/{inside}", contents_by_name[inside]


def _read_zip(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _require_few(path, len(members))
        selected = [info for info in members if not info.is_dir() and fnmatchcase(info.filename, pattern)]
        if sum(info.file_size for info in selected) > _most(path):  # zipfile never reads more than this size
            raise _too_large(path)
        for info in selected:
            _require_inside(path, info.filename, is_link=stat.S_ISLNK(info.external_attr >> 16))
            yield info.filename, archive.read(info)


def _read_tar(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        head = file.read(6)
    plain: Callable[..., IO[Any]] = open
    opened = next((opened for magic, opened in _MAGIC.items() if head.startswith(magic)), plain)
    with opened(path, "rb") as unpacked:
        stream: Any = _Bounded(unpacked, path)
        yield from _of_stream(path, pattern, stream)


def _of_stream(path: Path, pattern: str, stream: Any) -> Iterator[tuple[str, bytes]]:
    left = _most(path)  # a sparse file can be far larger than the stream, because of its holes
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, info in enumerate(archive):
            _require_few(path, number)
            cast(Any, archive).members.clear()  # avoids keeping all members of the stream in memory
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
        raise BadInput(f"{path}: too many members: expected at most {MOST_MEMBERS:,}; {_BY_HAND}")


def _require_inside(path: Path, name: str, is_link: bool) -> None:
    """Raise BadInput for a link, or for a path outside the archive."""
    if is_link:
        raise BadInput(f"{path}: member {name} is a link, not a file; {_BY_HAND}")
    if ".." in PurePosixPath(name).parts:
        raise BadInput(f"{path}: member {name} has a path outside the archive; download it again")
