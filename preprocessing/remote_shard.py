"""A shard in an object store: fetched into the cache of this machine when its tokens are read.

A packing plan needs the starts of documents and sentences of all shards, but no token. They are 6 % of a shard, and are
read alone and kept in small files (`.offsets`, `.sentences`). They have no hash of their own, so they are compared with
the shard as soon as it is here.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import xxhash

from preprocessing.arrow_layout import ArrowLayout, locate_columns
from preprocessing.errors import BadInput
from preprocessing.files import xxh3_file
from preprocessing.manifest import ShardInfo
from preprocessing.object_store import hide_login, read_blocks, read_range
from preprocessing.open_shards import FIRST_WORD_S, NEXT_WORD_S, OpenShards, open_shards, write_aloud
from preprocessing.schema import Bools, Ints
from preprocessing.shard import Shard
from preprocessing.shard_cache import SHARD, CacheSettings, ShardCache, write_at_start

log = logging.getLogger(__name__)

# attributes of Shard that need the file
_FETCHED: Final = {
    "ids_T",
    "_source",
    "_key",
    "_metadata",
    "_token_T",
    "_word_starts",
    "_sentence_starts",
    "_unit_starts",
}
_ATTEMPTS: Final = 2  # downloads of a file whose content is wrong
_INDEX_FETCHES: Final = 16  # starts of shards that a process fetches at once: small requests
Result = TypeVar("Result")
_UPLOAD: Final = "upload the corpus again"


@dataclass(frozen=True)
class StoredShard:
    """A shard in a store, as a file that the cache fetches. Its hash is its name in the cache."""

    info: ShardInfo
    url: str

    @property
    def cached_name(self) -> str:
        return f"{self.info.xxh3}{SHARD}"

    @property
    def num_bytes(self) -> int:
        return self.info.bytes

    def write(self, handle: int, *, quiet: bool) -> None:
        """Download the shard. Raises BadInput if its hash is wrong twice."""
        found = ""
        for _ in range(_ATTEMPTS):
            digest = xxhash.xxh3_128()
            write_at_start(handle, self._read(digest, quiet))
            if (found := digest.hexdigest()) == self.info.xxh3:
                return
            log.warning("%s: wrong bytes arrived (xxh3 %s); fetching it again", hide_login(self.url), found)
        raise BadInput(
            f"{hide_login(self.url)}: is damaged: got xxh3 {found} twice, expected {self.info.xxh3}; {_UPLOAD}"
        )

    def _read(self, digest: "xxhash.xxh3_128", quiet: bool) -> Iterator[bytes]:
        done, word_s = 0, time.monotonic() + FIRST_WORD_S
        for block in read_blocks(self.url, self.info.bytes):
            digest.update(block)
            done += len(block)
            if not quiet and time.monotonic() > word_s:
                word_s = time.monotonic() + NEXT_WORD_S
                log.warning("fetching %s: %.0f of %.0f MB", self.info.name, done / 1e6, self.info.bytes / 1e6)
            yield block


@dataclass(frozen=True)
class StoredIndex:
    """One column of a shard that plans read, as a file that the cache fetches; `make` returns its content."""

    cached_name: str
    num_bytes: int
    make: Callable[[], bytes]

    def write(self, handle: int, *, quiet: bool) -> None:
        write_at_start(handle, [self.make()])


class RemoteShard(Shard):
    """A shard in a store. The columns of plans are fetched alone; any other column fetches the whole shard.

    `path` names the shard in messages. `siblings` are all shards of the split, whose plans are made together.
    """

    def __init__(self, path: Path, info: ShardInfo, url: str, settings: CacheSettings) -> None:
        self.path, self.info, self.url = path, info, url
        self.stored = StoredShard(info, url)
        self.opened: OpenShards = open_shards(settings)
        self.siblings: Sequence[RemoteShard] = (self,)
        self._layout: ArrowLayout | None = None

    def __getattr__(self, name: str) -> Any:
        if name in ("offset_N1", "num_tokens_N", "has_units"):
            self.offset_N1 = self._read_offsets()
            self.num_tokens_N = np.diff(self.offset_N1)
            return self.__dict__[name]
        if name not in _FETCHED:
            raise AttributeError(name)
        return getattr(self.map(), name)

    def __reduce__(self) -> tuple[type["RemoteShard"], tuple[Any, ...]]:
        return RemoteShard, (self.path, self.info, self.url, self.opened.files.settings)

    @property
    def num_tokens(self) -> int:
        return self.info.tokens

    @cached_property
    def sentence_at_M(self) -> Ints:
        """The flat positions at which a sentence begins, int64."""
        assert len(self.offset_N1)  # needed to check the sentences, and fetched here for all siblings
        self._fetch_index([one.sentences for one in self.siblings], self.sentences)
        return _find_set_bits(self._map(self.sentences), self.num_tokens)

    @cached_property
    def offsets(self) -> StoredIndex:
        """Whether the shard has units, then offset_N1, int32."""
        return StoredIndex(f"{self.info.xxh3}.offsets", 4 * (self.info.rows + 2), self._make_offsets)

    @cached_property
    def sentences(self) -> StoredIndex:
        """The bits of sentence starts."""
        return StoredIndex(f"{self.info.xxh3}.sentences", -(-self.info.tokens // 8), self._make_sentences)

    def map(self) -> Shard:
        """The shard, mapped into memory, so that no process removes it. It is fetched if it is not here."""
        return self.opened.get(self.stored, self._open)

    def require_unchanged(self) -> None:
        """Raise BadInput if the copy in the cache is not the shard of the manifest any more."""
        path = self.opened.files.folder / self.stored.cached_name
        try:
            found = xxh3_file(path)
        except OSError:  # removed; a mapping of it is as it was
            return
        if found != self.info.xxh3:
            raise BadInput(f"{path}: has changed while it was read: its content differs; remove it")

    def _open(self, files: ShardCache) -> Shard:
        stored = self.stored
        content = files.map(stored.cached_name, stored.num_bytes, write_aloud(stored), self.opened.release_one)
        shard = Shard(self.path, content)
        own = self.__dict__
        is_same = np.array_equal(own.get("offset_N1", shard.offset_N1), shard.offset_N1) and (
            "sentence_at_M" not in own
            or np.array_equal(own["sentence_at_M"], np.flatnonzero(shard.sentence_starts(0, shard.num_tokens)))
        )
        if not is_same:
            files.remove(self.offsets.cached_name)
            files.remove(self.sentences.cached_name)
            raise BadInput(
                f"{hide_login(self.url)}: the store returned wrong sentence starts before; they are removed, so repeat "
                "the command"
            )
        return shard

    def _read_offsets(self) -> Ints:
        self._fetch_index([one.offsets for one in self.siblings], self.offsets)
        content = self._map(self.offsets).view(np.int32)
        self.has_units = bool(content[0])
        return content[1:].astype(np.int64)

    def _fetch_index(self, of_all: Sequence[StoredIndex], own: StoredIndex) -> None:
        """Fetch a column of all siblings, several at once, if the one of this shard is not here."""
        if not self.opened.files.has(own.cached_name, own.num_bytes):
            self.opened.fetch(of_all, _INDEX_FETCHES)

    def _map(self, index: StoredIndex) -> Ints:
        files = self.opened.files
        content = files.map(index.cached_name, index.num_bytes, write_aloud(index), self.opened.release_one)
        return np.frombuffer(content, np.uint8)

    def _make_offsets(self) -> bytes:
        if copy := self._find_copy():
            offset_N1, has_units = copy.offset_N1, copy.has_units
        else:
            offset_N1, has_units = self._read_twice(self._find_offsets)
        return np.append(has_units, offset_N1).astype(np.int32).tobytes()

    def _make_sentences(self) -> bytes:
        if copy := self._find_copy():
            return copy.sentence_start_bits[: self.sentences.num_bytes].tobytes()
        return self._read_twice(self._find_sentences)

    def _find_offsets(self, layout: ArrowLayout) -> tuple[Ints, bool]:
        offset_N1 = np.frombuffer(read_range(self.url, *layout.offsets), np.int32)
        ends = [0, self.info.tokens]
        if (
            len(offset_N1) != self.info.rows + 1
            or offset_N1[[0, -1]].tolist() != ends
            or (np.diff(offset_N1) < 1).any()
        ):
            raise ValueError("its documents are not those of the manifest")
        return offset_N1, layout.has_units

    def _find_sentences(self, layout: ArrowLayout) -> bytes:
        content = read_range(self.url, *layout.sentences)
        starts_T = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
        if len(content) != self.sentences.num_bytes or not starts_T[self.offset_N1[:-1]].all():
            raise ValueError("a document does not begin with a sentence")
        return content

    def _read_twice(self, find: Callable[[ArrowLayout], Result]) -> Result:
        """What `find` reads of the shard. It is read again after a ValueError. Raises BadInput after another one."""
        fault = ""
        for _ in range(_ATTEMPTS):
            try:
                if self._layout is None:
                    self._layout = locate_columns(self.info.bytes, partial(read_range, self.url))
                return find(self._layout)
            except ValueError as error:
                self._layout, fault = None, str(error)
                if isinstance(error, BadInput):
                    raise
        raise BadInput(f"{hide_login(self.url)}: cannot read it as a shard ({fault}); {_UPLOAD}")

    def _find_copy(self) -> Shard | None:
        """The shard, if the cache has it."""
        if not self.opened.files.has(self.stored.cached_name, self.stored.num_bytes):
            return None
        return self._open(self.opened.files)


def _find_set_bits(bits: Ints, count: int) -> Ints:
    """The positions of the bits that are set among the first `count`, least significant bit first, int64."""
    flags: Bools = np.unpackbits(bits.view(np.uint8), bitorder="little")[:count].view(np.bool_)
    return np.flatnonzero(flags)
