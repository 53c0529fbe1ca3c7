"""Kernels of objectives: mlm, permutation_lm and span_corruption; denoising.py has the fourth.

They continue the generators of the masking, and return the columns of a Batch (schema.py). Targets of masked language
models are few, so kernels return their places and labels.
"""

from typing import NamedTuple

import numpy as np
from numba import int64

from preprocessing.compiled.masks import find_longest
from preprocessing.compiled.philox import draw_below, draw_double, fill_doubles
from preprocessing.jit import kernel
from preprocessing.schema import Bools, Floats, Ints


class Replacement(NamedTuple):
    """How selected tokens are replaced (objectives/mlm.py)."""

    mask: int
    mask_prob: float
    mask_or_random_prob: float
    by_span: bool  # one draw for all tokens of a unit
    from_row: bool  # random tokens are those of the sequence
    stream_T: Ints  # or of this text, unless it is empty
    num_ids: int  # or one of so many IDs ...
    ordinal_above: Ints  # ... of those that are not special: the number of ordinary IDs below each special one


@kernel
def draw_id(state: Ints, num_ids: int, ordinal_above: Ints) -> int:
    """mlm.ordinary_ids: one ID that is not special."""
    ordinal = draw_below(state, num_ids)
    number = ordinal
    for bound in ordinal_above:
        number += bound <= ordinal
    return number


@kernel
def replace_tokens(
    first_B1: Ints, ids_T: Ints, special_T: Bools, hit_T: Ints, states: Ints, how: Replacement
) -> tuple[Ints, Ints]:
    """MaskedLM: replaces in place, and returns the places of the targets and their labels, int64 [M] each."""
    total, longest = np.count_nonzero(hit_T), find_longest(first_B1)
    at_M, label_M = np.empty(total, np.int64), np.empty(total, np.int64)
    draws, ordinary_S = np.empty(longest), np.empty(longest, np.int64)
    stop_m = 0
    for b in range(len(states)):
        state, first_m, last_unit, num_ordinary = states[b], stop_m, 0, 0
        for t in range(first_B1[b], first_B1[b + 1]):
            if hit_T[t]:
                at_M[stop_m], label_M[stop_m] = t, ids_T[t]
                last_unit = max(last_unit, hit_T[t])
                stop_m += 1
            if how.from_row:
                ordinary_S[num_ordinary] = ids_T[t]
                num_ordinary += not special_T[t]
        fill_doubles(state, last_unit if how.by_span else stop_m - first_m, draws)
        for m in range(first_m, stop_m):
            drawn = draws[hit_T[at_M[m]] - 1 if how.by_span else m - first_m]
            if drawn < how.mask_prob:
                ids_T[at_M[m]] = how.mask
            elif drawn < how.mask_or_random_prob:
                if how.from_row:
                    ids_T[at_M[m]] = ordinary_S[draw_below(state, num_ordinary)]
                elif len(how.stream_T):
                    ids_T[at_M[m]] = how.stream_T[draw_below(state, len(how.stream_T))]
                else:
                    ids_T[at_M[m]] = draw_id(state, how.num_ids, how.ordinal_above)
    return at_M, label_M


