"""The packed sequences of a batch, between the kernels of packing and those of the objective."""

from typing import NamedTuple

import numpy as np

from preprocessing.compiled.packing import count_positions
from preprocessing.schema import Batch, Bools, Ints


class CompiledRows(NamedTuple):
    """B concatenated sequences of T tokens; columns as in packing.py."""

    first_B1: Ints
    ids_T: Ints
    types_T: Ints
    special_T: Bools
    word_starts_T: Bools
    sentence_starts_T: Bools
    position_T: Ints | None  # None if positions are 0, 1, 2, ...
    label_B: Ints | None  # next_sentence_label


def make_batch(
    rows: CompiledRows, first_B1: Ints, ids_T: Ints, types_T: Ints, target_at_M: Ints, target_M: Ints
) -> Batch:
    """The columns of an unpadded batch with these tokens, as collate_unpadded makes them."""
    is_same = first_B1 is rows.first_B1
    batch = {
        "input_ids": ids_T,
        "token_type_ids": types_T,
        "positions": rows.position_T if is_same and rows.position_T is not None else count_positions(first_B1),
        "lengths": np.diff(first_B1).astype(np.int32),
        "first_at": first_B1[:-1],
        "targets_at": target_at_M,
        "targets": target_M,
    }
    return batch if rows.label_B is None else batch | {"next_sentence_label": rows.label_B}
