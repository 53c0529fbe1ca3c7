"""Zip archives -> their members, which are read like files of a folder: `a.zip!/b.txt`."""

import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from preprocessing.errors import BadInput

TORN: Final = (OSError, EOFError, zipfile.BadZipFile, zlib.error)  # what reading a damaged member raises
_INSIDE: Final = ".zip!/"
_MOST_RATIO: Final = 200  # as for other archives (files.py)
_HARMLESS: Final = 1 << 28
_ENCRYPTED: Final = 1  # bit of a member's flags
_KNOWN: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


class ZipListing(NamedTuple):
    name: str
    path: str
    size: int  # bytes in the archive
    changed: int  # CRC-32 of what it holds


def is_archive(path: Path | str) -> bool:
    """Whether a path has the name of a zip archive; documents that are zip archives have names of their own."""
    return Path(path).suffix.lower() == ".zip"


def is_member(path: str) -> bool:
    """Whether a path is one inside of an archive.

    >>> is_member("texts/a.zip!/b/c.txt"), is_member("texts/a.zip")
    (True, False)
    """
    return _INSIDE in path.lower()


def archive_of(path: str) -> str:
    """The archive that a member is in; of any other path itself.

    >>> archive_of("texts/a.zip!/b/c.txt"), archive_of("a.txt")
    ('texts/a.zip', 'a.txt')
    """
    return path[: path.lower().index(_INSIDE) + len(_INSIDE) - 2] if is_member(path) else path


def members(path: Path) -> Iterator[ZipListing]:
    """The members of an archive, in the order of their names; BadInput where it cannot be read to its end."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}  # the last of a name
            found = [infos[name] for name in sorted(infos)]
        size = path.stat().st_size
        if any(not 0 <= info.header_offset < size for info in found):
            raise EOFError("members are not where its list says")
    except (*TORN, NotImplementedError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: is no zip archive, or a damaged one ({error}); mend it, or leave it out") from None
    if (grown := sum(info.file_size for info in found)) > _HARMLESS + _MOST_RATIO * size:
        raise BadInput(
            f"{path}: grows to {grown / max(1, size):,.0f} times its size, as no text does (allowed is {_MOST_RATIO}); "
            "unpack it first, if it is sound"
        )
    for info in found:
        if any(part.startswith((".", "__MACOSX")) and part != ".." for part in info.filename.split("/")):
            continue
        if info.flag_bits & _ENCRYPTED:
            raise BadInput(f"{path}: {info.filename} is encrypted; unpack it first, and give the folder")
        if info.compress_type not in _KNOWN:
            raise BadInput(f"{path}: {info.filename} is compressed in a way that Python cannot undo; unpack it first")
        yield ZipListing(info.filename, f"{path}!/{info.filename}", info.compress_size, info.CRC)


def open_member(path: str) -> io.BufferedReader:
    """A member of an archive, for reading at any place."""
    at = path.lower().index(_INSIDE) + len(_INSIDE)
    return io.BufferedReader(ZipMember(path[: at - 2], path[at:]))


@lru_cache(maxsize=4)
def _archive(path: str, changed: int, size: int, process: int) -> zipfile.ZipFile:
    """An archive, whose list of members is read once for all of them: it may be long."""
    return zipfile.ZipFile(path)


class ZipMember(io.RawIOBase):
    """A member, whose damage is an OSError as that of any file."""

    def __init__(self, archive: str, name: str) -> None:
        self.archive, self.name = archive, name

    def _opened(self) -> zipfile.ZipFile:
        facts = os.stat(self.archive)
        return _archive(self.archive, facts.st_mtime_ns, facts.st_size, os.getpid())

    @cached_property
    def member(self) -> IO[bytes]:
        return self._opened().open(self.name)

    @property
    def size(self) -> int:
        """Its bytes, as they were before they came into the archive."""
        with _as_torn():
            return self._opened().getinfo(self.name).file_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _as_torn():
            block = self.member.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = 0) -> int:
        with _as_torn():
            return self.member.seek(offset, whence)

    def tell(self) -> int:
        with _as_torn():
            return self.member.tell()

    def close(self) -> None:
        if member := self.__dict__.get("member"):
            member.close()
        super().close()


@contextmanager
def _as_torn() -> Iterator[None]:
    """What a damaged archive raises, as an OSError without a number: those with one are of the disk."""
    try:
        yield
    except (EOFError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise OSError(f"damaged: {error}") from None
