"""Downstream tasks made from a corpus' own held-out documents: no download, and no token of them was trained on.

    source    which source (package, file) is this document from
    follows   does the second sentence follow the first, or is it from a document of another source

Which document serves for labelled rows and which for the test is decided by its key: no document serves for both, and
the same corpus always makes the same task.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from preprocessing.errors import DataError
from preprocessing.rng import key
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.shards import Shard, Store
from preprocessing.vocab import Vocab

LENGTH: Final = 64  # most tokens of a row, special tokens included; a net with fewer positions gets shorter rows
MOST_TESTS: Final = 1000
MOST_CLASSES: Final = 8
FEWEST_ROWS: Final = 40  # with less there is nothing to learn from and nothing to score
FEWEST_TOKENS: Final = 4  # shorter documents and sentences say nothing


@dataclass(frozen=True)
class Examples:
    """Rows and the class of each."""

    rows: list[Row]
    label_N: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index_N: Ints) -> "Examples":
        return Examples([self.rows[i] for i in index_N], self.label_N[index_N])


@dataclass(frozen=True)
class Task:
    """A classification: `pool` is what labelled rows are drawn from, `test` is for the score alone. Classes are equally
    frequent in both, so `chance` is what a guess gets."""

    name: str
    classes: tuple[str, ...]
    pool: Examples
    test: Examples

    @property
    def chance(self) -> float:
        return 1 / len(self.classes)

    def labelled(self, num: int, seed: int) -> Examples:
        """`num` rows of the pool, the same for the same seed, every class equally often (give or take one)."""
        if num > len(self.pool):
            raise DataError(
                f"task {self.name}: {num} labelled rows were asked for, the held-out documents make {len(self.pool)}; "
                f"ask for fewer labels, or hold out more of the corpus (test: in its file)"
            )
        order_N = key(seed, "task").at(epoch=0, sample=0).permutation(len(self.pool))
        return self.pool.take(_interleaved(self.pool.label_N, order_N)[:num])


def source(store: Store, vocab: Vocab, length: int = LENGTH) -> Task:
    """Which source is this document from: so many of the most frequent ones as make the most rows, all equally many."""
    documents = list(_documents(store))
    counted = Counter(document.source for document in documents)
    frequent = sorted(counted, key=lambda name: (-counted[name], name))[:MOST_CLASSES]
    rows_by_classes = {num: num * counted[frequent[num - 1]] for num in range(2, len(frequent) + 1)}
    num_classes = max(rows_by_classes, key=rows_by_classes.__getitem__, default=0)
    if rows_by_classes.get(num_classes, 0) < FEWEST_ROWS:
        raise DataError(
            f"task source: the held-out documents of {store.folder} have {len(counted)} source(s), with "
            "too few of each; hold out more of the corpus (test: in its file), or leave this task out"
        )
    classes = tuple(frequent[:num_classes])
    halves: tuple[list[tuple[Row, int]], ...] = ([], [])
    for document in documents:
        if document.source in classes:
            halves[document.is_test].append((_row(vocab, document.ids[: length - 2]), classes.index(document.source)))
    return Task("source", classes, *(_balanced(half, len(classes)) for half in halves))


def follows(store: Store, vocab: Vocab, length: int = LENGTH) -> Task:
    """Does this sentence follow that one: one pair of each document, half of them with a stranger's second sentence."""
    halves: tuple[list[tuple[str, Ints, Ints]], ...] = ([], [])
    for document in _documents(store):
        if pair := document.pair():
            halves[document.is_test].append((document.source, *pair))
    if (num_pairs := sum(map(len, halves))) < FEWEST_ROWS:
        raise DataError(
            f"task follows: {num_pairs} held-out documents of {store.folder} have two sentences; "
            "hold out more of the corpus (test: in its file), or leave this task out"
        )
    classes = ("next", "other")
    return Task("follows", classes, *(_balanced(_half_strange(half, vocab, length), 2) for half in halves))


TASKS: Final[dict[str, Callable[[Store, Vocab, int], Task]]] = {"source": source, "follows": follows}


