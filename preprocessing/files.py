"""Files appear whole or not at all, and carry a hash: no format notices a flipped bit by itself."""

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

TEMPORARY: Final = ".tmp-"  # how an unfinished file begins; readers ignore it
UNFINISHED: Final = ".unfinished"  # how an unfinished folder ends
LONGEST: Final = 200  # bytes of a name, to which more is added: 255 are allowed


def write_atomic(path: Path | str, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write bytes, or what a function writes into the open file, so that `path` is the old file or the whole new one.

    A temporary file in the same folder is flushed, synced and renamed; on any failure it is removed and `path` is as
    it was. The folder is made where it is missing. Raises OSError, among others when the disk is full.
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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name itself survives a power cut
    finally:
        os.close(folder)


@contextmanager
def whole_folder(to: Path) -> Iterator[Path]:
    """A new folder that becomes `to`, which is missing or empty, when the block ends; where that fails, it is again.

    It is made beside `to`, or in it where that is there: that may be a mount, the folder of a shell, or in a folder
    that is not ours. What a killed command left is removed first. ResourceError where another command is writing it,
    BadInput where one has made it meanwhile.
    """
    to = Path(os.path.realpath(to))
    is_there = to.is_dir()
    stem = os.fsencode(to.name)[:LONGEST].decode(errors="ignore")
    unfinished = to / UNFINISHED if is_there else to.with_name(f".{stem}{UNFINISHED}")
    made = [folder for folder in to.parents if not folder.exists()]
    handle = _alone_in(unfinished, to)
    try:
        for path in unfinished.iterdir():  # by a command that was killed
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield unfinished
        if not is_new(to):
            raise BadInput(f"{to}: was made by another command meanwhile; name another folder")
        if is_there:
            for path in unfinished.iterdir():
                path.rename(to / path.name)
            unfinished.rmdir()
        else:
            unfinished.rename(to)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise
    finally:
        os.close(handle)


def _alone_in(folder: Path, to: Path) -> int:
    """Make a folder, and lock it, where its disk knows locks; ResourceError where another process has it."""
    make_directory(folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ResourceError(f"{to}: another command is writing it; wait for it, or name another folder") from None
    except OSError:  # a disk without locks
        pass
    return handle


def is_new(folder: Path) -> bool:
    """Whether a folder is missing, or empty but for what `whole_folder` left there when it was killed.

    >>> is_new(Path("/")), is_new(Path("/no/such/folder")), is_new(Path(__file__))
    (False, True, False)
    """
    if not folder.is_dir():
        return not folder.exists()
    return all(path.name == UNFINISHED for path in folder.iterdir())


def remove_unfinished(folder: Path | str) -> int:
    """Remove what killed writers left in `folder` and below, and return how many; only while nobody writes there."""
    unfinished = [path for path in Path(folder).rglob(f"{TEMPORARY}*") if path.is_file()]
    for path in unfinished:
        path.unlink(missing_ok=True)
    return len(unfinished)


def remove_tree(folder: Path) -> None:
    """Remove an unfinished folder, and nothing where it is gone: one that gets its final name at this moment stays
    whole, as what is removed has a name of its own first. Raises OSError."""
    doomed = folder.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        os.replace(folder, doomed)
    except FileNotFoundError:
        return
    except OSError:  # no room for another name
        doomed = folder
    shutil.rmtree(doomed)


def npy(array: np.ndarray) -> bytes:
    """The content of a .npy file. Into a file numpy writes past Python: its error for a full disk has no number."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


class HashingWriter(io.RawIOBase):
    """Hands bytes on to a file and hashes them on the way, for writers that want a file and would fill memory instead.

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
    """Whether a name that was read from a file is that of a file beside it, and leads nowhere else.

    >>> [name for name in ("a.arrow", "../a.arrow", "/a", "..", "", "a/b") if is_beside(name)]
    ['a.arrow']
    """
    return name not in ("", "..") and Path(name).name == name


def xxh3_file(path: Path | str) -> str:
    """xxh3-128 of a file's bytes, in hexadecimal; several GB/s, so hashing costs less than reading."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def sums_of(folder: Path) -> dict[str, str]:
    """xxh3-128 of each file in a folder and below it, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): xxh3_file(path) for path in files}


def checked_json(value: dict[str, Any]) -> bytes:
    """A JSON object with a checksum of itself, in the one form that `from_checked_json` accepts.

    >>> print(checked_json({"rows": 3}).decode(), end="")
    {
     "checksum": "5c015d5faec953dbd22d5e921c80f18c",
     "rows": 3
    }
    """
    plain = json.dumps(value, sort_keys=True, indent=1)
    checksum = xxhash.xxh3_128_hexdigest(plain.encode())
    return json.dumps({"checksum": checksum, **value}, sort_keys=True, indent=1).encode() + b"\n"


def from_checked_json(content: bytes) -> dict[str, Any]:
    """The object again; ValueError where a single bit is not as it was written.

    >>> from_checked_json(checked_json({"rows": 3}).replace(b"3", b"7"))
    Traceback (most recent call last):
    ...
    ValueError: not as it was written
    """
    value: Any = None
    try:
        value = parse_json(content)
        del value["checksum"]
        if checked_json(value) == content:
            return value
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ValueError("not as it was written")


def from_json(content: bytes) -> dict[str, Any]:
    """A JSON object, checked where it has a checksum of itself; ValueError where it is none, or not as it was written.

    >>> from_json(b'{"rows": 3}'), from_json(checked_json({"rows": 3}))
    ({'rows': 3}, {'rows': 3})
    """
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return from_checked_json(content) if "checksum" in value else value


def parse_json(content: str | bytes) -> Any:
    """What JSON holds; ValueError in one line where it is none, brackets in brackets go on too deeply, or a number has
    more digits than Python reads.

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
    """What a JSON file of ours holds; BadInput with the `remedy` where it is missing, or damaged."""
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; {remedy}") from None
    except ValueError as error:
        raise BadInput(f"{path}: is damaged ({error}); {remedy}") from None


def read_object(path: Path, remedy: str, **values: type) -> dict[str, Any]:
    """A JSON object of ours that has values of these types by these names; BadInput with the `remedy` where it is
    missing, damaged, or JSON of another kind."""
    found = read_json(path, remedy)
    with of_kind(path, remedy):
        for name, kind in values.items():
            if not isinstance(found[name], kind):
                raise TypeError(f"{name} is {type(found[name]).__name__}")
        return dict(found)


@contextmanager
def of_kind(path: Path, remedy: str) -> Iterator[None]:
    """What is made of the content of a file of ours inside the block; BadInput with the `remedy` where it is JSON, and
    none of that kind."""
    try:
        yield
    except BadInput:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{path}: is damaged ({_lacking(error)}); {remedy}") from None


def _lacking(error: Exception) -> str:
    return f"no {error.args[0]} in it" if isinstance(error, KeyError) else str(error)
