"""Deduplication of documents: equal ones by their keys, similar ones by the bands of MinHash signatures.

The result depends only on the keys, the sources and the metadata. Of equal documents, the one whose source and metadata
have the smallest hash is kept; of similar ones, the one with the smallest key. None is kept if a reference corpus
contains it. In a mixture, the first listed group that has the document, or a similar one, keeps it. Only keys and band
hashes are sent between workers, not text.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.spec import Dedup
from pipeline.steps.documents import batches, metadata_of, origin_hash
from pipeline.steps.output_folder import read_seal, seal
from preprocessing.files import TEMPORARY, npy, write_atomic
from preprocessing.manifest import Manifest
from preprocessing.shards import METADATA, TokenStore
from preprocessing.text import components, hash_bands, sign_texts

ELSEWHERE: Final = 1 << 31  # part numbers from here on are reference corpora
REASONS: Final = ("duplicate", "near_duplicate", "known", "near_known")  # known: contained in a reference corpus
_GROUPS: Final = 64  # groups of keys by their first bits; one group is processed at a time
ADDRESS: Final = np.dtype(  # a document, 38 bytes
    [
        *(("high", ">u8"), ("low", ">u8"), ("group", "<u2"), ("source", ">u8")),
        *(("part", "<u4"), ("row", "<u4"), ("bytes", "<u4")),
    ]
)
# stage: index of the list of parts that `part` and `kept_part` refer to; 0 before repeated lines are removed
REPEAT: Final = np.dtype(
    [
        *ADDRESS.descr,
        *(("kept_high", ">u8"), ("kept_low", ">u8"), ("kept_source", ">u8"), ("kept_part", "<u4")),
        *(("kept_row", "<u4"), ("reason", "u1"), ("stage", "u1")),
    ]
)
# row: index in the signature file of the part
_NODE: Final = [("high", ">u8"), ("low", ">u8"), ("part", "<u4"), ("row", "<u4")]
_BAND: Final = np.dtype([("hash", "<u8"), *_NODE])
EDGE: Final = np.dtype([*_NODE, *((f"other_{name}", kind) for name, kind in _NODE)])
_AT_ONCE: Final = 1 << 16  # pairs whose signatures are compared at once


class DedupResult(NamedTuple):
    """Addresses of the kept documents, and of those that repeat a kept one."""

    addresses: np.ndarray
    repeats: np.ndarray

    def save(self, path: Path) -> None:
        """Write the result to a file. Beam would keep a dozen copies of it if workers sent it to each other."""
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **self._asdict())
        write_atomic(path, file.getvalue())

    @classmethod
    def load(cls, path: Path) -> "DedupResult":
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**arrays)


def addresses(part: Path, number: int, group: int = 0) -> Iterator[tuple[int, bytes]]:
    """(group of keys, addresses) of the documents in a file of cleaned text. `group` is the mixture group."""
    first = 0
    for batch in batches(part):
        address_N = np.zeros(batch.num_rows, ADDRESS)
        address_N["high"], address_N["low"] = _keys(batch.column("key"))
        if number < ELSEWHERE:
            address_N["source"] = origin_hashes(batch)
        address_N["group"] = group
        address_N["part"], address_N["row"] = number, np.arange(first, first + batch.num_rows)
        address_N["bytes"] = pc.binary_length(batch.column("text")).to_numpy()
        first += batch.num_rows
        yield from _group_by_key(address_N)


def corpus_addresses(folder: str) -> Iterator[tuple[int, bytes]]:
    """(group, addresses) of the documents of a finished reference corpus."""
    for split in Manifest.load(folder).splits:
        for shard in TokenStore.open(folder, split).shards:
            key_N2 = np.frombuffer(b"".join(map(shard.key, range(len(shard)))), ">u8").reshape(-1, 2)
            address_N = np.zeros(len(shard), ADDRESS)
            address_N["high"], address_N["low"] = key_N2.T
            address_N["part"] = ELSEWHERE
            yield from _group_by_key(address_N)


def _keys(column: pa.Array) -> np.ndarray:
    """Keys as two rows of numbers, uint64 [2, N]."""
    data = np.frombuffer(column.buffers()[1], ">u8")[2 * column.offset :][: 2 * len(column)]
    return data.reshape(-1, 2).T


def origin_hashes(batch: pa.RecordBatch) -> np.ndarray:
    """xxh3-64 of the name of each document's source, and of its metadata if it has any, uint64 [N]."""
    if METADATA in batch.schema.names:
        pairs = zip(batch.column("source").to_pylist(), metadata_of(batch), strict=True)
        return np.array([origin_hash(source, metadata) for source, metadata in pairs], np.uint64)
    names = batch.column("source").dictionary_encode()
    hashes = np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names.dictionary.to_pylist()], np.uint64)
    return hashes[names.indices.to_numpy()]


