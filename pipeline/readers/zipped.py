"""Zip archives -> their members, which are read like files of a folder: `a.zip!/b.txt`."""

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from preprocessing.errors import BadInput

TORN: Final = (OSError, EOFError, zipfile.BadZipFile, zlib.error)  # what reading a damaged member raises
_INSIDE: Final = ".zip!/"
_MOST_RATIO: Final = 200  # as for other archives (files.py)
_HARMLESS: Final = 1 << 28
_ENCRYPTED: Final = 1  # bit of a member's flags
_KNOWN: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


class Member(NamedTuple):
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


def members(path: Path) -> Iterator[Member]:
    """The members of an archive, in the order of their names; BadInput where it cannot be read to its end."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = sorted((info for info in archive.infolist() if not info.is_dir()), key=lambda info: info.filename)
    except TORN as error:
        raise BadInput(f"{path}: is no zip archive, or a damaged one ({error}); mend it, or leave it out") from None
    for info in found:
        if any(part.startswith((".", "__MACOSX")) for part in info.filename.split("/")):
            continue
        if info.flag_bits & _ENCRYPTED:
            raise BadInput(f"{path}: {info.filename} is encrypted; unpack it first, and give the folder")
        if info.compress_type not in _KNOWN:
            raise BadInput(f"{path}: {info.filename} is compressed in a way that Python cannot undo; unpack it first")
        if info.file_size > _HARMLESS + _MOST_RATIO * info.compress_size:
            raise BadInput(
                f"{path}: {info.filename} grows to {info.file_size / max(1, info.compress_size):,.0f} times its size, "
                f"as no text does (allowed is {_MOST_RATIO}); unpack it first, if it is sound"
            )
        yield Member(info.filename, f"{path}!/{info.filename}", info.compress_size, info.CRC)


def opened(path: str) -> io.BufferedReader:
    """A member of an archive, for reading at any place."""
    at = path.lower().index(_INSIDE) + len(_INSIDE)
    with zipfile.ZipFile(path[: at - 2]) as archive:
        return io.BufferedReader(archive.open(path[at:]))  # type: ignore[arg-type]  # it is no RawIOBase, but reads