@kernel
def shift(first_B1: Ints, ids_T: Ints, types_T: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """CausalLM: first_B1, inputs, token types and labels, each sequence without its last token."""
    num_rows = len(first_B1) - 1
    shifted_B1 = first_B1 - np.arange(num_rows + 1)
    total = shifted_B1[-1]
    input_T, type_T, label_T = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    for b in range(num_rows):
        for t in range(shifted_B1[b], shifted_B1[b + 1]):
            input_T[t], label_T[t], type_T[t] = ids_T[t + b], ids_T[t + b + 1], types_T[t + b]
    return shifted_B1, input_T, type_T, label_T


@kernel
def sort_blocks(value_S: Floats, count: int, size: int, stop_K: Ints, order_S: Ints) -> None:
    """np.argsort of the first `count` values, written to `order_S`: each is the number of its block plus a random part.

    A bucket sort, because the values of a block of `size` are uniform. `stop_K` is scratch for a number per bucket.
    """
    num_buckets = -(-count // size) * size
    stop_K[:num_buckets] = 0
    for s in range(count):
        stop_K[_find_bucket(value_S[s], s // size, size)] += 1
    total = 0
    for bucket in range(num_buckets):
        total += stop_K[bucket]
        stop_K[bucket] = total
    for s in range(count - 1, -1, -1):
        bucket = _find_bucket(value_S[s], s // size, size)
        stop_K[bucket] -= 1
        order_S[stop_K[bucket]] = s
    for i in range(1, count):  # insertion sort, mostly within buckets of one or two values
        s, place = order_S[i], i
        while place and value_S[order_S[place - 1]] > value_S[s]:
            order_S[place] = order_S[place - 1]
            place -= 1
        order_S[place] = s


@kernel
def _find_bucket(value: float, block: int, size: int) -> int:
    return block * size + min(int64((value - block) * size), size - 1)


@kernel
def permute(
    first_B1: Ints, ids_T: Ints, special_T: Bools, hit_T: Ints, states: Ints, perm_size: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """PermutationLM: places of targets and their labels, int64 [M], then rank and reach, int64 [T]."""
    total, longest = np.count_nonzero(hit_T), find_longest(first_B1)
    at_M, label_M = np.empty(total, np.int64), np.empty(total, np.int64)
    rank_T, reach_T = np.empty_like(ids_T), np.empty_like(ids_T)
    value_S, drawn_S, order_S, m = np.empty(longest), np.empty(longest, np.int64), np.empty(longest, np.int64), 0
    stop_K = np.empty(longest + perm_size, np.int64)
    for b in range(len(states)):
        first, num_tokens = first_B1[b], first_B1[b + 1] - first_B1[b]
        for s in range(num_tokens):
            value_S[s] = s // perm_size + draw_double(states[b])
        sort_blocks(value_S, num_tokens, perm_size, stop_K, order_S)
        for s in range(num_tokens):
            drawn_S[order_S[s]] = s
        for s in range(num_tokens):
            t, block, is_target = first + s, s // perm_size, hit_T[first + s] > 0
            index = drawn_S[s] + 1 if is_target or special_T[t] else int64(block * perm_size)
            rank_T[t] = block + index
            reach_T[t] = rank_T[t] - is_target
            if is_target:
                at_M[m], label_M[m] = t, ids_T[t]
                m += 1
    return at_M, label_M, rank_T, reach_T


@kernel
def corrupt_spans(
    first_B1: Ints, ids_T: Ints, hit_T: Ints, size: int, end: int, collapses: bool, predicts_all: bool
) -> tuple[Ints, Ints, Ints, Ints, int]:
    """SpanCorruption without random tokens: starts and IDs of the sources, those of the targets, and most sentinels."""
    num_rows, most = len(first_B1) - 1, 0
    source_B1, target_B1 = np.zeros(num_rows + 1, np.int64), np.zeros(num_rows + 1, np.int64)
    room = 2 * len(ids_T) + num_rows
    source_U, target_S, u, s = np.empty(room, np.int64), np.empty(room, np.int64), 0, 0
    for b in range(num_rows):
        was_hit, sentinels = False, 0
        for t in range(first_B1[b], first_B1[b + 1]):
            is_hit = hit_T[t] > 0
            if is_hit and not was_hit and collapses:
                sentinels += 1
                source_U[u] = size - sentinels
                u += 1
                if not predicts_all:
                    target_S[s] = size - sentinels
                    s += 1
            if not is_hit:
                source_U[u] = ids_T[t]
                u += 1
            elif predicts_all and not collapses:
                source_U[u] = size - 1
                u += 1
            if is_hit or predicts_all:
                target_S[s] = ids_T[t]
                s += 1
            was_hit = is_hit
        source_U[u], target_S[s] = end, end
        u, s, most = u + 1, s + 1, max(most, sentinels)
        source_B1[b + 1], target_B1[b + 1] = u, s
    return source_B1, source_U[:u].copy(), target_B1, target_S[:s].copy(), most


@kernel
def shift_right(first_B1: Ints, target_T: Ints, start: int) -> Ints:
    """seq2seq.two_sides: the decoder's input, which is `start` and then the targets of a sequence without the last."""
    input_T = np.empty_like(target_T)
    for b in range(len(first_B1) - 1):
        input_T[first_B1[b]] = start
        input_T[first_B1[b] + 1 : first_B1[b + 1]] = target_T[first_B1[b] : first_B1[b + 1] - 1]
    return input_T
