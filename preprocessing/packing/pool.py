"""Pools of several shards, for packings that combine documents when one shard has too few."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from preprocessing.schema import Bools, Ints
from preprocessing.shards import Shard

ENOUGH: Final = 256
"""Number of documents that suffices for random partners. Larger shards use no pool, which bounds the memory."""

ENOUGH_TOKENS: Final = 1 << 22
"""Number of tokens that suffices to fill sequences of 8,192 by best fit: 512 of them, of which the last may be empty.
Larger shards are packed alone, which bounds the memory of a plan."""


class Pool:
    """Several shards with the interface of one. For partners: first the shard to pack, then the shards with partners.

    No part of a sequence may cross a shard boundary. Joined arrays are computed on each access and not stored.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        self.path, self.has_units = shards[0].path, shards[0].has_units
        self.begin_K: Ints = np.cumsum([0, *(int(shard.offset_N1[-1]) for shard in shards)])

    @property
    def own(self) -> int:
        """Number of documents of the first shard."""
        return len(self.shards[0].offset_N1) - 1

    @property
    def offset_N1(self) -> Ints:
        offsets = [shard.offset_N1[:-1] + begin for shard, begin in zip(self.shards, self.begin_K[:-1], strict=True)]
        return np.concatenate([*offsets, self.begin_K[-1:]])

    @property
    def sentence_at_M(self) -> Ints:
        pairs = zip(self.shards, self.begin_K[:-1], strict=True)
        return np.concatenate([shard.sentence_at_M + begin for shard, begin in pairs])

    @property
    def ids_T(self) -> "Pool":
        return self

    def __getitem__(self, tokens: slice) -> Ints:
        shard, start, stop = self._at(tokens.start, tokens.stop)
        return shard.ids_T[start:stop]

    def word_starts(self, start: int, stop: int) -> Bools:
        shard, start, stop = self._at(start, stop)
        return shard.word_starts(start, stop)

    def unit_starts(self, start: int, stop: int) -> Bools:
        shard, start, stop = self._at(start, stop)
        return shard.unit_starts(start, stop)

    def sentence_starts(self, start: int, stop: int) -> Bools:
        shard, start, stop = self._at(start, stop)
        return shard.sentence_starts(start, stop)

    def _at(self, start: int, stop: int) -> tuple[Shard, int, int]:
        """Return the shard that contains these positions of the line, and the positions within that shard."""
        k = int(np.searchsorted(self.begin_K[1:-1], start, side="right"))
        begin = int(self.begin_K[k])
        return self.shards[k], start - begin, stop - begin


def pools(shards: Sequence[Shard]) -> list[Shard | Pool]:
    """Return each shard that has ENOUGH documents, and for each other shard a pool of it and the shards after it.

    A pool has as few shards as give ENOUGH documents; the first shard follows the last. If all shards together have
    fewer documents, each pool has all shards.
    """
    result = list[Shard | Pool]()
    for first in range(len(shards)):
        members, documents = list[Shard](), 0
        while documents < ENOUGH and len(members) < len(shards):
            members.append(shards[(first + len(members)) % len(shards)])
            documents += len(members[-1].offset_N1) - 1
        result.append(Pool(members) if len(members) > 1 else members[0])
    return result


def join_shards(shards: Sequence[Shard]) -> list[Shard | Pool]:
    """Return the shards, each in exactly one line; consecutive small shards share a pool of ENOUGH_TOKENS or more.

    If all shards together have fewer tokens, one pool has all of them.
    """
    result, members, tokens = list[list[Shard]](), list[Shard](), 0
    for shard in shards:
        members.append(shard)
        tokens += int(shard.offset_N1[-1])
        if tokens >= ENOUGH_TOKENS:
            result.append(members)
            members, tokens = [], 0
    if members:
        result[-1:] = [[*(result[-1] if result else []), *members]]
    return [Pool(one) if len(one) > 1 else one[0] for one in result]
