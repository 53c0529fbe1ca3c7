"""Held-out documents as labeled examples; no token of them was used for training.

The key of a document decides whether it is used for training or for testing. So no document is used for both, and
the same corpus always gives the same task.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.shards import Shard, TokenStore
from preprocessing.tokenization import Vocab
from training.evaluation.tasks.part import LabeledExamples, interleave

MOST_TESTS: Final = 1000
FEWEST_ROWS: Final = 40  # minimum number of examples to train and score a model
FEWEST_TOKENS: Final = 4  # shorter documents and sentences are skipped


@dataclass(frozen=True)
class HeldOutDocument:
    """A held-out document."""

    source: str
    key: bytes
    ids: Ints
    sentence_at_M: Ints  # start positions of the sentences

    @property
    def is_test(self) -> bool:
        return self.key[-1] % 2 == 1

    def pair(self) -> tuple[Ints, Ints] | None:
        """Return two consecutive sentences, selected by the key; None if no two are long enough."""
        end_M = np.append(self.sentence_at_M, len(self.ids))
        long_M = np.diff(end_M) >= FEWEST_TOKENS
        first_M = np.flatnonzero(long_M[:-1] & long_M[1:])
        if len(first_M) == 0:
            return None
        first = first_M[int.from_bytes(self.key[:8]) % len(first_M)]
        start, boundary, stop = end_M[first : first + 3]
        return self.ids[start:boundary], self.ids[boundary:stop]


def read_held_out(store: TokenStore) -> Iterator[HeldOutDocument]:
    """Yield the documents of a split with at least FEWEST_TOKENS tokens."""
    for shard in store.shards:
        for i in range(len(shard)):
            if shard.num_tokens_N[i] >= FEWEST_TOKENS:
                yield _document(shard, i)


def _document(shard: Shard, i: int) -> HeldOutDocument:
    start, stop = shard.offset_N1[i : i + 2]
    first, last = np.searchsorted(shard.sentence_at_M, [start, stop])
    sentence_at_M = shard.sentence_at_M[first:last] - start
    return HeldOutDocument(shard.source(i), shard.key(i), shard.ids_T[start:stop].astype(np.int32), sentence_at_M)


def balance_classes(examples: list[tuple[Row, int]], num_classes: int) -> LabeledExamples:
    """Return equally many examples of each class, alternating; at most MOST_TESTS in total."""
    label_N = np.array([label for _, label in examples], np.int64)
    least = int(np.bincount(label_N, minlength=num_classes).min())
    index_N = interleave(label_N, np.arange(len(label_N)))[
        : min(least * num_classes, MOST_TESTS // num_classes * num_classes)
    ]
    return LabeledExamples([examples[i][0] for i in index_N], label_N[index_N])


def note_unread(few: int, of: int, why: str) -> tuple[str, ...]:
    """A note on documents that are not read; empty if there are none.

    >>> note_unread(3, 1_000, "documents are cut"), note_unread(0, 1_000, "documents are cut")
    (('3 of 1,000 documents are cut',), ())
    """
    return (f"{few:,} of {of:,} {why}",) if few else ()


def room_of_pairs(length: int) -> int:
    """The maximum tokens of each sentence of a pair, in sequences of `length` tokens."""
    return (length - 3) // 2


def row(vocab: Vocab, ids_S: Ints) -> Row:
    """A text as a sequence without labels."""
    before, behind, segment = vocab.around
    return _labelless([*before, *ids_S], behind, segment, num_first=0)


def pair_row(vocab: Vocab, first: Ints, second: Ints, length: int) -> Row:
    """A pair of sentences as a sequence; long sentences keep the tokens next to the boundary."""
    room, (before, behind, segment) = room_of_pairs(length), vocab.around
    head = [*before, *first[-room:], vocab.sep]
    return _labelless([*head, *second[:room]], behind, segment, num_first=len(head))


def _labelless(ids: list[int | None], behind: tuple[int, ...], segment: int, num_first: int) -> Row:
    """A sequence with special tokens at its end; the last one has its own segment if `segment` is above 0."""
    ids_S = np.array([*ids, *behind], np.int32)
    segments_S = np.zeros(len(ids_S), np.int8)
    segments_S[num_first or len(ids_S) :] = 1
    segments_S[-1] = segment or segments_S[-1]
    return {"input_ids": ids_S, "token_type_ids": segments_S, "labels": np.full(len(ids_S), IGNORE, np.int32)}