def _group_by_key(record_N: np.ndarray, by: str = "high") -> Iterator[tuple[int, bytes]]:
    group_N = record_N[by].astype(np.uint64) >> np.uint64(64 - _GROUPS.bit_length() + 1)
    order_N = np.argsort(group_N.astype(np.uint8), kind="stable")
    stop_G = np.cumsum(np.bincount(group_N.astype(np.int64), minlength=_GROUPS))
    for group, (start, stop) in enumerate(pairwise([0, *stop_G.tolist()])):
        if start < stop:
            yield group, record_N[order_N[start:stop]].tobytes()


def first_of_each(group: tuple[int, Iterable[bytes]], exact: bool) -> DedupResult:
    """Deduplicate documents by key. Documents are ordered by mixture group, source hash and position.

    The first document with a key is kept, or none if a reference corpus contains the key. Without `exact`, all
    documents outside of reference corpora are kept.
    """
    address_N = in_order(np.frombuffer(b"".join(group[1]), ADDRESS))
    is_ours_N = address_N["part"] < ELSEWHERE
    is_new_N = np.ones(len(address_N), bool)
    is_new_N[1:] = (np.diff(address_N["high"]) != 0) | (np.diff(address_N["low"]) != 0)
    first_N = np.flatnonzero(is_new_N)[np.cumsum(is_new_N) - 1]
    is_known_N = ~is_ours_N[first_N]
    repeats_N = is_ours_N & (is_known_N | ~is_new_N) if exact else is_ours_N & is_known_N
    repeat_N = _repeats(address_N[repeats_N], address_N[first_N[repeats_N]])
    repeat_N["reason"] = np.where(is_known_N[repeats_N], REASONS.index("known"), REASONS.index("duplicate"))
    return DedupResult(address_N[is_ours_N & ~repeats_N], repeat_N)


def write_first_of_each(group: tuple[int, Iterable[bytes]], folder: str, exact: bool) -> str:
    """Write `first_of_each` to a temporary file of the job, and return its name."""
    name = f"{TEMPORARY}keys-{group[0]}.npz"
    first_of_each(group, exact).save(Path(folder, name))
    return name


def _repeats(address_K: np.ndarray, kept_K: np.ndarray) -> np.ndarray:
    repeat_K = np.zeros(len(address_K), REPEAT)
    for name in ADDRESS.names or ():
        repeat_K[name] = address_K[name]
    for name in ("high", "low", "source", "part", "row"):
        repeat_K[f"kept_{name}"] = kept_K[name]
    return repeat_K


def in_order(address_N: np.ndarray) -> np.ndarray:
    """Addresses sorted by key. For equal keys, reference corpora come first, then group, source and position."""
    high_N = address_N["high"].astype(np.uint64)
    order_N = np.argsort(high_N, kind="stable")
    is_same_N = np.zeros(len(order_N) + 1, bool)
    is_same_N[1:-1] = high_N[order_N[1:]] == high_N[order_N[:-1]]
    tied_K = np.flatnonzero(is_same_N[1:] | is_same_N[:-1])  # few need the other fields
    some_K = address_N[order_N[tied_K]]
    place = [some_K[name] for name in ("row", "part", "source", "group")]
    order_K = np.lexsort([*place, some_K["part"] < ELSEWHERE, some_K["low"], some_K["high"]])
    order_N[tied_K] = order_N[tied_K][order_K]
    return address_N[order_N]


