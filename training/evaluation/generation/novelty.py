"""Novelty: the fraction of generated n-grams that are in the corpus, and the documents that contain a passage.

The shards of a corpus are read once, one block at a time. N-grams are compared by 64-bit hashes, and none crosses
the end of a document. Axes: T tokens of a block, N n-grams, H hits, the positions where the corpus has one of the
n-grams.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from preprocessing.schema import Ints
from preprocessing.shards import Shard, TokenStore

Hashes: TypeAlias = npt.NDArray[np.uint64]
TOKENS_AT_ONCE: Final = 1 << 20


class Novelty(NamedTuple):
    """Counts of generated n-grams of one size, with repetitions."""

    size: int
    written: int
    found: int  # n-grams that are also in the corpus

    @property
    def share(self) -> float:
        """Fraction of the n-grams that are in the corpus; 0 if all texts are shorter than the size."""
        return self.found / self.written if self.written else 0.0


@dataclass(frozen=True)
class Passage:
    """A maximal run of generated tokens that a document contains, token for token."""

    start: int  # first token in the generated text
    stop: int
    shard: str  # file name
    document: int  # number in the shard
    at: int  # first token in the document
    source: str
    key: bytes  # key of the document

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return self.stop - self.start


def novelties(store: TokenStore, texts: Sequence[Ints], sizes: Sequence[int] = (1, 2, 3, 4, 5, 8, 13)) -> list[Novelty]:
    """Count the n-grams of the texts that are in a split of the corpus, for each size.

    The texts are token IDs of the corpus's vocabulary.
    """
    written = {size: np.concatenate([_hashes(ids, size) for ids in texts] or [_hashes([], size)]) for size in sizes}
    distinct = {size: np.unique(hash_N) for size, hash_N in written.items()}
    found: dict[int, list[Hashes]] = {size: [] for size in sizes}
    for shard in store.shards:
        for size, first, hash_T in _blocks(shard, sizes):
            place_H = np.flatnonzero(_among(hash_T, distinct[size]))
            inside_H = place_H[_inside(shard, first + place_H, size)]
            found[size].append(np.unique(hash_T[inside_H]))
    hits = {size: np.isin(written[size], np.concatenate(found[size])) for size in sizes}
    return [Novelty(size, len(written[size]), int(hits[size].sum())) for size in sizes]


def find(store: TokenStore, ids: Ints, *, least: int = 8, most: int = 10) -> list[Passage]:
    """Return the `most` longest passages of at least `least` tokens that documents of the corpus contain, longest
    first.

    A passage in several documents is returned once per document, in the order of the shards.
    """
    passages = [passage for shard in store.shards for passage in _passages(shard, np.asarray(ids), least)]
    return sorted(passages, key=lambda passage: -passage.tokens)[:most]


def _passages(shard: Shard, ids_S: Ints, least: int) -> Iterator[Passage]:
    """Yield all maximal passages of a shard.

    Two consecutive n-grams of the document belong to one passage if they are also consecutive in the text.
    """
    hash_N = _hashes(ids_S, least)
    order_N = np.argsort(hash_N, kind="stable")
    sorted_N, pairs = hash_N[order_N], [np.zeros((0, 2), np.int64)]
    for _, first, hash_T in _blocks(shard, (least,)):
        begin_T, end_T = (np.searchsorted(sorted_N, hash_T, side) for side in ("left", "right"))
        place_H = np.flatnonzero(end_T > begin_T)
        place_H = place_H[_inside(shard, first + place_H, least)]
        times_H = (end_T - begin_T)[place_H]
        nth = np.arange(times_H.sum()) - np.repeat(times_H.cumsum() - times_H, times_H)
        text_at = order_N[np.repeat(begin_T[place_H], times_H) + nth]
        pairs.append(np.stack([first + np.repeat(place_H, times_H), text_at], axis=1))
    corpus_at, text_at = np.concatenate(pairs).T
    document_H = _document_of(shard, corpus_at)
    by_run = np.lexsort((text_at, document_H, corpus_at - text_at))
    corpus_at, text_at, document_H = corpus_at[by_run], text_at[by_run], document_H[by_run]
    same = (np.diff(corpus_at - text_at) == 0) & (np.diff(document_H) == 0) & (np.diff(text_at) == 1)
    first_of = np.flatnonzero(np.r_[True, ~same][: len(text_at)])
    lengths = np.diff(np.r_[first_of, len(text_at)]) + least - 1
    runs = zip(first_of.tolist(), lengths.tolist(), strict=True)
    for at, length in sorted(runs, key=lambda run: (corpus_at[run[0]], text_at[run[0]])):
        place, start, document = int(corpus_at[at]), int(text_at[at]), int(document_H[at])
        if np.array_equal(shard.ids_T[place : place + length], ids_S[start : start + length]):
            in_document = place - int(shard.offset_N1[document])
            about = shard.path.name, document, in_document, shard.source(document), shard.key(document)
            yield Passage(start, start + length, *about)


def _blocks(shard: Shard, sizes: Sequence[int]) -> Iterator[tuple[int, int, Hashes]]:
    """Yield the size, the position of the first n-gram, and the hashes of all n-grams, for each block and size."""
    for first in range(0, shard.num_tokens, TOKENS_AT_ONCE):
        token_T = _hash_tokens(shard.ids_T[first : first + TOKENS_AT_ONCE + max(sizes) - 1])
        for size in sizes:
            yield size, first, _ngrams(token_T[: TOKENS_AT_ONCE + size - 1], size)


def _hashes(ids: Ints | Sequence[int], size: int) -> Hashes:
    """Hashes of the n-grams of a text; empty if the text is shorter than `size`."""
    return _ngrams(_hash_tokens(np.asarray(ids, np.int64)), size)


def _ngrams(token_T: Hashes, size: int) -> Hashes:
    """One hash per n-gram of hashed tokens: a polynomial in an odd number, modulo 2**64."""
    hash_N = np.zeros(max(len(token_T) - size + 1, 0), np.uint64)
    for offset in range(size if len(hash_N) else 0):
        hash_N = hash_N * np.uint64(0x9E3779B97F4A7C15) + token_T[offset : offset + len(hash_N)]
    return hash_N


def _hash_tokens(ids_T: Ints) -> Hashes:
    """One 64-bit hash per token (SplitMix64, Steele et al. 2014)."""
    x = ids_T.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _among(hash_T: Hashes, sorted_N: Hashes) -> np.ndarray:
    """Bool [T]: whether each hash is among the sorted ones. np.isin is slower here, because it sorts the long array."""
    if len(sorted_N) == 0:
        return np.zeros(len(hash_T), np.bool_)
    return sorted_N[np.searchsorted(sorted_N, hash_T).clip(max=len(sorted_N) - 1)] == hash_T


def _document_of(shard: Shard, at_H: Ints) -> Ints:
    """Index of the document that contains each position of a shard."""
    return np.searchsorted(shard.offset_N1, at_H, side="right") - 1


def _inside(shard: Shard, at_H: Ints, size: int) -> np.ndarray:
    """Whether the n-gram at each position lies inside one document."""
    return shard.offset_N1[_document_of(shard, at_H) + 1] >= at_H + size
