import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.errors import BadInput
from preprocessing.packing import Packing, Stream, StreamPair
from preprocessing.rng import key
from tests.preprocessing.toy import ToyShard, ToyVocab, random_shard, shard

SEGMENT = key(0, "segment")
VOCAB = ToyVocab()
CLS, SEP = VOCAB.cls, VOCAB.sep
DOCUMENTS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), min_size=1, max_size=8)


def rows_of(segment: Packing, text: ToyShard, length: int, lookahead: int = 0, copy: int = 0, **way: bool):
    plan = segment.plan(text, length, lookahead, SEGMENT.at(copy, 0), **way)
    return [segment.row(plan, i, text, VOCAB) for i in range(len(plan))]


def stream_ids(text: ToyShard) -> list[int]:
    """Return all documents in order, with a separator after each."""
    return [id for document in np.split(text.ids_T, text.offset_N1[1:-1]) for id in [*document.tolist(), SEP]]


# Stream


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(8, 50), lookahead=st.integers(0, 1))
def test_sequences_of_a_stream_are_the_text_without_gaps(documents, length, lookahead):
    text = shard(documents)
    rows = rows_of(Stream(), text, length, lookahead)
    line = stream_ids(text)
    assert {len(row["input_ids"]) for row in rows} <= {length + lookahead}
    assert [id for row in rows for id in row["input_ids"][:length].tolist()] == line[: length * len(rows)]
    assert len(line) - length * len(rows) < length + lookahead  # the remainder fills no sequence


def test_a_separator_in_a_stream_is_special_and_ends_a_word():
    (row,) = rows_of(Stream(), shard([[3], [2, 2]], word_every=5), 8)
    assert row["input_ids"].tolist() == [10, 11, 12, SEP, 13, 14, 15, 16]
    assert row["special_tokens_mask"].tolist() == [False, False, False, True, False, False, False, False]
    assert row["word_starts"].tolist() == [True, False, False, True, True, False, True, False]


def test_tokens_that_fill_no_sequence_are_counted():
    plan = Stream().plan(shard([[3], [2, 2]]), 4, 0, SEGMENT.at(0, 0))
    assert plan.counts == {"documents": 2, "rows": 2, "left_out_tokens": 1}


# StreamPair


def parts_of(row, reuse: int) -> tuple[list[int], list[int], list[int]]:
    """Return the reused tokens, A and B, including separators of the stream."""
    segment_S = row["token_type_ids"]
    second = int(np.argmax(segment_S == 1))
    return (
        row["input_ids"][:reuse].tolist(),
        row["input_ids"][reuse : second - 1].tolist(),
        row["input_ids"][second:-2].tolist(),
    )


