"""Merges of byte-pair encoding over counted words, in a compiled kernel (Sennrich et al., arXiv:1508.07909).

The order is that of the trainer in `tokenizers`: the most frequent pair is next, and of equal ones that with the least
token IDs. Two pairs may make the same token, so a pair can arise again after it was queued. It is then in the queue
twice, each time with the words in which it arose. An entry keeps its count until it is next; if the pair has another
count by then, it is queued again with that one. The merge of a pair does not reduce its own count.

Shapes: S symbols of all words, N words, P distinct pairs, V tokens, L characters of all tokens, R records (a word in
the list of an entry, and the next record, or -1), Q entries of the queue, K changes of a word, T slots of a hash table
(a power of two, at most half of them used; -1 is free).
"""

from typing import Any, Final

import numpy as np

from preprocessing.jit import kernel
from preprocessing.tokenization.kernels import grow, scramble

_BITS: Final = 32  # a pair is left << 32 | right
_RIGHT: Final = (1 << _BITS) - 1
# Facts of pairs: the pair, its count, the first record of the words that this round lists for it or -1, and the last
# visit of a word that listed it. They are beside each other, because most of the time is that of reads from memory.
_KEY, _TIMES, _HEAD, _VISIT = 0, 1, 2, 3
_STOP: Final = 1  # facts of words: start and stop of their symbols, and how often they occur


@kernel
def _slot(fact_P: Any, table_T: Any, key: int) -> Any:
    """Return the slot of a key, which is the first fact of each row, or the free slot in which it belongs."""
    slot = np.int64(scramble(np.uint64(key)) & np.uint64(len(table_T) - 1))
    while table_T[slot] >= 0 and fact_P[table_T[slot], _KEY] != key:
        slot = (slot + 1) & (len(table_T) - 1)
    return slot


@kernel
def _grow_table(fact_P: Any, table_T: Any, num: int, more: int) -> Any:
    """Return the facts and their table with space for `more` rows."""
    if num + more > len(fact_P):
        longer = np.empty((2 * (num + more), fact_P.shape[1]), np.int64)
        longer[:num] = fact_P[:num]
        fact_P = longer
    if 2 * (num + more) > len(table_T):
        num_slots = len(table_T)
        while 2 * (num + more) > num_slots:
            num_slots *= 2
        table_T = np.full(num_slots, -1, np.int32)
        for each in range(num):
            table_T[_slot(fact_P, table_T, fact_P[each, _KEY])] = each
    return fact_P, table_T


@kernel
def _is_before(count_Q: Any, pair_Q: Any, one: int, other: int) -> bool:
    """Return whether an entry precedes another one: by descending count, then by ascending pair."""
    return count_Q[one] > count_Q[other] or (count_Q[one] == count_Q[other] and pair_Q[one] < pair_Q[other])


@kernel
def _swap(count_Q: Any, pair_Q: Any, head_Q: Any, one: int, other: int) -> None:
    count_Q[one], count_Q[other] = count_Q[other], count_Q[one]
    pair_Q[one], pair_Q[other] = pair_Q[other], pair_Q[one]
    head_Q[one], head_Q[other] = head_Q[other], head_Q[one]


