"""Samples of an input before it is read completely, and an estimate of its number of documents."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from pipeline.readers.reader import Reader
from pipeline.readers.splits import InputSplit, plan_splits, records

SAMPLE_BYTES: Final = 2 << 20  # takes half a second to read
_PLACES: Final = 16
_MOST_PLACES: Final = 256


def pieces_of(sources: Sequence[Reader]) -> list[InputSplit]:
    """The ranges of the input that are not empty, each as a split."""
    splits = plan_splits(sources)
    return [replace(split, pieces=(piece,)) for split in splits for piece in split.pieces if piece.file.size]


def size_of(splits: Sequence[InputSplit]) -> int:
    """Approximate number of bytes of text in the splits."""
    return sum(split.weight for split in splits)


def spread(weight_N: Sequence[int]) -> list[int]:
    """Indices of the elements at 16 equally spaced positions, weighted by size.

    >>> spread([10, 10, 300]), spread([1] * 48)[:4]
    ([0, 2], [1, 4, 7, 10])
    """
    return sorted(set(_at_positions(weight_N, _PLACES)))


def about_how_many(sources: Sequence[Reader], least: int, most: int) -> int:
    """Number of documents with `least` to `most` characters; above 2 MB of input, an estimate from a sample.

    The sample is read at 16 to 256 equally spaced positions of the input. A position is in a split with a probability
    proportional to its size, so the estimate is the mean number of documents per byte over the positions, times the
    size of the input (the estimator of Hansen and Hurwitz, 1943).
    """
    splits = pieces_of(sources)
    total = size_of(splits)
    if total <= SAMPLE_BYTES:
        return sum(_count(split, least, most, SAMPLE_BYTES)[0] for split in splits)
    places = min(max(SAMPLE_BYTES * len(splits) // total, _PLACES), _MOST_PLACES)
    chosen = Counter(_at_positions([split.weight for split in splits], places))
    rate = 0.0
    for at, times in chosen.items():
        num, read = _count(splits[at], least, most, SAMPLE_BYTES // len(chosen))
        rate += times * num / max(read, 1)
    return round(total * rate / places)


def _at_positions(weight_N: Sequence[int], places: int) -> list[int]:
    """The index of the element at each of `places` equally spaced positions, weighted by size."""
    end_N = list(accumulate(weight_N))
    positions = [(2 * number + 1) * end_N[-1] / (2 * places) for number in range(places)] if end_N else []
    return [bisect_left(end_N, position) for position in positions]


def _count(split: InputSplit, least: int, most: int, limit: int) -> tuple[int, int]:
    """Number of documents with `least` to `most` characters in the first `limit` bytes of a split, and the bytes
    read."""
    num = read = 0
    for record in records(split, most):
        read += record.size
        num += not record.fault and least <= len(record.text) <= most
        if read >= limit:
            break
    return num, read
