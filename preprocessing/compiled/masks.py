"""Kernels of masking: token, whole_word, random_spans and partial_prediction; ngrams.py has the others.

Each kernel returns the column `hits` of concatenated sequences, int32 [T], and draws the same random numbers as the
masking of the same name. `states` are the generators of the sequences, uint64 [B, WORDS]. Python computes tables of
rounded numbers, so that kernels do not round.
"""

from typing import NamedTuple

import numpy as np
from numba import int64

from preprocessing.compiled.philox import draw_double, fill_doubles, shuffle
from preprocessing.jit import kernel
from preprocessing.schema import Bools, Floats, Ints


class TokenBudget(NamedTuple):
    """The number of tokens to select (masking/budget.py)."""

    share_S1: Floats  # by number of tokens, of all tokens or of ordinary ones: the number, before stochastic rounding
    is_stochastic: bool
    counts_ordinary: bool  # whether the table is for the number of ordinary tokens
    most: int


@kernel
def count_selected(budget: TokenBudget, num_tokens: int, num_ordinary: int, state: Ints) -> int:
    """budget.budget: the number of tokens to select."""
    share = budget.share_S1[num_ordinary if budget.counts_ordinary else num_tokens]
    if budget.is_stochastic:
        share = np.floor(share + draw_double(state))
    return min(int64(share), num_ordinary, budget.most if budget.most else num_ordinary)


@kernel
def find_false(flags_S: Bools, out_S: Ints) -> int:
    """Write the indices of False to `out_S`; return their number."""
    count = 0
    for s in range(len(flags_S)):
        out_S[count] = s
        count += not flags_S[s]
    return count


@kernel
def find_longest(first_B1: Ints) -> int:
    """The number of tokens of the longest sequence."""
    longest = 1
    for b in range(len(first_B1) - 1):
        longest = max(longest, first_B1[b + 1] - first_B1[b])
    return longest


@kernel
def mask_tokens(first_B1: Ints, special_T: Bools, states: Ints, budget: TokenBudget) -> Ints:
    """TokenMasking with a number of tokens for each sequence."""
    hit_T, order = np.zeros(len(special_T), np.int32), np.empty(find_longest(first_B1), np.int32)
    for b in range(len(states)):
        first, stop = first_B1[b], first_B1[b + 1]
        num_ordinary = find_false(special_T[first:stop], order)
        count = count_selected(budget, stop - first, num_ordinary, states[b])
        shuffle(states[b], order, num_ordinary)
        for i in range(count):
            hit_T[first + order[i]] = 1
        number = 0
        for t in range(first, stop):
            number += hit_T[t]
            hit_T[t] *= number
    return hit_T


@kernel
def mask_independently(first_B1: Ints, special_T: Bools, states: Ints, rate: float) -> Ints:
    """TokenMasking with rounding `independent`."""
    hit_T = np.zeros(len(special_T), np.int32)
    for b in range(len(states)):
        number = 0
        for t in range(first_B1[b], first_B1[b + 1]):
            if (draw_double(states[b]) < rate) & (not special_T[t]):
                number += 1
                hit_T[t] = number
    return hit_T


@kernel
def mask_words(first_B1: Ints, special_T: Bools, word_starts_T: Bools, states: Ints, budget: TokenBudget) -> Ints:
    """WholeWordMasking: a word is selected if it fits into the rest of the budget, in random order."""
    longest = find_longest(first_B1)
    hit_T, order, begin_W1 = (
        np.zeros(len(special_T), np.int32),
        np.empty(longest, np.int32),
        np.empty(longest + 1, np.int64),
    )
    is_selected_W = np.empty(longest, np.bool_)
    for b in range(len(states)):
        first, stop = first_B1[b], first_B1[b + 1]
        num_words, num_candidates, num_ordinary = 0, 0, 0
        for t in range(first, stop):
            num_ordinary += not special_T[t]
            if word_starts_T[t]:
                begin_W1[num_words] = t
                if not special_T[t]:
                    order[num_candidates] = num_words
                    num_candidates += 1
                num_words += 1
        begin_W1[num_words] = stop
        left = count_selected(budget, stop - first, num_ordinary, states[b])
        shuffle(states[b], order, num_candidates)
        is_selected_W[:num_words] = False
        for i in range(num_candidates):
            word = order[i]
            long = begin_W1[word + 1] - begin_W1[word]
            if long <= left:
                is_selected_W[word] = True
                left -= long
        number = 0
        for word in range(num_words):
            if is_selected_W[word]:
                number += 1
                hit_T[begin_W1[word] : begin_W1[word + 1]] = number
    return hit_T


@kernel
def _compose(total: int, num_parts: int, state: Ints, order: Ints, is_cut: Bools, long_N: Ints) -> None:
    """random_spans._composition: write `num_parts` numbers that sum to `total` to `long_N`."""
    for i in range(total - 1):
        order[i] = i
        is_cut[i] = False
    shuffle(state, order, total - 1)
    for i in range(num_parts - 1):
        is_cut[order[i]] = True
    part, before = 0, 0
    for i in range(total - 1):
        if is_cut[i]:
            long_N[part] = i + 1 - before
            part, before = part + 1, i + 1
    long_N[part] = total - before


