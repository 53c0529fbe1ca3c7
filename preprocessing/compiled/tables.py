"""The addresses of text and plans for kernels.

Addresses are valid in the process that made them and in its forks, as long as the arrays exist. So each table keeps
its arrays, and no table is pickled.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from preprocessing.packing import PackingPlan
from preprocessing.schema import Ints
from preprocessing.shards import Shard


class Lines(NamedTuple):
    """L token lines, each a shard or a pool of shards (packing/pool.py); K shards in total, one after the other.

    All columns are int64, except the addresses, which are uint64.
    """

    first_L1: Ints  # the first shard of each line, and K
    begin_K: Ints  # the position of the first token of the shard on its line
    ids_K: Ints  # address of the tokens
    width_K: Ints  # bytes of a token: 2 or 4
    words_K: Ints  # address of the bits of word starts
    sentences_K: Ints  # address of the bits of sentence starts


class Plans(NamedTuple):
    """K packing plans. Columns are int64, except the addresses, which are uint64."""

    end_K: Ints  # number of sequences up to and including plan k
    start_K: Ints  # address of start_RP
    start_width_K: Ints
    stop_K: Ints
    stop_width_K: Ints
    label_K: Ints  # address of pair_label_R; 0 without labels
    separator_K: Ints  # address of separator_at_N
    num_separators_K: Ints
    piece_K: Ints  # address of piece_2Q
    piece_width_K: Ints
    num_pieces_K: Ints


class Places(NamedTuple):
    """The place of B sequences in the text: line, separators and pieces of its plan, P parts, and label."""

    line_B: Ints
    separator_B: Ints  # address
    num_separators_B: Ints
    piece_B: Ints  # address
    piece_width_B: Ints
    num_pieces_B: Ints
    start_BP: Ints
    stop_BP: Ints
    label_B: Ints


class RowOptions(NamedTuple):
    """The special tokens that packing inserts, and the columns of starts that are wanted."""

    cls: int
    sep: int
    wants_words: bool
    wants_sentences: bool


def make_lines(lines: Sequence[Shard], wanted: Collection[int] | None = None) -> tuple[Lines, list[np.ndarray]]:
    """The table of these lines, and the arrays that it points to.

    With `wanted`, only the lines with these numbers are opened. All others have no addresses.
    """
    kept, first, rows = list[np.ndarray](), [0], list[tuple[int, ...]]()
    addresses = dict[int, tuple[int, ...]]()  # a shard may belong to several pools
    for number, line in enumerate(lines):
        shards: Sequence[Shard] = getattr(line, "shards", (line,))
        begins: Sequence[int] = line.begin_K[:-1].tolist() if hasattr(line, "begin_K") else (0,)
        for shard, begin in zip(shards, begins, strict=True):
            if wanted is not None and number not in wanted:
                rows.append((begin, 0, 2, 0, 0))
                continue
            if id(shard) not in addresses:
                arrays = [shard.ids_T, shard.word_start_bits, shard.sentence_start_bits]
                arrays = [np.ascontiguousarray(array) for array in arrays]
                kept += arrays
                ids, words, sentences = (array.ctypes.data for array in arrays)
                addresses[id(shard)] = (ids, arrays[0].dtype.itemsize, words, sentences)
            rows.append((begin, *addresses[id(shard)]))
        first.append(len(rows))
    begin_K, ids_K, width_K, words_K, sentences_K = (list(column) for column in zip(*rows, strict=True))
    table = Lines(
        _ints(first), _ints(begin_K), _addresses(ids_K), _ints(width_K), _addresses(words_K), _addresses(sentences_K)
    )
    return table, kept


def make_plans(plans: Sequence[PackingPlan], end_K: Ints) -> tuple[Plans, list[np.ndarray]]:
    """The table of these plans, and the arrays that it points to."""
    parts = ("start_RP", "stop_RP", "pair_label_R", "separator_at_N", "piece_2Q")
    columns = [[np.ascontiguousarray(getattr(plan, name)) for plan in plans] for name in parts]
    start_K, stop_K, label_K, separator_K, piece_K = (
        _addresses([one.ctypes.data for one in column]) for column in columns
    )
    start_width_K, stop_width_K, _, _, piece_width_K = (
        _ints([one.dtype.itemsize for one in column]) for column in columns
    )
    num_labels_K, num_separators_K, num_pieces_K = (_ints([one.shape[-1] for one in column]) for column in columns[2:])
    table = Plans(
        end_K=end_K.astype(np.int64),
        start_K=start_K,
        start_width_K=start_width_K,
        stop_K=stop_K,
        stop_width_K=stop_width_K,
        label_K=np.where(num_labels_K > 0, label_K, 0).astype(np.uint64),
        separator_K=separator_K,
        num_separators_K=num_separators_K,
        piece_K=piece_K,
        piece_width_K=piece_width_K,
        num_pieces_K=num_pieces_K,
    )
    return table, [one for column in columns for one in column]


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _addresses(values: Sequence[int]) -> Ints:
    return np.array(values, np.uint64)
