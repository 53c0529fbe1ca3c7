from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.errors import BadInput
from preprocessing.packing import SegmentPair
from preprocessing.packing.segment_pair import _truncate
from tests.preprocessing.planned import (
    CLS,
    DOCUMENTS,
    SEGMENT,
    SEP,
    document_of,
    halves,
    plan_of,
    rows_of,
)
from tests.preprocessing.toy import ToyShard, random_shard, shard


def reference_labels(text: ToyShard, room: int) -> list[int]:
    """Return the labels of create_pretraining_data.py: a chunk of one sentence is always 'random'."""
    rng, labels = np.random.default_rng(0), []
    ends = [*text.sentence_at_M.tolist()[1:], len(text.ids_T)]
    sentences = [end - at for at, end in zip(text.sentence_at_M.tolist(), ends, strict=True)]
    for first, last in pairwise(np.searchsorted(text.sentence_at_M, text.offset_N1).tolist()):
        target = rng.integers(2, room + 1) if rng.random() < 0.1 else room
        while first < last:
            stop, total = first, 0
            while stop < last and total < target:
                total += sentences[stop]
                stop += 1
            split = int(rng.integers(1, stop - first)) if stop - first >= 2 else 1
            labels.append(int(stop - first == 1 or rng.random() < 0.5))
            first = first + split if labels[-1] else stop
    return labels


@pytest.mark.parametrize("negative", ["random", "swapped"])
@pytest.mark.parametrize(("most_sentences", "copies"), [(3, 120), (30, 15)])
def test_half_of_the_labels_are_ones_unlike_in_the_reference(negative, most_sentences, copies):
    text = random_shard(2000, most_sentences=most_sentences)
    assert np.mean(reference_labels(text, room=125)) > 0.56
    label_R = np.concatenate(
        [plan_of(SegmentPair(negatives=negative), text, 128, copy=copy).pair_label_R for copy in range(copies)]
    )
    assert len(label_R) > 100_000
    assert abs(label_R.mean() - 0.5) < 0.005


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000))
def test_a_random_partner_is_from_another_document(documents, copy):
    text = shard(documents)
    for row in rows_of(SegmentPair(negatives="random"), text, 32, copy=copy):
        one, other = (document_of(text, half) for half in halves(row))
        assert (one != other) == (row["next_sentence_label"] == 1)


def test_partners_are_uniform_over_documents_and_their_sentences():
    text = shard([[5] * 2, [5] * 3, [5], [5] * 4])
    pairs = [
        rows_of(SegmentPair(negatives="random", short_seq_prob=0.0), text, 13, copy=copy)[0] for copy in range(1500)
    ]
    sentences = [(halves(row)[1][0] - 10) // 5 for row in pairs if row["next_sentence_label"]]
    expected = [0, 0, 1 / 9, 1 / 9, 1 / 9, 1 / 3, 1 / 12, 1 / 12, 1 / 12, 1 / 12]
    np.testing.assert_allclose(np.bincount(sentences) / len(sentences), expected, atol=0.05)


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000), negative=st.sampled_from(["random", "swapped"]))
def test_a_pair_is_cls_a_sep_b_sep_within_the_length(documents, copy, negative):
    for row in rows_of(SegmentPair(negatives=negative), shard(documents), 24, copy=copy):
        ids, middle = row["input_ids"].tolist(), int(np.flatnonzero(row["special_tokens_mask"])[1])
        assert len(ids) <= 24
        assert (ids[0], ids[middle], ids[-1]) == (CLS, SEP, SEP)
        assert row["special_tokens_mask"].sum() == 3
        assert row["token_type_ids"].tolist() == [0] * (middle + 1) + [1] * (len(ids) - middle - 1)
        assert all(len(half) and np.all(np.diff(half) == 1) for half in halves(row))


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000))
def test_b_continues_a_in_a_pair_that_is_not_random(documents, copy):
    for row in rows_of(
        SegmentPair(negatives="random"), shard(documents), 2000, copy=copy
    ):  # long enough to avoid truncation
        a, b = halves(row)
        assert row["next_sentence_label"] == 1 or b[0] == a[-1] + 1


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000))
def test_swapped_segments_are_two_parts_of_a_range_in_reverse_order(documents, copy):
    text = shard(documents)
    for row in rows_of(SegmentPair(negatives="swapped", short_seq_prob=0.0), text, 2000, copy=copy):
        first, second = halves(row)[::-1] if row["next_sentence_label"] else halves(row)
        assert first[-1] + 1 == second[0]
        assert document_of(text, [*first, *second]) is not None


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000), negative=st.sampled_from(["random", "swapped"]))
def test_every_sentence_of_a_pairable_document_is_used(documents, copy, negative):
    text = shard(documents)
    pair = SegmentPair(negatives=negative)
    bounds_N1 = np.searchsorted(text.sentence_at_M, text.offset_N1)
    at_M1 = np.append(text.sentence_at_M, text.offset_N1[-1])
    (first_R, middle_R, last_R), _, label_R = pair._chunks(at_M1, bounds_N1, len(documents), 29, SEGMENT.at(copy, 0))
    used = [m for first, last in zip(first_R.tolist(), last_R.tolist(), strict=True) for m in range(first, last)]
    wanted = [m for d, document in enumerate(documents) if len(document) > 1 for m in range(*bounds_N1[d : d + 2])]
    assert used == wanted
    assert np.all(first_R < middle_R)
    if negative == "swapped":
        assert np.all(middle_R < last_R)
    else:
        assert np.all(np.where(label_R == 1, middle_R == last_R, middle_R < last_R))


