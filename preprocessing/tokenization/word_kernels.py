"""Kernels that split UTF-8 into words and count them: as BERT does, and as GPT-2 does.

Shapes: B bytes, C code points (0x110000), S symbols of all words, N distinct words, D texts, T slots of a hash table
(a power of two, at most half of them used; -1 is free).
"""

from typing import Any, Final

import numpy as np

from preprocessing.tokenization.kernels import grow, kernel, scramble

CHARACTER: Final = (1 << 21) - 1  # mask of the code point in a value of out_C
PUNCTUATION: Final = 1 << 21  # flag in out_C: the character is a word
REMOVED, SPACE, SEQUENCE = -1, -2, -3  # values of out_C; SEQUENCE - k: several characters, from item_K[k]
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
        hash ^= hash >> np.uint64(32)
    return scramble(hash)


@kernel
def _find_word(words: Any, hash: Any, start: int, stop: int) -> int:
    """Return the number of the word that symbols have from start to stop, or -1 - slot if it is new."""
    symbol_S, start_N, _, hash_N, table_T, _ = words
    slot = np.int64(hash & np.uint64(len(table_T) - 1))
    while table_T[slot] >= 0:
        word = np.int64(table_T[slot])
        first = start_N[word]
        if hash_N[word] == hash and start_N[word + 1] - first == stop - start:
            at = 0
            while at < stop - start and symbol_S[first + at] == symbol_S[start + at]:
                at += 1
            if at == stop - start:
                return word
        slot = (slot + 1) & (len(table_T) - 1)
    return -1 - slot


@kernel
def _add_word(words: Any, hash: Any, stop: int, slot: int) -> Any:
    """Return the words with a new one, whose symbols end at stop."""
    symbol_S, start_N, count_N, hash_N, table_T, num = words
    start_N, count_N, hash_N = grow(start_N, num + 2), grow(count_N, num + 1), grow(hash_N, num + 1)
    start_N[num + 1], count_N[num], hash_N[num], table_T[slot] = stop, 1, hash, num
    num += 1
    if 2 * num > len(table_T):
        table_T = np.full(2 * len(table_T), -1, np.int32)
        for word in range(num):
            slot = np.int64(hash_N[word] & np.uint64(len(table_T) - 1))
            while table_T[slot] >= 0:
                slot = (slot + 1) & (len(table_T) - 1)
            table_T[slot] = word
    return symbol_S, start_N, count_N, hash_N, table_T, num


@kernel
def count_bert_words(byte_B: Any, out_C: Any, item_K: Any, times_C: Any, words: Any) -> Any:
    """Count the words of UTF-8 as BERT splits it, and its characters in times_C. The last byte must be white space.

    Sources: BasicTokenizer of google-research/bert; BertNormalizer and BertPreTokenizer of `tokenizers`.

    `out_C`, int32: what the normalizer makes of a character. `item_K`, int32: the results of characters that become
    several; REMOVED ends each. `words`: symbol_S int32, start_N int64, count_N int64, hash_N uint64, table_T int32, and
    the number of words; symbols are code points.
    """
    start = words[1][words[5]]
    stop, at, item = start, 0, -1
    while at < len(byte_B):
        if item >= 0:
            item += 1
            out = item_K[item]
            if out == REMOVED:
                item = -1
                continue
        else:
            code, size = _decode(byte_B, at)
            at += size
            times_C[code] += 1
            out = out_C[code]
            if out <= SEQUENCE:
                item = SEQUENCE - out
                out = item_K[item]
        if stop >= len(words[0]):
            words = grow(words[0], stop + 1), words[1], words[2], words[3], words[4], words[5]
        if 0 <= out < PUNCTUATION:
            words[0][stop] = out
            stop += 1
            continue
        while out != REMOVED:
            if stop > start:
                hash = _hash_word(words[0], start, stop)
                word = _find_word(words, hash, start, stop)
                if word >= 0:
                    words[2][word] += 1
                else:
                    words = _add_word(words, hash, stop, -1 - word)
                    start = stop
                    if stop >= len(words[0]):
                        words = grow(words[0], stop + 1), words[1], words[2], words[3], words[4], words[5]
                stop = start
            if out < PUNCTUATION:
                break
            words[0][start], stop, out = out & CHARACTER, start + 1, SPACE
    return words


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
def count_gpt2_words(byte_B: Any, stop_D: Any, kind_C: Any, words: Any) -> Any:
    r"""Count the words of UTF-8 texts, which end at stop_D, as GPT-2's pattern splits them.

    Source: encoder.py of openai/gpt-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

    `kind_C`, uint8: LETTER, DIGIT, MARK or WHITE. `words`: as in count_bert_words; symbols are bytes, uint8.
    """
    start, at = words[1][words[5]], 0
    for stop in stop_D:
        while at < stop:
            end = _gpt2_word_end(byte_B, at, stop, kind_C)
            length = end - at
            if start + length > len(words[0]):
                words = grow(words[0], start + length), words[1], words[2], words[3], words[4], words[5]
            for offset in range(length):
                words[0][start + offset] = byte_B[at + offset]
            hash = _hash_word(words[0], start, start + length)
            word = _find_word(words, hash, start, start + length)
            if word >= 0:
                words[2][word] += 1
            else:
                words = _add_word(words, hash, start + length, -1 - word)
                start += length
            at = end
    return words
