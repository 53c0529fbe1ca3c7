"""The kernel of the objective denoising (BART)."""

from typing import NamedTuple

import numpy as np
from numba import int64

from preprocessing.compiled.masks import find_longest
from preprocessing.compiled.objectives import draw_id
from preprocessing.compiled.philox import draw_below, draw_double, draw_poisson, fill_doubles, shuffle
from preprocessing.jit import kernel
from preprocessing.schema import Bools, Floats, Ints


class Noise(NamedTuple):
    """The keys of objectives/denoising.py, and tables of rounded numbers."""

    permutes: bool
    masks: bool
    deletes: bool
    infills: bool
    rotates: bool
    mask: int
    random_prob: float
    num_ids: int  # for random tokens, as in objectives.Replacement
    ordinal_above: Ints
    num_masked_S1: Ints  # by number of ordinary tokens, or of words for text_infilling: the number to mask
    num_moved_S1: Ints  # by number of sentences: the number that change places
    moves_all: bool
    num_lengths_S1: Ints  # by number of words to mask: the number of lengths that are drawn first
    threshold: float  # exp(-poisson_lambda)


class Scratch(NamedTuple):
    """Arrays for one sequence."""

    first_S: Ints
    second_S: Ints
    order_S: Ints
    draw_S: Floats
    run_S1: Ints
    is_new_S: Bools


@kernel
def denoise(
    first_B1: Ints,
    ids_T: Ints,
    special_T: Bools,
    word_starts_T: Bools,
    sentence_starts_T: Bools,
    states: Ints,
    how: Noise,
) -> tuple[Ints, Ints]:
    """Denoising: starts of the sources, int64 [B + 1], and their concatenated IDs, int64 [U]."""
    room = find_longest(first_B1) + 1
    source_B1, source_U, u = np.zeros(len(first_B1), np.int64), np.empty(len(ids_T) + 1, np.int64), 0
    ids_S, starts_S, order_S = np.empty(room, np.int64), np.empty(room, np.bool_), np.empty(room, np.int64)
    scratch = Scratch(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room),
        np.empty(room, np.int64),
        np.empty(room, np.bool_),
    )
    for b in range(len(states)):
        first, num_tokens, state = first_B1[b], first_B1[b + 1] - first_B1[b], states[b]
        special_S = special_T[first : first + num_tokens]
        for s in range(num_tokens):
            order_S[s] = s
        if how.permutes:
            _permute_sentences(special_S, sentence_starts_T[first : first + num_tokens], state, how, order_S, scratch)
        for s in range(num_tokens):
            ids_S[s] = ids_T[first + order_S[s]]
            if how.infills:
                starts_S[s] = word_starts_T[first + order_S[s]]
        count = num_tokens
        if how.infills:
            count = _infill(ids_S, num_tokens, special_S, starts_S, state, how, scratch)
        elif how.masks or how.deletes:
            count = _mask_or_delete(ids_S, num_tokens, special_S, state, how, scratch)
        if how.rotates:
            begin, stop = int64(special_S[0]), count - int64(special_S[-1])
            if stop > begin:
                by = draw_below(state, stop - begin)
                scratch.first_S[begin:stop] = ids_S[begin:stop]
                for s in range(begin, stop):
                    ids_S[s] = scratch.first_S[begin + (s - begin + by) % (stop - begin)]
        source_U[u : u + count] = ids_S[:count]
        u += count
        source_B1[b + 1] = u
    return source_B1, source_U[:u].copy()


@kernel
def _draw_masks(count: int, state: Ints, how: Noise, out_N: Ints, scratch: Scratch) -> None:
    """Denoising._masks, written to `out_N`."""
    out_N[:count] = how.mask
    if how.random_prob:
        fill_doubles(state, count, scratch.draw_S)
        for i in range(count):
            if scratch.draw_S[i] < how.random_prob:
                out_N[i] = draw_id(state, how.num_ids, how.ordinal_above)


@kernel
def _permute_sentences(
    special_S: Bools, starts_S: Bools, state: Ints, how: Noise, order_S: Ints, scratch: Scratch
) -> None:
    """denoising._sentence_order, written to `order_S`."""
    begin_N, selected, document, num_sentences, count = scratch.first_S, scratch.second_S, 0, 0, 0
    for s in range(len(special_S)):
        if starts_S[s]:
            begin_N[num_sentences] = s
            if not special_S[s]:
                selected[count] = num_sentences
                count += 1
            num_sentences += 1
    begin_N[num_sentences] = len(special_S)
    if not how.moves_all:
        moved = int64(how.num_moved_S1[count])
        shuffle(state, selected, count)
        selected[:moved] = np.sort(selected[:moved])
        count = moved
    at = 0
    for i in range(count):
        while at <= selected[i]:
            document += special_S[begin_N[at]]
            at += 1
        scratch.draw_S[i] = document + draw_double(state)
    sorted_N = np.argsort(scratch.draw_S[:count])
    place_N = scratch.run_S1  # the sentence at each place
    for number in range(num_sentences):
        place_N[number] = number
    for i in range(count):
        place_N[selected[i]] = selected[sorted_N[i]]
    at = 0
    for number in range(num_sentences):
        for s in range(begin_N[place_N[number]], begin_N[place_N[number] + 1]):
            order_S[at] = s
            at += 1


