"""Shards: uncompressed Arrow IPC files with one record batch and one row per document, memory-mapped without a copy.

The columns are those of a document in schema.py. The start flags are bits in the same list as the ids. So a vocabulary
of at most 65,536 tokens needs 2.25 bytes per token and about 21 bytes per document, of which the key takes 16 bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa

from preprocessing.errors import BadInput
from preprocessing.files import HashingWriter, write_atomic, xxh3_file
from preprocessing.folders import is_address
from preprocessing.manifest import AGAIN, FILE_NAME, Manifest, MixtureGroupStats, ShardInfo
from preprocessing.remote_corpus import DEFAULT_CACHE, link_into_cache, open_remote_shards, read_link
from preprocessing.remote_shard import RemoteShard
from preprocessing.schema import SPLITS, Bools, Ints, Metadata
from preprocessing.shard import METADATA, Shard, metadata_type
from preprocessing.shard_cache import CacheSettings

__all__ = ["METADATA", "Shard", "TokenStore", "metadata_type", "shard_name", "write_shard"]

Stamp = tuple[int, int] | None
"""Size and modification time of a file; None if it is missing."""
_CHANGED: Final = "has changed while it was read"
_RESTORE: Final = f"restore it, or delete {FILE_NAME} there and {AGAIN}"


def shard_name(split: str, shard: int, num_shards: int) -> str:
    """The file name of a shard.

    >>> shard_name("train", 0, 4)
    'train-00000-of-00004.arrow'
    """
    return f"{split}-{shard:05d}-of-{num_shards:05d}.arrow"


def write_shard(
    path: Path | str,
    ids: Sequence[Ints],
    word_starts: Sequence[Bools],
    sentence_starts: Sequence[Bools],
    source: Sequence[str],
    key: Sequence[bytes],
    *,
    vocab_size: int,
    unit_starts: Sequence[Bools] | None = None,
    metadata: Sequence[Metadata] | None = None,
    fields: Sequence[str] = (),
) -> ShardInfo:
    """Write documents as a shard; each argument has one element per document. Equal documents give equal bytes.

    With `fields`, the shard has a column `metadata` with these fields of `metadata`; a missing one is null.
    `shard_name` makes the name of `path`. Raises ValueError for columns of different lengths, for an empty document,
    for a document that does not begin with a sentence, and for an id that is not less than `vocab_size`.
    """
    num_tokens = [len(ids_S) for ids_S in ids]
    flags = {"word_start": word_starts, "sentence_start": sentence_starts}
    if unit_starts is not None:
        flags["unit_start"] = unit_starts
    for starts in flags.values():
        is_complete = [len(starts_S) for starts_S in starts] == num_tokens
        _require(is_complete, Path(path), "each token must have every flag")
    joined = {name: np.concatenate([np.zeros(0, np.bool_), *starts]) for name, starts in flags.items()}
    ids_T = np.concatenate(ids) if len(ids) else np.zeros(0, np.int32)
    return write_flat_shard(
        path,
        ids_T,
        np.array(num_tokens, np.int64),
        joined,
        source,
        key,
        vocab_size=vocab_size,
        metadata=metadata,
        fields=fields,
    )


def write_flat_shard(
    path: Path | str,
    ids_T: Ints,
    num_tokens_N: Ints,
    flags: Mapping[str, Bools],
    source: Sequence[str],
    key: Sequence[bytes],
    *,
    vocab_size: int,
    metadata: Sequence[Metadata] | None = None,
    fields: Sequence[str] = (),
) -> ShardInfo:
    """Write the same as `write_shard`: N documents of `num_tokens_N` tokens, int64, which are end to end in `ids_T`.

    `flags` are the columns `word_start`, `sentence_start` and, if there are units, `unit_start`, in this order; bool
    [T]. Raises ValueError as `write_shard` does.
    """
    path = Path(path)
    split = path.name.split("-")[0]
    _require(split in SPLITS, path, f"the name of a shard must begin with one of {SPLITS}")
    is_full = len(num_tokens_N) > 0 and num_tokens_N.min() > 0
    _require(is_full, path, "a shard must have documents, and each document tokens")
    _require(len(num_tokens_N) == len(source) == len(key), path, "each document must have a source and a key")
    offset_N1 = np.concatenate([[0], np.cumsum(num_tokens_N)])
    is_complete = all(len(starts_T) == len(ids_T) == offset_N1[-1] for starts_T in flags.values())
    _require(is_complete, path, "each token must have every flag")
    _require(len(ids_T) < 1 << 31, path, "a shard must have fewer than 2**31 tokens")
    _require(0 <= ids_T.min() <= ids_T.max() < vocab_size, path, f"ids must be less than the vocab_size {vocab_size}")
    _require(flags["sentence_start"][offset_N1[:-1]].all(), path, "a document must begin with a sentence")

    tokens = {"id": ids_T.astype(np.uint16 if vocab_size <= 1 << 16 else np.uint32, copy=False), **flags}
    token_T = pa.StructArray.from_arrays([pa.array(column_T) for column_T in tokens.values()], list(tokens))
    names, source_N = np.unique(np.array(source, object), return_inverse=True)
    index_N = pa.array(source_N).cast(_index_type(len(names)))
    columns = {
        "tokens": pa.ListArray.from_arrays(offset_N1.astype(np.int32), token_T),
        "source": pa.DictionaryArray.from_arrays(index_N, pa.array(names, pa.string())),
        "key": pa.array(key, pa.binary(16)),
    }
    if fields:
        _require(metadata is not None and len(metadata) == len(num_tokens_N), path, "each document must have metadata")
        texts = [pa.array([each.get(name) for each in metadata or ()], pa.string()) for name in fields]
        _require(all(isinstance(text, pa.Array) for text in texts), path, "metadata must have fewer than 2**31 bytes")
        columns[METADATA] = pa.StructArray.from_arrays(texts, list(fields))
    batch = pa.record_batch(columns)
    size, digest = 0, ""  # computed before writing, so that errors of the disk are detected

    def write(file: BinaryIO) -> None:
        nonlocal size, digest
        hashed = HashingWriter(file)
        with pa.ipc.new_file(hashed, batch.schema) as writer:
            writer.write_batch(batch)
        size, digest = file.tell(), hashed.hexdigest()

    write_atomic(path, write)
    return ShardInfo(path.name, split, len(num_tokens_N), len(ids_T), size, digest)


@dataclass(frozen=True)
class TokenStore:
    """One split of a finished corpus, open for reading."""

    folder: Path
    split: str
    manifest: Manifest
    shards: tuple[Shard, ...]
    # The groups of shards that training mixes by weight; empty if the corpus has no weights.
    groups: tuple[MixtureGroupStats, ...] = ()
    stamps: tuple[Stamp, ...] = ()  # of each shard when it was opened

    @classmethod
    def open(
        cls, folder: Path | str, split: str, verify: bool = True, cache: CacheSettings | None = None
    ) -> "TokenStore":
        """Open a split of the corpus in `folder`; BadInput names a shard that is missing, truncated or damaged.

        File sizes are always compared with the manifest. Hashes are compared when a process opens the split for the
        first time, unless `verify` is False.

        `folder` may be the address of a corpus in a store, or a directory that links to one (remote_corpus.py). Then
        shards are fetched into `cache`, or into that of the link, when they are read. Their hashes are compared when
        they arrive.
        """
        folder = link_into_cache(str(folder), cache or DEFAULT_CACHE) if is_address(folder) else Path(folder)
        manifest = Manifest.load(folder)
        infos = [info for info in manifest.shards if info.split == split]
        if not infos:
            raise BadInput(
                f"{folder}: invalid split: got {split}, expected one of {', '.join(manifest.splits)}; "
                f"{AGAIN} from more text"
            )
        groups = tuple(manifest.mixture[name] for name in sorted(manifest.mixture)) if split == "train" else ()
        if link := read_link(folder):
            address, own_cache = link
            return cls(folder, split, manifest, open_remote_shards(folder, infos, address, cache or own_cache), groups)
        stamps = tuple(
            _stamp(folder / info.name) for info in infos
        )  # before hashing, so that later changes are detected
        for info in infos:
            _check(folder / info.name, info, verify)
        return cls(folder, split, manifest, tuple(Shard(folder / info.name) for info in infos), groups, stamps)

    def require_unchanged(self, rank: int = 0, world: int = 1, *, only_stamps: bool = False) -> None:
        """Raise BadInput if the manifest or a shard has changed since this store was opened.

        Shards are memory-mapped, so writing to one changes the training data. Each of `world` workers hashes its part
        of the shards, and all shards whose size or modification time has changed. With `only_stamps`, it hashes only
        shards whose size or modification time has changed.
        """
        if Manifest.load(self.folder).digest != self.manifest.digest:
            raise BadInput(f"{self.folder / FILE_NAME}: {_CHANGED}: it lists another corpus; {_RESTORE}")
        if self.is_remote:
            self._require_unchanged_copies(rank, world, only_stamps)
            return
        infos = {info.name: info for info in self.manifest.shards}
        for number, (shard, stamp) in enumerate(zip(self.shards, self.stamps, strict=True)):
            info, now = infos[shard.path.name], _stamp(shard.path)
            if now == stamp and (only_stamps or number % world != rank):
                continue
            if now is None:
                raise BadInput(f"{shard.path}: {_CHANGED}: it is missing; {_RESTORE}")
            if now[0] != info.bytes or xxh3_file(shard.path) != info.xxh3:
                raise BadInput(f"{shard.path}: {_CHANGED}: its content differs; {_RESTORE}")

    def _require_unchanged_copies(self, rank: int, world: int, only_stamps: bool) -> None:
        """Compare the copies in the cache with the manifest, if there are any; their times say nothing."""
        for number, shard in enumerate(self.shards):
            if isinstance(shard, RemoteShard) and number % world == rank and not only_stamps:
                shard.require_unchanged()

    @property
    def is_remote(self) -> bool:
        """Whether the shards are in a store, and fetched when they are read."""
        return isinstance(self.shards[0], RemoteShard)

    @property
    def num_tokens(self) -> int:
        return sum(shard.num_tokens for shard in self.shards)

    @property
    def vocab_dir(self) -> Path:
        """The directory of the tokenizer, inside the corpus so that both move together."""
        return self.folder / "vocab"


def _stamp(path: Path) -> Stamp:
    """Size and modification time of a file, which show possible changes without reading it; None if it is missing."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _check(path: Path, info: ShardInfo, verify: bool) -> None:
    """Raise BadInput if the file differs from its entry in the manifest."""
    remedy = f"delete {path.with_name(FILE_NAME)}, then {AGAIN}; undamaged shards are reused"
    try:
        stat = path.stat()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}, but the manifest lists it; {remedy}") from None
    if stat.st_size != info.bytes:
        raise BadInput(f"{path}: is damaged: got {stat.st_size} bytes, expected {info.bytes}; {remedy}")
    if verify and (xxh3 := _hash_once(path, stat.st_size, stat.st_mtime_ns)) != info.xxh3:
        raise BadInput(f"{path}: is damaged: got xxh3 {xxh3}, expected {info.xxh3}; {remedy}")


@cache
def _hash_once(path: Path, size: int, mtime_ns: int) -> str:
    """xxh3 of a file, computed again only if its size or modification time has changed."""
    return xxh3_file(path)


def _index_type(count: int) -> pa.DataType:
    """The smallest signed type for `count` indices; readers of Arrow prefer signed types."""
    return pa.int8() if count <= 1 << 7 else pa.int16() if count <= 1 << 15 else pa.int32()


def _require(holds: bool, path: Path, rule: str) -> None:
    """Raise ValueError if a rule for shards is broken, which is a bug of the caller."""
    if not holds:
        raise ValueError(f"{path}: {rule}")
