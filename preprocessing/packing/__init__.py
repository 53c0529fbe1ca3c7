"""Packing. It selects the token ranges of a shard that form each sequence, and the special tokens around them.

`plan` computes the ranges of a whole shard at once and reads no token; `row` reads one sequence of a plan. Read
packing_plan.py and part.py first, then contiguous.py. The other kinds are in best_fit.py, segment_pair.py, stream.py,
single_sentence.py and parallel.py; pool.py combines shards. To add a kind, add one file here and one member to the
union `Packing` below, which is the registry.
"""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from preprocessing.imports import has_compiler
from preprocessing.packing.best_fit import BestFit
from preprocessing.packing.contiguous import Contiguous
from preprocessing.packing.packing_plan import PackingPlan
from preprocessing.packing.parallel import ParallelSentences
from preprocessing.packing.part import CountingPacking, PackingPart, ReversiblePacking
from preprocessing.packing.pool import Pool, join_shards, pools
from preprocessing.packing.segment_pair import SegmentPair
from preprocessing.packing.single_sentence import SingleSentence
from preprocessing.packing.stream import Stream, StreamPair
from preprocessing.shards import Shard

__all__ = [
    "BestFit",
    "Contiguous",
    "Packing",
    "PackingPart",
    "PackingPlan",
    "ParallelSentences",
    "Pool",
    "SegmentPair",
    "SingleSentence",
    "Stream",
    "StreamPair",
    "count_rows",
    "lines_of",
    "plans_of",
]

Packing = Contiguous | BestFit | SegmentPair | Stream | StreamPair | SingleSentence | ParallelSentences


def _has_every_fact(packing: Packing) -> PackingPart:
    return packing  # type error if a member lacks an attribute of PackingPart


def lines_of(packing: Packing, shards: Sequence[Shard]) -> tuple[Shard, ...]:
    """Return the token lines to plan: the shards, their pools with partner documents, or pools of small shards."""
    pooled = join_shards(shards) if packing.joins_shards else pools(shards) if packing.partners else shards
    return tuple(cast(Sequence[Shard], pooled))


def plans_of(
    packing: Packing, lines: Sequence[Shard], length: int, lookahead: int, draws: Callable[[int], np.random.Generator]
) -> tuple[PackingPlan, ...]:
    """Return a plan of each line, and a second plan from its end if the packing reads the text in both directions.

    The forward plans come first. `draws(k)` returns the random generator of the k-th plan.
    """
    plans = [packing.plan(shard, length, lookahead, draws(k)) for k, shard in enumerate(lines)]
    if packing.both_ways:
        plans += [
            cast(ReversiblePacking, packing).plan(shard, length, lookahead, draws(k), backward=True)
            for k, shard in enumerate(lines, start=len(lines))
        ]
    return tuple(plans)


def count_rows(
    packing: Packing,
    lines: Sequence[Shard],
    length: int,
    lookahead: int,
    draws: Callable[[int], np.random.Generator],
) -> int | None:
    """Return the number of sequences of `plans_of`; None if no kernel counts them without plans."""
    if not packing.counts_alone or not has_compiler():
        return None
    return sum(
        cast(CountingPacking, packing).count(shard, length, lookahead, draws(k)) for k, shard in enumerate(lines)
    )
