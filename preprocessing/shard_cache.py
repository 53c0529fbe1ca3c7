"""A directory of this machine with copies of shards that are far away: bounded, and shared by all processes.

A file is fetched once. It has its final name only if its content is right, because a temporary file is renamed. The
process that writes a temporary file has its lock, so that a file without a lock was left by a killed process. The next
process removes it.

The least recently used files make room for others. A mapping of a file in memory keeps a shared lock on it, since mmap
duplicates the descriptor. The kernel removes the lock with the last view of the mapping, or with the process. Only
files without a lock are removed: a mapping survives the removal of its file, but its space on disk is not free before.
So the files in the directory are everything that the cache occupies.
"""

import errno
import fcntl
import logging
import mmap
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import TEMPORARY
from preprocessing.folders import make_directory, require_local_path, user_cache
from preprocessing.lock import NO_LOCKS, is_same_file

log = logging.getLogger(__name__)

GIGABYTE: Final = 1_000_000_000
DEFAULT_GB: Final = 100.0
SHARD: Final = ".arrow"  # suffix of shards; all other files are small and are removed last
_LOCK: Final = ".lock"
_POLL_S: Final = 0.1
_QUIET_POLLS: Final = 30  # polls without a message: three seconds
_MAX_POLLS: Final = 6_000  # polls for room, ten minutes
_KEYS: Final = "engine.shard_cache_dir and engine.shard_cache_gb"

Writer = Callable[[int], None]
"""Writes the content of a file into an open descriptor, from its start. Raises SesameError if it cannot."""


@dataclass(frozen=True)
class CacheSettings:
    """The directory of a shard cache, and the bytes that it may hold. "" is the cache directory of this user."""

    folder: str = ""
    limit_bytes: int = int(DEFAULT_GB * GIGABYTE)

    @property
    def directory(self) -> Path:
        """The directory. Raises BadInput for a URL."""
        return require_local_path("engine.shard_cache_dir", self.folder) if self.folder else user_cache() / "shards"


