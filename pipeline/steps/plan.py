"""Keys -> plan: the kept documents with their split, shard and order.

The plan depends only on the keys (hashes of the texts) and the sources. The shards therefore depend neither on the
order of the input, nor on its division, nor on the workers. Only keys are sent between workers, not text.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib.recfunctions import repack_fields

from pipeline.spec import Corpus
from pipeline.steps.dedup import (
    ADDRESS,
    EDGE,
    ELSEWHERE,
    REASONS,
    REPEAT,
    DedupResult,
    in_order,
    select_similar_edges,
    without_near,
)
from pipeline.steps.documents import Document, batches, documents_at, make_damage_error, rows_of
from pipeline.steps.output_folder import read_seal, seal
from pipeline.steps.repeats import find_edited_away, write_repeats
from preprocessing.errors import BadInput
from preprocessing.files import TEMPORARY, from_checked_json, npy, to_checked_json, write_atomic
from preprocessing.manifest import Ledger
from preprocessing.schema import SPLITS
from preprocessing.shards import shard_name

PLAN: Final = "plan.npy"
TEXT: Final = "text.json"
_KEPT_BEFORE: Final = f"{TEMPORARY}kept.npy"  # exists while repeated lines are removed
_REPEATS_BEFORE: Final = f"{TEMPORARY}repeats.npy"
_FEWEST_HELD_OUT: Final = 2  # documents in each held-out split if the text has enough: a sentence pair needs two
_SHARDS: Final = 8  # minimum number of shards if each has _LEAST_BYTES: work for several cores, and visible progress
_LEAST_BYTES: Final = 1 << 20
_AT_ONCE: Final = 1 << 14  # documents whose keys are hashed at once
_SAMPLE_BYTES: Final = 1 << 20
_BYTES_AT_ONCE: Final = 1 << 20  # of text that becomes Python's strings at once
_IF_ANY: Final = ("phrases", "evaluation_texts", "groups", "fields", "substrings")
_PLANNED: Final = np.dtype([*ADDRESS.descr, ("fold", "u1"), ("shard", "<u4")])


def write_plan(
    groups: list[str],
    near: list[bytes],
    folder: str,
    corpus: Corpus,
    stages: Sequence[Sequence[str]],
    others: Sequence[str] = (),
    reason: str = "",
    mixed_P: Sequence[int] = (),
) -> None:
    """Assign a split and a shard to each kept document. Write the plan, in order, and the repeats.

    `groups` are files of kept documents and repeats. `stages` are the files of cleaned text, before and after each step
    that edits documents; the last ones are planned, and `reason` is that of the last step. `others` are files of
    reference texts. The repeats include those from `write_kept`. `mixed_P` has the mixture group of each part. If
    given, a training shard contains one group only, and the shards of a group are consecutive.
    """
    address_N, repeat_K = _select_documents(groups, near, folder, corpus, stages, others, reason)
    _write(Path(folder), address_N, repeat_K, corpus, stages, np.array(mixed_P or [0] * len(stages[-1])))


def write_kept(
    groups: list[str],
    near: list[bytes],
    folder: str,
    corpus: Corpus,
    stages: Sequence[Sequence[str]],
    others: Sequence[str] = (),
    reason: str = "",
) -> None:
    """Write the kept documents and the repeats before a step edits documents; the arguments of `write_plan`."""
    address_N, repeat_K = _select_documents(groups, near, folder, corpus, stages, others, reason)
    write_atomic(Path(folder, _REPEATS_BEFORE), npy(repeat_K))
    write_atomic(Path(folder, _KEPT_BEFORE), npy(address_N))


def rows_kept(folder: Path, part: int) -> np.ndarray:
    """The rows of a part in the file of `write_kept`, in order."""
    address_N = np.load(folder / _KEPT_BEFORE, mmap_mode="r", allow_pickle=False)
    return np.sort(address_N["row"][address_N["part"] == part])


def remove_kept(folder: Path) -> None:
    """Remove the files of `write_kept`."""
    for name in (_KEPT_BEFORE, _REPEATS_BEFORE):
        (folder / name).unlink(missing_ok=True)


def _select_documents(
    groups: list[str],
    near: list[bytes],
    folder: str,
    corpus: Corpus,
    stages: Sequence[Sequence[str]],
    others: Sequence[str],
    reason: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Addresses of the kept documents, in order, and the repeats, including those of earlier stages."""
    found = [DedupResult.load(Path(folder, group)) for group in groups]
    address_N = in_order(np.concatenate([np.empty(0, ADDRESS), *(kept.addresses for kept in found)]))
    repeat_K = np.concatenate([np.empty(0, REPEAT), *(kept.repeats for kept in found)])
    if near and corpus.dedup.minhash:
        files = {number: Path(folder, name) for number, name in enumerate(stages[-1])}
        files |= {ELSEWHERE + number: Path(folder, name) for number, name in enumerate(others)}
        edge_E = select_similar_edges(np.frombuffer(b"".join(near), EDGE), files, corpus.dedup.min_similarity)
        address_N, near_K = without_near(address_N, edge_E)
        repeat_K = np.concatenate([repeat_K, near_K])
    repeat_K["stage"] = len(stages) - 1
    if reason:
        files_of = [[Path(folder, name) for name in names] for names in stages]
        repeat_K = np.concatenate([find_edited_away(files_of, reason), repeat_K])
    if reason:
        repeat_K = np.concatenate([np.load(Path(folder, _REPEATS_BEFORE), allow_pickle=False), repeat_K])
    return address_N, repeat_K


