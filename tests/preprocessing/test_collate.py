import numpy as np
import pytest

from preprocessing.collate import collate_padded, collate_unpadded
from preprocessing.schema import IGNORE, UNSEEN, Row

SHORT = {
    "input_ids": np.array([2, 10, 3], np.int32),
    "token_type_ids": np.array([0, 0, 0], np.int8),
    "labels": np.array([IGNORE, 77, IGNORE], np.int32),
    "next_sentence_label": np.int8(1),
}
LONG = {
    "input_ids": np.array([2, 11, 3, 12, 3], np.int32),
    "token_type_ids": np.array([0, 0, 0, 1, 1], np.int8),
    "labels": np.array([IGNORE, IGNORE, IGNORE, 88, 99], np.int32),
    "next_sentence_label": np.int8(0),
}
DTYPES = {
    "input_ids": "int64",
    "positions": "int64",
    "token_type_ids": "int64",
    "lengths": "int32",
    "first_at": "int64",
}
DTYPES |= {"targets_at": "int64", "targets": "int64", "next_sentence_label": "int64"}


def test_unpadded_concatenates_sequences():
    batch = collate_unpadded([SHORT, LONG])
    assert {name: column.tolist() for name, column in batch.items()} == {
        "input_ids": [2, 10, 3, 2, 11, 3, 12, 3],
        "positions": [0, 1, 2, 0, 1, 2, 3, 4],
        "token_type_ids": [0, 0, 0, 0, 0, 0, 1, 1],
        "lengths": [3, 5],
        "first_at": [0, 3],
        "targets_at": [1, 6, 7],
        "targets": [77, 88, 99],
        "next_sentence_label": [1, 0],
    }


def test_padded_pads_on_the_right():
    batch = collate_padded([SHORT, LONG], length=6, pad=9)
    assert {name: column.tolist() for name, column in batch.items()} == {
        "input_ids": [[2, 10, 3, 9, 9, 9], [2, 11, 3, 12, 3, 9]],
        "positions": [[0, 1, 2, 3, 4, 5]] * 2,
        "token_type_ids": [[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]],
        "lengths": [3, 5],
        "first_at": [0, 6],
        "targets_at": [1, 9, 10],
        "targets": [77, 88, 99],
        "next_sentence_label": [1, 0],
    }


@pytest.mark.parametrize(
    "batch", [collate_unpadded([SHORT, LONG]), collate_padded([SHORT, LONG], 6, 0)], ids=["unpadded", "padded"]
)
def test_batches_have_the_dtypes_of_the_schema(batch):
    assert {name: str(column.dtype) for name, column in batch.items()} == DTYPES


def test_a_sequence_longer_than_the_length_is_an_error():
    assert collate_padded([LONG], length=5, pad=0)["input_ids"].tolist() == [[2, 11, 3, 12, 3]]
    with pytest.raises(ValueError, match="invalid sequence: got 5 tokens, expected at most 4"):
        collate_padded([SHORT, LONG], length=4, pad=0)


def test_sequences_without_pair_labels_give_a_batch_without_pair_labels():
    plain = {name: column for name, column in LONG.items() if name != "next_sentence_label"}
    assert "next_sentence_label" not in collate_unpadded([plain])


FROM_LONG: Row = {
    "input_ids": np.array([3, 7], np.int32),
    "token_type_ids": np.zeros(2, np.int8),
    "labels": np.array([7, 3], np.int32),
    "positions": np.array([4, 5], np.int32),
    "source_input_ids": np.array([2, 10, 4, 3], np.int32),
    "source_seen": np.array([True, True, False, True]),
    "languages": np.array([1, 1], np.int8),
    "source_languages": np.array([1, 1, 1, 0], np.int8),
}
FROM_SHORT = {
    "input_ids": np.array([3, 8, 9], np.int32),
    "token_type_ids": np.zeros(3, np.int8),
    "labels": np.array([8, 9, 3], np.int32),
    "positions": np.array([0, 1, 2], np.int32),
    "source_input_ids": np.array([2, 3], np.int32),
    "source_seen": np.array([True, True]),
    "languages": np.zeros(3, np.int8),
    "source_languages": np.zeros(2, np.int8),
}


