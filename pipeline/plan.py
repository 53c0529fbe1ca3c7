"""Keys -> plan: which documents are kept, in which split of the corpus, in which shard, in which order.

All of it follows from the keys (hashes of the texts) and the sources alone. So the shards depend neither on the order
of the input nor on how it was cut, nor on who worked on it; and only keys travel between workers, never text.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.lib.recfunctions import repack_fields

from pipeline.clean import Document, open_texts
from pipeline.spec import Corpus
from pipeline.stage import seal
from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.manifest import Ledger
from preprocessing.schema import SPLITS
from preprocessing.shards import shard_name
from preprocessing.text import text_key

PLAN: Final = "plan.npy"
TEXT: Final = "text.json"
_GROUPS: Final = 64  # of keys, by their first bits: what is grouped at a time
_FEWEST: Final = 2  # documents in a held-out split, where there are three times as many: a pair needs two
_SHARDS: Final = 8  # at least so many, where each gets _LEAST_BYTES: work for a few cores, and progress to be seen
_LEAST_BYTES: Final = 1 << 20
_ADDRESS: Final = np.dtype(  # of a document, 36 bytes
    [("high", ">u8"), ("low", ">u8"), ("source", ">u8"), ("split", "<u4"), ("row", "<u4"), ("bytes", "<u4")]
)
_PLANNED: Final = np.dtype([*_ADDRESS.descr, ("fold", "u1"), ("shard", "<u4")])


class Kept(NamedTuple):
    """Addresses of the documents that are kept, and what the duplicates amounted to."""

    addresses: bytes
    documents: int
    bytes: int


def addresses(part: Path, split: int) -> Iterator[tuple[int, bytes]]:
    """(group, addresses) of the documents in one file of cleaned text, for each group of keys that occurs."""
    table = open_texts(part)
    if not table.num_rows:
        return
    address_N = np.zeros(table.num_rows, _ADDRESS)
    key_N2 = np.frombuffer(b"".join(table["key"].to_pylist()), ">u8").reshape(-1, 2)
    address_N["high"], address_N["low"] = key_N2.T
    names = table["source"].combine_chunks().dictionary_encode()
    hashes = np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names.dictionary.to_pylist()], np.uint64)
    address_N["source"] = hashes[names.indices.to_numpy()]
    address_N["split"], address_N["row"] = split, np.arange(table.num_rows)
    address_N["bytes"] = pc.binary_length(table["text"]).to_numpy()
    group_N = address_N["high"] // np.uint64((1 << 64) // _GROUPS)
    for group in np.unique(group_N).tolist():
        yield group, address_N[group_N == group].tobytes()


def first_of_each(group: tuple[int, Iterable[bytes]], dedup: Literal["exact", "none"]) -> Kept:
    """Of the documents with one key the first by the hash of its source, then by place: exact duplicates go."""
    address_N = _sorted(np.frombuffer(b"".join(group[1]), _ADDRESS))
    first_N = np.ones(len(address_N), bool)
    if dedup == "exact":
        first_N[1:] = (np.diff(address_N["high"]) != 0) | (np.diff(address_N["low"]) != 0)
    twice_N = address_N[~first_N]
    return Kept(address_N[first_N].tobytes(), len(twice_N), int(twice_N["bytes"].sum()))


def write_plan(groups: list[Kept], folder: str, corpus: Corpus) -> None:
    """Give each kept document its split and its shard, and write them down in order."""
    address_N = _sorted(np.frombuffer(b"".join(group.addresses for group in groups), _ADDRESS))
    planned_N = np.empty(len(address_N), _PLANNED)
    for name in _ADDRESS.names or ():
        planned_N[name] = address_N[name]
    planned_N["fold"] = folds(address_N["low"].astype(np.uint64), corpus.validation, corpus.test)
    planned_N = planned_N[np.argsort(planned_N["fold"], kind="stable")]
    for fold in range(len(SPLITS)):
        mine_N = planned_N["fold"] == fold
        planned_N["shard"][mine_N] = cut(planned_N["bytes"][mine_N].astype(np.int64), corpus.shard_mb << 20)
    path = Path(folder, PLAN)
    write_atomic(path, lambda file: np.save(file, planned_N))
    duplicates = [sum(group.documents for group in groups), sum(group.bytes for group in groups)]
    seal(path, duplicates=duplicates)


def _sorted(address_N: np.ndarray) -> np.ndarray:
    return address_N[np.lexsort([address_N[name] for name in ("row", "split", "source", "low", "high")])]


def folds(hash_N: np.ndarray, validation: float, test: float) -> np.ndarray:
    """The split of each document, an index into SPLITS, by a hash of its text (uint64): more text moves few of them.

    A split that is wanted has two documents at least, where there are six or more.

    >>> folds(np.arange(10, dtype=np.uint64), validation=0.1, test=0).tolist()
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    >>> folds(np.arange(10, dtype=np.uint64) << np.uint64(60), validation=0.1, test=0.1).tolist()
    [2, 2, 1, 1, 0, 0, 0, 0, 0, 0]
    """
    few = _FEWEST if len(hash_N) >= 3 * _FEWEST else 0
    fold_N = np.zeros(len(hash_N), np.uint8)
    order_N = np.argsort(hash_N, kind="stable")
    start, share = 0, 0.0
    for name, wanted in (("test", test), ("validation", validation)):
        share += wanted
        below = int((hash_N < share * 2.0**64).sum()) - start
        stop = start + (max(below, few) if wanted else 0)
        fold_N[order_N[start:stop]] = SPLITS.index(name)
        start = stop
    return fold_N


def cut(bytes_N: np.ndarray, most: int) -> np.ndarray:
    """The shard of each document, in order, so that shards have about equal bytes, and about `most` at most.

    No shard has a single document, which would have no partner for a pair.

    >>> cut(np.array([3, 3, 3, 3]) << 20, most=6 << 20).tolist()
    [0, 0, 1, 1]
    >>> cut(np.array([2, 2, 9, 2, 2]) << 20, most=4 << 20).tolist()
    [0, 0, 1, 1, 1]
    """
    total = int(bytes_N.sum())
    num = max(-(-total // most), min(_SHARDS, total // _LEAST_BYTES))
    num = max(1, min(num, len(bytes_N) // 2))
    middle_N = np.cumsum(bytes_N) - bytes_N / 2
    starts = [0]
    for start in (np.flatnonzero(np.diff(middle_N * num // max(total, 1))) + 1).tolist():
        if start - starts[-1] >= 2 and len(bytes_N) - start >= 2:
            starts.append(start)
    return np.searchsorted(starts, np.arange(len(bytes_N)), side="right") - 1


@dataclass(frozen=True)
class Shard:
    """A shard to be made: documents [start, stop) of the plan, `bytes` of text."""

    name: str
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True)
class Texts:
    """A finished text folder: the plan over the cleaned documents of its splits."""

    folder: Path
    identity: str  # of the input and how it was read
    hash: str  # of the text itself: the same text from elsewhere has the same
    splits: tuple[str, ...]
    shards: tuple[Shard, ...]
    ledger: Ledger
    repaired: dict[str, int]

    def save(self) -> None:
        """Write text.json, last: it makes the folder a text."""
        facts = {name: getattr(self, name) for name in ("identity", "hash", "splits", "repaired")}
        facts |= {"shards": [vars(shard) for shard in self.shards], "ledger": self.ledger.to_dict()}
        write_atomic(self.folder / TEXT, json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n")

    @classmethod
    def load(cls, folder: Path | str) -> "Texts":
        """Read text.json; BadInput where there is none, or it cannot be read."""
        path = Path(folder) / TEXT
        try:
            facts: dict[str, Any] = json.loads(path.read_bytes())
            facts["shards"] = tuple(Shard(**shard) for shard in facts["shards"])
            facts["ledger"] = Ledger.from_dict(facts["ledger"])
            return cls(folder=path.parent, **facts | {"splits": tuple(facts["splits"])})
        except OSError:
            raise BadInput(
                f"{path}: no such file, so this is no finished text; make it again with `sesame corpus`"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}: cannot be read; remove it and make it again with `sesame corpus`") from None

    @cached_property
    def plan_N(self) -> np.ndarray:
        return np.load(self.folder / PLAN, mmap_mode="r", allow_pickle=False)

    def documents(self, start: int, stop: int) -> list[Document]:
        """Documents [start, stop) of the plan, in order; BadInput where one is not what it was."""
        planned_N = self.plan_N[start:stop]
        order_N = np.argsort(planned_N["split"], kind="stable")
        found = list[Document]()
        for split in np.unique(planned_N["split"]).tolist():
            part = self.folder / self.splits[split]
            row_K = planned_N["row"][order_N][planned_N["split"][order_N] == split]
            found += _read(part, row_K)
        return [found[i] for i in np.argsort(order_N).tolist()]


def _read(part: Path, row_K: np.ndarray) -> list[Document]:
    """Rows of a file of cleaned text; the key of a document is the hash that shows whether it is whole."""
    try:
        columns = [column.to_pylist() for column in open_texts(part).take(pa.array(row_K)).columns]
        documents = [Document(*values) for values in zip(*columns, strict=True)]
        if all(text_key(document.text) == document.key for document in documents):
            return documents
    except (OSError, ValueError):  # pyarrow's errors, and text that is no UTF-8 any more
        pass
    raise BadInput(f"{part}: is missing or damaged; make the text again with `sesame corpus`")


def planned_shards(plan_N: np.ndarray) -> tuple[Shard, ...]:
    """The shards of a plan, in its order."""
    place_N = plan_N["fold"].astype(np.int64) << 32 | plan_N["shard"]
    cuts = np.flatnonzero(np.diff(place_N, prepend=-1, append=-1)).tolist() if len(place_N) else []
    num = {fold: len(np.unique(plan_N["shard"][plan_N["fold"] == fold])) for fold in range(len(SPLITS))}
    return tuple(
        Shard(
            shard_name(SPLITS[fold := int(plan_N["fold"][start])], int(plan_N["shard"][start]), num[fold]),
            start,
            stop,
            int(plan_N["bytes"][start:stop].sum()),
        )
        for start, stop in pairwise(cuts)
    )


def text_hash(plan_N: np.ndarray) -> str:
    """Identity of planned text: keys and sources in order, with their split and shard."""
    content_N = repack_fields(plan_N[["high", "low", "source", "fold", "shard"]])
    return hashlib.sha256(content_N.tobytes()).hexdigest()
