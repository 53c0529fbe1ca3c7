"""Segment pairs as in ELECTRA, ERNIE and RoBERTa."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from preprocessing.errors import BadInput
from preprocessing.packing import SegmentPair
from tests.preprocessing.planned import CLS, DOCUMENTS, SEP, document_of, halves, plan_of, rows_of
from tests.preprocessing.toy import ToyShard, random_shard, shard

# Contiguous pairs (ELECTRA)


def contiguous(text: ToyShard, length: int, copy: int = 0, **keys):
    return rows_of(SegmentPair(negatives="none", **{"short_seq_prob": 0.0, **keys}), text, length, copy=copy)


def sizes(row) -> tuple[int, int]:
    special = np.flatnonzero(row["special_tokens_mask"])
    return int(special[1] - 1), int(special[-1] - special[1] - 1) if len(special) == 3 else 0


def test_contiguous_pairs_have_no_label_and_b_continues_a():
    for row in contiguous(random_shard(20), 64, single_segment_prob=0.2):
        assert "next_sentence_label" not in row
        assert len(row["input_ids"]) <= 64
    for row in contiguous(shard([[7] * 40] * 3), 64):
        ids = row["input_ids"][~row["special_tokens_mask"]]
        assert np.all(np.diff(ids) == 1)  # the reference may add a later short sentence to A


def test_the_sentence_across_the_middle_is_in_a_or_b_with_equal_probability():
    found = [sizes(row) for copy in range(100) for row in contiguous(shard([[10] * 70]), 64, copy)]
    count = {size: found.count(size) for size in set(found)}
    # A has 20 tokens or half of 64 - 3, which is 30; B is cut at the end of the sequence
    assert set(count) == {(20, 41), (30, 31)}
    assert abs(count[20, 41] / len(found) - 0.5) < 0.05


def test_single_segment_prob_is_the_fraction_without_b():
    rows = [row for copy in range(30) for row in contiguous(shard([[10] * 700]), 64, copy, single_segment_prob=0.1)]
    single = [row for row in rows if row["special_tokens_mask"].sum() == 2]
    assert abs(len(single) / len(rows) - 0.1) < 0.02
    assert {len(row["input_ids"]) for row in single} == {64}
    assert not any(row["token_type_ids"].any() for row in single)


def test_short_contiguous_targets_are_uniform_from_five_up():
    rows = [
        contiguous(shard([[1] * 2000]), 64, copy, short_seq_prob=1.0)[:-1] for copy in range(40)
    ]  # the last one holds the remainder
    longs = np.array([len(row["input_ids"]) - 3 for copy in rows for row in copy])
    longs = longs[longs < 61]  # targets from 61 to 64 are cut to 61
    assert set(longs.tolist()) == set(range(5, 61))
    assert stats.chisquare(np.bincount(longs)[5:]).pvalue > 0.001
    full = contiguous(shard([[1] * 2000]), 64)
    assert [len(row["input_ids"]) for row in full[:-1]] == [64] * (len(full) - 1)


def test_a_document_of_one_sentence_has_no_b():
    (row,) = contiguous(shard([[9]]), 64)
    assert row["input_ids"].tolist() == [CLS, *range(10, 19), SEP]


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000), single=st.sampled_from([0.0, 0.5]))
def test_contiguous_pairs_start_where_the_previous_chunk_ended(documents, copy, single):
    text = shard(documents)
    plan = plan_of(SegmentPair(negatives="none", short_seq_prob=0.3, single_segment_prob=single), text, 40, copy=copy)
    ordered = np.sort(plan.start_RP[:, 0])
    assert np.array_equal(ordered, plan.start_RP[:, 0])
    assert set(text.offset_N1[:-1].tolist()) <= set(ordered.tolist())
    kept = (plan.stop_RP.astype(int) - plan.start_RP).sum()
    assert kept + plan.counts["left_out_tokens"] == len(text.ids_T)


def reference_contiguous(
    sentences: list[int], length: int, rng: np.random.Generator, mended: bool
) -> list[tuple[int, int]]:
    """Lengths of A and B of one document as in ELECTRA's build_pretraining_dataset.py, with 10% single segments."""
    found, chunk, target = [], [], length
    for number, sentence in enumerate(sentences):
        chunk.append(sentence)
        if sum(chunk) < target and number < len(sentences) - 1:
            continue
        half = 100_000 if rng.random() < 0.1 else (target - 3) // 2
        a = b = 0
        for size in chunk:
            fits = a + size < half and not (mended and b)
            if not a or fits or (not b and a < half and rng.random() < 0.5):
                a += size
            else:
                b += size
        a = min(a, length - 2)
        found.append((a, min(b, max(0, length - a - 3))))
        chunk, target = [], int(rng.integers(5, length, endpoint=True)) if rng.random() < 0.05 else length
    return found


