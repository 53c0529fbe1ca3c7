"""Byte-pair encoding over counted words, for WordPiece and byte-level BPE. The kernel is in merges.py."""

from collections.abc import Sequence

import numpy as np

from preprocessing.tokenization.word_counts import WordCounts


def merge_pieces(
    words: WordCounts, pieces: Sequence[str], symbols: Sequence[int], prefix: str, max_pieces: int, least: int
) -> tuple[list[str], list[tuple[str, str]]]:
    """Merge the pairs of pieces that are most frequent in the words, while one occurs `least` times.

    `symbols`: the symbol of words that each of the pieces stands for, or -1. `prefix`: how a piece inside words begins;
    "" if all pieces can be anywhere. Symbols without a piece are skipped. Return the pieces with the new ones, and the
    pairs; a repeated pair has its last place.
    """
    from preprocessing.tokenization.merges import merge_words

    symbol_V = np.array(symbols, np.int32)
    is_inside_V = np.array([bool(prefix) and len(piece) > 1 and piece.startswith(prefix) for piece in pieces])
    symbol_S, bound_N = _number(words, symbol_V, is_inside_V, bool(prefix))
    word_N = np.stack([bound_N[:-1], bound_N[1:], words.count_N], axis=1)
    word_N = word_N[word_N[:, 1] - word_N[:, 0] > 1]
    merge_M = merge_words(symbol_S, word_N, symbol_V, is_inside_V, max_pieces, least)
    found, pairs = list(pieces), dict[tuple[str, str], None]()
    for left, right, id in merge_M.tolist():
        if id == len(found):
            found.append(found[left] + found[right].removeprefix(prefix))
        pair = found[left], found[right]
        pairs.pop(pair, None)
        pairs[pair] = None
    return found, list(pairs)


def _number(
    words: WordCounts, symbol_V: np.ndarray, is_inside_V: np.ndarray, by_place: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the IDs of the pieces of the words, int32, and the bounds of words in them, int64 [N + 1]."""
    first_C = np.full(max(int(words.symbol_S.max(initial=0)), int(symbol_V.max())) + 1, -1, np.int32)
    inside_C = first_C.copy() if by_place else first_C
    ids = np.arange(len(symbol_V))
    for table_C, is_one_V in ((first_C, ~is_inside_V), (inside_C, is_inside_V)):
        is_one_V = is_one_V & (symbol_V >= 0)
        table_C[symbol_V[is_one_V]] = ids[is_one_V]
    id_S = inside_C[words.symbol_S]
    start_N = words.start_N[:-1]
    id_S[start_N] = first_C[words.symbol_S[start_N]]
    is_piece_S = id_S >= 0
    if is_piece_S.all():
        return id_S, words.start_N
    bound_N = np.concatenate([[0], np.cumsum(is_piece_S)])[words.start_N]
    return id_S[is_piece_S], bound_N
