from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.packing import BestFit, Contiguous, SegmentPair, SingleSentence, Stream
from tests.preprocessing.planned import (
    CLS,
    DOCUMENTS,
    SEP,
    VOCAB,
    ids_of,
    plan_of,
    rows_of,
)
from tests.preprocessing.toy import random_shard, shard

# Packed, tokens


def test_token_sequences_have_the_length_and_a_separator_after_each_document():
    text = shard([[3], [2, 2]])  # 10 11 12 SEP 13 14 15 16 SEP
    assert ids_of(Contiguous(unit="token"), text, 4) == [[10, 11, 12, SEP], [13, 14, 15, 16]]


def test_lookahead_adds_the_first_token_of_the_next_sequence():
    text = shard([[3], [2, 2]])
    assert ids_of(Contiguous(unit="token"), text, 4, 1) == [[10, 11, 12, SEP, 13], [13, 14, 15, 16, SEP]]


def test_a_short_last_sequence_is_kept_if_it_has_two_tokens():
    two_left, one_left = shard([[5], [3]]), shard([[5], [2]])
    for lookahead in (0, 1):
        assert ids_of(Contiguous(unit="token"), two_left, 4, lookahead)[2:] == [[17, SEP]]
        assert ids_of(Contiguous(unit="token"), one_left, 4, lookahead)[2:] == []  # a single separator has no target


def test_tokens_can_stay_within_documents():
    text = shard([[3], [5]])
    packed = Contiguous(unit="token", cross_documents=False)
    assert ids_of(packed, text, 4) == [[10, 11, 12, SEP], [13, 14, 15, 16], [17, SEP]]


def test_without_separators_documents_follow_each_other_directly():
    text = shard([[3], [2, 2]])
    packed = Contiguous(unit="token", add_separators=False)
    assert ids_of(packed, text, 4) == [[10, 11, 12, 13], [14, 15, 16]]
    assert not any(row["special_tokens_mask"].any() for row in rows_of(packed, text, 4))
    assert plan_of(packed, text, 4).counts == {"documents": 2, "rows": 2}
    assert ids_of(Contiguous(unit="token", add_separators=False, cross_documents=False), text, 3) == [
        [10, 11, 12],
        [13, 14, 15],
    ]
    assert packed.specials == ()


def test_unit_sentence_requires_separators():
    with pytest.raises(
        ValueError, match=r"invalid packing.add_separators: got False, expected true if unit is sentence"
    ):
        Contiguous(unit="sentence", add_separators=False)


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(8, 50), lookahead=st.integers(0, 1))
def test_without_separators_sequences_are_consecutive_text(documents, length, lookahead):
    text = shard(documents)
    rows = ids_of(Contiguous(unit="token", add_separators=False), text, length, lookahead)
    found = [token for ids in rows for token in ids[:length]]
    assert found == text.ids_T.tolist()[: len(found)]
    assert len(text.ids_T) - len(found) <= 1  # a single token has no target


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(8, 50), lookahead=st.integers(0, 1), cross=st.booleans())
def test_contiguous_tokens_contain_every_token_once_in_order(documents, length, lookahead, cross):
    text = shard(documents)
    rows = ids_of(Contiguous(unit="token", cross_documents=cross), text, length, lookahead)
    found = [token for ids in rows for token in ids[:length] if token != SEP]
    questions = [token for ids in rows for token in ids[1:] if token != SEP] if lookahead else found
    assert all(2 <= len(ids) <= length + lookahead for ids in rows)
    assert found == text.ids_T.tolist()
    assert set(questions) >= set(text.ids_T.tolist()) - {10, *(10 + text.offset_N1)}


# Packed, sentences


def test_documents_are_separated_by_an_extra_separator():
    text = shard([[2, 2], [2], [3]])
    rows = ids_of(Contiguous(unit="sentence"), text, 9)
    assert rows == [[CLS, 10, 11, 12, 13, SEP, 14, 15, SEP], [CLS, 16, 17, 18, SEP]]


def test_a_sentence_longer_than_a_sequence_is_split_by_default():
    text = shard([[2, 13, 2]])
    rows = ids_of(Contiguous(unit="sentence"), text, 8)
    pieces = [[10, 11], [12, 13, 14, 15, 16, 17], [18, 19, 20, 21, 22, 23], [24, 25, 26]]
    assert [ids[1:-1] for ids in rows] == pieces
    assert plan_of(Contiguous(unit="sentence"), text, 8).counts["cuts_in_sentences"] == 2


def test_sentences_can_stay_within_documents():
    text = shard([[2, 2], [2], [3]])
    rows = ids_of(Contiguous(unit="sentence", cross_documents=False), text, 9)
    assert rows == [[CLS, 10, 11, 12, 13, SEP], [CLS, 14, 15, SEP], [CLS, 16, 17, 18, SEP]]


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(8, 60), cross=st.booleans())
def test_contiguous_sentences_contain_every_token_once_within_the_length(documents, length, cross):
    text = shard(documents)
    rows = ids_of(Contiguous(unit="sentence", cross_documents=cross), text, length)
    assert all(len(ids) <= length for ids in rows)
    assert [token for ids in rows for token in ids if token >= 10] == text.ids_T.tolist()
    assert {(ids[0], ids[-1]) for ids in rows} == {(CLS, SEP)}


