"""The two sides of a row for sequence to sequence: what the encoder reads, and what the decoder predicts."""

import numpy as np

from preprocessing.schema import Ints, Row


def two_sides(row: Row, source_U: Ints, answer_S: Ints, start: int | None) -> Row:
    """A row of which the encoder reads `source_U`, and the decoder, after `start`, predicts `answer_S` in order.

    What the decoder reads is the answer shifted right (teacher forcing). Columns with a value for each token of the old
    row are left behind, for there are other tokens now; a label of the whole row stays.

    >>> made = two_sides({"input_ids": np.arange(9)}, np.array([5, 6]), np.array([7, 8, 3]), start=0)
    >>> made["source_input_ids"].tolist(), made["input_ids"].tolist(), made["labels"].tolist()
    ([5, 6], [0, 7, 8], [7, 8, 3])
    """
    ids_S = np.full(len(answer_S), start, dtype=np.int32)
    ids_S[1:] = answer_S[:-1]
    return {name: column for name, column in row.items() if not np.ndim(column)} | {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(len(ids_S), dtype=np.int8),
        "labels": answer_S.astype(np.int32),
        "source_input_ids": source_U.astype(np.int32),
    }


def add_end(ids: Ints, end: int | None) -> Ints:
    """The ids with `end` behind them, int32.

    >>> add_end(np.array([5, 6]), 3).tolist()
    [5, 6, 3]
    """
    longer = np.full(len(ids) + 1, end, dtype=np.int32)
    longer[:-1] = ids
    return longer