def bands(part: Path, number: int, dedup: Dedup) -> Iterator[tuple[int, bytes]]:
    """(group, band hashes with keys) of the documents in a part. A group is a band and a range of hashes."""
    signed_N = _sign(part, dedup)
    band_NB = hash_bands(signed_N["signature"], dedup.num_bands)
    for band in range(dedup.num_bands if len(signed_N) else 0):
        record_N = np.empty(len(signed_N), _BAND)
        record_N["hash"], record_N["part"], record_N["row"] = band_NB[:, band], number, np.arange(len(signed_N))
        record_N["high"], record_N["low"] = signed_N["high"], signed_N["low"]
        for group, block in _group_by_key(record_N, by="hash"):
            yield band * _GROUPS + group, block


def near_file(part: Path) -> Path:
    """The file with the signatures of a part."""
    return part.with_name(f"near-{part.stem.partition('-')[2]}.npy")


def _sign(part: Path, dedup: Dedup) -> np.ndarray:
    """Keys and signatures of the documents of a part that contain words, computed once and stored in a file."""
    num = dedup.num_bands * dedup.rows_per_band
    kind = np.dtype([("high", ">u8"), ("low", ">u8"), ("signature", "<u4", (num,))])
    file, identity = near_file(part), {"near": [dedup.ngram_size, num], "of": part.name}
    if read_seal(file, **identity) is None:
        signed = [np.empty(0, kind)]
        for batch in batches(part):
            signature_NP, has_word_N = sign_texts(batch.column("text").to_pylist(), dedup.ngram_size, num)
            signed_N = np.empty(int(has_word_N.sum()), kind)
            signed_N["high"], signed_N["low"] = _keys(batch.column("key"))[:, has_word_N]
            signed_N["signature"] = signature_NP[has_word_N]
            signed.append(signed_N)
        write_atomic(file, npy(np.concatenate(signed).astype(kind)))  # np.concatenate returns native byte order
        seal(file, **identity)
    return np.load(file, mmap_mode="r", allow_pickle=False)


def edges(group: tuple[int, Iterable[bytes]]) -> bytes:
    """Pairs of documents that share a band.

    For each band hash, the first document by key is paired with each other one, and each document with the next.
    """
    record_N = np.frombuffer(b"".join(group[1]), _BAND)
    record_N = record_N[occurs_again(record_N["hash"])]
    record_N = record_N[np.lexsort([record_N[name] for name in ("row", "part", "low", "high", "hash")])]
    is_first_N = np.ones(len(record_N), bool)
    is_first_N[1:] = np.diff(record_N["hash"]) != 0
    first_N = record_N[np.flatnonzero(is_first_N)[np.cumsum(is_first_N) - 1]]
    pairs = [_pairs(first_N, record_N), _pairs(record_N[:-1][~is_first_N[1:]], record_N[1:][~is_first_N[1:]])]
    return np.unique(np.concatenate(pairs)).astype(EDGE).tobytes()  # np.concatenate returns native byte order


def occurs_again(hash_N: np.ndarray) -> np.ndarray:
    """Whether each hash, uint64, occurs several times, bool [N]. The few that do are then sorted with their records."""
    sorted_N = np.sort(hash_N)
    repeated_K = np.unique(sorted_N[1:][sorted_N[1:] == sorted_N[:-1]])
    if not len(repeated_K):
        return np.zeros(len(hash_N), np.bool_)
    place_N = np.minimum(np.searchsorted(repeated_K, hash_N), len(repeated_K) - 1)
    return np.asarray(repeated_K[place_N] == hash_N)


def _pairs(one_E: np.ndarray, other_E: np.ndarray) -> np.ndarray:
    """Edges between documents with different keys."""
    edge_E = np.empty(len(one_E), EDGE)
    for name, _ in _NODE:
        edge_E[name], edge_E[f"other_{name}"] = one_E[name], other_E[name]
    return edge_E[(one_E["high"] != other_E["high"]) | (one_E["low"] != other_E["low"])]


def select_similar_edges(edge_E: np.ndarray, parts: Mapping[int, Path], least: float) -> np.ndarray:
    """Edges between documents whose signatures agree in at least the fraction `least`.

    This fraction estimates the Jaccard similarity. A shared band is only a rough estimate of it.
    """
    edge_E = np.unique(edge_E)
    kept = [edge_E[:0]]
    for start in range(0, len(edge_E), _AT_ONCE):
        some_E = edge_E[start : start + _AT_ONCE]
        one_EP, other_EP = (_signatures(some_E[f"{side}part"], some_E[f"{side}row"], parts) for side in ("", "other_"))
        kept.append(some_E[(one_EP == other_EP).mean(axis=1) >= least])
    return np.concatenate(kept)


