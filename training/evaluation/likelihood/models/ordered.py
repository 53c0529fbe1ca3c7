"""Sequences for a model that was trained to predict in any order (XLNet), in the order of the text.

A query attends to the tokens before its position, not to its own token. A content state attends to the tokens before
it and to itself. So all tokens of a sequence are predicted at once, each from the tokens before it.
"""

from collections.abc import Sequence

import numpy as np

from preprocessing.schema import IGNORE, Row


def in_order(ids: Sequence[int], first: int) -> Row:
    """A sequence whose tokens from index `first` on are predicted at their own positions, from the tokens before
    them.

    >>> row = in_order([5, 6, 7], 1)
    >>> row["labels"].tolist(), row["rank"].tolist(), row["reach"].tolist()
    ([-100, 6, 7], [0, 1, 2], [-1, 0, 1])
    """
    ids_S, place_S = np.array(ids, np.int32), np.arange(len(ids), dtype=np.int32)
    labels_S = np.where(place_S >= first, ids_S, IGNORE).astype(np.int32)
    return {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(len(ids_S), np.int8),
        "labels": labels_S,
        "rank": place_S,
        "reach": place_S - 1,
    }