def test_a_document_of_one_sentence_is_only_a_partner_and_counted():
    text = shard([[5], [5, 5], [5]])
    plan = plan_of(SegmentPair(negatives="random"), text, 32)
    assert plan.counts == {
        "documents": 3,
        "unpaired_documents": 2,
        "rows": 1,
        "negatives": int(plan.pair_label_R.sum()),
    }
    rows = [row for copy in range(20) for row in rows_of(SegmentPair(negatives="random"), text, 32, copy=copy)]
    assert {document_of(text, halves(row)[0]) for row in rows} == {1}


def test_a_single_document_has_no_random_partner():
    with pytest.raises(
        BadInput,
        match=r"train-00000-of-00001.arrow: packing.negatives random requires .* data.packing.negatives=swapped",
    ):
        plan_of(SegmentPair(negatives="random"), shard([[5, 5, 5]]), 32)
    assert len(plan_of(SegmentPair(negatives="swapped"), shard([[5, 5, 5]]), 32)) == 1


def reference_truncation(a: int, b: int, room: int) -> tuple[int, int]:
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def test_truncation_shortens_the_longer_side_as_in_the_reference():
    sides = np.array([(a, b) for a in range(1, 30) for b in range(1, 30)])
    start_RP = np.zeros_like(sides)
    stop_RP = sides.copy()
    _truncate(start_RP, stop_RP, 17, np.random.default_rng(0))
    assert (stop_RP - start_RP).tolist() == [list(reference_truncation(a, b, 17)) for a, b in sides.tolist()]
    assert np.all(start_RP >= 0)
    assert np.all(stop_RP <= sides)


def test_truncation_at_front_or_back_is_equally_likely():
    start_RP, stop_RP = np.zeros((20_000, 2), int), np.full((20_000, 2), 10)
    _truncate(start_RP, stop_RP, 12, np.random.default_rng(0))
    np.testing.assert_allclose(
        np.bincount(start_RP[:, 0]) / 20_000, [1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16], atol=0.01
    )


def test_no_word_crosses_a_separator_after_truncation():
    text = shard([[30, 30], [30, 30]], word_every=7)
    for copy in range(20):
        for row in rows_of(SegmentPair(negatives="random"), text, 24, copy=copy):
            after = np.flatnonzero(row["special_tokens_mask"])[:-1] + 1
            assert row["word_starts"][after].all()
            assert row["word_starts"][row["special_tokens_mask"]].all()
            inner = (row["input_ids"] - 10) % 7 == 0
            assert np.array_equal(
                np.delete(row["word_starts"], after), np.delete(row["special_tokens_mask"] | inner, after)
            )


def test_short_pairs_have_a_uniform_target():
    text = shard([[1] * 300] * 200)
    pairs = rows_of(SegmentPair(negatives="swapped", short_seq_prob=1.0), text, 63)
    first = [len(row["input_ids"]) - 3 for row in pairs if any((half[0] - 10) % 300 == 0 for half in halves(row))]
    assert len(first) == 200  # one draw per document
    assert (min(first), max(first)) == (2, 60)
    assert abs(np.mean(first) - 31) < 4
    full = rows_of(SegmentPair(negatives="swapped", short_seq_prob=0.0), text, 63)
    assert {len(row["input_ids"]) for row in full} == {63}


@pytest.mark.parametrize("negative", ["random", "swapped"])
def test_a_plan_depends_only_on_its_address(negative):
    text = random_shard(100)
    one, same, other = (plan_of(SegmentPair(negatives=negative), text, 64, copy=copy) for copy in (3, 3, 4))
    assert np.array_equal(one.start_RP, same.start_RP)
    assert np.array_equal(one.pair_label_R, same.pair_label_R)
    assert not np.array_equal(one.start_RP, other.start_RP)


def test_short_seq_prob_outside_0_to_1_is_refused():
    with pytest.raises(ValueError, match=r"invalid packing.short_seq_prob: got 1.5, expected a fraction from 0 to 1"):
        SegmentPair(negatives="swapped", short_seq_prob=1.5)