def test_unpadded_concatenates_source_and_target_sides():
    batch = collate_unpadded([FROM_LONG, FROM_SHORT])
    assert {name: column.tolist() for name, column in batch.items()} == {
        "input_ids": [3, 7, 3, 8, 9],
        "token_type_ids": [0, 0, 0, 0, 0],
        "positions": [4, 5, 0, 1, 2],
        "languages": [1, 1, 0, 0, 0],
        "lengths": [2, 3],
        "first_at": [0, 2],
        "targets_at": [0, 1, 2, 3, 4],
        "targets": [7, 3, 8, 9, 3],
        "source_input_ids": [2, 10, 4, 3, 2, 3],
        "source_positions": [0, 1, 2, 3, 0, 1],
        "source_languages": [1, 1, 1, 0, 0, 0],
        "source_seen": [True, True, False, True, True, True],
        "source_lengths": [4, 2],
    }


def test_each_side_is_padded_to_its_longest_sequence():
    batch = collate_padded([FROM_LONG, FROM_SHORT], length=9, pad=0)
    assert {name: column.tolist() for name, column in batch.items()} == {
        "input_ids": [[3, 7, 0], [3, 8, 9]],
        "token_type_ids": [[0, 0, 0], [0, 0, 0]],
        "positions": [[4, 5, 2], [0, 1, 2]],
        "languages": [[1, 1, 0], [0, 0, 0]],
        "lengths": [2, 3],
        "first_at": [0, 3],
        "targets_at": [0, 1, 3, 4, 5],
        "targets": [7, 3, 8, 9, 3],
        "source_input_ids": [[2, 10, 4, 3], [2, 3, 0, 0]],
        "source_positions": [[0, 1, 2, 3], [0, 1, 2, 3]],
        "source_languages": [[1, 1, 1, 0], [0, 0, 0, 0]],
        "source_seen": [[True, True, False, True], [True, True, False, False]],
        "source_lengths": [4, 2],
    }
    assert batch["source_seen"].dtype == bool


def test_a_source_longer_than_the_length_is_an_error():
    with pytest.raises(ValueError, match="invalid sequence: got 4 tokens, expected at most 3"):
        collate_padded([FROM_LONG, FROM_SHORT], length=3, pad=0)


def test_padding_neither_attends_nor_is_attended_to():
    sight = {"rank": np.array([0, 2, 1], np.int32), "reach": np.array([0, 1, 1], np.int32)}
    batch = collate_padded([SHORT | sight], length=5, pad=0)
    assert batch["rank"].tolist() == [[0, 2, 1, UNSEEN, UNSEEN]]
    assert batch["reach"].tolist() == [[0, 1, 1, -1, -1]]
    sees_SS = batch["rank"][0][None, :] <= batch["reach"][0][:, None]
    assert not sees_SS[:, 3:].any()
    assert not sees_SS[3:].any()
    assert collate_unpadded([SHORT | sight])["rank"].dtype == np.int64


def test_missing_positions_default_to_counting_up():
    own = SHORT | {"positions": np.array([0, 1, 0], np.int32)}
    for rows, wanted in (([own, LONG], [0, 1, 0, 0, 1, 2, 3, 4]), ([LONG, own], [0, 1, 2, 3, 4, 0, 1, 0])):
        assert collate_unpadded(rows)["positions"].tolist() == wanted


def test_a_batch_may_have_one_sequence_with_a_source():
    batch = collate_unpadded([FROM_LONG])
    assert batch["source_seen"].tolist() == [True, True, False, True]
    assert batch["source_lengths"].tolist() == [4]


@pytest.mark.parametrize("column", ["token_type_ids", "next_sentence_label", "source_input_ids", "source_seen"])
def test_a_column_missing_from_the_last_sequence_is_an_error(column: str) -> None:
    whole = FROM_LONG | {"next_sentence_label": np.array(1, np.int8)}
    bare = {name: value for name, value in whole.items() if name != column}
    with pytest.raises(KeyError, match=column):
        collate_unpadded([whole, bare])
