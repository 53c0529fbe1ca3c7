"""UniLM's four visibilities by truth table, shares by chi-square."""

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
TABLES = {  # [CLS] a [SEP] b [SEP]: what the token of each line sees
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


def unlabelled() -> dict[str, np.ndarray]:
    return {name: column for name, column in pair(4, 4).items() if name != "next_sentence_label"}


def only(mode: str) -> UnifiedLM:
    return UnifiedLM(**{f"{name}_prob": float(name == mode) for name in MODES})


def made(objective: UnifiedLM, before: dict[str, np.ndarray], sample: int = 0) -> dict[str, np.ndarray]:
    hits = TokenMasking()(before, MASKING.at(0, sample))
    return objective(before | {"hits": hits}, VOCAB, MASKING.at(1, sample))


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_its_truth_table_and_its_segments(mode: str) -> None:
    after = made(only(mode), pair(1, 1))
    sees_SS = (after["rank"][None, :] <= after["reach"][:, None]) | np.eye(5, dtype=bool)
    assert ["".join(map(str, line.astype(int))) for line in sees_SS] == TABLES[mode]
    assert after["token_type_ids"].tolist() == SEGMENTS[mode]
    assert (after["rank"].dtype, after["token_type_ids"].dtype) == (np.int32, np.int8)


def test_a_row_without_a_second_segment_is_read_in_full_where_it_should_be_a_sequence() -> None:
    after = made(only("seq2seq"), row(6, [0, 5]))
    assert not after["rank"].any()
    assert after["token_type_ids"].tolist() == [4] * 6


def test_modes_come_in_their_shares() -> None:
    seen = [int(made(UnifiedLM(), unlabelled(), sample)["token_type_ids"][0]) for sample in range(1200)]
    assert stats.chisquare(np.bincount(seen, minlength=5)[[0, 4, 2, 3]], [400, 400, 200, 200]).pvalue > 0.001


@pytest.mark.parametrize("mode", MODES)
def test_the_label_of_a_pair_is_asked_for_in_mode_full_alone(mode: str) -> None:
    assert made(only(mode), pair(4, 4, label=0))["next_sentence_label"] == (0 if mode == "bidirectional" else IGNORE)


@pytest.mark.parametrize("mode", MODES)
def test_a_pair_that_does_not_go_on_is_read_in_full_and_never_a_source_with_a_target_of_another_text(mode: str) -> None:
    for sample in range(20):
        after = made(only(mode), pair(4, 4, label=1), sample)
        assert after["token_type_ids"].tolist() == [0] * 6 + [1] * 5
        assert after["next_sentence_label"] == 1


def test_the_recipe_reads_a_third_in_full_half_of_which_goes_on() -> None:
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


def test_chosen_tokens_are_hidden_as_in_a_cloze_80_10_10() -> None:
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
def test_the_end_of_a_target_is_asked_for_as_often_as_any_other_token(mode: str) -> None:
    asked = np.zeros(43)
    for sample in range(1000):
        asked += made(only(mode), pair(20, 20), sample)["labels"] != IGNORE
    assert asked[0] == asked[21] == 0
    if mode == "seq2seq":
        rate = asked[1:21].mean() / 1000
        assert stats.binomtest(int(asked[42]), 1000, rate).pvalue > 0.001
    else:
        assert asked[42] == 0


def test_masks_fall_into_both_segments_where_the_fine_tuning_loader_hides_targets_only() -> None:
    asked = np.zeros(43)
    for sample in range(500):
        asked += made(only("seq2seq"), pair(20, 20), sample)["labels"] != IGNORE
    assert stats.chisquare([asked[1:21].sum(), asked[22:42].sum()]).pvalue > 0.001


def test_the_row_that_comes_in_is_not_written_to() -> None:
    before = pair(4, 4) | {"hits": np.ones(11, np.int32)}
    copies = {name: column.copy() for name, column in before.items()}
    only("seq2seq")(before, VOCAB, MASKING.at(0, 0))
    for name, column in copies.items():
        np.testing.assert_array_equal(before[name], column)


def test_shares_are_checked() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"objective.bidirectional_prob \+ seq2seq_prob \+ left_to_right_prob \+ right_to_left_prob is 0.83\d*, "
            r"expected 1"
        ),
    ):
        UnifiedLM(bidirectional_prob=1 / 6)
    with pytest.raises(ValueError, match="expected no negative fraction"):
        UnifiedLM(bidirectional_prob=-1 / 3, seq2seq_prob=1.0)
    with pytest.raises(ValueError, match=r"objective.mask_replace_prob is 2"):
        UnifiedLM(mask_replace_prob=2)
    assert UnifiedLM().raw_length(512, NoMasking()) == MaskedLM().raw_length(512, NoMasking()) == 512


@pytest.mark.parametrize("mode", MODES)
def test_a_row_without_a_label_gets_none(mode: str) -> None:
    assert "next_sentence_label" not in made(only(mode), unlabelled())


def test_the_last_draw_of_all_has_a_mode_where_the_shares_sum_up_to_a_little_less_than_one() -> None:
    objective = UnifiedLM(
        bidirectional_prob=0.1, seq2seq_prob=0.2, left_to_right_prob=0.3, right_to_left_prob=0.4 - 5e-7
    )
    assert objective._mode(1 - 2**-53, None) == "bidirectional"


def test_the_end_of_a_target_is_a_unit_of_its_own_behind_the_others() -> None:
    before = pair(1, 0) | {"hits": np.array([0, 1, 0, 0], np.int32)}  # all ordinary tokens are chosen: so is the end
    for sample in range(20):
        after = only("seq2seq")(before, VOCAB, MASKING.at(1, sample))
        assert after["hits"].tolist() == [0, 1, 0, 2]
        assert after["labels"].tolist() == [IGNORE, *before["input_ids"][[1]].tolist(), IGNORE, 3]


def cut_pair() -> dict[str, np.ndarray]:
    """A pair whose last token is an ordinary one."""
    return {name: column[:-1] if column.ndim else column for name, column in pair(2, 2).items()}


@pytest.mark.parametrize("before", [row(6, [0, 5]), cut_pair()], ids=["one segment", "cut"])
def test_what_is_no_end_of_a_target_is_not_asked_for(before: dict[str, np.ndarray]) -> None:
    hits = (~before["special_tokens_mask"]).astype(np.int32)
    hits[-1] = 0
    for sample in range(20):
        assert only("seq2seq")(before | {"hits": hits}, VOCAB, MASKING.at(1, sample))["hits"].tolist() == hits.tolist()


def test_the_end_of_a_target_is_asked_for_in_a_row_that_begins_with_an_ordinary_token() -> None:
    before = {name: column[1:] if column.ndim else column for name, column in pair(2, 2).items()}
    after = only("seq2seq")(
        before | {"hits": (~before["special_tokens_mask"]).astype(np.int32)}, VOCAB, MASKING.at(1, 0)
    )
    assert after["labels"][-1] == 3


def test_a_row_of_special_tokens_has_no_end_to_ask_for() -> None:
    before = row(3, [0, 1, 2]) | {"hits": np.zeros(3, np.int32)}
    before["token_type_ids"][1:] = 1
    assert (only("seq2seq")(before, VOCAB, MASKING.at(1, 0))["labels"] == IGNORE).all()


@pytest.mark.parametrize("mode", MODES)
def test_ranks_lie_in_memory_from_left_to_right(mode: str) -> None:
    """As torch wants it: it takes no array that runs backwards."""
    assert made(only(mode), pair(2, 2))["rank"].flags.c_contiguous
