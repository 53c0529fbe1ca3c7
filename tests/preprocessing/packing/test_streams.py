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


def line_of(text: ToyShard) -> list[int]:
    """The documents end to end, each with a separator behind it."""
    return [id for document in np.split(text.ids_T, text.offset_N1[1:-1]) for id in [*document.tolist(), SEP]]


# Stream


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(8, 50), lookahead=st.integers(0, 1))
def test_the_rows_of_a_stream_are_the_text_without_a_gap(documents, length, lookahead):
    text = shard(documents)
    rows = rows_of(Stream(), text, length, lookahead)
    line = line_of(text)
    assert {len(row["input_ids"]) for row in rows} <= {length + lookahead}
    assert [id for row in rows for id in row["input_ids"][:length].tolist()] == line[: length * len(rows)]
    assert len(line) - length * len(rows) < length + lookahead  # what is left fills no row


def test_a_separator_in_a_stream_is_special_and_ends_a_word():
    (row,) = rows_of(Stream(), shard([[3], [2, 2]], word_every=5), 8)
    assert row["input_ids"].tolist() == [10, 11, 12, SEP, 13, 14, 15, 16]
    assert row["special_tokens_mask"].tolist() == [False, False, False, True, False, False, False, False]
    assert row["word_starts"].tolist() == [True, False, False, True, True, False, True, False]


def test_what_fills_no_row_is_counted():
    plan = Stream().plan(shard([[3], [2, 2]]), 4, 0, SEGMENT.at(0, 0))
    assert plan.counts == {"documents": 2, "rows": 2, "left_out_tokens": 1}


# StreamPair


def halves(row, reuse: int) -> tuple[list[int], list[int], list[int]]:
    """The reused stretch, A and B, separators of the stream left in."""
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
def test_a_row_is_a_stretch_of_the_stream_and_a_pair_that_fills_it(backward, documents, copy, reuse, room):
    text = shard([*documents, [30, 30]])
    line, length = line_of(text)[:: -1 if backward else 1], reuse + room + 3
    rows = rows_of(StreamPair(reuse_len=reuse), text, length, copy=copy, backward=backward)
    assert len(rows) == max(0, (len(line) - room - 1) // reuse)
    for i, row in enumerate(rows):
        stretch, a, b = halves(row, reuse)
        assert len(row["input_ids"]) == length
        assert stretch == line[i * reuse : (i + 1) * reuse]
        assert a == line[(i + 1) * reuse : (i + 1) * reuse + len(a)]
        assert any(line[at : at + len(b)] == b for at in range(len(line)))
        assert min(len(a), len(b)) >= 1
        assert row["input_ids"][[reuse + len(a), -2, -1]].tolist() == [SEP, SEP, CLS]
        assert row["token_type_ids"].tolist() == [0] * (reuse + len(a) + 1) + [1] * (len(b) + 1) + [2]
        assert row["special_tokens_mask"][[reuse + len(a), -2, -1]].all()
        assert not backward or row["positions"].tolist() == [*range(length)][::-1]


def test_a_row_begins_where_the_reused_stretch_of_the_row_before_ends():
    rows = rows_of(StreamPair(reuse_len=16), random_shard(20), 64)
    firsts = [id for row in rows for id in row["input_ids"][:16].tolist()]
    assert firsts == line_of(random_shard(20))[: 16 * len(rows)]


# Both ways


def test_a_word_of_a_backward_row_begins_where_it_ended():
    text = shard([[12, 12, 12]], word_every=3)  # ids 10, 11, 12 are a word
    for row in rows_of(StreamPair(reuse_len=12), text, 24, backward=True):
        inside = ~row["special_tokens_mask"]
        ends = (row["input_ids"] - 10) % 3 == 2
        cut = np.append(
            True, row["special_tokens_mask"][:-1]
        )  # behind a separator, or at the start, it may be half a word
        assert (row["word_starts"] == (row["special_tokens_mask"] | cut | ends))[inside].all()


def test_a_of_a_backward_row_ends_where_a_sentence_begins():
    text = random_shard(300)
    plan = StreamPair(reuse_len=64).plan(text, 192, 0, SEGMENT.at(0, 0), backward=True)
    line_starts = set((text.sentence_at_M + np.searchsorted(text.offset_N1, text.sentence_at_M, "right") - 1).tolist())
    is_cut_R = plan.stop_RP[:, 2] != plan.start_RP[:, 1]  # B is from elsewhere, or A was cut for it
    assert set(plan.start_RP[~is_cut_R, 1].tolist()) <= line_starts
    assert np.mean(~is_cut_R) > 0.2
    assert abs(plan.counts["negatives"] / len(plan) - 0.5) < 0.03


def test_half_of_the_pairs_of_a_stream_go_on_and_both_kinds_begin_with_a_sentence():
    text = random_shard(400)
    segment = StreamPair(reuse_len=64)
    plan = segment.plan(text, 192, 0, SEGMENT.at(0, 0))
    line_starts = set((text.sentence_at_M + np.searchsorted(text.offset_N1, text.sentence_at_M, "right") - 1).tolist())
    assert abs(plan.counts["negatives"] / len(plan) - 0.5) < 0.02
    assert set(plan.start_RP[:, 2].tolist()) <= line_starts
    goes_on = plan.start_RP[:, 2] == plan.stop_RP[:, 1]  # unless A was cut
    assert goes_on.any()
    assert not goes_on.all()


def test_the_end_of_a_is_drawn_evenly_from_the_sentences_that_end_in_the_room():
    text = shard([[5] * 400])
    plans = [StreamPair(reuse_len=40).plan(text, 40 + 21 + 3, 0, SEGMENT.at(copy, 0)) for copy in range(200)]
    longs = np.concatenate([(plan.stop_RP.astype(int) - plan.start_RP)[:, 1] for plan in plans])
    share = np.bincount(longs, minlength=21) / len(longs)
    # 15 and 20 are cut beside a long B, to 11 and 16 but for a B at the end of the text
    np.testing.assert_allclose([share[5], share[10], share[11] + share[15], share[16]], 1 / 4, atol=0.01)


def test_a_stretch_without_a_sentence_end_is_a_and_b_is_from_anywhere():
    plan = StreamPair(reuse_len=8).plan(shard([[500, 500]]), 30, 0, SEGMENT.at(0, 0))
    assert plan.counts["negatives"] >= len(plan) - 4


def test_a_row_without_room_for_a_pair_is_bad_input():
    with pytest.raises(
        BadInput, match=r"packing.reuse_len: invalid value 256, expected at most 251 for sequences of 256 tokens"
    ):
        rows_of(StreamPair(), shard([[50] * 20]), 256)


@pytest.mark.parametrize("segment", [Stream(), StreamPair(reuse_len=8)], ids=lambda segment: segment.kind)
def test_a_text_that_is_too_short_for_a_row_gives_none(segment):
    assert rows_of(segment, shard([[3]]), 24) == []
    assert rows_of(segment, shard([]), 24) == []


def test_a_stream_has_as_many_rows_in_every_epoch():
    text = random_shard(50)
    assert len({len(StreamPair(reuse_len=16).plan(text, 64, 0, SEGMENT.at(copy, 0))) for copy in range(20)}) == 1
