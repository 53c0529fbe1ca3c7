"""The shards of a store that this process has mapped, and threads that fetch more of them ahead of time."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, Protocol, TypeVar

from preprocessing.errors import SesameError
from preprocessing.shard import Shard
from preprocessing.shard_cache import CacheSettings, ShardCache, Writer

log = logging.getLogger(__name__)

FETCHES: Final = 4  # shards that a process fetches at once
FIRST_WORD_S, NEXT_WORD_S = 5.0, 30.0  # times after which a user reads how far it is


class RemoteFile(Protocol):
    """A file that the cache can fetch."""

    @property
    def cached_name(self) -> str:
        """Its name in the cache."""

    @property
    def num_bytes(self) -> int: ...

    def write(self, handle: int, *, quiet: bool) -> None:
        """Write its content into an open file."""


AnyFile = TypeVar("AnyFile", bound=RemoteFile)


class OpenShards:
    """The mapped shards of this process, by their names in the cache.

    A shard stays mapped until another file needs its room. Those that a reader needs now stay mapped in any case.
    """

    def __init__(self, settings: CacheSettings) -> None:
        self.files = ShardCache(settings)
        self._open: dict[str, Shard] = {}  # in the order in which they were mapped
        self._needed: dict[int, frozenset[str]] = {}  # by reader
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._waiting = deque[RemoteFile]()
        self._num_threads = 0

    def _follow_fork(self) -> None:
        """Threads, and locks that they may hold, do not exist in a forked process. Mappings do."""
        if self._pid != os.getpid():
            self._begin()

    def get(self, file: RemoteFile, open: Callable[[ShardCache], Shard]) -> Shard:
        """The mapped shard. `open` fetches and maps it if it is not mapped."""
        if found := self._open.get(file.cached_name):
            return found
        self._follow_fork()
        shard = open(self.files)
        with self._mutex:
            return self._open.setdefault(file.cached_name, shard)

    def release_one(self) -> bool:
        """Release the mapping of the shard that was mapped first and that no reader needs; False if there is none."""
        with self._mutex:
            needed = frozenset[str]().union(*self._needed.values())
            name = next((name for name in self._open if name not in needed), None)
            if name is None:
                return False
            del self._open[name]
            return True

    def need(self, reader: int, names: frozenset[str]) -> None:
        """Keep these shards mapped for a reader, and release those that no reader needs any more."""
        self._follow_fork()
        with self._mutex:
            self._needed[reader] = names
            while self.release_one():
                pass

    def is_needed(self, name: str) -> bool:
        """Whether a reader needs the shard."""
        return any(name in names for names in self._needed.values())

    def fetch(self, files: Sequence[RemoteFile], at_once: int = FETCHES) -> None:
        """Fetch all files that are not in the cache, several at once. Raises the first error, and begins no more."""
        self._follow_fork()
        missing = self.find_missing(files)
        if len(missing) < 2:
            for file in missing:
                self._fetch_now(file)
            return
        word_s = time.monotonic() + FIRST_WORD_S
        with ThreadPoolExecutor(at_once) as threads:
            try:
                for done, _ in enumerate(threads.map(self._fetch_now, missing), start=1):
                    if time.monotonic() > word_s and done < len(missing):
                        word_s = time.monotonic() + NEXT_WORD_S
                        log.warning("fetched %d of %d files of shards that are needed now", done, len(missing))
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise

    def touch(self, files: Iterable[RemoteFile]) -> None:
        """Mark the files that are in the cache as used now, so that others are removed before them."""
        for file in files:
            self.files.touch(file.cached_name)

    def prefetch(self, files: Iterable[RemoteFile]) -> None:
        """Fetch these files in the background, and forget those of the last call that are not begun.

        A file for which there is no room is left out: a later call fetches it, or `fetch` does. So is a file that
        cannot be fetched, because `fetch` reports the error.
        """
        self._follow_fork()
        with self._mutex:
            self._waiting = deque(self.find_missing(files))
            for _ in range(min(FETCHES, len(self._waiting)) - self._num_threads):
                self._num_threads += 1
                threading.Thread(target=self._fetch_waiting, daemon=True, name="shard cache").start()

    def _fetch_waiting(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._num_threads -= 1
                    return
                file = self._waiting.popleft()
            try:
                self.files.fetch(file.cached_name, file.num_bytes, write_quietly(file), wait=False)
            except (SesameError, OSError):
                continue
            except BaseException:  # unexpected: threading prints it
                with self._mutex:
                    self._num_threads -= 1
                raise

    def _fetch_now(self, file: RemoteFile) -> None:
        self.files.fetch(file.cached_name, file.num_bytes, write_aloud(file), make_room=self.release_one)

    def find_missing(self, files: Iterable[AnyFile]) -> list[AnyFile]:
        """Those of these files that are not in the cache."""
        return [file for file in files if not self.files.has(file.cached_name, file.num_bytes)]


def write_aloud(file: RemoteFile) -> Writer:
    """The writer of a file that someone waits for, with messages."""
    return lambda handle: file.write(handle, quiet=False)


def write_quietly(file: RemoteFile) -> Writer:
    return lambda handle: file.write(handle, quiet=True)


@cache
def open_shards(settings: CacheSettings) -> OpenShards:
    """The mapped shards of this process in the cache with these settings."""
    return OpenShards(settings)