@kernel
def mask_random_spans(first_B1: Ints, states: Ints, num_selected_S1: Ints, num_spans_S1: Ints) -> Ints:
    """RandomSpans; two tables have the number of selected tokens and of spans by number of tokens."""
    longest = find_longest(first_B1)
    hit_T, order, is_cut = np.zeros(first_B1[-1], np.int32), np.empty(longest, np.int32), np.empty(longest, np.bool_)
    selected_N, other_N = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for b in range(len(states)):
        at, num_tokens = first_B1[b], first_B1[b + 1] - first_B1[b]
        num_selected, num_spans = num_selected_S1[num_tokens], num_spans_S1[num_tokens]
        if num_spans == 0:
            continue
        _compose(num_selected, num_spans, states[b], order, is_cut, selected_N)
        _compose(num_tokens - num_selected, num_spans, states[b], order, is_cut, other_N)
        for span in range(num_spans):
            at += other_N[span]
            hit_T[at : at + selected_N[span]] = span + 1
            at += selected_N[span]
    return hit_T


@kernel
def find_words(special_S: Bools, word_starts_S: Bools, begin_O: Ints, long_O: Ints, is_after_special_O: Bools) -> int:
    """budget.OrdinaryWords: begin and length of each ordinary word, and whether a special token precedes it."""
    num_words, was_ordinary = 0, False
    for s in range(len(special_S)):
        if s == 0 or word_starts_S[s]:
            is_ordinary = not special_S[s]
            if is_ordinary:
                begin_O[num_words], long_O[num_words] = s, 0
                is_after_special_O[num_words] = not was_ordinary
                num_words += 1
            was_ordinary = is_ordinary
        if was_ordinary:
            long_O[num_words - 1] += 1
    return num_words


@kernel
def draw_lengths(cdf: Floats, state: Ints, count: int, out_N: Ints) -> None:
    """1 + np.searchsorted(cdf, Generator.random(count), side="right"), written to `out_N`."""
    for i in range(count):
        drawn, length = draw_double(state), 1
        for bound in cdf:
            length += bound <= drawn
        out_N[i] = length


@kernel
def mask_partially(
    first_B1: Ints, special_T: Bools, word_starts_T: Bools, states: Ints, group_size: int, cdf: Floats
) -> Ints:
    """PartialPrediction; `cdf` is that of the lengths of n-grams."""
    longest = find_longest(first_B1)
    hit_T, begin_O, long_O = (
        np.zeros(len(special_T), np.int32),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
    )
    is_first_O, lengths, places = np.empty(longest, np.bool_), np.empty(longest, np.int64), np.empty(longest)
    is_selected_O, order, is_single_S = (
        np.empty(longest, np.bool_),
        np.empty(longest, np.int32),
        np.empty(longest, np.bool_),
    )
    for b in range(len(states)):
        state, num_tokens, number = states[b], first_B1[b + 1] - first_B1[b], 0
        total = num_tokens // group_size
        for half in range(2):
            first = first_B1[b] + half * (num_tokens // 2)
            stop = first_B1[b + 1] if half else first_B1[b] + num_tokens // 2
            goal = total // 2 if half else total - total // 2
            special_S, hit_S = special_T[first:stop], hit_T[first:stop]
            num_words = find_words(special_S, word_starts_T[first:stop], begin_O, long_O, is_first_O)
            left = _mark_ngrams(
                state, num_words, goal, group_size, cdf, long_O, is_selected_O, is_first_O, lengths, places
            )
            unit = 0
            for word in range(num_words):
                unit += is_selected_O[word] & is_first_O[word]
                if is_selected_O[word]:
                    hit_S[begin_O[word] : begin_O[word] + long_O[word]] = unit
            num_free = 0
            for s in range(len(hit_S)):
                is_single_S[s] = False
                order[num_free] = s
                num_free += (hit_S[s] == 0) & (not special_S[s])
            shuffle(state, order, num_free)
            for i in range(min(left, num_free)):
                is_single_S[order[i]] = True
            before = 0
            for s in range(len(hit_S)):
                unit = hit_S[s]
                number += is_single_S[s] | ((unit > 0) & (unit != before))
                before = unit
                if is_single_S[s] | (unit > 0):
                    hit_S[s] = number
    return hit_T


@kernel
def _mark_ngrams(
    state: Ints,
    num_words: int,
    goal: int,
    group_size: int,
    cdf: Floats,
    long_O: Ints,
    is_selected_O: Bools,
    is_first_O: Bools,
    lengths: Ints,
    places: Floats,
) -> int:
    """PartialPrediction._ngrams: mark selected words and first words; return the number of tokens still to select."""
    is_selected_O[:num_words] = False
    left, at, begin = goal, 0, int64(draw_double(state) * num_words)
    draw_lengths(cdf, state, goal, lengths)
    fill_doubles(state, goal, places)
    for i in range(goal):
        long = min(lengths[i], left)
        first = at + int64(places[i] * ((group_size - 1) * long + 1))
        if not left or first + long > num_words:
            break
        at += group_size * long
        is_first_O[(begin + first) % num_words] = True
        for number in range(begin + first, begin + first + long):
            word = number % num_words
            if long_O[word] > left:
                break
            left -= long_O[word]
            is_selected_O[word] = True
    return left
