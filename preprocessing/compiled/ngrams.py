"""Kernels of masking: ngram (ALBERT, UniLM) and span (SpanBERT). masks.py describes their arguments."""

import numpy as np
from numba import int64

from preprocessing.compiled.masks import TokenBudget, count_selected, draw_lengths, find_false, find_longest, find_words
from preprocessing.compiled.philox import draw_below, fill_doubles
from preprocessing.jit import kernel
from preprocessing.schema import Bools, Floats, Ints


@kernel
def mask_ngrams(
    first_B1: Ints, special_T: Bools, word_starts_T: Bools, states: Ints, budget: TokenBudget, longest: int, cdf: Floats
) -> Ints:
    """NgramMasking; `longest` is the most words of an n-gram. Without word_starts_T, each token is a word."""
    room = find_longest(first_B1)
    hit_T, begin_O, long_O = np.zeros(len(special_T), np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
    is_selected_O, is_first_O, every_S = np.empty(room, np.bool_), np.empty(room, np.bool_), np.ones(room, np.bool_)
    places, num_places = np.empty((longest, room), np.int32), np.empty(longest, np.int64)
    widest, lengths, draws = np.empty(longest, np.int64), np.empty(room, np.int64), np.empty(room)
    for b in range(len(states)):
        first, stop = first_B1[b], first_B1[b + 1]
        starts_S = word_starts_T[first:stop] if len(word_starts_T) else every_S[: stop - first]
        count = find_words(special_T[first:stop], starts_S, begin_O, long_O, is_first_O)
        for n in range(longest):  # places[n]: starts of n + 1 consecutive free words, sorted
            num_places[n] = count if n < count else 0
            widest[n] = 0
            for word in range(num_places[n]):
                places[n, word] = word
                widest[n] = max(widest[n], long_O[word])
        left = count_selected(budget, stop - first, long_O[:count].sum(), states[b])
        num_draws = left
        draw_lengths(cdf, states[b], num_draws, lengths)
        fill_doubles(states[b], num_draws, draws)
        is_selected_O[:count] = False
        for i in range(num_draws):
            n, found = lengths[i], 0
            while left and n and not found:
                n -= 1
                if left < widest[n]:  # longer words will not fit later either
                    num_places[n] = _keep_short(places[n], int64(num_places[n]), long_O, left)
                    widest[n] = left
                found = num_places[n]
            if not found:
                break
            start = int64(places[n, int64(draws[i] * found)])
            is_first_O[start] = True
            last = start
            while last <= start + n and long_O[last % count] <= left:
                left -= long_O[last % count]
                is_selected_O[last % count] = True
                last += 1
            for m in range(longest):
                num_places[m] = _remove(places[m], int64(num_places[m]), int64(start - m), last, count)
        unit = 0
        for word in range(count):
            unit += is_selected_O[word] & is_first_O[word]
            if is_selected_O[word]:
                begin = first + begin_O[word]
                hit_T[begin : begin + long_O[word]] = unit
    return hit_T


@kernel
def _keep_short(places: Ints, num_places: int, long_O: Ints, most: int) -> int:
    """Remove the places of words of more than `most` tokens; return the number of places that are left."""
    kept = 0
    for i in range(num_places):
        places[kept] = places[i]
        kept += long_O[places[i]] <= most
    return kept


@kernel
def _remove(places: Ints, num_places: int, start: int, stop: int, count: int) -> int:
    """ngram._remove: remove the places start ... stop - 1 of a circle of `count` words; return the number left."""
    num_places = _cut(places, num_places, start, stop)
    if start < 0:
        num_places = int64(np.searchsorted(places[:num_places], start + count))
    if stop > count:
        num_places = _cut(places, num_places, 0, stop - count)
    return num_places


@kernel
def _cut(places: Ints, num_places: int, start: int, stop: int) -> int:
    low = int64(np.searchsorted(places[:num_places], start))
    high = int64(np.searchsorted(places[:num_places], stop))
    for i in range(high, num_places):
        places[low + i - high] = places[i]
    return num_places - (high - low)


@kernel
def mask_spans(
    first_B1: Ints, special_T: Bools, word_starts_T: Bools, states: Ints, budget: TokenBudget, cdf: Floats
) -> Ints:
    """SpanMasking without phrases; `cdf` is that of the lengths in words."""
    room = find_longest(first_B1)
    hit_T, ordinary, anchors = np.zeros(len(special_T), np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
    lengths, word_S, begin_W1 = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room + 1, np.int64)
    wall_W = np.empty(room, np.int64)
    for b in range(len(states)):
        first, stop, num_words = first_B1[b], first_B1[b + 1], 0
        special_S, hit_S = special_T[first:stop], hit_T[first:stop]
        for s in range(stop - first):
            if word_starts_T[first + s]:
                begin_W1[num_words] = s
                num_words += 1
            word_S[s] = num_words - 1
        begin_W1[num_words] = stop - first
        wall = num_words
        for word in range(num_words - 1, -1, -1):  # the next special token, or the word itself
            if special_S[begin_W1[word]]:
                wall = word
            wall_W[word] = wall
        num_ordinary = find_false(special_S, ordinary)
        left = count_selected(budget, stop - first, num_ordinary, states[b])
        while left:
            num_draws = left
            for i in range(num_draws):
                anchors[i] = ordinary[draw_below(states[b], num_ordinary)]
            draw_lengths(cdf, states[b], num_draws, lengths)
            for i in range(num_draws):
                if hit_S[anchors[i]]:
                    continue
                word = word_S[anchors[i]]
                for s in range(begin_W1[word], begin_W1[min(word + lengths[i], wall_W[word])]):
                    if left and not hit_S[s]:
                        hit_S[s] = 1
                        left -= 1
                if not left:
                    break
        number, before = 0, 0
        for s in range(len(hit_S)):
            is_hit = hit_S[s]
            number += (is_hit == 1) & (before == 0)
            before = is_hit
            hit_S[s] = number * is_hit
    return hit_T
