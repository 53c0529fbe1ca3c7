"""Kernels that count segment pairs without planning them; they decide as segment_pair.py. numba compiles them."""

from preprocessing.jit import kernel
from preprocessing.schema import Floats, Ints


@kernel
def advance_chunks(
    at_M1: Ints,
    bounds_N1: Ints,
    target_N: Ints,
    document_K: Ints,
    first_K: Ints,
    coin_K: Floats,
    split_K: Floats,
    is_segment: bool,
    releases: bool,
    negative_prob: float,
) -> int:
    """Move K documents past their next chunk, in place; return how many of them have sentences left, which come first.

    If it `releases`, the sentences after A of a negative pair start the next chunk.
    """
    left = 0
    for k in range(len(document_K)):
        document, first = document_K[k], first_K[k]
        end, goal = bounds_N1[document + 1], at_M1[first] + target_N[document]
        last = first + 2
        while last < end and at_M1[last] < goal:
            last += 1
        if is_segment and end - last == 1:
            last = end
        if releases and coin_K[k] < negative_prob:
            middle = first + 1 + int(split_K[k] * (last - first - 1))
            last = end if is_segment and end - middle == 1 else middle
        if last < (end if is_segment else end - 1):
            document_K[left], first_K[left] = document, last
            left += 1
    return left


@kernel
def advance_contiguous(at_M1: Ints, bounds_N1: Ints, target_K: Ints, document_K: Ints, first_K: Ints) -> int:
    """Move K documents past their next sequence of negatives `none`, in place; return how many have sentences left."""
    left = 0
    for k in range(len(document_K)):
        document, first = document_K[k], first_K[k]
        end, goal = bounds_N1[document + 1], at_M1[first] + target_K[k]
        last = first + 1
        while last < end and at_M1[last] < goal:
            last += 1
        if last < end:
            document_K[left], first_K[left] = document, last
            left += 1
    return left
