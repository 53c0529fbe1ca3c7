"""The four attention masks of UniLM by truth table, and their fractions by chi-square."""

import numpy as np
import pytest
from scipy import stats

from preprocessing.masking import NoMasking, TokenMasking
from preprocessing.objectives import MaskedLM, UnifiedLM
from preprocessing.packing import SegmentPair
from preprocessing.rng import key
from preprocessing.schema import IGNORE
from tests.preprocessing.toy import ToyVocab, random_shard, row

MASKING, VOCAB = key(0, "masking"), ToyVocab()
MODES = ("bidirectional", "seq2seq", "left_to_right", "right_to_left")
TABLES = {  # [CLS] a [SEP] b [SEP]: each line shows what one token may attend to
    "bidirectional": ["11111"] * 5,
    "left_to_right": ["10000", "11000", "11100", "11110", "11111"],
    "right_to_left": ["11111", "01111", "00111", "00011", "00001"],
    "seq2seq": ["11100", "11100", "11100", "11110", "11111"],
}
SEGMENTS = {
    "bidirectional": [0, 0, 0, 1, 1],
    "left_to_right": [2] * 5,
    "right_to_left": [3] * 5,
    "seq2seq": [4, 4, 4, 5, 5],
}


def pair(num_a: int, num_b: int, label: int = 0) -> dict[str, np.ndarray]:
    num_tokens = num_a + num_b + 3
    one = row(num_tokens, [0, num_a + 1, num_tokens - 1]) | {"next_sentence_label": np.array(label, np.int8)}
    one["token_type_ids"][num_a + 2 :] = 1
    return one


def unlabeled() -> dict[str, np.ndarray]:
    return {name: column for name, column in pair(4, 4).items() if name != "next_sentence_label"}


def only(mode: str) -> UnifiedLM:
    return UnifiedLM(**{f"{name}_prob": float(name == mode) for name in MODES})


def made(objective: UnifiedLM, before: dict[str, np.ndarray], sample: int = 0) -> dict[str, np.ndarray]:
    hits = TokenMasking()(before, MASKING.at(0, sample))
    return objective(before | {"hits": hits}, VOCAB, MASKING.at(1, sample))


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_its_attention_mask_and_segments(mode: str) -> None:
    after = made(only(mode), pair(1, 1))
    sees_SS = (after["rank"][None, :] <= after["reach"][:, None]) | np.eye(5, dtype=bool)
    assert ["".join(map(str, line.astype(int))) for line in sees_SS] == TABLES[mode]
    assert after["token_type_ids"].tolist() == SEGMENTS[mode]
    assert (after["rank"].dtype, after["token_type_ids"].dtype) == (np.int32, np.int8)


def test_a_sequence_of_one_segment_is_bidirectional_in_seq2seq_mode() -> None:
    after = made(only("seq2seq"), row(6, [0, 5]))
    assert not after["rank"].any()
    assert after["token_type_ids"].tolist() == [4] * 6


def test_modes_have_their_probabilities() -> None:
    seen = [int(made(UnifiedLM(), unlabeled(), sample)["token_type_ids"][0]) for sample in range(1200)]
    assert stats.chisquare(np.bincount(seen, minlength=5)[[0, 4, 2, 3]], [400, 400, 200, 200]).pvalue > 0.001


@pytest.mark.parametrize("mode", MODES)
def test_only_bidirectional_mode_keeps_the_pair_label(mode: str) -> None:
    assert made(only(mode), pair(4, 4, label=0))["next_sentence_label"] == (0 if mode == "bidirectional" else IGNORE)


@pytest.mark.parametrize("mode", MODES)
def test_a_random_pair_is_always_bidirectional(mode: str) -> None:
    for sample in range(20):
        after = made(only(mode), pair(4, 4, label=1), sample)
        assert after["token_type_ids"].tolist() == [0] * 6 + [1] * 5
        assert after["next_sentence_label"] == 1


def test_the_recipe_has_a_third_bidirectional_and_half_of_these_random() -> None:
    segment = SegmentPair(negatives="random", negative_prob=1 / 6)
    text = random_shard(700, most_sentences=20)
    plan = segment.plan(text, 128, 0, key(0, "segment").at(0, 0))
    found = [made(UnifiedLM(), segment.row(plan, i, text, VOCAB), i) for i in range(len(plan))]
    modes = np.array([int(after["token_type_ids"][0]) for after in found])
    assert len(plan) > 1500
    counts = np.bincount(modes, minlength=5)[[0, 4, 2, 3]]
    assert stats.chisquare(counts, len(plan) * np.array([1 / 3, 1 / 3, 1 / 6, 1 / 6])).pvalue > 0.001
    label_R = np.array([int(after["next_sentence_label"]) for after in found])
    assert set(label_R[modes != 0].tolist()) == {IGNORE}
    assert stats.binomtest(int((label_R == 1).sum()), int((modes == 0).sum()), 0.5).pvalue > 0.001


