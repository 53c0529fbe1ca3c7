"""Edge cases of the number of chosen tokens: very short sequences, few ordinary tokens, words that barely fit."""

import numpy as np
import pytest

from preprocessing.masking import (
    EntityMasking,
    FragmentMasking,
    Masking,
    NgramMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from preprocessing.rng import key
from tests.preprocessing.toy import row

MASKING = key(0, "masking")


def chosen(masking: Masking, one: dict[str, np.ndarray], sample: int = 0) -> list[int]:
    return np.flatnonzero(masking(one, MASKING.at(0, sample))).tolist()


@pytest.mark.parametrize(
    "masking",
    [TokenMasking(), WholeWordMasking(), NgramMasking(), SpanMasking(rounding="nearest")],
    ids=lambda part: part.kind,
)
def test_a_short_sequence_still_has_one_masked_token(masking: Masking) -> None:
    assert chosen(masking, row(3, specials=[0, 2])) == [1]  # round(.15 * 3) = 0


def test_a_short_sequence_still_has_one_masked_phrase() -> None:
    one = row(3, specials=[0, 2])
    assert chosen(EntityMasking(), one | {"unit_starts": one["word_starts"]}) == [1]


@pytest.mark.parametrize(
    "masking",
    [
        TokenMasking(rate=1.0, max_predictions_per_seq=50),
        WholeWordMasking(rate=1.0, max_predictions_per_seq=50),
        NgramMasking(rate=1.0, max_predictions_per_seq=50),
    ],
    ids=lambda part: part.kind,
)
def test_a_cap_above_the_number_of_ordinary_tokens_has_no_effect(masking: Masking) -> None:
    assert chosen(masking, row(20, specials=[0, 19])) == [*range(1, 19)]


@pytest.mark.parametrize("masking", [WholeWordMasking(), NgramMasking(), NgramMasking(max_ngram=1)], ids=str)
def test_a_word_as_long_as_the_budget_is_chosen(masking: Masking) -> None:
    one = row(13, specials=[0, 12], word_starts=[1, 10])  # words of 9 and 2 tokens, budget round(1.95) = 2
    assert all(chosen(masking, one, sample) == [10, 11] for sample in range(20))


def test_word_budgets_are_missed_only_if_no_remaining_word_fits() -> None:
    for seed in range(200):
        starts = np.flatnonzero(np.random.default_rng(seed).random(80) < 0.4)
        one = row(80, specials=[0, 79], word_starts=starts.tolist())
        hit_S = WholeWordMasking(rate=0.3)(one, MASKING.at(0, seed))
        begin_W = np.flatnonzero(one["word_starts"])
        long_W = np.diff(begin_W, append=80)
        is_free_W = (hit_S[begin_W] == 0) & ~one["special_tokens_mask"][begin_W]
        left = 24 - np.count_nonzero(hit_S)
        assert 0 <= left < long_W[is_free_W].min()


def test_a_sequence_of_one_token_has_no_noise_span() -> None:
    assert chosen(RandomSpans(rate=0.9), row(1, specials=[])) == []


def test_a_sequence_of_two_tokens_keeps_the_first() -> None:
    assert chosen(RandomSpans(rate=0.9), row(2, specials=[])) == [1]


def test_a_mostly_noise_sequence_keeps_its_first_token() -> None:
    assert chosen(RandomSpans(rate=0.9), row(4, specials=[])) == [1, 2, 3]  # round(3.6) = 4


def test_a_short_sequence_still_has_a_fragment_of_one_token() -> None:
    assert len(chosen(FragmentMasking(rate=0.01), row(5, specials=[0, 4]))) == 1


def test_an_ngram_is_at_most_as_long_as_the_remaining_budget() -> None:
    for sample in range(20):
        chosen, _, left = PartialPrediction()._ngrams([1] * 12, 1, MASKING.at(0, sample))
        assert len(chosen) == 1
        assert left == 0


def test_the_context_of_an_ngram_is_limited_to_the_remaining_tokens() -> None:
    six = [PartialPrediction()._ngrams([1] * 6, 1, MASKING.at(0, sample)) for sample in range(200)]
    assert {left for _, _, left in six} == {0}  # a context of one out of six words; all six still remain
    five = [PartialPrediction()._ngrams([1] * 5, 1, MASKING.at(0, sample)) for sample in range(200)]
    assert {left for _, _, left in five} == {0, 1}
