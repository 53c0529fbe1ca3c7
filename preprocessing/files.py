"""Write files and directories atomically, and detect damage by hashes, because most file formats cannot."""

import fcntl
import io
import json
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import xxhash

from preprocessing.errors import BadInput, ResourceError
from preprocessing.folders import make_directory

TEMPORARY: Final = ".tmp-"  # prefix of the names of unfinished files, which readers ignore
UNFINISHED: Final = ".unfinished"  # suffix of the names of unfinished directories
LONGEST: Final = 200  # bytes of a name before a suffix is added; file systems allow 255


def write_atomic(path: Path | str, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file atomically: `path` is either the old file or the complete new one.

    `content` is bytes, or a function that writes into the open file. A temporary file in the same directory is flushed,
    synced and renamed. After a failure it is removed and `path` is unchanged. A missing directory is created. Raises
    OSError, for example if the disk is full.
    """
    path = Path(path)
    make_directory(path.parent)
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # so that the new name survives a power failure
    finally:
        os.close(directory)


@contextmanager
def whole_folder(to: Path) -> Iterator[Path]:
    """Create a directory atomically: yield an unfinished directory that becomes `to` when the block ends.

    `to` must be missing or empty; if the block fails, `to` is again as before. The unfinished directory is a sibling of
    `to`. If `to` exists, it is inside `to`, because `to` may be a mount point, or its parent may not be writable.
    Files of a killed command are removed first. Raises ResourceError if another command is writing to `to`, and
    BadInput if another command created `to` during the block.
    """
    to = Path(os.path.realpath(to))
    is_there = to.is_dir()
    stem = os.fsencode(to.name)[:LONGEST].decode(errors="ignore")
    unfinished = to / UNFINISHED if is_there else to.with_name(f".{stem}{UNFINISHED}")
    new_parents = [parent for parent in to.parents if not parent.exists()]
    handle = _lock_directory(unfinished, to)
    try:
        for path in unfinished.iterdir():  # files of a killed command
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield unfinished
        if not is_new(to):
            raise BadInput(f"{to}: created by another command in the meantime; choose another directory")
        if is_there:
            for path in unfinished.iterdir():
                path.rename(to / path.name)
            unfinished.rmdir()
        else:
            unfinished.rename(to)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):
            for parent in new_parents:
                parent.rmdir()
        raise
    finally:
        os.close(handle)


def _lock_directory(directory: Path, to: Path) -> int:
    """Create a directory and lock it, if its disk supports locks; ResourceError if another process has the lock."""
    make_directory(directory)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ResourceError(
            f"{to}: another command is writing to it; wait for it, or choose another directory"
        ) from None
    except OSError:  # a disk without locks
        pass
    return handle


def is_new(folder: Path) -> bool:
    """Whether a directory is missing, or empty except for files that a killed `whole_folder` left in it.

    >>> is_new(Path("/")), is_new(Path("/no/such/folder")), is_new(Path(__file__))
    (False, True, False)
    """
    if not folder.is_dir():
        return not folder.exists()
    return all(path.name == UNFINISHED for path in folder.iterdir())


def remove_unfinished(folder: Path | str) -> int:
    """Remove the unfinished files in `folder` and below, and return their number. No process may write there."""
    unfinished = [path for path in Path(folder).rglob(f"{TEMPORARY}*") if path.is_file()]
    for path in unfinished:
        path.unlink(missing_ok=True)
    return len(unfinished)


def remove_tree(folder: Path) -> None:
    """Remove an unfinished directory if it exists. Raises OSError.

    The directory is renamed first. So no file is lost if another process gives it its final name at the same moment.
    """
    doomed = folder.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        os.replace(folder, doomed)
    except FileNotFoundError:
        return
    except OSError:  # the disk has no space for a new name
        doomed = folder
    shutil.rmtree(doomed)


def npy(array: np.ndarray) -> bytes:
    """The content of a .npy file. numpy does not write the file, because its error for a full disk has no errno."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


class HashingWriter(io.RawIOBase):
    """A file object that hashes the bytes it writes to another file, so that they need not be in memory at once.

    >>> hashed = HashingWriter(io.BytesIO())
    >>> hashed.write(b"abc"), hashed.hexdigest() == xxhash.xxh3_128_hexdigest(b"abc")
    (3, True)
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest = file, xxhash.xxh3_128()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def is_beside(name: str) -> bool:
    """Whether a name is a plain file name, without a path to another directory.

    >>> [name for name in ("a.arrow", "../a.arrow", "/a", "..", "", "a/b") if is_beside(name)]
    ['a.arrow']
    """
    return name not in ("", "..") and Path(name).name == name


def xxh3_file(path: Path | str) -> str:
    """xxh3-128 of a file's bytes, in hexadecimal. Hashing takes less time than reading: it processes several GB/s."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def sums_of(folder: Path) -> dict[str, str]:
    """xxh3-128 of each file in a directory and below, by its relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): xxh3_file(path) for path in files}


def to_checked_json(value: dict[str, Any]) -> bytes:
    """A JSON object with its own checksum, in the only form that `from_checked_json` accepts.

    >>> print(to_checked_json({"rows": 3}).decode(), end="")
    {
     "checksum": "5c015d5faec953dbd22d5e921c80f18c",
     "rows": 3
    }
    """
    plain = json.dumps(value, sort_keys=True, indent=1)
    checksum = xxhash.xxh3_128_hexdigest(plain.encode())
    return json.dumps({"checksum": checksum, **value}, sort_keys=True, indent=1).encode() + b"\n"


def from_checked_json(content: bytes) -> dict[str, Any]:
    """Read an object that `to_checked_json` wrote, without the checksum; ValueError if a single bit has changed.

    >>> from_checked_json(to_checked_json({"rows": 3}).replace(b"3", b"7"))
    Traceback (most recent call last):
    ...
    ValueError: changed after it was written
    """
    value: Any = None
    try:
        value = parse_json(content)
        del value["checksum"]
        if to_checked_json(value) == content:
            return value
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ValueError("changed after it was written")


def from_json(content: bytes) -> dict[str, Any]:
    """Read a JSON object and verify its checksum if it has one; ValueError if it is invalid or has changed.

    >>> from_json(b'{"rows": 3}'), from_json(to_checked_json({"rows": 3}))
    ({'rows': 3}, {'rows': 3})
    """
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return from_checked_json(content) if "checksum" in value else value


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; ValueError in one line if it is invalid, nested too deeply, or has a number with too many digits.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: nested too deeply
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise ValueError(f"a number has more than {sys.get_int_max_str_digits():,} digits") from None
        raise


def read_json(path: Path, remedy: str) -> Any:
    """Parse a JSON file of Sesame; BadInput with the `remedy` if it is missing or damaged."""
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; {remedy}") from None
    except ValueError as error:
        raise BadInput(f"{path}: is damaged ({error}); {remedy}") from None


def read_object(path: Path, remedy: str, **values: type) -> dict[str, Any]:
    """Read a JSON object of Sesame with values of these names and types.

    Raises BadInput with the `remedy` if the file is missing, damaged, or has other content.
    """
    content = read_json(path, remedy)
    with of_kind(path, remedy):
        for name, kind in values.items():
            if not isinstance(content[name], kind):
                raise TypeError(f"{name} is {type(content[name]).__name__}")
        return dict(content)


@contextmanager
def of_kind(path: Path, remedy: str) -> Iterator[None]:
    """Convert errors of a block that uses the content of a JSON file to BadInput with the `remedy`.

    Such an error means that the file is valid JSON, but not a file of the expected kind.
    """
    try:
        yield
    except BadInput:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{path}: is damaged ({_describe_damage(error)}); {remedy}") from None


def _describe_damage(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
