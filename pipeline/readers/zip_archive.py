"""Zip archives -> their members, which are read like the files of a directory: `a.zip!/b.txt`."""

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

TORN: Final = (OSError, EOFError, zipfile.BadZipFile, zlib.error)  # errors raised when a damaged member is read
_INSIDE: Final = ".zip!/"
_MOST_RATIO: Final = 200  # as for other archives (files.py)
_HARMLESS: Final = 1 << 28
_ENCRYPTED: Final = 1  # bit in the flags of a member
_KNOWN: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


class ZipListing(NamedTuple):
    name: str
    path: str
    size: int  # compressed bytes
    changed: int  # CRC-32 of the content


def is_archive(path: Path | str) -> bool:
    """Whether a path has the extension .zip. Office documents are zip archives with other extensions."""
    return Path(path).suffix.lower() == ".zip"


def is_member(path: str) -> bool:
    """Whether a path is a member of an archive.

    >>> is_member("texts/a.zip!/b/c.txt"), is_member("texts/a.zip")
    (True, False)
    """
    return _INSIDE in path.lower()


def archive_of(path: str) -> str:
    """The archive of a member; any other path is returned unchanged.

    >>> archive_of("texts/a.zip!/b/c.txt"), archive_of("a.txt")
    ('texts/a.zip', 'a.txt')
    """
    return path[: path.lower().index(_INSIDE) + len(_INSIDE) - 2] if is_member(path) else path


def members(path: Path) -> Iterator[ZipListing]:
    """The members of an archive, sorted by name. Raises BadInput if the archive cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            # the last member of each name
            infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}
            found = [infos[name] for name in sorted(infos)]
        size = path.stat().st_size
        if any(not 0 <= info.header_offset < size for info in found):
            raise EOFError("member offsets are invalid")
    except (*TORN, NotImplementedError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not a valid zip archive ({error}); repair or exclude it") from None
    if (grown := sum(info.file_size for info in found)) > _HARMLESS + _MOST_RATIO * size:
        raise BadInput(
            f"{path}: compression ratio {grown / max(1, size):,.0f} is too high for text, at most {_MOST_RATIO} is "
            "allowed; if you trust the archive, unpack it and pass the directory"
        )
    for info in found:
        if any(part.startswith((".", "__MACOSX")) and part != ".." for part in info.filename.split("/")):
            continue
        if info.flag_bits & _ENCRYPTED:
            raise BadInput(f"{path}: {info.filename} is encrypted; unpack it and pass the directory")
        if info.compress_type not in _KNOWN:
            raise BadInput(f"{path}: {info.filename} has an unsupported compression; unpack it and pass the directory")
        yield ZipListing(info.filename, f"{path}!/{info.filename}", info.compress_size, info.CRC)


def open_member(path: str) -> io.BufferedReader:
    """Open a member of an archive for random access."""
    at = path.lower().index(_INSIDE) + len(_INSIDE)
    return io.BufferedReader(ZipMember(path[: at - 2], path[at:]))


@lru_cache(maxsize=4)
def _archive(path: str, changed: int, size: int, process: int) -> zipfile.ZipFile:
    """An open archive. It is cached, because its list of members may be long."""
    return zipfile.ZipFile(path)


class ZipMember(io.RawIOBase):
    """A file object of a member. Damage raises OSError, as for any file."""

    def __init__(self, archive: str, name: str) -> None:
        self.archive, self.name = archive, name

    def _open(self) -> zipfile.ZipFile:
        facts = os.stat(self.archive)
        return _archive(self.archive, facts.st_mtime_ns, facts.st_size, os.getpid())

    @cached_property
    def member(self) -> IO[bytes]:
        return self._open().open(self.name)

    @property
    def size(self) -> int:
        """The uncompressed size in bytes."""
        with _as_torn():
            return self._open().getinfo(self.name).file_size

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
    """Raise errors of a damaged archive as OSError without errno. OSError with errno comes from the disk."""
    try:
        yield
    except (EOFError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise OSError(f"damaged: {error}") from None