@pytest.mark.parametrize("backward", [False, True])
@settings(deadline=None, max_examples=60)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000), reuse=st.integers(4, 20), room=st.integers(4, 24))
def test_a_sequence_is_a_range_of_the_stream_plus_a_pair_of_full_length(backward, documents, copy, reuse, room):
    text = shard([*documents, [30, 30]])
    line, length = stream_ids(text)[:: -1 if backward else 1], reuse + room + 3
    rows = rows_of(StreamPair(reuse_len=reuse), text, length, copy=copy, backward=backward)
    assert len(rows) == max(0, (len(line) - room - 1) // reuse)
    for i, row in enumerate(rows):
        stretch, a, b = parts_of(row, reuse)
        assert len(row["input_ids"]) == length
        assert stretch == line[i * reuse : (i + 1) * reuse]
        assert a == line[(i + 1) * reuse : (i + 1) * reuse + len(a)]
        assert any(line[at : at + len(b)] == b for at in range(len(line)))
        assert min(len(a), len(b)) >= 1
        assert row["input_ids"][[reuse + len(a), -2, -1]].tolist() == [SEP, SEP, CLS]
        assert row["token_type_ids"].tolist() == [0] * (reuse + len(a) + 1) + [1] * (len(b) + 1) + [2]
        assert row["special_tokens_mask"][[reuse + len(a), -2, -1]].all()
        assert not backward or row["positions"].tolist() == [*range(length)][::-1]


def test_a_sequence_starts_after_the_reused_tokens_of_the_previous_one():
    rows = rows_of(StreamPair(reuse_len=16), random_shard(20), 64)
    firsts = [id for row in rows for id in row["input_ids"][:16].tolist()]
    assert firsts == stream_ids(random_shard(20))[: 16 * len(rows)]


# Both ways


def test_words_of_a_backward_sequence_start_at_their_last_token():
    text = shard([[12, 12, 12]], word_every=3)  # IDs 10, 11, 12 are one word
    for row in rows_of(StreamPair(reuse_len=12), text, 24, backward=True):
        inside = ~row["special_tokens_mask"]
        ends = (row["input_ids"] - 10) % 3 == 2
        cut = np.append(
            True, row["special_tokens_mask"][:-1]
        )  # after a separator or at the start, the word may be incomplete
        assert (row["word_starts"] == (row["special_tokens_mask"] | cut | ends))[inside].all()


def test_a_of_a_backward_sequence_ends_at_a_sentence_start():
    text = random_shard(300)
    plan = StreamPair(reuse_len=64).plan(text, 192, 0, SEGMENT.at(0, 0), backward=True)
    line_starts = set((text.sentence_at_M + np.searchsorted(text.offset_N1, text.sentence_at_M, "right") - 1).tolist())
    is_cut_R = plan.stop_RP[:, 2] != plan.start_RP[:, 1]  # B is a random segment, or A was shortened
    assert set(plan.start_RP[~is_cut_R, 1].tolist()) <= line_starts
    assert np.mean(~is_cut_R) > 0.2
    assert abs(plan.counts["negatives"] / len(plan) - 0.5) < 0.03


def test_half_of_the_pairs_are_random_and_both_kinds_start_with_a_sentence():
    text = random_shard(400)
    segment = StreamPair(reuse_len=64)
    plan = segment.plan(text, 192, 0, SEGMENT.at(0, 0))
    line_starts = set((text.sentence_at_M + np.searchsorted(text.offset_N1, text.sentence_at_M, "right") - 1).tolist())
    assert abs(plan.counts["negatives"] / len(plan) - 0.5) < 0.02
    assert set(plan.start_RP[:, 2].tolist()) <= line_starts
    goes_on = plan.start_RP[:, 2] == plan.stop_RP[:, 1]  # B directly follows A; false if A was shortened
    assert goes_on.any()
    assert not goes_on.all()


def test_the_end_of_a_is_uniform_over_the_possible_sentence_ends():
    text = shard([[5] * 400])
    plans = [StreamPair(reuse_len=40).plan(text, 40 + 21 + 3, 0, SEGMENT.at(copy, 0)) for copy in range(200)]
    longs = np.concatenate([(plan.stop_RP.astype(int) - plan.start_RP)[:, 1] for plan in plans])
    share = np.bincount(longs, minlength=21) / len(longs)
    # lengths 15 and 20 are shortened to 11 and 16 beside a long B, except at the end of the text
    np.testing.assert_allclose([share[5], share[10], share[11] + share[15], share[16]], 1 / 4, atol=0.01)


def test_without_a_sentence_end_in_range_b_is_random():
    plan = StreamPair(reuse_len=8).plan(shard([[500, 500]]), 30, 0, SEGMENT.at(0, 0))
    assert plan.counts["negatives"] >= len(plan) - 4


def test_a_sequence_too_short_for_a_pair_is_bad_input():
    with pytest.raises(
        BadInput, match=r"packing.reuse_len: invalid value 256, expected at most 251 for sequences of 256 tokens"
    ):
        rows_of(StreamPair(), shard([[50] * 20]), 256)


@pytest.mark.parametrize("segment", [Stream(), StreamPair(reuse_len=8)], ids=lambda segment: segment.kind)
def test_a_text_too_short_for_a_sequence_gives_none(segment):
    assert rows_of(segment, shard([[3]]), 24) == []
    assert rows_of(segment, shard([]), 24) == []


def test_a_stream_has_equally_many_sequences_in_every_epoch():
    text = random_shard(50)
    assert len({len(StreamPair(reuse_len=16).plan(text, 64, 0, SEGMENT.at(copy, 0))) for copy in range(20)}) == 1