def _write(
    folder: Path,
    address_N: np.ndarray,
    repeat_K: np.ndarray,
    corpus: Corpus,
    stages: Sequence[Sequence[str]],
    mixed_P: np.ndarray,
) -> None:
    planned_N = np.empty(len(address_N), _PLANNED)
    for name in ADDRESS.names or ():
        planned_N[name] = address_N[name]
    planned_N["fold"] = folds(address_N["low"].astype(np.uint64), corpus.validation_ratio, corpus.test_ratio)
    if corpus.document_order == "input":
        planned_N = planned_N[np.lexsort([planned_N["row"], planned_N["part"]])]
    mixed_N = np.where(planned_N["fold"] == 0, mixed_P[planned_N["part"]], 0)
    order_N = np.lexsort([mixed_N, planned_N["fold"]])
    planned_N, mixed_N = planned_N[order_N], mixed_N[order_N]
    for fold in range(len(SPLITS)):
        first = 0
        for group in np.unique(mixed_N[planned_N["fold"] == fold]).tolist():
            of_group_N = (planned_N["fold"] == fold) & (mixed_N == group)
            shard_N = first + assign_shards(planned_N["bytes"][of_group_N].astype(np.int64), corpus.max_shard_mb << 20)
            planned_N["shard"][of_group_N] = shard_N
            first = int(shard_N[-1]) + 1
    path = folder / PLAN
    write_repeats(folder, repeat_K, [[folder / name for name in names] for names in stages], corpus.fields)
    write_atomic(path, npy(planned_N))
    groups = range(1 + int(repeat_K["group"].max(initial=0)))
    of_groups = [_counts(repeat_K[repeat_K["group"] == group]) for group in groups]
    seal(path, repeats=_counts(repeat_K), repeats_of_groups=of_groups)


def _counts(repeat_K: np.ndarray) -> dict[str, list[int]]:
    """Numbers of documents and bytes of repeats, by reason."""
    bytes_K = repeat_K["bytes"].astype(np.int64)
    return {
        reason: [int((of_part_K := repeat_K["reason"] == number).sum()), int(bytes_K[of_part_K].sum())]
        for number, reason in enumerate(REASONS)
    }


def folds(hash_N: np.ndarray, validation: float, test: float) -> np.ndarray:
    """The split of each document as an index into SPLITS, by a hash of its text (uint64).

    Adding text moves few documents to another split. Each split with a ratio above 0 has at least two documents if
    there are six or more.

    >>> folds(np.arange(10, dtype=np.uint64), validation=0.1, test=0).tolist()
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    >>> folds(np.arange(10, dtype=np.uint64) << np.uint64(60), validation=0.1, test=0.1).tolist()
    [2, 2, 1, 1, 0, 0, 0, 0, 0, 0]
    """
    few = _FEWEST_HELD_OUT if len(hash_N) >= 3 * _FEWEST_HELD_OUT else 0
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