@dataclass(frozen=True)
class _Document:
    source: str
    key: bytes
    ids: Ints
    sentence_at_M: Ints  # where its sentences begin

    @property
    def is_test(self) -> bool:
        return self.key[-1] % 2 == 1

    def pair(self) -> tuple[Ints, Ints] | None:
        """Two neighbouring sentences, which the key picks; None: there are no two that are long enough."""
        end_M = np.append(self.sentence_at_M, len(self.ids))
        long_M = np.diff(end_M) >= FEWEST_TOKENS
        first_M = np.flatnonzero(long_M[:-1] & long_M[1:])
        if len(first_M) == 0:
            return None
        first = first_M[int.from_bytes(self.key[:8]) % len(first_M)]
        start, seam, stop = end_M[first : first + 3]
        return self.ids[start:seam], self.ids[seam:stop]


def _documents(store: Store) -> Iterator[_Document]:
    for shard in store.shards:
        for i in range(len(shard)):
            if shard.num_tokens_N[i] >= FEWEST_TOKENS:
                yield _document(shard, i)


def _document(shard: Shard, i: int) -> _Document:
    start, stop = shard.offset_N1[i : i + 2]
    first, last = np.searchsorted(shard.sentence_at_M, [start, stop])
    sentence_at_M = shard.sentence_at_M[first:last] - start
    return _Document(shard.source(i), shard.key(i), shard.ids_T[start:stop].astype(np.int32), sentence_at_M)


def _half_strange(pairs: list[tuple[str, Ints, Ints]], vocab: Vocab, length: int) -> list[tuple[Row, int]]:
    """Every other pair gets the second sentence of another pair, of another source where there are several.

    Second sentences are drawn from second sentences: one alone tells nothing about the answer.
    """
    sources = [source for source, _, _ in pairs]
    rng = key(0, "task").at(epoch=1, sample=0)
    examples = []
    for i, (source, first, second) in enumerate(pairs):
        if strange := i % 2:
            other = int(rng.integers(len(pairs)))
            while other == i or (sources[other] == source and len(set(sources)) > 1):
                other = int(rng.integers(len(pairs)))
            second = pairs[other][2]
        examples.append((_pair_row(vocab, first, second, length), strange))
    return examples


def _balanced(examples: list[tuple[Row, int]], num_classes: int) -> Examples:
    """The same number of each class, in an order in which they take turns; at most MOST_TESTS."""
    label_N = np.array([label for _, label in examples], np.int64)
    least = int(np.bincount(label_N, minlength=num_classes).min())
    index_N = _interleaved(label_N, np.arange(len(label_N)))[
        : min(least * num_classes, MOST_TESTS // num_classes * num_classes)
    ]
    return Examples([examples[i][0] for i in index_N], label_N[index_N])


def _interleaved(label_N: Ints, order_N: Ints) -> Ints:
    """`order_N` rearranged so that the classes take turns, for as long as each has some.

    >>> _interleaved(np.array([0, 0, 0, 1, 1]), np.array([4, 3, 2, 1, 0])).tolist()
    [2, 4, 1, 3, 0]
    """
    label_N = label_N[order_N]
    turn_N = np.zeros(len(label_N), np.int64)
    for label in np.unique(label_N):
        mine = label_N == label
        turn_N[mine] = np.arange(mine.sum())
    return order_N[np.lexsort((label_N, turn_N))]


def _row(vocab: Vocab, ids_S: Ints) -> Row:
    return _labelless([*_first(vocab), *ids_S, vocab.sep], num_first=0)


def _pair_row(vocab: Vocab, first: Ints, second: Ints, length: int) -> Row:
    """Sentences before and after the seam, as many tokens of each as there is room for."""
    room = (length - 3) // 2
    head = [*_first(vocab), *first[-room:], vocab.sep]
    return _labelless([*head, *second[:room], vocab.sep], num_first=len(head))


def _first(vocab: Vocab) -> list[int]:
    """[CLS], where the vocabulary has one: a decoder's rows begin with their text and end with end-of-text."""
    return [] if vocab.cls is None else [vocab.cls]


def _labelless(ids: list[int | None], num_first: int) -> Row:
    ids_S = np.array(ids, np.int32)
    segments_S = (np.arange(len(ids)) >= num_first).astype(np.int8) if num_first else np.zeros(len(ids), np.int8)
    return {"ids": ids_S, "segments": segments_S, "labels": np.full(len(ids), IGNORE, np.int32)}
