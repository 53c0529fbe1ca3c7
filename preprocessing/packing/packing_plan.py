"""The plan of a shard, and functions that all kinds of packing use to build sequences from it.

A shard is one line of tokens: documents follow each other, and sentence starts are positions on that line. If sequences
have separators between documents, the line has a position for each separator too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from preprocessing.schema import Bools, Ints, Row
from preprocessing.shards import Shard
from preprocessing.tokenization import Vocab

EMITTED: Final = frozenset({"input_ids", "token_type_ids", "special_tokens_mask", "word_starts"})
"""Columns that every packing produces; `sentence_starts` and `unit_starts` are added if they are needed."""

Columns = frozenset[str]


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class PackingPlan:
    """The R sequences of one shard, of P parts each.

    Part p of sequence i covers the positions [start_RP[i, p], stop_RP[i, p]).
    """

    start_RP: Ints
    stop_RP: Ints
    counts: dict[str, int]  # for the data card
    # int8: label of each pair of segments; only if the packing has such labels
    pair_label_R: Ints = field(default_factory=_none)
    separator_at_N: Ints = field(default_factory=_none)  # int64: positions of separators on the line, if any
    # int64, ParallelSentences: first token of the sentence that each separator ends
    text_at_N: Ints = field(default_factory=_none)
    # BestFit: place of each piece of a document among the packed tokens, ascending, and its first token in the text
    piece_2Q: Ints = field(default_factory=_none)
    # int8, ParallelSentences and SingleSentence: language of each part, -1 if the part is missing
    language_RP: Ints = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.start_RP)


def separators(shard: Shard) -> Ints:
    """Return the position of the separator after each document, on the line with separators, int64 [N]."""
    return shard.offset_N1[1:] + np.arange(len(shard.offset_N1) - 1)


def sentences_on_line(shard: Shard) -> Ints:
    """Return the positions of sentence starts on the line with a separator after each document, int64 [M]."""
    return shard.sentence_at_M + np.searchsorted(shard.offset_N1, shard.sentence_at_M, side="right") - 1


def stretch(plan: PackingPlan, start: int, stop: int) -> tuple[Bools, tuple[int, int]]:
    """Return the separator mask of positions [start, stop) on a line with separators, and their range of tokens."""
    before, after = np.searchsorted(plan.separator_at_N, (start, stop)).tolist()
    special_S = np.zeros(stop - start, dtype=bool)
    special_S[plan.separator_at_N[before:after] - start] = True
    return special_S, (start - before, stop - after)


def row_of(
    special_S: Bools, parts: Sequence[tuple[int, int]], shard: Shard, vocab: Vocab, wanted: Columns = frozenset()
) -> Row:
    """Return the columns of a sequence: the separator at special positions, the tokens of `parts` at all others."""
    ids_S = np.full(len(special_S), vocab.sep, dtype=np.int32)
    ids_S[~special_S] = np.concatenate([shard.ids_T[start:stop] for start, stop in parts])
    row: Row = {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(len(ids_S), dtype=np.int8),
        "special_tokens_mask": special_S,
        "word_starts": _starts(special_S, [shard.word_starts(*part) for part in parts]),
    }
    if shard.has_units:
        row["unit_starts"] = _starts(special_S, [shard.unit_starts(*part) for part in parts])
    if "sentence_starts" in wanted:
        row["sentence_starts"] = _starts(special_S, [shard.sentence_starts(*part) for part in parts])
    return row


def _starts(special_S: Bools, starts: list[Bools]) -> Bools:
    """Return the starts of words, units or sentences in a sequence; special tokens separate them."""
    starts_S = special_S.copy()
    starts_S[~special_S] = np.concatenate(starts)
    starts_S[0] = True
    starts_S[1:] |= special_S[:-1]
    return starts_S


def count_up(num_D: Ints) -> Ints:
    """Return 0, 1, ... num[0] - 1, then 0, 1, ... num[1] - 1, and so on.

    >>> count_up(np.array([3, 0, 2])).tolist()
    [0, 1, 2, 0, 1]
    """
    return np.arange(num_D.sum()) - np.repeat(np.cumsum(num_D) - num_D, num_D)


def windows(begin_D: Ints, end_D: Ints, stride: int, lookahead: int) -> tuple[Ints, Ints]:
    """Return start and stop of windows of at least two tokens over the ranges [begin, end), one every `stride`."""
    num_D = (end_D - begin_D - 2) // stride + 1
    start_R = np.repeat(begin_D, num_D) + stride * count_up(num_D)
    return start_R, np.minimum(start_R + stride + lookahead, np.repeat(end_D, num_D))


def excess(start_RP: Ints, stop_RP: Ints, room: int) -> Ints:
    """Return how many tokens to remove from each of two parts, so that both fit into `room`.

    Tokens are removed one by one from the longer part, or from the second if both are equal.

    >>> excess(np.array([[0, 0]]), np.array([[9, 4]]), room=8).tolist()
    [[5, 0]]
    """
    long_a_R, long_b_R = (stop_RP - start_RP).T
    excess_R = np.maximum(long_a_R + long_b_R - room, 0)
    from_a_R = np.clip(
        long_a_R - long_b_R, 0, excess_R
    )  # first only the longer part, until both are equal; then alternately
    from_b_R = np.clip(long_b_R - long_a_R, 0, excess_R)
    alternating_R = excess_R - from_a_R - from_b_R
    return np.stack([from_a_R + alternating_R // 2, from_b_R + (alternating_R + 1) // 2], axis=1)


def compact(position_RP: Ints) -> Ints:
    """Convert to the smallest unsigned type that holds the values, because plans stay in memory."""
    return position_RP.astype(np.min_scalar_type(position_RP.max(initial=0)))
