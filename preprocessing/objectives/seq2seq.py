"""Encoder input and decoder targets of sequence-to-sequence objectives."""

import numpy as np

from preprocessing.schema import Ints, Row


def two_sides(row: Row, source_U: Ints, target_S: Ints, start: int | None) -> Row:
    """Return a sequence with the encoder input `source_U` and the decoder targets `target_S`.

    The decoder reads `start` and then the targets shifted right (teacher forcing). Columns of `row` with one value per
    token are dropped, because the tokens change; columns with one value per sequence stay.

    >>> made = two_sides({"input_ids": np.arange(9)}, np.array([5, 6]), np.array([7, 8, 3]), start=0)
    >>> made["source_input_ids"].tolist(), made["input_ids"].tolist(), made["labels"].tolist()
    ([5, 6], [0, 7, 8], [7, 8, 3])
    """
    ids_S = np.full(len(target_S), start, dtype=np.int32)
    ids_S[1:] = target_S[:-1]
    return {name: column for name, column in row.items() if not np.ndim(column)} | {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(len(ids_S), dtype=np.int8),
        "labels": target_S.astype(np.int32),
        "source_input_ids": source_U.astype(np.int32),
    }


def add_end(ids: Ints, end: int | None) -> Ints:
    """Append `end` to the IDs, int32.

    >>> add_end(np.array([5, 6]), 3).tolist()
    [5, 6, 3]
    """
    longer = np.full(len(ids) + 1, end, dtype=np.int32)
    longer[:-1] = ids
    return longer
