import numpy as np
import pytest

from preprocessing.collate import padded, unpadded
from preprocessing.schema import IGNORE

SHORT = {
    "ids": np.array([2, 10, 3], np.int32),
    "segments": np.array([0, 0, 0], np.int8),
    "labels": np.array([IGNORE, 77, IGNORE], np.int32),
    "pair_label": np.int8(1),
}
LONG = {
    "ids": np.array([2, 11, 3, 12, 3], np.int32),
    "segments": np.array([0, 0, 0, 1, 1], np.int8),
    "labels": np.array([IGNORE, IGNORE, IGNORE, 88, 99], np.int32),
    "pair_label": np.int8(0),
}
DTYPES = {"ids": "int64", "positions": "int64", "segments": "int64", "lengths": "int32", "first_at": "int64"}
DTYPES |= {"targets_at": "int64", "targets": "int64", "pair_label": "int64"}


def test_unpadded_lays_rows_end_to_end():
    batch = unpadded([SHORT, LONG])
    assert {name: column.tolist() for name, column in batch.items()} == {
        "ids": [2, 10, 3, 2, 11, 3, 12, 3],
        "positions": [0, 1, 2, 0, 1, 2, 3, 4],
        "segments": [0, 0, 0, 0, 0, 0, 1, 1],
        "lengths": [3, 5],
        "first_at": [0, 3],
        "targets_at": [1, 6, 7],
        "targets": [77, 88, 99],
        "pair_label": [1, 0],
    }


def test_padded_fills_up_on_the_right():
    batch = padded([SHORT, LONG], length=6, pad=9)
    assert {name: column.tolist() for name, column in batch.items()} == {
        "ids": [[2, 10, 3, 9, 9, 9], [2, 11, 3, 12, 3, 9]],
        "positions": [[0, 1, 2, 3, 4, 5]] * 2,
        "segments": [[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]],
        "lengths": [3, 5],
        "first_at": [0, 6],
        "targets_at": [1, 9, 10],
        "targets": [77, 88, 99],
        "pair_label": [1, 0],
    }


@pytest.mark.parametrize("batch", [unpadded([SHORT, LONG]), padded([SHORT, LONG], 6, 0)], ids=["unpadded", "padded"])
def test_batches_have_the_types_of_the_schema(batch):
    assert {name: str(column.dtype) for name, column in batch.items()} == DTYPES


def test_a_row_of_exactly_the_length_fits_and_a_longer_one_is_an_error():
    assert padded([LONG], length=5, pad=0)["ids"].tolist() == [[2, 11, 3, 12, 3]]
    with pytest.raises(ValueError, match="a row of 5 tokens does not fit a batch of length 4"):
        padded([SHORT, LONG], length=4, pad=0)


def test_rows_without_pair_labels_give_a_batch_without():
    plain = {name: column for name, column in LONG.items() if name != "pair_label"}
    assert "pair_label" not in unpadded([plain])