@settings(deadline=None)
@given(documents=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=8), min_size=2, max_size=8))
def test_a_sequence_starts_with_a_sentence_that_did_not_fit_before(documents):
    text = shard(documents)
    ends = [*text.sentence_at_M.tolist()[1:], len(text.ids_T)]
    sentences = {10 + at: end - at for at, end in zip(text.sentence_at_M.tolist(), ends, strict=True)}
    begins_document = {10 + at for at in text.offset_N1.tolist()}
    for before, row in pairwise(ids_of(Contiguous(unit="sentence"), text, 24)):
        assert len(before) + sentences[row[1]] + (row[1] in begins_document) > 24


# Contiguous sentences, overlong ones dropped (SpanBERT)


def test_overlong_drop_drops_a_long_sentence_and_ends_the_sequence():
    text = shard([[2, 13, 2, 2], [3]])
    packed = Contiguous(unit="sentence", cross_documents=False, overlong="drop")
    assert [ids[1:-1] for ids in ids_of(packed, text, 8)] == [[10, 11], [25, 26, 27, 28], [29, 30, 31]]
    assert plan_of(packed, text, 8).counts == {"documents": 2, "dropped_sentences": 1, "rows": 3}


def test_text_before_a_long_last_sentence_is_kept_unlike_in_spanbert():
    text = shard([[2, 2, 13]])
    packed = Contiguous(unit="sentence", cross_documents=False, overlong="drop")
    assert ids_of(packed, text, 8) == [[CLS, 10, 11, 12, 13, SEP]]


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(8, 60), cross=st.booleans())
def test_overlong_drop_keeps_each_fitting_sentence_once(documents, length, cross):
    text = shard(documents)
    rows = ids_of(Contiguous(unit="sentence", cross_documents=cross, overlong="drop"), text, length)
    ends = [*text.sentence_at_M.tolist()[1:], len(text.ids_T)]
    kept = [range(at, end) for at, end in zip(text.sentence_at_M.tolist(), ends, strict=True) if end - at <= length - 2]
    assert [id for ids in rows for id in ids if id >= 10] == [10 + at for sentence in kept for at in sentence]


# Sentence (MASS)


def test_single_sentences_are_between_separators_and_long_ones_dropped():
    text = shard([[2, 13, 3], [1]])
    assert ids_of(SingleSentence(), text, 8) == [[SEP, 10, 11, SEP], [SEP, 25, 26, 27, SEP], [SEP, 28, SEP]]
    assert plan_of(SingleSentence(), text, 8).counts == {"documents": 2, "dropped_sentences": 1, "rows": 3}


def test_a_shard_without_documents_has_no_sequences():
    empty = shard([])
    packed = [Contiguous(unit="token"), Contiguous(unit="token", add_separators=False), Contiguous(unit="sentence")]
    segments = [*packed, SegmentPair(negatives="random"), SegmentPair(negatives="swapped")]
    assert [len(plan_of(segment, empty, 32)) for segment in segments] == [0] * 5


def test_sequences_have_the_dtypes_of_the_schema():
    types = {"input_ids": np.int32, "token_type_ids": np.int8, "special_tokens_mask": np.bool_, "word_starts": np.bool_}
    for segment in (Contiguous(unit="token"), Contiguous(unit="sentence"), SegmentPair(negatives="random")):
        row = rows_of(segment, random_shard(5), 64)[0]
        assert set(row) == segment.produced_columns
        assert {name: row[name].dtype for name in types} == types
    assert row["next_sentence_label"].dtype == np.int8


# Columns on request


@pytest.mark.parametrize(
    "segment",
    [Contiguous(unit="sentence"), Contiguous(unit="token"), SegmentPair(negatives="swapped"), Stream(), BestFit()],
)
def test_sentence_starts_are_present_if_required(segment):
    text = shard([[3, 4], [5, 6, 2], [4, 3]] * 5)
    plan = plan_of(segment, text, 24)
    starts = {10 + at for at in text.sentence_at_M.tolist()}
    for i in range(len(plan)):
        plain = segment.row(plan, i, text, VOCAB)
        row = segment.row(plan, i, text, VOCAB, frozenset({"sentence_starts"}))
        assert set(row) - set(plain) == {"sentence_starts"}
        behind = np.append(False, row["special_tokens_mask"][:-1])
        wanted = (
            np.isin(row["input_ids"], list(starts))
            | row["special_tokens_mask"]
            | behind
            | (np.arange(len(row["input_ids"])) == 0)
        )
        assert np.array_equal(row["sentence_starts"], wanted)
