"""Paths, patterns and archives -> the bytes of files, in an order that does not depend on the machine."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, Final

from preprocessing.errors import BadInput

_OPEN: Final[Mapping[str, Callable[..., IO[Any]]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def contents(folder: Path, pattern: str, member: str = "") -> Iterator[tuple[str, bytes]]:
    """The files of a pattern below a folder, by name, each with its name there; of an archive the `member` files.

    Both may have *, ? and [...]. Raises BadInput where none is there, or one cannot be read.
    """
    paths = _paths(folder, pattern)
    if not paths:
        raise BadInput(f"{folder / pattern}: is not there")
    for path in sorted(paths):
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
        try:
            yield from _members(path, name, member) if member else [(name, _plain(path))]
        except (
            OSError,
            EOFError,
            RuntimeError,
            zlib.error,
            lzma.LZMAError,
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


def is_there(folder: Path, pattern: str) -> bool:
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
    with _OPEN.get(path.suffix.lower(), Path.open)(path, "rb") as file:
        return file.read()


def _members(path: Path, name: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    found = dict(_zipped(path, pattern) if zipfile.is_zipfile(path) else _tarred(path, pattern))
    if not found:
        raise BadInput(f"{path}: has no {pattern} in it")
    for inside in sorted(found):
        yield f"{name}/{inside}", found[inside]


def _zipped(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir() and fnmatchcase(info.filename, pattern):
                yield info.filename, archive.read(info)


def _tarred(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for info in archive:
            if info.isfile() and fnmatchcase(info.name, pattern) and (file := archive.extractfile(info)):
                yield info.name, file.read()