def assign_shards(bytes_N: np.ndarray, most: int) -> np.ndarray:
    """The shard of each document, in order. Shards have roughly equal sizes of about `most` bytes or less.

    No shard has a single document, which would have no partner for a sentence pair.

    >>> assign_shards(np.array([3, 3, 3, 3]) << 20, most=6 << 20).tolist()
    [0, 0, 1, 1]
    >>> assign_shards(np.array([2, 2, 9, 2, 2]) << 20, most=4 << 20).tolist()
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
class PlannedShard:
    """A shard to write: documents [start, stop) of the plan, with `bytes` of text, all of one mixture `group`."""

    name: str
    start: int
    stop: int
    bytes: int
    group: str = ""


@dataclass(frozen=True)
class TextDirectory:
    """A finished text directory: the plan and the cleaned documents."""

    folder: Path
    identity: str  # hash of the input and how it was read
    hash: str  # hash of the text, independent of where it was read
    parts: tuple[str, ...]  # files of cleaned documents
    shards: tuple[PlannedShard, ...]
    ledger: Ledger
    repaired: dict[str, int]
    masked: int  # number of items of personal data replaced by placeholders
    encodings: dict[str, str]  # encodings other than UTF-8: number of files, and the first of them
    # marked phrases, and lost ones by reason, if phrases are given
    phrases: dict[str, int] = field(default_factory=dict)
    evaluation_texts: dict[str, int] = field(default_factory=dict)  # evaluation texts for decontamination
    groups: dict[str, Any] = field(default_factory=dict)  # mixture groups: ledger and held-out documents of each
    fields: tuple[str, ...] = ()  # fields of the metadata
    # documents without repeated substrings that remain, and the removed substrings, if they are removed
    substrings: dict[str, int] = field(default_factory=dict)

    def save(self) -> None:
        """Write text.json as the last file. It marks the directory as complete."""
        facts = {name: getattr(self, name) for name in ("identity", "hash", "parts", "repaired", "masked", "encodings")}
        facts |= {name: value for name in _IF_ANY if (value := getattr(self, name))}
        facts |= {"shards": [_without_empty(vars(shard)) for shard in self.shards], "ledger": self.ledger.to_dict()}
        write_atomic(self.folder / TEXT, to_checked_json(facts))

    @classmethod
    def load(cls, folder: Path | str) -> "TextDirectory":
        """Read text.json. Raises BadInput if it is missing or invalid."""
        path = Path(folder) / TEXT
        try:
            facts: dict[str, Any] = from_checked_json(path.read_bytes())
            facts["shards"] = tuple(PlannedShard(**shard) for shard in facts["shards"])
            facts["ledger"] = Ledger.from_dict(facts["ledger"])
            lists = {name: tuple(facts.get(name, ())) for name in ("parts", "fields")}
            return cls(folder=path.parent, **facts | lists)
        except OSError:
            raise BadInput(
                f"{path}: no such file, so the text is not complete; repeat the command that writes it"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}: damaged; delete it and repeat the command (complete parts are reused)") from None

    @cached_property
    def plan_N(self) -> np.ndarray:
        path = self.folder / PLAN
        if read_seal(path) is None:
            raise make_damage_error(path)
        return np.load(path, mmap_mode="r", allow_pickle=False)

    @cached_property
    def sample(self) -> list[Document]:
        """The first documents of the plan, 1 MB of text. In a mixture, this is divided equally among the groups."""
        starts = {shard.group: shard.start for shard in reversed(self.shards) if shard.group} or {"": 0}
        found = list[Document]()
        for start in sorted(starts.values()):
            size_N = np.cumsum(self.plan_N["bytes"][start : start + _SAMPLE_BYTES].astype(np.int64))
            stop = start + int(np.searchsorted(size_N, _SAMPLE_BYTES // len(starts))) + 1
            found += self.documents(start, min(stop, len(self.plan_N)))
        return found

    def source_numbers(self, stop: int) -> tuple[list[str], np.ndarray]:
        """The names of the sources of the first `stop` documents of the plan, and the number of each one's, int64."""
        planned_N, number_N, names = self.plan_N[:stop], np.empty(stop, np.int64), dict[str, int]()
        for number in np.unique(planned_N["part"]).tolist():
            of_part_K, first = np.flatnonzero(planned_N["part"] == number), 0
            row_K = planned_N["row"][of_part_K].astype(np.int64)
            for batch in batches(self.folder / self.parts[number]):
                here_K = np.flatnonzero((first <= row_K) & (row_K < first + batch.num_rows))
                column = batch.column("source").dictionary_encode()
                known = [names.setdefault(name, len(names)) for name in column.dictionary.to_pylist()]
                number_N[of_part_K[here_K]] = np.array(known, np.int64)[
                    column.indices.to_numpy()[row_K[here_K] - first]
                ]
                first += batch.num_rows
        return list(names), number_N

    def documents(self, start: int, stop: int) -> Iterator[Document]:
        """Documents [start, stop) of the plan, in order. Raises BadInput if one is damaged.

        All texts are in memory at once, so callers request at most the documents of one shard.
        """
        planned_N = self.plan_N[start:stop]
        batch_N, row_N = np.empty(len(planned_N), np.int64), np.empty(len(planned_N), np.int64)
        taken = list[tuple[Path, pa.RecordBatch]]()
        for number in np.unique(planned_N["part"]).tolist():
            part = self.folder / self.parts[number]
            of_part_K = np.flatnonzero(planned_N["part"] == number)
            of_part_K = of_part_K[np.argsort(planned_N["row"][of_part_K], kind="stable")]
            first = 0
            for batch in rows_of(part, planned_N["row"][of_part_K].astype(np.int64)):
                here_K = of_part_K[first : first + batch.num_rows]
                batch_N[here_K], row_N[here_K] = len(taken), np.arange(batch.num_rows)
                taken.append((part, batch))
                first += batch.num_rows
        for first, stop in pairwise(_cut_equally(planned_N["bytes"].astype(np.int64), _BYTES_AT_ONCE)):
            yield from _take(taken, batch_N[first:stop], row_N[first:stop])


