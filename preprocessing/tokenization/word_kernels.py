"""Kernels that split UTF-8 into words and count them: as BERT does, and as GPT-2 does.

Shapes: B bytes, C code points (0x110000), S symbols of all words, N distinct words, D texts, T slots of a hash table
(a power of two, at most half of them used; -1 is free).
"""

from typing import Any, Final

import numpy as np

from preprocessing.jit import kernel
from preprocessing.tokenization.kernels import grow, scramble

CHARACTER: Final = (1 << 21) - 1  # mask of the code point in a value of out_C
PUNCTUATION: Final = 1 << 21  # flag in out_C: the character is a word
REMOVED, SPACE, SEQUENCE = -1, -2, -3  # values of out_C; SEQUENCE - k: several characters, from item_K[k]
_MORE: Final = 1 << 14  # words and symbols for which there is space when a kernel starts to count
LETTER, DIGIT, MARK, WHITE = 1, 2, 3, 4  # kinds of characters in GPT-2's pattern


@kernel
def _decode(byte_B: Any, at: int) -> Any:
    """Return the code point at a byte of valid UTF-8, and its number of bytes."""
    first = np.int64(byte_B[at])
    if first < 0x80:
        return first, 1
    second = byte_B[at + 1] & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, 2
    third = byte_B[at + 2] & 0x3F
    if first < 0xF0:
        return (first & 0xF) << 12 | second << 6 | third, 3
    return (first & 0x7) << 18 | second << 12 | third << 6 | (byte_B[at + 3] & 0x3F), 4


@kernel
def find_new(byte_B: Any, is_known_C: Any) -> Any:
    """Return the code points above ASCII that are not known, int64 [new], and mark them as known."""
    new, num, at = np.empty(16, np.int64), 0, 0
    while at < len(byte_B):
        if byte_B[at] < 0x80:
            at += 1
            continue
        code, size = _decode(byte_B, at)
        at += size
        if not is_known_C[code]:
            is_known_C[code] = True
            new = grow(new, num + 1)
            new[num] = code
            num += 1
    return new[:num]


@kernel
def longest_run(byte_B: Any, run_C: Any) -> int:
    """Return the length in characters of the longest run of one kind; kind 0 does not count."""
    longest, length, kind, at = 0, 0, 0, 0
    while at < len(byte_B):
        code, size = _decode(byte_B, at)
        at += size
        if run_C[code] != kind:
            kind, length = run_C[code], 0
        if kind:
            length += 1
            longest = max(longest, length)
    return longest


@kernel
def _hash_word(symbol_S: Any, start: int, stop: int) -> Any:
    hash = np.uint64(stop - start)
    for at in range(start, stop):
        hash = (hash ^ np.uint64(symbol_S[at])) * np.uint64(0x9E3779B97F4A7C15)
    return scramble(hash)


@kernel
def _find_word(
    text_B: Any, start: int, stop: int, hash: Any, symbol_S: Any, start_N: Any, hash_N: Any, table_T: Any
) -> Any:
    """Return the number of the word that the text has from start to stop, or -1 - slot if it is new."""
    slot = np.int64(hash & np.uint64(len(table_T) - 1))
    while table_T[slot] >= 0:
        word = np.int64(table_T[slot])
        first = start_N[word]
        if hash_N[word] == hash and start_N[word + 1] - first == stop - start:
            at = 0
            while at < stop - start and symbol_S[first + at] == text_B[start + at]:
                at += 1
            if at == stop - start:
                return word
        slot = (slot + 1) & (len(table_T) - 1)
    return -1 - slot


@kernel
def _grow_words(
    symbol_S: Any, start_N: Any, count_N: Any, hash_N: Any, table_T: Any, num: int, stop: int, more: int
) -> Any:
    """Return the arrays with space for `more` words and symbols.

    A kernel that counts returns when they are full: one that replaced arrays in its loop would take four times as long.
    """
    if 2 * (num + more) > len(table_T):
        table_T = np.full(4 * max(len(table_T), more), -1, np.int32)
        for word in range(num):
            slot = np.int64(hash_N[word] & np.uint64(len(table_T) - 1))
            while table_T[slot] >= 0:
                slot = (slot + 1) & (len(table_T) - 1)
            table_T[slot] = word
    start_N, count_N, hash_N = grow(start_N, num + more + 1), grow(count_N, num + more), grow(hash_N, num + more)
    return grow(symbol_S, stop + more), start_N, count_N, hash_N, table_T


