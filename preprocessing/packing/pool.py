"""A shard with others behind it on the same line: where the documents of one shard are too few to choose from."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from preprocessing.schema import Bools, Ints
from preprocessing.shards import Shard

ENOUGH: Final = 256
"""Documents from which a fair partner can be drawn; a shard of so many is its own pool, so that memory is bounded."""


class Pool:
    """The face of a shard over several: the first one's documents, then on the same line those to choose from.

    No part of a row reaches from one shard into another. What is joined is made when it is asked for and not kept.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        self.path, self.has_units = shards[0].path, shards[0].has_units
        self.begin_K: Ints = np.cumsum([0, *(int(shard.offset_N1[-1]) for shard in shards)])

    @property
    def own(self) -> int:
        """Documents of the first shard."""
        return len(self.shards[0].offset_N1) - 1

    @property
    def offset_N1(self) -> Ints:
        begun = [shard.offset_N1[:-1] + begin for shard, begin in zip(self.shards, self.begin_K[:-1], strict=True)]
        return np.concatenate([*begun, self.begin_K[-1:]])

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
        """The shard that has these places of the line, and which of its own they are."""
        k = int(np.searchsorted(self.begin_K[1:-1], start, side="right"))
        begin = int(self.begin_K[k])
        return self.shards[k], start - begin, stop - begin


def pools(shards: Sequence[Shard]) -> list[Shard | Pool]:
    """For each shard itself where it has ENOUGH documents, else a pool of it and as many of the next ones as it takes.

    After the last shard comes the first: where all shards together have too few, each pool has all of them.
    """
    found = list[Shard | Pool]()
    for first in range(len(shards)):
        taken, documents = list[Shard](), 0
        while documents < ENOUGH and len(taken) < len(shards):
            taken.append(shards[(first + len(taken)) % len(shards)])
            documents += len(taken[-1].offset_N1) - 1
        found.append(Pool(taken) if len(taken) > 1 else taken[0])
    return found