def test_segment_lengths_follow_the_fixed_reference_electra():
    rng, text = np.random.default_rng(0), random_shard(3000)
    ends = np.append(text.sentence_at_M[1:], len(text.ids_T))
    lengths_N = np.split(ends - text.sentence_at_M, np.searchsorted(text.sentence_at_M, text.offset_N1[1:-1]))
    theirs = np.array([pair for one in lengths_N for pair in reference_contiguous(one.tolist(), 256, rng, mended=True)])
    plan = plan_of(SegmentPair(negatives="none", short_seq_prob=0.05, single_segment_prob=0.1), text, 256)
    ours = plan.stop_RP.astype(int) - plan.start_RP
    assert abs(len(ours) / len(theirs) - 1) < 0.02
    for part in (0, 1):
        assert stats.ks_2samp(ours[:, part], theirs[:, part]).pvalue > 0.001


def test_a_and_b_are_not_interleaved_unlike_in_electra():
    found = {
        reference_contiguous([20, 15, 3, 40], 64, np.random.default_rng(seed), mended=False)[0] for seed in range(50)
    }
    mended = {
        reference_contiguous([20, 15, 3, 40], 64, np.random.default_rng(seed), mended=True)[0] for seed in range(50)
    }
    assert (23, 38) in found  # A has 20 + 3 tokens, and the 15 tokens between them are in B
    assert mended == {(20, 41), (35, 26), (62, 0)}
    ours = {
        sizes(row)
        for copy in range(100)
        for row in contiguous(shard([[20, 15, 3, 40]]), 64, copy, single_segment_prob=0.1)
    }
    assert ours == mended


# Dialogue pairs (ERNIE)


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000))
def test_a_dialogue_reply_is_the_next_turn_or_from_another_dialogue(documents, copy):
    text = shard(documents)
    starts = {10 + at for at in text.sentence_at_M.tolist()}
    rows = rows_of(SegmentPair(negatives="dialogue"), text, 2000, copy=copy)
    for row in rows:
        a, b = halves(row)
        assert b[0] in starts
        assert not starts & set(b[1:].tolist())  # one turn
        assert len(starts & set(a.tolist())) in (1, 2, 3)
        fake = document_of(text, a) != document_of(text, b)
        assert fake == (row["next_sentence_label"] == 1)
        assert fake or b[0] == a[-1] + 1
    turns = [len(document) for document in documents]
    assert len(rows) == sum(turn // 3 + (turn % 3 == 2) for turn in turns if turn > 1)


def test_half_of_the_replies_are_random():
    plan = plan_of(SegmentPair(negatives="dialogue"), random_shard(2000), 128)
    assert abs(plan.pair_label_R.mean() - 0.5) < 0.01


def test_a_single_dialogue_is_refused():
    with pytest.raises(BadInput, match=r"packing.negatives dialogue requires at least 2 documents"):
        plan_of(SegmentPair(negatives="dialogue"), shard([[5, 5, 5]]), 32)


# Sentence pairs and two separators (RoBERTa)


@pytest.mark.parametrize("negative", ["random", "swapped"])
def test_a_sentence_pair_has_one_sentence_per_segment(negative):
    text = shard([[3, 4, 5, 6, 7]] * 6)
    starts = {10 + at for at in text.sentence_at_M.tolist()}
    pair = SegmentPair(negatives=negative, unit="sentence", num_separators=2)
    for row in [row for copy in range(10) for row in rows_of(pair, text, 64, copy=copy)]:
        ids = row["input_ids"].tolist()
        first, middle, again, last = np.flatnonzero(row["special_tokens_mask"]).tolist()
        assert (first, again, last) == (0, middle + 1, len(ids) - 1)
        assert (ids[0], ids[middle], ids[again], ids[-1]) == (CLS, SEP, SEP, SEP)
        assert starts & set(ids) == {ids[1], ids[again + 1]}
        assert row["token_type_ids"].tolist() == [0] * (again + 1) + [1] * (len(ids) - again - 1)
        assert row["word_starts"][[middle, again, again + 1]].all()


@settings(deadline=None)
@given(documents=DOCUMENTS, copy=st.integers(0, 1000), unit=st.sampled_from(["segment", "sentence"]))
def test_two_separators_fit_in_the_length(documents, copy, unit):
    for row in rows_of(SegmentPair(negatives="random", unit=unit, num_separators=2), shard(documents), 24, copy=copy):
        assert len(row["input_ids"]) <= 24
        assert row["special_tokens_mask"].sum() == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"negatives": "random", "single_segment_prob": 0.1},
            "invalid packing.single_segment_prob: got 0.1, expected 0 unless negatives is none",
        ),
        (
            {"negatives": "none", "unit": "sentence"},
            "invalid packing.unit: got 'sentence', expected segment if negatives is none",
        ),
    ],
)
def test_incompatible_pair_keys_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        SegmentPair(**keys)