class ShardCache:
    """The files of one cache directory. All methods may be called from several threads and processes."""

    def __init__(self, settings: CacheSettings) -> None:
        self.settings = settings
        self.folder = settings.directory
        self.limit = settings.limit_bytes

    def __reduce__(self) -> tuple[type["ShardCache"], tuple[CacheSettings]]:
        return ShardCache, (self.settings,)

    def has(self, name: str, size: int) -> bool:
        """Whether the complete file is here."""
        try:
            return (self.folder / name).stat().st_size == size
        except OSError:
            return False

    def map(self, name: str, size: int, write: Writer, make_room: Callable[[], bool] = bool) -> mmap.mmap:
        """The content of a file, which is fetched by `write` if it is not here. See `fetch`.

        As long as the mapping or a view of it exists, no process removes the file.
        """
        path = self.folder / name
        while True:
            self.fetch(name, size, write, make_room=make_room)
            try:
                handle = os.open(path, os.O_RDONLY)
            except FileNotFoundError:  # removed by another process in this moment
                continue
            try:
                self._flock(handle, fcntl.LOCK_SH)
                if is_same_file(handle, path):
                    self.touch(name)
                    return mmap.mmap(handle, 0, prot=mmap.PROT_READ)
                fcntl.flock(handle, fcntl.LOCK_UN)
            finally:
                os.close(handle)

    def fetch(
        self, name: str, size: int, write: Writer, *, wait: bool = True, make_room: Callable[[], bool] = bool
    ) -> bool:
        """Create a file of `size` bytes with the content that `write` writes, unless it is here.

        One process writes, and all others wait for it. `make_room` releases mappings of this process and returns
        whether there were any. Without `wait`, the result is False if another process is writing the file, or if there
        is no room. Raises BadInput if the file is larger than the limit or the disk is full, and ResourceError if all
        files are in use.
        """
        self._open_folder()
        final, temporary = self.folder / name, self.folder / f"{TEMPORARY}{name}"
        while not self.has(name, size):
            handle = self._claim(temporary, wait)
            if handle is None:
                return False
            try:
                if self.has(name, size):
                    temporary.unlink(missing_ok=True)
                    break
                if not self._reserve(handle, name, size, wait, make_room):
                    temporary.unlink(missing_ok=True)
                    return False
                write(handle)
                os.fsync(handle)
                os.fchmod(handle, 0o444)
                with self._lock():  # a process that counts files sees this one once
                    os.replace(temporary, final)
                self.touch(name)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            finally:
                _release(handle)
        return True

    def remove(self, name: str) -> None:
        """Remove a file, even if it is mapped, because it is wrong."""
        (self.folder / name).unlink(missing_ok=True)

    def count_bytes(self) -> int:
        """The bytes of all files, complete or not."""
        return sum(size for _, size, _ in self._list())

    def _claim(self, temporary: Path, wait: bool) -> int | None:
        """An open temporary file with its lock. None, without `wait`, if another process has the lock.

        With `wait`, the other process may end first, or finish and rename the file.
        """
        for poll in range(_MAX_POLLS * 1_000):
            try:
                handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            except OSError as error:
                raise self._explain(error) from None
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_same_file(handle, temporary):
                    return handle
                _release(handle)
                continue
            except BlockingIOError:
                os.close(handle)
            except OSError as error:
                os.close(handle)
                raise self._explain(error) from None
            if not wait:
                return None
            if poll == _QUIET_POLLS:
                log.warning("waiting for %s, which another process is fetching", temporary.name[len(TEMPORARY) :])
            time.sleep(_POLL_S)
        raise ResourceError(f"{temporary}: another process has been fetching it for days; end that process")

    def _reserve(self, handle: int, name: str, size: int, wait: bool, make_room: Callable[[], bool]) -> bool:
        """Give the temporary file its final size on disk. Other files are removed until it fits."""
        if size > self.limit:
            raise BadInput(
                f"{self.folder}: the shard cache may hold {_gb(self.limit)}, but {name} has {_gb(size)}; set "
                "engine.shard_cache_gb to more"
            )
        for poll in range(_MAX_POLLS):
            with self._lock():
                os.ftruncate(handle, 0)  # content of a killed process
                is_free = self._evict(self.limit - size)
                if is_free:
                    try:
                        _allocate(handle, size)
                        return True
                    except OSError as error:
                        os.ftruncate(handle, 0)
                        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                            raise self._explain(error) from None
                        if not self._evict(self.count_bytes() - 1) and not make_room():
                            raise BadInput(
                                f"{self.folder}: no space left on the disk for {name} ({_gb(size)}); free some, or set "
                                f"{_KEYS}"
                            ) from None
                        continue
            if make_room():
                continue
            if not wait:
                return False
            if poll == _QUIET_POLLS:
                log.warning(
                    "%s: waiting for room: all shards of the cache (%s) are in use", self.folder, _gb(self.limit)
                )
            time.sleep(_POLL_S)
        raise ResourceError(
            f"{self.folder}: the shard cache may hold {_gb(self.limit)}, and processes use all of it; set "
            "engine.shard_cache_gb to more, or end the other commands"
        )

    def _evict(self, most: int) -> bool:
        """Remove files until at most `most` bytes remain, and return whether that was possible.

        Abandoned temporary files are removed first, then shards, the least recently used first, then other files.
        """
        files = list(self._list())
        total = sum(size for _, size, _ in files)
        order = sorted(files, key=lambda one: (not _is_temporary(one[0]), one[0].suffix != SHARD, one[2]))
        for path, size, _ in order:
            if total <= most and not _is_temporary(path):
                break
            if _remove_unused(path):
                total -= size
        return total <= most

    def _list(self) -> Iterator[tuple[Path, int, int]]:
        """Path, size and time of the last use of each file."""
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError):
                if entry.name != _LOCK and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    yield Path(entry.path), stat.st_size, stat.st_atime_ns

    def touch(self, name: str) -> None:
        """Set the time of the last use of a file, which the disk may not do itself (noatime)."""
        path = self.folder / name
        with suppress(OSError):  # missing, or a file of another user
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Only one process at a time reserves, renames or removes."""
        handle = os.open(self.folder / _LOCK, os.O_RDONLY | os.O_CREAT, 0o644)
        try:
            self._flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            _release(handle)

    def _flock(self, handle: int, kind: int) -> None:
        try:
            fcntl.flock(handle, kind)
        except OSError as error:
            raise self._explain(error) from None

    def _open_folder(self) -> None:
        try:
            make_directory(self.folder)
        except (FileExistsError, NotADirectoryError):
            raise BadInput(f"{self.folder}: is a file or below a file; set engine.shard_cache_dir") from None
        except OSError as error:
            raise self._explain(error) from None

    def _explain(self, error: OSError) -> Exception:
        """An error that the user can correct, instead of an error of the disk."""
        if error.errno in NO_LOCKS:
            return BadInput(
                f"{self.folder}: this disk does not support locks ({error.strerror}); set engine.shard_cache_dir to a "
                "directory on a local disk"
            )
        return BadInput(f"{self.folder}: cannot write to it ({error.strerror}); set engine.shard_cache_dir")


def write_at_start(handle: int, blocks: Collection[bytes] | Iterator[bytes]) -> None:
    """Write blocks one after the other from the start of a file. Raises BadInput if the disk is full."""
    at = 0
    for block in blocks:
        rest = memoryview(block)
        while rest:
            try:
                done = os.pwrite(handle, rest, at)
            except OSError as error:
                raise BadInput(f"shard cache: cannot write ({error.strerror}); free space, or set {_KEYS}") from None
            at, rest = at + done, rest[done:]


def _allocate(handle: int, size: int) -> None:
    """Give a file its size, and its blocks on disk if the disk can reserve them."""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(handle, size)


def _remove_unused(path: Path) -> bool:
    """Remove a file that no process has mapped or writes, and return whether it is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_same_file(handle, path):
            path.unlink()
        return True
    except OSError:  # in use, or a file of another user
        return False
    finally:
        _release(handle)


def _release(handle: int) -> None:
    """Release the lock and close the file. A process that was forked meanwhile would keep the lock otherwise."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(TEMPORARY)


def _gb(size: int) -> str:
    """
    >>> _gb(1_500_000_000), _gb(2_000), _gb(100_000_000_000)
    ('1.5 GB', '2e-06 GB', '100 GB')
    """
    return f"{size / GIGABYTE:.4g} GB"
