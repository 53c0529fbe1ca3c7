"""Samples of an input before it is read completely, and an estimate of its number of documents."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from pipeline.readers.reader import Reader
from pipeline.readers.splits import InputSplit, plan_splits, records

SAMPLE_BYTES: Final = 2 << 20  # takes half a second to read
_PLACES: Final = 16
_SAMPLED: Final = 128  # splits to read of an input above SAMPLE_BYTES, besides its large ones


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
    end_N = list(accumulate(weight_N))
    places = [(2 * number + 1) * end_N[-1] / (2 * _PLACES) for number in range(_PLACES)] if end_N else []
    return sorted({bisect_left(end_N, place) for place in places})


def about_how_many(sources: Sequence[Reader], least: int, most: int) -> int:
    """Number of documents with `least` to `most` characters; above 2 MB of input, an estimate from a sample.

    The sample is the beginning of each large split, and of 128 of the others. A split is large if it has 1/128 of the
    input. The others count equally, because a split may be one document, whatever its size.
    """
    splits = pieces_of(sources)
    total = size_of(splits)
    if total <= SAMPLE_BYTES:
        return round(sum(_count(split, least, most, SAMPLE_BYTES) for split in splits))
    large = [split for split in splits if split.weight * _SAMPLED >= total]
    others = [split for split in splits if split.weight * _SAMPLED < total]
    sampled = others[:: -(-len(others) // _SAMPLED)] if others else []
    limit = SAMPLE_BYTES // (len(large) + len(sampled))
    num = sum(_count(split, least, most, limit) for split in sampled) * len(others) / max(len(sampled), 1)
    return round(num + sum(_count(split, least, most, limit) for split in large))


def _count(split: InputSplit, least: int, most: int, limit: int) -> float:
    """Number of documents with `least` to `most` characters in a split, extrapolated from about its first `limit`
    bytes."""
    num = read = 0
    for record in records(split, most):
        read += record.size
        num += not record.fault and least <= len(record.text) <= most
        if read >= limit:
            return num * max(split.weight / read, 1)
    return num