def test_chosen_tokens_are_replaced_80_10_10() -> None:
    kinds = np.zeros(3, int)
    for sample in range(400):
        before = pair(300, 300)
        after = made(only("left_to_right"), before, sample)
        asked_S = after["labels"] != IGNORE
        np.testing.assert_array_equal(after["labels"][asked_S], before["input_ids"][asked_S])
        kind_M = np.where(after["input_ids"] == 4, 0, np.where(after["input_ids"] != before["input_ids"], 1, 2))[
            asked_S
        ]
        kinds += np.bincount(kind_M, minlength=3)
    assert kinds.sum() > 30_000
    assert stats.chisquare(kinds, kinds.sum() * np.array([0.8, 0.1, 0.1])).pvalue > 0.001


@pytest.mark.parametrize("mode", MODES)
def test_the_end_of_a_seq2seq_target_is_predicted_as_often_as_other_tokens(mode: str) -> None:
    asked = np.zeros(43)
    for sample in range(1000):
        asked += made(only(mode), pair(20, 20), sample)["labels"] != IGNORE
    assert asked[0] == asked[21] == 0
    if mode == "seq2seq":
        rate = asked[1:21].mean() / 1000
        assert stats.binomtest(int(asked[42]), 1000, rate).pvalue > 0.001
    else:
        assert asked[42] == 0


def test_both_segments_have_masks_unlike_in_fine_tuning() -> None:
    asked = np.zeros(43)
    for sample in range(500):
        asked += made(only("seq2seq"), pair(20, 20), sample)["labels"] != IGNORE
    assert stats.chisquare([asked[1:21].sum(), asked[22:42].sum()]).pvalue > 0.001


def test_the_input_is_not_modified() -> None:
    before = pair(4, 4) | {"hits": np.ones(11, np.int32)}
    copies = {name: column.copy() for name, column in before.items()}
    only("seq2seq")(before, VOCAB, MASKING.at(0, 0))
    for name, column in copies.items():
        np.testing.assert_array_equal(before[name], column)


def test_probabilities_are_checked() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"objective.bidirectional_prob \+ seq2seq_prob \+ left_to_right_prob \+ right_to_left_prob: got 0.83\d*, "
            r"expected 1"
        ),
    ):
        UnifiedLM(bidirectional_prob=1 / 6)
    with pytest.raises(ValueError, match="expected no negative fraction"):
        UnifiedLM(bidirectional_prob=-1 / 3, seq2seq_prob=1.0)
    with pytest.raises(ValueError, match=r"objective.mask_replace_prob: got 2"):
        UnifiedLM(mask_replace_prob=2)
    assert UnifiedLM().raw_length(512, NoMasking()) == MaskedLM().raw_length(512, NoMasking()) == 512


@pytest.mark.parametrize("mode", MODES)
def test_a_sequence_without_a_label_gets_none(mode: str) -> None:
    assert "next_sentence_label" not in made(only(mode), unlabeled())


def test_every_draw_has_a_mode_if_the_probabilities_sum_to_slightly_below_one() -> None:
    objective = UnifiedLM(
        bidirectional_prob=0.1, seq2seq_prob=0.2, left_to_right_prob=0.3, right_to_left_prob=0.4 - 5e-7
    )
    assert objective._mode(1 - 2**-53, None) == "bidirectional"


def test_the_end_of_a_target_is_the_last_unit() -> None:
    # all ordinary tokens are chosen, so the end token is too
    before = pair(1, 0) | {"hits": np.array([0, 1, 0, 0], np.int32)}
    for sample in range(20):
        after = only("seq2seq")(before, VOCAB, MASKING.at(1, sample))
        assert after["hits"].tolist() == [0, 1, 0, 2]
        assert after["labels"].tolist() == [IGNORE, *before["input_ids"][[1]].tolist(), IGNORE, 3]


def truncated_pair() -> dict[str, np.ndarray]:
    """A pair that ends with an ordinary token."""
    return {name: column[:-1] if column.ndim else column for name, column in pair(2, 2).items()}


@pytest.mark.parametrize("before", [row(6, [0, 5]), truncated_pair()], ids=["one segment", "cut"])
def test_only_the_end_of_a_target_is_predicted(before: dict[str, np.ndarray]) -> None:
    hits = (~before["special_tokens_mask"]).astype(np.int32)
    hits[-1] = 0
    for sample in range(20):
        assert only("seq2seq")(before | {"hits": hits}, VOCAB, MASKING.at(1, sample))["hits"].tolist() == hits.tolist()


def test_the_end_is_predicted_if_the_sequence_starts_with_an_ordinary_token() -> None:
    before = {name: column[1:] if column.ndim else column for name, column in pair(2, 2).items()}
    after = only("seq2seq")(
        before | {"hits": (~before["special_tokens_mask"]).astype(np.int32)}, VOCAB, MASKING.at(1, 0)
    )
    assert after["labels"][-1] == 3


def test_a_sequence_of_special_tokens_has_no_labels() -> None:
    before = row(3, [0, 1, 2]) | {"hits": np.zeros(3, np.int32)}
    before["token_type_ids"][1:] = 1
    assert (only("seq2seq")(before, VOCAB, MASKING.at(1, 0))["labels"] == IGNORE).all()


@pytest.mark.parametrize("mode", MODES)
def test_ranks_are_contiguous_in_memory(mode: str) -> None:
    """torch accepts no array with negative strides."""
    assert made(only(mode), pair(2, 2))["rank"].flags.c_contiguous
