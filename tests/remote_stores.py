"""A corpus of several shards, and a slow store for it: an fsspec file system that counts, fails, and gives wrong bytes.

Nothing here depends on time: a request takes virtual seconds, which are only added up.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
from fsspec.implementations.memory import MemoryFileSystem

from preprocessing import tokenization
from preprocessing.manifest import Count, Ledger, Manifest, ShardInfo
from preprocessing.shards import shard_name, write_shard
from tests.mini_world import VOCAB_SIZE, world

SECONDS_PER_REQUEST, BYTES_PER_SECOND = 0.05, 1e6


class ThrottledStore(MemoryFileSystem):
    """The files of memory://, behind a slow and unreliable line."""

    protocol = "throttled"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    requests: ClassVar[Counter[str]] = Counter()  # by path
    num_bytes: ClassVar[Counter[str]] = Counter()
    downloads: ClassVar[Counter[str]] = Counter()  # of whole files
    seconds: ClassVar[float] = 0.0
    failures: ClassVar[list[Exception]] = []  # raised by the next requests, one each
    before_read: ClassVar[Callable[[str], None]] = lambda path: None
    damage: ClassVar[Counter[str]] = Counter()  # number of reads with wrong bytes, by the end of a path

    @classmethod
    def reset(cls) -> None:
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.forget()
        cls.failures = []
        cls.damage = Counter()
        cls.before_read = lambda path: None

    @classmethod
    def forget(cls) -> None:
        """Count from 0 again."""
        cls.requests, cls.num_bytes, cls.downloads, cls.seconds = Counter(), Counter(), Counter(), 0.0

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        cls = type(self)
        name = path.rpartition("/")[2]
        cls.requests[name] += 1
        if cls.failures:
            raise cls.failures.pop(0)
        cls.before_read(name)
        found = super().cat_file(path, start=start, end=end, **kwargs)
        cls.num_bytes[name] += len(found)
        cls.downloads[name] += len(found) == self.size(path)
        cls.seconds += SECONDS_PER_REQUEST + len(found) / BYTES_PER_SECOND
        if cls.damage[name]:
            cls.damage[name] -= 1
            found = bytes([found[0] ^ 1]) + found[1:]
        return found


fsspec.register_implementation("throttled", ThrottledStore, clobber=True)


def count_bytes(folder: Path) -> int:
    """The total size of the files in a directory, while other threads write and rename some of them."""
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def upload(folder: Path, address: str) -> None:
    """Copy a directory into a store."""
    store, top = fsspec.core.url_to_fs(address)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.pipe_file(f"{top}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def sharded_corpus(folder: Path, num_shards: int = 6, num_documents: int = 20, num_validation: int = 1) -> Path:
    """Write documents of the mini-world as a corpus of several shards, with a vocabulary of tokens w5, w6, ..."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{id}" for id in range(5, VOCAB_SIZE))]
    folder.mkdir(parents=True)
    (folder / "pieces.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    words = tokenization.train(tokenization.WordPiece(vocab_size=VOCAB_SIZE, path=str(folder / "pieces.txt")), ())
    words.save(folder / "vocab")
    shards = [
        *(_write(folder, "train", number, num_shards, num_documents) for number in range(num_shards)),
        *(_write(folder, "validation", number, num_validation, num_documents) for number in range(num_validation)),
    ]
    total = Count(sum(shard.rows for shard in shards), 0, sum(shard.tokens for shard in shards))
    about = {"kind": words.kind, "size": words.size, "hash": words.hash, "specials": words.specials}
    Manifest("mini_world", "", "", about, {}, tuple(shards), Ledger(total, total)).save(folder)
    return folder


def _write(folder: Path, split: str, number: int, count: int, num_documents: int) -> ShardInfo:
    text = world(seed=number + 100 * (split != "train"), num_documents=num_documents)
    cuts = np.cumsum(text.num_tokens_N)[:-1]
    starts = (np.split(column, cuts) for column in (text.ids_T, text.word_starts_T, text.sentence_starts_T))
    keys = [number.to_bytes(8, "big") + document.to_bytes(8, "big") for document in range(num_documents)]
    path = folder / shard_name(split, number, count)
    return write_shard(path, *starts, ["mini_world"] * num_documents, keys, vocab_size=VOCAB_SIZE)
