"""MASS: encoder inputs and decoder targets, against mask_sent of the reference (microsoft/MASS)."""

import numpy as np
import pytest
from scipy import stats

from preprocessing.masking import FragmentMasking as ChosenRun
from preprocessing.masking import NoMasking
from preprocessing.objectives import MaskedSeq2Seq
from preprocessing.rng import key
from tests.preprocessing.toy import ToyVocab, row

MASKING, VOCAB = key(0, "masking"), ToyVocab(size=60_000)
SEP, MASK = 3, 4


def sequence_with_hits(num_tokens: int, chosen: list[int]) -> dict[str, np.ndarray]:
    before = row(num_tokens, [0, num_tokens - 1])
    hits = np.zeros(num_tokens, np.int32)
    hits[chosen] = 1
    return before | {"hits": hits}


def made(before: dict[str, np.ndarray], sample: int = 0, **keys: float) -> dict[str, np.ndarray]:
    return MaskedSeq2Seq(**keys)(before, VOCAB, MASKING.at(0, sample))


def test_decoder_inputs_are_the_tokens_before_the_targets() -> None:
    before = sequence_with_hits(10, [4, 5, 6])
    after = made(before)
    assert after["labels"].tolist() == before["input_ids"][[4, 5, 6]].tolist()
    assert after["input_ids"].tolist() == before["input_ids"][[3, 4, 5]].tolist()  # the original tokens, never masked
    assert after["positions"].tolist() == [3, 4, 5]
    assert {str(after[name].dtype) for name in ("input_ids", "labels", "positions", "source_input_ids")} == {"int32"}
    assert "special_tokens_mask" not in after


def test_the_decoder_attends_to_all_source_tokens_except_masks() -> None:
    before = sequence_with_hits(40, list(range(10, 30)))
    for sample in range(10):
        after = made(before, sample)
        np.testing.assert_array_equal(after["source_seen"], after["source_input_ids"] != MASK)
        outside_S = before["hits"] == 0
        np.testing.assert_array_equal(after["source_input_ids"][outside_S], before["input_ids"][outside_S])
        assert after["source_seen"][outside_S].all()


def test_without_hiding_the_decoder_attends_to_the_whole_source() -> None:
    before = sequence_with_hits(40, list(range(10, 30)))
    hidden, seen = made(before), made(before, hide_masked_from_decoder=False)
    assert (
        set(hidden) - set(seen)
        == MaskedSeq2Seq().produced_columns - MaskedSeq2Seq(hide_masked_from_decoder=False).produced_columns
        == {"source_seen"}
    )
    for name, column in seen.items():
        np.testing.assert_array_equal(column, hidden[name])


def test_the_decoder_predicts_the_fragments_of_all_blocks() -> None:
    before = row(512, [])
    hits = ChosenRun(block_size=64)(before, MASKING.at(1, 0))
    after = made(before | {"hits": hits}, hide_masked_from_decoder=False)
    assert len(after["labels"]) == 7 * 32 + 31
    assert after["labels"].tolist() == before["input_ids"][hits > 0].tolist()
    assert after["positions"].tolist() == (np.flatnonzero(hits) - 1).tolist()


def test_one_chosen_token_is_masked_language_modeling() -> None:
    after = made(sequence_with_hits(10, [4]), mask_replace_prob=1.0, random_replace_prob=0.0)
    assert (after["source_input_ids"] == MASK).sum() == 1
    assert (after["input_ids"].tolist(), after["labels"].tolist()) == ([13], [14])


def test_a_fully_chosen_sequence_is_causal_language_modeling() -> None:
    before = sequence_with_hits(10, list(range(1, 9)))
    after = made(before, mask_replace_prob=1.0, random_replace_prob=0.0)
    assert after["source_seen"].tolist() == [True, *[False] * 8, True]  # no source word is left to attend to
    assert after["input_ids"].tolist() == before["input_ids"][:8].tolist()
    assert after["labels"].tolist() == before["input_ids"][1:9].tolist()
    assert after["positions"].tolist() == list(range(8))


def test_half_of_the_sequence_is_predicted_with_the_paper_masking() -> None:
    before = row(64, [0, 63])
    for sample in range(20):
        hits = ChosenRun()(before, MASKING.at(1, sample))
        after = made(before | {"hits": hits}, sample)
        assert len(after["labels"]) == 32
        assert after["labels"].tolist() == before["input_ids"][hits > 0].tolist()


def test_source_tokens_are_masked_replaced_or_kept_80_10_10() -> None:
    before = sequence_with_hits(50_000, list(range(1, 49_999)))
    source = made(before)["source_input_ids"][1:-1]
    kind = np.where(source == MASK, 0, np.where(source != before["input_ids"][1:-1], 1, 2))
    assert stats.chisquare(np.bincount(kind), 49_998 * np.array([0.8, 0.1, 0.1])).pvalue > 0.001


def test_a_one_token_fragment_at_the_end_works_unlike_in_mass() -> None:
    after = made(
        sequence_with_hits(3, [1]), mask_replace_prob=1.0, random_replace_prob=0.0
    )  # the summarization code of MASS has an empty slice for one token
    assert (after["source_input_ids"].tolist(), after["labels"].tolist()) == ([SEP, MASK, SEP], [11])


def test_a_fragment_at_the_start_is_predicted_from_the_end_token() -> None:
    before = row(4, []) | {"hits": np.array([1, 1, 0, 0])}
    after = made(before)
    assert (after["input_ids"].tolist(), after["positions"].tolist()) == ([SEP, 10], [0, 0])


def test_languages_are_on_both_sides() -> None:
    before = sequence_with_hits(6, [3, 4]) | {"languages": np.array([1, 1, 1, 1, 0, 0], np.int8)}
    after = made(before)
    assert after["languages"].tolist() == [1, 0]
    assert after["source_languages"].tolist() == [1, 1, 1, 1, 0, 0]


def test_the_input_is_not_modified_unlike_in_mass() -> None:
    before = sequence_with_hits(10, [4, 5, 6])
    copies = {name: column.copy() for name, column in before.items()}
    made(before)
    for name, column in copies.items():
        np.testing.assert_array_equal(before[name], column)


def test_keys_are_checked() -> None:
    with pytest.raises(
        ValueError, match=r"invalid objective\.mask_replace_prob \+ random_replace_prob: got 1\.5, expected at most 1"
    ):
        MaskedSeq2Seq(random_replace_prob=0.7)
    assert MaskedSeq2Seq().raw_length(512, NoMasking()) == 512
