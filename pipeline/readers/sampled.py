"""Places of an input that are read before all of it, and how many documents it has by these."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from pipeline.readers.reader import Reader
from pipeline.readers.splits import InputSplit, plan_splits, records

SAMPLE_BYTES: Final = 2 << 20  # half a second of reading
_PLACES: Final = 16


def pieces_of(sources: Sequence[Reader]) -> list[InputSplit]:
    """The pieces of the input that have text, each as a split of its own."""
    splits = plan_splits(sources)
    return [replace(split, pieces=(piece,)) for split in splits for piece in split.pieces if piece.file.size]


def size_of(splits: Sequence[InputSplit]) -> int:
    """About how many bytes of text they have."""
    return sum(split.weight for split in splits)


def spread(weight_N: Sequence[int]) -> list[int]:
    """Which of these lie at 16 places that are evenly far from each other.

    >>> spread([10, 10, 300]), spread([1] * 48)[:4]
    ([0, 2], [1, 4, 7, 10])
    """
    end_N = list(accumulate(weight_N))
    places = [(2 * number + 1) * end_N[-1] / (2 * _PLACES) for number in range(_PLACES)] if end_N else []
    return sorted({bisect_left(end_N, place) for place in places})


def about_how_many(sources: Sequence[Reader], least: int, most: int) -> int:
    """How many documents of `least` to `most` characters an input has; of more than 2 MB a guess by 16 places."""
    splits = pieces_of(sources)
    total = size_of(splits)
    chosen = splits if total <= SAMPLE_BYTES else [splits[at] for at in spread([split.weight for split in splits])]
    found, read = 0, 0
    for split in chosen:
        here = 0
        for record in records(split, most):
            here += record.size
            found += not record.fault and least <= len(record.text) <= most
            if total > SAMPLE_BYTES and here >= SAMPLE_BYTES // len(chosen):
                break
        read += here
    return found if total <= SAMPLE_BYTES else round(found * total / max(read, 1))
