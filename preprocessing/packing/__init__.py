"""Packing: the token ranges of a shard that form each sequence, and the special tokens around them.

`plan` computes the ranges of a whole shard at once and reads no token; `row` reads one sequence of a plan. Read
packing_plan.py and part.py first, then contiguous.py. segment_pair.py (with pool.py), stream.py, single_sentence.py and
parallel.py are the other kinds. A kind is one file here and one line in the union below, which is the registry.
"""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from preprocessing.packing.contiguous import Contiguous
from preprocessing.packing.packing_plan import PackingPlan
from preprocessing.packing.parallel import ParallelSentences
from preprocessing.packing.part import PackingPart, ReversiblePacking
from preprocessing.packing.pool import pools
from preprocessing.packing.segment_pair import SegmentPair
from preprocessing.packing.single_sentence import SingleSentence
from preprocessing.packing.stream import Stream, StreamPair
from preprocessing.shards import Shard

__all__ = [
    "Contiguous",
    "Packing",
    "PackingPart",
    "PackingPlan",
    "ParallelSentences",
    "SegmentPair",
    "SingleSentence",
    "Stream",
    "StreamPair",
    "lines_of",
    "plans_of",
]

Packing = Contiguous | SegmentPair | Stream | StreamPair | SingleSentence | ParallelSentences


def _has_every_fact(packing: Packing) -> PackingPart:
    return packing  # a member without a fact is a type error here


def lines_of(packing: Packing, shards: Sequence[Shard]) -> tuple[Shard, ...]:
    """What is planned, a line of tokens for each shard: the shard, or where rows take partners from it the pool."""
    return tuple(cast(Sequence[Shard], pools(shards)) if packing.partners else shards)


def plans_of(
    packing: Packing, lines: Sequence[Shard], length: int, lookahead: int, draws: Callable[[int], np.random.Generator]
) -> tuple[PackingPlan, ...]:
    """A plan of each line, and where the text is read both ways one more of each, which reads it from its end.

    Those that read forward stand first. `draws(k)` is the generator of the k-th plan.
    """
    plans = [packing.plan(shard, length, lookahead, draws(k)) for k, shard in enumerate(lines)]
    if packing.both_ways:
        plans += [
            cast(ReversiblePacking, packing).plan(shard, length, lookahead, draws(k), backward=True)
            for k, shard in enumerate(lines, start=len(lines))
        ]
    return tuple(plans)