@kernel
def _count_bert_words(
    byte_B: Any,
    out_C: Any,
    item_K: Any,
    times_C: Any,
    symbol_S: Any,
    start_N: Any,
    count_N: Any,
    hash_N: Any,
    table_T: Any,
    state: Any,
) -> None:
    (at, item, stop, num), out = state, REMOVED
    last_symbol, last_word = len(symbol_S) - 1, min(len(count_N), len(table_T) // 2) - 1
    while at < len(byte_B) and stop < last_symbol and num < last_word:
        if item < 0:
            code, size = _decode(byte_B, at)
            at += size
            times_C[code] += 1
            out = out_C[code]
            if out <= SEQUENCE:
                item = SEQUENCE - out
        if item >= 0:
            out = item_K[item]
            item = item + 1 if out != REMOVED else -1
        if 0 <= out < PUNCTUATION:
            symbol_S[stop] = out
            stop += 1
            continue
        while out != REMOVED:
            start = start_N[num]
            if stop > start:
                hash = _hash_word(symbol_S, start, stop)
                word = _find_word(symbol_S, start, stop, hash, symbol_S, start_N, hash_N, table_T)
                if word >= 0:
                    count_N[word] += 1
                    stop = start
                else:
                    start_N[num + 1], count_N[num], hash_N[num], table_T[-1 - word] = stop, 1, hash, num
                    num += 1
            if out == SPACE:
                break
            symbol_S[stop], out = out & CHARACTER, SPACE
            stop += 1
    state[:] = at, item, stop, num


@kernel
def count_bert_words(byte_B: Any, out_C: Any, item_K: Any, times_C: Any, words: Any, num: int) -> Any:
    """Count the words of UTF-8 as BERT splits it, and its characters in times_C. The last byte must be white space.

    Sources: BasicTokenizer of google-research/bert; BertNormalizer and BertPreTokenizer of `tokenizers`.

    `out_C`, int32: what the normalizer makes of a character. `item_K`, int32: the results of characters that become
    several; REMOVED ends each. `words`: symbol_S int32, start_N int64, count_N int64, hash_N uint64 and table_T int32,
    of `num` words; symbols are code points. Return the words and their number.
    """
    state = np.array([0, -1, words[1][num], num])  # next byte, next item or -1, end of the symbols, number of words
    while state[0] < len(byte_B):
        words = _grow_words(*words, state[3], state[2], _MORE)
        _count_bert_words(byte_B, out_C, item_K, times_C, *words, state)
    return words, state[3]


@kernel
def _contraction(byte_B: Any, at: int, stop: int) -> int:
    """Return the length of 's, 't, 'm, 'd, 're, 've or 'll after an apostrophe; 0 if there is none."""
    one = byte_B[at] if at < stop else 0
    if one == ord("s") or one == ord("t") or one == ord("m") or one == ord("d"):
        return 1
    two = byte_B[at + 1] if at + 1 < stop else 0
    if two == ord("e") and (one == ord("r") or one == ord("v")):
        return 2
    return 2 if one == ord("l") and two == ord("l") else 0


@kernel
def _gpt2_word_end(byte_B: Any, at: int, stop: int, kind_C: Any) -> int:
    """Return where the word ends that GPT-2's pattern finds at a byte."""
    if byte_B[at] == ord("'"):
        length = _contraction(byte_B, at + 1, stop)
        if length:
            return at + 1 + length
    code, size = _decode(byte_B, at)
    kind, end = kind_C[code], at + size
    if code == ord(" ") and end < stop:
        after, length = _decode(byte_B, end)
        if kind_C[after] != WHITE:
            kind, end, size = kind_C[after], end + length, length
    last = end - size
    while end < stop:
        code, size = _decode(byte_B, end)
        if kind_C[code] != kind:
            break
        last = end
        end += size
    # the last of several white characters is left for the word after it
    return last if kind == WHITE and end < stop and last > at else end


@kernel
def _count_gpt2_words(
    byte_B: Any,
    end_D: Any,
    kind_C: Any,
    symbol_S: Any,
    start_N: Any,
    count_N: Any,
    hash_N: Any,
    table_T: Any,
    state: Any,
) -> None:
    at, text, more, num = state
    last_word = min(len(count_N), len(table_T) // 2) - 1
    while text < len(end_D) and num < last_word:
        end = end_D[text]
        if at == end:
            text += 1
            continue
        stop = _gpt2_word_end(byte_B, at, end, kind_C)
        hash = _hash_word(byte_B, at, stop)
        word = _find_word(byte_B, at, stop, hash, symbol_S, start_N, hash_N, table_T)
        if word >= 0:
            count_N[word] += 1
        else:
            start, more = start_N[num], stop - at
            if start + more > len(symbol_S):
                break
            symbol_S[start : start + more] = byte_B[at:stop]
            start_N[num + 1], count_N[num], hash_N[num], table_T[-1 - word] = start + more, 1, hash, num
            num += 1
        at = stop
    state[:] = at, text, more, num


@kernel
def count_gpt2_words(byte_B: Any, end_D: Any, kind_C: Any, words: Any, num: int) -> Any:
    r"""Count the words of UTF-8 texts, which end at end_D, as GPT-2's pattern splits them.

    Source: encoder.py of openai/gpt-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

    `kind_C`, uint8: LETTER, DIGIT, MARK or WHITE. `words`, `num`: as in count_bert_words; symbols are bytes, uint8.
    Return the words and their number.
    """
    state = np.array([0, 0, 0, num])  # next byte, its text, symbols of the last new word, number of words
    while state[1] < len(end_D):
        words = _grow_words(*words, state[3], words[1][state[3]], max(_MORE, state[2]))
        _count_gpt2_words(byte_B, end_D, kind_C, *words, state)
    return words, state[3]