@kernel
def _push(count_Q: Any, pair_Q: Any, head_Q: Any, at: int) -> None:
    """Move the last entry, at `at`, to its place in the binary heap."""
    while at > 0 and _is_before(count_Q, pair_Q, at, (at - 1) // 2):
        _swap(count_Q, pair_Q, head_Q, at, (at - 1) // 2)
        at = (at - 1) // 2


@kernel
def _pop(count_Q: Any, pair_Q: Any, head_Q: Any, last: int) -> None:
    """Move the first entry to `last`, the end of the binary heap, which then ends before it."""
    _swap(count_Q, pair_Q, head_Q, 0, last)
    at = 0
    while 2 * at + 1 < last:
        child = 2 * at + 1
        if child + 1 < last and _is_before(count_Q, pair_Q, child + 1, child):
            child += 1
        if not _is_before(count_Q, pair_Q, child, at):
            break
        _swap(count_Q, pair_Q, head_Q, at, child)
        at = child


@kernel
def _list_pairs(symbol_S: Any, start: int, stop: int, change_K: Any, sign_K: Any) -> int:
    """Write all pairs of a word to change_K, with 1 in sign_K. Return their number."""
    for at in range(start, stop - 1):
        change_K[at - start] = np.int64(symbol_S[at]) << _BITS | np.int64(symbol_S[at + 1])
        sign_K[at - start] = 1
    return max(0, stop - 1 - start)


@kernel
def _merge_in_word(symbol_S: Any, start: int, stop: int, pair: int, token: int, change_K: Any, sign_K: Any) -> Any:
    """Replace a pair by a token in one word. Return the new end of the word, and the number of changes of pairs.

    The pairs go to change_K, with 1 in sign_K for one more, and -1 for one less.
    """
    left, right = pair >> _BITS, pair & _RIGHT
    read, write, num = start, start, 0
    while read < stop:
        if symbol_S[read] != left or read + 1 >= stop or symbol_S[read + 1] != right:
            symbol_S[write] = symbol_S[read]
            read, write = read + 1, write + 1
            continue
        if write > start:
            before = np.int64(symbol_S[write - 1]) << _BITS
            change_K[num], sign_K[num] = before | left, -1
            change_K[num + 1], sign_K[num + 1] = before | token, 1
            num += 2
        symbol_S[write] = token
        read, write = read + 2, write + 1
        if read < stop:
            after = np.int64(symbol_S[read])
            change_K[num], sign_K[num] = right << _BITS | after, -1
            change_K[num + 1], sign_K[num + 1] = token << _BITS | after, 1
            num += 2
    return write, num


@kernel
def _visit_words(
    symbol_S: Any,
    word_N: Any,
    change_K: Any,
    sign_K: Any,
    pair_P: Any,
    table_T: Any,
    word_R: Any,
    next_R: Any,
    touched_P: Any,
    merge: Any,
    state: Any,
) -> None:
    """Apply a merge to listed words, and list the words of each pair that arises. Return early if arrays are full.

    `merge`: the pair and its token, or -1 to count the pairs of the words. `state`: first record of the list, or -1;
    numbers of pairs and of records; first free record; number of touched pairs; number of visits of words.
    """
    pair, token = merge
    head, num_pairs, num_records, free, num_touched, visit = state
    last_pair = min(len(pair_P), len(table_T) // 2) - len(change_K)
    last_record = len(word_R) - len(change_K)
    while head >= 0 and num_pairs <= last_pair and num_records <= last_record:
        word, following = np.int64(word_R[head]), np.int64(next_R[head])
        next_R[head], free, head = free, head, following
        start, stop, count = word_N[word, 0], word_N[word, _STOP], word_N[word, 2]
        if token < 0:
            num = _list_pairs(symbol_S, start, stop, change_K, sign_K)
        else:
            stop, num = _merge_in_word(symbol_S, start, stop, pair, token, change_K, sign_K)
            word_N[word, _STOP] = stop
        visit += 1
        for change in range(num):
            slot = _slot(pair_P, table_T, change_K[change])
            if table_T[slot] < 0:
                pair_P[num_pairs, _KEY], pair_P[num_pairs, _TIMES], table_T[slot] = change_K[change], 0, num_pairs
                pair_P[num_pairs, _HEAD], pair_P[num_pairs, _VISIT] = -1, 0
                num_pairs += 1
            which = np.int64(table_T[slot])
            pair_P[which, _TIMES] += sign_K[change] * count
            if sign_K[change] < 0 or pair_P[which, _VISIT] == visit:
                continue
            pair_P[which, _VISIT] = visit  # a word is listed once
            if pair_P[which, _HEAD] < 0:
                touched_P[num_touched] = which
                num_touched += 1
            record = free
            if record >= 0:
                free = np.int64(next_R[record])
            else:
                record = num_records
                num_records += 1
            word_R[record], next_R[record], pair_P[which, _HEAD] = word, pair_P[which, _HEAD], record
    state[:] = head, num_pairs, num_records, free, num_touched, visit


@kernel
def _queue_pairs(pair_P: Any, touched_P: Any, count_Q: Any, pair_Q: Any, head_Q: Any, queued: int) -> int:
    """Queue the touched pairs with their lists of words. Return the length of the queue."""
    for which in touched_P:
        if pair_P[which, _TIMES] > 0:
            count_Q[queued], pair_Q[queued] = pair_P[which, _TIMES], pair_P[which, _KEY]
            head_Q[queued] = pair_P[which, _HEAD]
            _push(count_Q, pair_Q, head_Q, queued)
            queued += 1
        pair_P[which, _HEAD] = -1
    return queued


@kernel
def _choose_pair(pair_P: Any, table_T: Any, count_Q: Any, pair_Q: Any, head_Q: Any, queued: int) -> None:
    """Queue the first entries again while their counts are not the present ones."""
    while queued > 0:
        times = pair_P[table_T[_slot(pair_P, table_T, pair_Q[0])], _TIMES]
        if count_Q[0] == times:
            return
        _pop(count_Q, pair_Q, head_Q, queued - 1)
        count_Q[queued - 1] = times
        _push(count_Q, pair_Q, head_Q, queued - 1)


@kernel
def _start_tree(char_V: Any, is_inside_V: Any) -> Any:
    """Return the tree of the characters of tokens, with tokens of one character.

    A child of a node has the key node << 32 | character, and 2 plus the number of the key is its own node. Node 0 is
    the start of words, node 1 the inside of words. Return node_P, table_T, the number of nodes, token_P (the token of a
    node, or -1), node_V, and char_L with its bounds start_V.
    """
    num_tokens, num = len(char_V), 2
    node_P, table_T = _grow_table(np.empty((0, 1), np.int64), np.full(2, -1, np.int32), 0, 2 * num_tokens)
    token_P, node_V = np.full(2, -1), np.zeros(num_tokens, np.int64)
    for token in range(num_tokens):
        if char_V[token] >= 0:
            key = np.int64(is_inside_V[token]) << _BITS | np.int64(char_V[token])
            node_P[num - 2, _KEY], table_T[_slot(node_P, table_T, key)] = key, num - 2
            token_P = grow(token_P, num + 1)
            token_P[num], node_V[token] = token, num
            num += 1
    return node_P, table_T, num, token_P, node_V, char_V.copy(), np.arange(num_tokens + 1)


@kernel
def _spell(tree: Any, pair: int, num_tokens: int) -> Any:
    """Return the tree with the characters of a merged pair, and its token, which is `num_tokens` if it is new."""
    node_P, table_T, num, token_P, node_V, char_L, start_V = tree
    left, right = pair >> _BITS, pair & _RIGHT
    length = start_V[right + 1] - start_V[right]
    node_P, table_T = _grow_table(node_P, table_T, num - 2, length)
    token_P = grow(token_P, num + length)
    node = node_V[left]
    for at in range(start_V[right], start_V[right + 1]):
        key = node << _BITS | np.int64(char_L[at])
        slot = _slot(node_P, table_T, key)
        if table_T[slot] < 0:
            node_P[num - 2, _KEY], table_T[slot], token_P[num] = key, num - 2, -1
            num += 1
        node = np.int64(table_T[slot]) + 2
    token = token_P[node]
    if token < 0:
        token = token_P[node] = num_tokens
        node_V, start_V = grow(node_V, token + 1), grow(start_V, token + 2)
        node_V[token], at = node, start_V[token]
        char_L = grow(char_L, at + length + start_V[left + 1] - start_V[left])
        for part in (left, right):
            for source in range(start_V[part], start_V[part + 1]):
                char_L[at] = char_L[source]
                at += 1
        start_V[token + 1] = at
    return (node_P, table_T, num, token_P, node_V, char_L, start_V), token


@kernel
def merge_words(symbol_S: Any, word_N: Any, char_V: Any, is_inside_V: Any, max_tokens: int, least: int) -> Any:
    """Merge pairs of symbols until there are `max_tokens` tokens, or no pair occurs `least` times, which is at least 1.

    `symbol_S`, int32: the words as token IDs. `word_N`, int64 [N, 3]: where each starts and stops, and how often it
    occurs. Both are overwritten. `char_V`, int32: the character of each first token, or -1. `is_inside_V`, bool:
    whether the token is one inside words.

    Return left, right and token ID of each merge, int64 [merges, 3]. An ID can repeat, and so can a pair.
    """
    num_words, num_tokens, queued, num_merges = len(word_N), len(char_V), 0, 0
    longest = max(1, (word_N[:, 1] - word_N[:, 0]).max()) if num_words else 1
    change_K, sign_K = np.empty(4 * longest, np.int64), np.empty(4 * longest, np.int64)
    tree = _start_tree(char_V, is_inside_V)
    pair_P, table_T = _grow_table(np.empty((0, 4), np.int64), np.full(1 << 16, -1, np.int32), 0, 1 << 14)
    touched_P, count_Q = np.empty(1 << 14, np.int64), np.empty(1 << 14, np.int64)
    pair_Q, head_Q = np.empty(1 << 14, np.int64), np.empty(1 << 14, np.int64)
    merge_M = np.empty((1 << 10, 3), np.int64)
    # the first list has all words
    word_R, next_R = np.arange(num_words).astype(np.int32), np.arange(-1, num_words - 1).astype(np.int32)
    merge, state = np.array([-1, -1]), np.array([num_words - 1, 0, num_words, -1, 0, 0])
    while True:
        while state[0] >= 0:
            pair_P, table_T = _grow_table(pair_P, table_T, state[1], 2 * len(change_K))
            touched_P = grow(touched_P, len(pair_P))
            word_R, next_R = grow(word_R, state[2] + len(change_K)), grow(next_R, state[2] + len(change_K))
            _visit_words(symbol_S, word_N, change_K, sign_K, pair_P, table_T, word_R, next_R, touched_P, merge, state)
        more = queued + state[4]
        count_Q, pair_Q, head_Q = grow(count_Q, more), grow(pair_Q, more), grow(head_Q, more)
        queued = _queue_pairs(pair_P, touched_P[: state[4]], count_Q, pair_Q, head_Q, queued)
        state[4] = 0
        _choose_pair(pair_P, table_T, count_Q, pair_Q, head_Q, queued)
        if num_tokens >= max_tokens or queued == 0 or count_Q[0] < least:
            return merge_M[:num_merges]
        queued -= 1
        _pop(count_Q, pair_Q, head_Q, queued)
        pair, state[0] = pair_Q[queued], head_Q[queued]
        tree, token = _spell(tree, pair, num_tokens)
        num_tokens = max(num_tokens, token + 1)
        merge[:] = pair, token
        if num_merges == len(merge_M):
            merge_M = np.concatenate((merge_M, np.empty_like(merge_M)))
        merge_M[num_merges, 0], merge_M[num_merges, 1], merge_M[num_merges, 2] = pair >> _BITS, pair & _RIGHT, token
        num_merges += 1
