"""Novelty: how many n-grams of what a net wrote its corpus has, and which documents a passage is from.

The shards of a corpus are read once, a block at a time; n-grams are compared by hashes of 64 bits. None crosses the end
of a document. Axes: T tokens of a block, N n-grams, H places at which the corpus has one of them.
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
    """N-grams of one size, each counted where it was written."""

    size: int
    written: int
    found: int  # those that the corpus has too

    @property
    def share(self) -> float:
        """Share of those that the corpus has; 0 where nothing is as long."""
        return self.found / self.written if self.written else 0.0


@dataclass(frozen=True)
class Passage:
    """A run of tokens that was written and that a document has, token for token; it goes on in neither direction."""

    start: int  # of the text that was written
    stop: int
    shard: str  # file name
    document: int  # number in the shard
    at: int  # token of the document at which it begins there
    source: str
    key: bytes  # of the document

    @property
    def tokens(self) -> int:
        """Its length."""
        return self.stop - self.start


def novelties(store: TokenStore, texts: Sequence[Ints], sizes: Sequence[int] = (1, 2, 3, 4, 5, 8, 13)) -> list[Novelty]:
    """The n-grams of texts, as token ids of the corpus's vocabulary, that a split of the corpus has: for each size."""
    written = {size: np.concatenate([_hashes(ids, size) for ids in texts] or [_hashes([], size)]) for size in sizes}
    wanted = {size: np.unique(hash_N) for size, hash_N in written.items()}
    found: dict[int, list[Hashes]] = {size: [] for size in sizes}
    for shard in store.shards:
        for size, first, hash_T in _blocks(shard, sizes):
            place_H = np.flatnonzero(_among(hash_T, wanted[size]))
            inside_H = place_H[_inside(shard, first + place_H, size)]
            found[size].append(np.unique(hash_T[inside_H]))
    hits = {size: np.isin(written[size], np.concatenate(found[size])) for size in sizes}
    return [Novelty(size, len(written[size]), int(hits[size].sum())) for size in sizes]


def find(store: TokenStore, ids: Ints, *, least: int = 8, most: int = 10) -> list[Passage]:
    """The longest passages of a text, of `least` tokens or more, that documents of the corpus have, the longest first.

    A passage that several documents have is there for each of them, in the order of the shards; `most` are given.
    """
    passages = [passage for shard in store.shards for passage in _passages(shard, np.asarray(ids), least)]
    return sorted(passages, key=lambda passage: -passage.tokens)[:most]


def _passages(shard: Shard, ids_S: Ints, least: int) -> Iterator[Passage]:
    """All passages of a shard that go on in neither direction.

    An n-gram at the same distance from its place in the text as the n-gram before it makes that one's passage longer.
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
    """Size, the place of the first one, and the hashes of all n-grams of a block, for each size and block."""
    for first in range(0, shard.num_tokens, TOKENS_AT_ONCE):
        token_T = _mixed(shard.ids_T[first : first + TOKENS_AT_ONCE + max(sizes) - 1])
        for size in sizes:
            yield size, first, _ngrams(token_T[: TOKENS_AT_ONCE + size - 1], size)


def _hashes(ids: Ints | Sequence[int], size: int) -> Hashes:
    """Hashes of the n-grams of a text; none where it is shorter."""
    return _ngrams(_mixed(np.asarray(ids, np.int64)), size)


def _ngrams(token_T: Hashes, size: int) -> Hashes:
    """A hash for each n-gram of hashed tokens: a polynomial in an odd number, modulo 2**64."""
    hash_N = np.zeros(max(len(token_T) - size + 1, 0), np.uint64)
    for offset in range(size if len(hash_N) else 0):
        hash_N = hash_N * np.uint64(0x9E3779B97F4A7C15) + token_T[offset : offset + len(hash_N)]
    return hash_N


def _mixed(ids_T: Ints) -> Hashes:
    """A hash for each token: small numbers made large (Steele et al. 2014, SplitMix64)."""
    x = ids_T.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _among(hash_T: Hashes, sorted_N: Hashes) -> np.ndarray:
    """Which of many hashes are among a few that are sorted: np.isin would sort the many."""
    if len(sorted_N) == 0:
        return np.zeros(len(hash_T), np.bool_)
    return sorted_N[np.searchsorted(sorted_N, hash_T).clip(max=len(sorted_N) - 1)] == hash_T


def _document_of(shard: Shard, at_H: Ints) -> Ints:
    """Number of the document that each place of a shard is in."""
    return np.searchsorted(shard.offset_N1, at_H, side="right") - 1


def _inside(shard: Shard, at_H: Ints, size: int) -> np.ndarray:
    """Whether the n-grams at these places are of one document."""
    return shard.offset_N1[_document_of(shard, at_H) + 1] >= at_H + size