def _signatures(part_E: np.ndarray, row_E: np.ndarray, parts: Mapping[int, Path]) -> np.ndarray:
    """Signatures, uint32 [E, permutations]. One file is open at a time, as there may be thousands."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for part in np.unique(part_E).tolist():
        of_part_E = np.flatnonzero(part_E == part)
        signed_N = np.load(near_file(parts[part]), mmap_mode="r", allow_pickle=False)
        found.append((of_part_E, signed_N["signature"][row_E[of_part_E]]))
    signature_EP = np.empty((len(part_E), found[0][1].shape[1]), np.uint32)
    for of_part_E, signature_KP in found:
        signature_EP[of_part_E] = signature_KP
    return signature_EP


def without_near(address_N: np.ndarray, edge_E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep one document per cluster of similar documents, that of the first group with the smallest key.

    Returns the kept addresses and the repeats. A key without an address is from a reference corpus or repeats a
    document in one. Then no document of its cluster is kept.
    """
    ends = [(address_N["high"], address_N["low"]), (edge_E["high"], edge_E["low"])]
    ends.append((edge_E["other_high"], edge_E["other_low"]))
    key_2K = np.concatenate([np.stack([high, low]).astype(np.uint64) for high, low in ends], axis=1)
    num = len(address_N)
    node_K, nodes = _number_keys(key_2K, address_N["group"])
    node_N, edge_2E = node_K[:num], node_K[num:].reshape(2, -1)
    is_elsewhere_V = np.ones(nodes, bool)
    is_elsewhere_V[node_N] = False
    root_V = components(edge_2E.T.astype(np.int64), nodes)
    known_V = np.full(nodes, -1)  # a reference document for each cluster that has one
    known_V[root_V[is_elsewhere_V]] = np.flatnonzero(is_elsewhere_V)
    key_2V = np.empty((2, nodes), np.uint64)
    key_2V[:, node_K] = key_2K
    address_V = np.full(nodes, -1)
    address_V[node_N[::-1]] = np.arange(num)[::-1]  # the first of several documents with one key
    root_N = root_V[node_N]
    is_known_N = known_V[root_N] >= 0
    repeats_N = is_known_N | (root_N != node_N)
    kept_K = np.zeros(int(repeats_N.sum()), ADDRESS)
    winner_K = np.where(is_known_N, known_V[root_N], root_N)[repeats_N]
    kept_K["high"], kept_K["low"] = key_2V[:, winner_K]
    in_corpus_K = address_V[winner_K] >= 0
    kept_K["part"] = ELSEWHERE
    for name in ("source", "part", "row"):
        kept_K[name][in_corpus_K] = address_N[name][address_V[winner_K][in_corpus_K]]
    repeat_K = _repeats(address_N[repeats_N], kept_K)
    repeat_K["reason"] = np.where(in_corpus_K, REASONS.index("near_duplicate"), REASONS.index("near_known"))
    return address_N[~repeats_N], repeat_K


def _number_keys(key_2K: np.ndarray, group_N: np.ndarray) -> tuple[np.ndarray, int]:
    """The rank of each key among the distinct keys, and the number of distinct keys.

    Keys are ranked by the first mixture group that has them, then by value. `group_N` has the groups of the first N
    keys.
    """
    order_K = np.lexsort([key_2K[1], key_2K[0]])
    sorted_2K = key_2K[:, order_K]
    is_new_K = np.ones(key_2K.shape[1], bool)
    is_new_K[1:] = (np.diff(sorted_2K) != 0).any(axis=0)
    node_K = np.empty(key_2K.shape[1], np.int64)
    node_K[order_K] = np.cumsum(is_new_K) - 1
    nodes = int(is_new_K.sum())
    if group_N.any():
        group_V = np.full(nodes, np.iinfo(np.int64).max)
        np.minimum.at(group_V, node_K[: len(group_N)], group_N.astype(np.int64))
        place_V = np.empty(nodes, np.int64)
        place_V[np.argsort(group_V, kind="stable")] = np.arange(nodes)
        node_K = place_V[node_K]
    return node_K, nodes
