"""Log-probabilities by a net that was trained to predict in any order (XLNet): in the order of the text.

A query at a place sees the tokens before it and not its own; content sees what is before it and itself. So all tokens
of a row are predicted at once, each from those before it.
"""

from collections.abc import Sequence

import numpy as np

from preprocessing.schema import IGNORE, Row


def in_order(ids: Sequence[int], asked: int) -> Row:
    """A row whose tokens from number `asked` on are predicted at their own places, each from those before it.

    >>> row = in_order([5, 6, 7], 1)
    >>> row["labels"].tolist(), row["rank"].tolist(), row["reach"].tolist()
    ([-100, 6, 7], [0, 1, 2], [-1, 0, 1])
    """
    ids_S, place_S = np.array(ids, np.int32), np.arange(len(ids), dtype=np.int32)
    labels_S = np.where(place_S >= asked, ids_S, IGNORE).astype(np.int32)
    return {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(len(ids_S), np.int8),
        "labels": labels_S,
        "rank": place_S,
        "reach": place_S - 1,
    }
