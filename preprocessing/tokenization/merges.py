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

from preprocessing.tokenization.kernels import grow, kernel, scramble

_BITS: Final = 32  # a pair is left << 32 | right
_RIGHT: Final = (1 << _BITS) - 1
_INSIDE: Final = 1  # the node of tokens inside words; node 0 is that of tokens at the start of a word


@kernel
def _slot(key_P: Any, table_T: Any, key: int) -> int:
    """Return the slot of a key, or the free slot in which it belongs."""
    slot = np.int64(scramble(np.uint64(key)) & np.uint64(len(table_T) - 1))
    while table_T[slot] >= 0 and key_P[table_T[slot]] != key:
        slot = (slot + 1) & (len(table_T) - 1)
    return slot


@kernel
def _insert(key_P: Any, table_T: Any, num: int, key: int, slot: int) -> Any:
    """Add a key to `num` keys. Return the keys, int64, and the table, int32, of twice the size if it is half full."""
    key_P = grow(key_P, num + 1)
    key_P[num], table_T[slot] = key, num
    if 2 * (num + 1) > len(table_T):
        table_T = np.full(2 * len(table_T), -1, np.int32)
        for each in range(num + 1):
            table_T[_slot(key_P, table_T, key_P[each])] = each
    return key_P, table_T


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
def merge_words(
    symbol_S: Any, start_N: Any, stop_N: Any, count_N: Any, char_V: Any, is_inside_V: Any, max_tokens: int, least: int
) -> Any:
    """Merge pairs of symbols until there are `max_tokens` tokens, or no pair occurs `least` times, which is at least 1.

    `symbol_S`, int32: the words as token IDs. `start_N`, `stop_N`, int64: where they are in it. `count_N`, int64: how
    often they occur. `symbol_S` and `stop_N` are overwritten. `char_V`, int32: the character of each first token, or -1.
    `is_inside_V`, bool: whether the token is one inside words.

    Return left, right and token ID of each merge, int64 [merges, 3]. An ID can repeat, and so can a pair.
    """
    num_words, num_tokens = len(start_N), len(char_V)
    longest = 1
    for word in range(num_words):
        longest = max(longest, stop_N[word] - start_N[word])
    change_K, sign_K = np.empty(4 * longest, np.int64), np.empty(4 * longest, np.int64)

    # a tree of the characters of tokens: the key of a node is its parent << 32 | character, and its number its key's + 2
    node_key_P, node_table_T, num_nodes = np.empty(1 << 11, np.int64), np.full(1 << 12, -1, np.int32), 2
    token_of, node_V = np.full(1 << 11, -1, np.int64), np.empty(num_tokens, np.int64)
    first_V, char_L, num_chars = np.empty(num_tokens + 1, np.int64), np.empty(num_tokens, np.int32), 0
    for token in range(num_tokens):
        first_V[token] = num_chars
        if char_V[token] >= 0:
            char_L[num_chars] = char_V[token]
            num_chars += 1
            key = np.int64(is_inside_V[token]) << _BITS | np.int64(char_V[token])
            slot = _slot(node_key_P, node_table_T, key)
            node_key_P, node_table_T = _insert(node_key_P, node_table_T, num_nodes - 2, key, slot)
            token_of = grow(token_of, num_nodes + 1)
            token_of[num_nodes], node_V[token] = token, num_nodes
            num_nodes += 1
    first_V[num_tokens] = num_chars

    pair_P, table_T, num_pairs = np.empty(1 << 15, np.int64), np.full(1 << 16, -1, np.int32), 0
    times_P, head_P = np.empty(1 << 15, np.int64), np.empty(1 << 15, np.int64)
    visit_P, visit = np.empty(1 << 15, np.int64), 0  # the last visit of a word that listed it for the pair
    touched, num_touched = np.empty(1 << 10, np.int64), 0
    count_Q, pair_Q, head_Q = np.empty(1 << 15, np.int64), np.empty(1 << 15, np.int64), np.empty(1 << 15, np.int64)
    num_queued = 0
    # the first round visits all words, and all their pairs are new
    word_R, next_R = np.arange(num_words).astype(np.int32), np.arange(-1, num_words - 1).astype(np.int32)
    num_records, free, head = num_words, -1, num_words - 1
    merge_M, num_merges, pair, token = np.empty((1 << 10, 3), np.int64), 0, -1, -1
    while True:
        while head >= 0:
            word, following = np.int64(word_R[head]), np.int64(next_R[head])
            next_R[head], free, head = free, head, following
            if token < 0:
                num = _list_pairs(symbol_S, start_N[word], stop_N[word], change_K, sign_K)
            else:
                stop_N[word], num = _merge_in_word(
                    symbol_S, start_N[word], stop_N[word], pair, token, change_K, sign_K
                )
            visit += 1
            for change in range(num):
                slot = _slot(pair_P, table_T, change_K[change])
                which = np.int64(table_T[slot])
                if which < 0:
                    which = num_pairs
                    pair_P, table_T = _insert(pair_P, table_T, num_pairs, change_K[change], slot)
                    num_pairs += 1
                    times_P, head_P = grow(times_P, num_pairs), grow(head_P, num_pairs)
                    visit_P = grow(visit_P, num_pairs)
                    times_P[which], head_P[which], visit_P[which] = 0, -1, 0
                times_P[which] += sign_K[change] * count_N[word]
                if sign_K[change] < 0 or visit_P[which] == visit:
                    continue
                visit_P[which] = visit
                if head_P[which] < 0:
                    touched = grow(touched, num_touched + 1)
                    touched[num_touched] = which
                    num_touched += 1
                record = free
                if record >= 0:
                    free = np.int64(next_R[record])
                else:
                    record = num_records
                    num_records += 1
                    word_R, next_R = grow(word_R, num_records), grow(next_R, num_records)
                word_R[record], next_R[record], head_P[which] = word, head_P[which], record
        for which in touched[:num_touched]:
            if times_P[which] > 0:
                count_Q, pair_Q = grow(count_Q, num_queued + 1), grow(pair_Q, num_queued + 1)
                head_Q = grow(head_Q, num_queued + 1)
                count_Q[num_queued], pair_Q[num_queued] = times_P[which], pair_P[which]
                head_Q[num_queued] = head_P[which]
                _push(count_Q, pair_Q, head_Q, num_queued)
                num_queued += 1
            head_P[which] = -1
        num_touched = 0

        while num_queued > 0:
            times = times_P[table_T[_slot(pair_P, table_T, pair_Q[0])]]
            if count_Q[0] == times:
                break
            _pop(count_Q, pair_Q, head_Q, num_queued - 1)
            count_Q[num_queued - 1] = times
            _push(count_Q, pair_Q, head_Q, num_queued - 1)
        if num_tokens >= max_tokens or num_queued == 0 or count_Q[0] < least:
            return merge_M[:num_merges]
        num_queued -= 1
        _pop(count_Q, pair_Q, head_Q, num_queued)
        pair, head = pair_Q[num_queued], head_Q[num_queued]

        left, right = pair >> _BITS, pair & _RIGHT
        node = node_V[left]
        for at in range(first_V[right], first_V[right + 1]):
            key = node << _BITS | np.int64(char_L[at])
            slot = _slot(node_key_P, node_table_T, key)
            if node_table_T[slot] < 0:
                node_key_P, node_table_T = _insert(node_key_P, node_table_T, num_nodes - 2, key, slot)
                token_of = grow(token_of, num_nodes + 1)
                token_of[num_nodes] = -1
                num_nodes += 1
                node = num_nodes - 1
            else:
                node = np.int64(node_table_T[slot]) + 2
        token = token_of[node]
        if token < 0:
            token = num_tokens
            num_tokens += 1
            token_of[node] = token
            node_V, first_V = grow(node_V, num_tokens), grow(first_V, num_tokens + 1)
            node_V[token] = node
            length = first_V[left + 1] - first_V[left]
            char_L = grow(char_L, num_chars + length + first_V[right + 1] - first_V[right])
            for source in (left, right):
                for at in range(first_V[source], first_V[source + 1]):
                    char_L[num_chars] = char_L[at]
                    num_chars += 1
            first_V[num_tokens] = num_chars
        if num_merges == len(merge_M):
            more = np.empty((2 * num_merges, 3), np.int64)
            more[:num_merges] = merge_M
            merge_M = more
        merge_M[num_merges, 0], merge_M[num_merges, 1], merge_M[num_merges, 2] = left, right, token
        num_merges += 1