def _take(taken: Sequence[tuple[Path, pa.RecordBatch]], batch_K: np.ndarray, row_K: np.ndarray) -> list[Document]:
    """The documents at these rows of these batches, in order."""
    order_K, found = np.argsort(batch_K, kind="stable"), list[Document]()
    cuts = np.flatnonzero(np.diff(batch_K[order_K], prepend=-1, append=-1)).tolist()
    for start, stop in pairwise(cuts):
        part, batch = taken[int(batch_K[order_K[start]])]
        found += documents_at(batch, row_K[order_K[start:stop]], part)
    place_K = np.empty(len(order_K), np.int64)
    place_K[order_K] = np.arange(len(order_K))
    return [found[place] for place in place_K.tolist()]


def _cut_equally(bytes_N: np.ndarray, least: int) -> list[int]:
    """The starts of runs of documents, and the end of the last run; each has about `least` bytes.

    >>> _cut_equally(np.array([3, 3, 3, 3, 3]), 6)
    [0, 2, 4, 5]
    """
    run_N = (np.cumsum(bytes_N) - bytes_N) // least
    return [*np.flatnonzero(np.diff(run_N, prepend=-1)).tolist(), len(bytes_N)] if len(bytes_N) else []


def _without_empty(shard: dict[str, Any]) -> dict[str, Any]:
    """The fields of a shard, without an empty group."""
    return {name: value for name, value in shard.items() if value != ""}


def plan_shards(plan_N: np.ndarray, group_P: Sequence[str] = ()) -> tuple[PlannedShard, ...]:
    """The shards of a plan, in order. `group_P` has the name of the mixture group of each part."""
    place_N = plan_N["fold"].astype(np.int64) << 32 | plan_N["shard"]
    cuts = np.flatnonzero(np.diff(place_N, prepend=-1, append=-1)).tolist() if len(place_N) else []
    num = {fold: len(np.unique(plan_N["shard"][plan_N["fold"] == fold])) for fold in range(len(SPLITS))}
    return tuple(
        PlannedShard(
            shard_name(SPLITS[fold := int(plan_N["fold"][start])], int(plan_N["shard"][start]), num[fold]),
            start,
            stop,
            int(plan_N["bytes"][start:stop].sum()),
            group_P[int(plan_N["part"][start])] if group_P and fold == 0 else "",
        )
        for start, stop in pairwise(cuts)
    )


def text_hash(plan_N: np.ndarray) -> str:
    """Hash of planned text: keys and sources in order, with split and shard."""
    hasher = hashlib.sha256()
    for start in range(0, len(plan_N), _AT_ONCE):
        content_N = repack_fields(plan_N[start : start + _AT_ONCE][["high", "low", "source", "fold", "shard"]])
        hasher.update(content_N.tobytes())
    return hasher.hexdigest()