@kernel
def _mask_or_delete(ids_S: Ints, num_tokens: int, special_S: Bools, state: Ints, how: Noise, scratch: Scratch) -> int:
    """token_masking or token_deletion in place; returns the number of tokens."""
    order, count = scratch.order_S, 0
    for s in range(num_tokens):
        order[count] = s
        count += not special_S[s]
    num_masked = min(how.num_masked_S1[count], count)
    shuffle(state, order, count)
    if how.masks:
        _draw_masks(num_masked, state, how, scratch.first_S, scratch)
        for i in range(num_masked):
            ids_S[order[i]] = scratch.first_S[i]
        return num_tokens
    num_masked = min(num_masked, num_tokens - 1)
    scratch.is_new_S[:num_tokens] = False
    for i in range(num_masked):
        scratch.is_new_S[order[i]] = True
    kept = 0
    for s in range(num_tokens):
        if not scratch.is_new_S[s]:
            ids_S[kept] = ids_S[s]
            kept += 1
    return kept


@kernel
def _draw_runs(budget: int, state: Ints, how: Noise) -> Ints:
    """denoising.infill_lengths, int64 [N]."""
    length_N, total = np.empty(how.num_lengths_S1[budget], np.int64), 0
    for i in range(len(length_N)):
        length_N[i] = draw_poisson(state, how.threshold)
        total += length_N[i]
    while total < budget:
        longer_N = np.empty(2 * len(length_N), np.int64)
        longer_N[: len(length_N)] = length_N
        for i in range(len(length_N), len(longer_N)):
            longer_N[i] = draw_poisson(state, how.threshold)
            total += longer_N[i]
        length_N = longer_N
    if not budget:
        return length_N[:0]
    total, last = length_N[0], 0
    while total < budget:
        last += 1
        total += length_N[last]
    length_N[last] -= total - budget
    return length_N[: last + 1]


@kernel
def _infill(
    ids_S: Ints, num_tokens: int, special_S: Bools, starts_S: Bools, state: Ints, how: Noise, scratch: Scratch
) -> int:
    """Denoising._infill in place; returns the number of tokens."""
    begin_W1, words, order, num_words, num_ordinary = scratch.first_S, scratch.second_S, scratch.order_S, 0, 0
    for s in range(num_tokens):
        if starts_S[s]:
            begin_W1[num_words] = s
            if not special_S[s]:
                words[num_ordinary] = num_words
                order[num_ordinary] = num_ordinary
                num_ordinary += 1
            num_words += 1
    begin_W1[num_words] = num_tokens
    length_N = _draw_runs(how.num_masked_S1[num_ordinary], state, how)
    shuffle(state, order, num_ordinary)
    run_S1, is_begin_S, num_runs = scratch.run_S1, scratch.is_new_S, 0
    run_S1[: num_tokens + 1] = 0
    for length in length_N:
        if length == 0:
            continue
        if num_runs == num_ordinary:
            break
        word = words[order[num_runs]]
        order[num_runs] = begin_W1[word]
        stop = word + 1
        while stop < min(word + length, num_words) and not special_S[begin_W1[stop]]:
            stop += 1
        run_S1[begin_W1[word] + 1] += 1
        run_S1[begin_W1[stop]] -= 1
        num_runs += 1
    inside = 0
    for s in range(num_tokens):  # True inside a run, after its first token
        inside += run_S1[s]
        is_begin_S[s] = inside > 0
    num_masks = 0
    for i in range(num_runs):
        if not is_begin_S[order[i]]:
            order[num_masks] = order[i]
            num_masks += 1
    _draw_masks(num_masks, state, how, words, scratch)
    for i in range(num_masks):
        ids_S[order[i]] = words[i]
    kept = 0
    for s in range(num_tokens):
        if not is_begin_S[s]:
            ids_S[kept] = ids_S[s]
            kept += 1
    num_empty = 0
    for length in length_N:
        num_empty += length == 0
    return _insert(ids_S, kept, special_S, min(num_empty, num_tokens - kept), state, how, scratch)


@kernel
def _insert(
    ids_S: Ints, num_tokens: int, special_S: Bools, count: int, state: Ints, how: Noise, scratch: Scratch
) -> int:
    """Denoising._insert in place; returns the number of tokens."""
    if not count:
        return num_tokens
    first, stop = int64(special_S[0]), num_tokens - int64(special_S[-1])
    order, is_new, total = scratch.order_S, scratch.is_new_S, num_tokens + count
    for i in range(stop + count - first):
        order[i] = i
    shuffle(state, order, stop + count - first)
    is_new[:total] = False
    for i in range(count):
        is_new[first + order[i]] = True
    _draw_masks(count, state, how, scratch.first_S, scratch)
    old, new = num_tokens, count
    for s in range(total - 1, -1, -1):
        if is_new[s]:
            new -= 1
            ids_S[s] = scratch.first_S[new]
        else:
            old -= 1
            ids_S[s] = ids_S[old]
    return total
