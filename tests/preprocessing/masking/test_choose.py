import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.masking import (
    EntityMasking,
    Masking,
    NgramMasking,
    NoMasking,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from preprocessing.masking.ngram import ngram_lengths
from preprocessing.masking.span import span_lengths
from preprocessing.rng import key
from tests.preprocessing.toy import row

MASKING = key(0, "masking")
CHOOSERS = [
    TokenMasking(),
    TokenMasking(rounding="up"),
    TokenMasking(rounding="stochastic"),
    WholeWordMasking(),
    WholeWordMasking(rounding="up"),
    NgramMasking(),
    SpanMasking(),
]
BY_NAME = pytest.mark.parametrize("masking", CHOOSERS, ids=lambda masking: f"{masking.kind}-{masking.rounding}")


def pair_sequence(num_tokens: int, seed: int) -> dict[str, np.ndarray]:
    """[CLS] A [SEP] B [SEP] with words of 1 to 5 tokens."""
    rng = np.random.default_rng(seed)
    starts = np.flatnonzero(rng.random(num_tokens) < 0.6).tolist()
    middle = int(rng.integers(2, num_tokens - 2))
    return row(num_tokens, specials=[0, middle, num_tokens - 1], word_starts=starts)


def chosen(masking: Masking, one: dict[str, np.ndarray], sample: int = 0) -> np.ndarray:
    return masking(one, MASKING.at(0, sample))


def words_of(one: dict[str, np.ndarray]) -> list[np.ndarray]:
    return np.split(np.arange(len(one["input_ids"])), np.flatnonzero(one["word_starts"])[1:])


def test_no_masking_chooses_nothing():
    assert not chosen(NoMasking(), row(20, specials=[0, 19])).any()


def test_entity_masking_is_whole_word_masking_over_units():
    one = pair_sequence(200, 0)
    units = one | {"unit_starts": one["word_starts"], "word_starts": np.ones(200, bool)}
    assert chosen(EntityMasking(), units).tolist() == chosen(WholeWordMasking(), one).tolist()


@pytest.mark.one_in(3)
@BY_NAME
def test_fifteen_percent_of_a_million_tokens_are_chosen(masking):
    rows = [pair_sequence(512, seed) for seed in range(1954)]
    num_hits = sum(np.count_nonzero(chosen(masking, one, i)) for i, one in enumerate(rows))
    num_tokens = sum(len(one["input_ids"]) for one in rows)
    assert num_tokens > 1e6
    assert abs(num_hits / num_tokens - 0.15) < 0.001


@BY_NAME
@settings(deadline=None, max_examples=100)
@given(num_tokens=st.integers(5, 200), seed=st.integers(0, 10**6))
def test_special_tokens_are_never_chosen_or_crossed(masking, num_tokens, seed):
    one = pair_sequence(num_tokens, seed)
    hit_S = chosen(masking, one, seed)
    assert hit_S.dtype == np.int32
    assert not hit_S[one["special_tokens_mask"]].any()
    middle = np.flatnonzero(one["special_tokens_mask"])[1]
    assert not set(hit_S[:middle].tolist()) & set(hit_S[middle:].tolist()) - {0}


@BY_NAME
@settings(deadline=None, max_examples=50)
@given(num_tokens=st.integers(5, 200), seed=st.integers(0, 10**6))
def test_units_are_numbered_from_left_to_right(masking, num_tokens, seed):
    hit_S = chosen(masking, pair_sequence(num_tokens, seed), seed)
    seen = hit_S[hit_S > 0]
    assert np.all(np.diff(seen) >= 0)
    assert np.unique(seen).tolist() == list(range(1, seen.max(initial=0) + 1))


@BY_NAME
def test_ordinary_positions_are_chosen_equally_often(masking):
    one = row(42, specials=[0, 20, 41])
    counts_S = sum((chosen(masking, one, sample) > 0).astype(int) for sample in range(4000))
    ordinary = counts_S[~one["special_tokens_mask"]]
    if isinstance(
        masking, SpanMasking
    ):  # a span starts at an ordinary token, so the first words of a text are chosen less often
        assert ordinary.min() > 0.35 * ordinary.mean()
        return
    expected = ordinary.mean()
    assert (
        (ordinary - expected) ** 2 / (expected * (1 - expected / 4000))
    ).sum() < 72  # 38 degrees of freedom, p = .001


@pytest.mark.parametrize(
    ("num_tokens", "budget"),
    [
        (128, 19),
        (512, 77),
        (10, 2),
        (30, 4),
        (50, 8),
        (5, 1),
        (4, 1),
    ],  # 10: round(1.5) = 2; 30: round(4.5) = 4, as in Python
)
def test_nearest_rounds_like_bert_and_counts_special_tokens(num_tokens, budget):
    assert np.count_nonzero(chosen(TokenMasking(), row(num_tokens, specials=[0, num_tokens - 1]))) == budget


def test_up_rounds_like_spanbert_and_ignores_special_tokens():
    assert np.count_nonzero(chosen(SpanMasking(), row(103, specials=[0, 102]))) == 16  # ceil(.15 * 101)
    assert np.count_nonzero(chosen(SpanMasking(), row(102, specials=[0, 101]))) == 15  # ceil(.15 * 100)


def test_up_keeps_an_integer_budget():
    assert np.count_nonzero(chosen(TokenMasking(rate=0.07, rounding="up"), row(102, specials=[0, 101]))) == 7


def test_stochastic_rounding_has_the_exact_mean():  # fairseq: floor(.15 * 30 + U) is 4 or 5, each in half of the draws
    counts = [
        np.count_nonzero(chosen(TokenMasking(rounding="stochastic"), row(30, specials=[0, 29]), sample))
        for sample in range(4000)
    ]
    assert set(counts) == {4, 5}
    assert abs(np.mean(counts) - 4.5) < 0.03


@pytest.mark.parametrize("kind", [TokenMasking, WholeWordMasking, NgramMasking])
def test_max_predictions_per_seq_limits_the_budget(kind):
    assert np.count_nonzero(chosen(kind(max_predictions_per_seq=20), row(512, specials=[0, 511]))) == 20


@pytest.mark.parametrize(
    "masking", [TokenMasking(rate=1.0), WholeWordMasking(rate=1.0), NgramMasking(rate=1.0), SpanMasking(rate=1.0)]
)
def test_the_whole_sequence_can_be_chosen(masking):
    one = row(50, specials=[0, 20, 49])
    assert (chosen(masking, one) > 0).tolist() == (~one["special_tokens_mask"]).tolist()


@pytest.mark.parametrize("masking", CHOOSERS, ids=lambda masking: masking.kind)
def test_a_sequence_of_special_tokens_has_nothing_chosen(masking):
    assert not chosen(masking, row(3, specials=[0, 1, 2])).any()


@settings(deadline=None, max_examples=200)
@given(num_tokens=st.integers(5, 200), seed=st.integers(0, 10**6))
@pytest.mark.parametrize(
    "masking",
    [WholeWordMasking(), NgramMasking(), NgramMasking(max_ngram=6, rate=0.5)],
    ids=["words", "ngrams", "long"],
)
def test_words_are_chosen_as_a_whole(masking, num_tokens, seed):
    one = pair_sequence(num_tokens, seed)
    hit_S = chosen(masking, one, seed)
    for word in words_of(one):
        assert len(set(hit_S[word].tolist())) == 1


def test_a_truncated_word_does_not_join_the_word_before_the_separator():
    # [CLS] play ##ing [SEP] ##ed dog [SEP]: the reference masks play, ##ing and ##ed as one word
    one = row(7, specials=[0, 3, 6], word_starts=[1, 5])
    units = {tuple(np.flatnonzero(chosen(WholeWordMasking(rate=0.45), one, sample))) for sample in range(200)}
    assert units == {(1, 2, 4), (1, 2, 5), (4, 5)}  # budget 3, words (1, 2), (4,) and (5,)
    numbers = {tuple(chosen(WholeWordMasking(rate=0.45), one, sample).tolist()) for sample in range(200)}
    assert (0, 1, 1, 0, 2, 0, 0) in numbers


def test_a_word_that_exceeds_the_budget_is_skipped():
    one = row(13, specials=[0, 12], word_starts=[1, 9, 10, 11])  # words of 8, 1, 1 and 1 tokens
    hits = [chosen(WholeWordMasking(rate=0.23), one, sample) for sample in range(50)]  # budget round(2.99) = 3
    assert {tuple(np.flatnonzero(hit_S)) for hit_S in hits} == {(9, 10, 11)}


@pytest.mark.parametrize("kind", [WholeWordMasking, NgramMasking])
def test_a_sequence_of_too_long_words_stays_unmasked(kind):
    assert not chosen(kind(), row(10, specials=[0, 9], word_starts=[1, 5])).any()  # budget 2, words of 4 tokens


@settings(deadline=None, max_examples=200)
@given(num_tokens=st.integers(5, 200), seed=st.integers(0, 10**6))
def test_ngram_budgets_are_missed_only_if_no_remaining_word_fits(num_tokens, seed):
    one = pair_sequence(num_tokens, seed)
    hit_S = chosen(NgramMasking(), one, seed)
    left = max(1, round(0.15 * num_tokens)) - np.count_nonzero(hit_S)
    free = [len(word) for word in words_of(one) if not hit_S[word[0]] and not one["special_tokens_mask"][word[0]]]
    assert left == 0 or 0 < left < min(free)


@settings(deadline=None, max_examples=100)
@given(num_tokens=st.integers(5, 200), longest=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_an_ngram_is_a_run_of_at_most_max_ngram_words(num_tokens, longest, seed):
    one = pair_sequence(num_tokens, seed)
    hit_S = chosen(NgramMasking(max_ngram=longest, rate=0.4), one, seed)
    for unit in range(1, hit_S.max(initial=0) + 1):
        at = np.flatnonzero(hit_S == unit)
        assert np.all(np.diff(at) == 1)
        assert 1 <= np.count_nonzero(one["word_starts"][at]) <= longest


def test_adjacent_ngrams_stay_separate_units():
    hits = [chosen(NgramMasking(rate=0.5), row(60, specials=[0, 59]), sample) for sample in range(20)]
    assert any(np.any((hit_S[1:] > 0) & (hit_S[:-1] > 0) & (hit_S[1:] != hit_S[:-1])) for hit_S in hits)


def test_an_ngram_is_cut_at_a_word_boundary_to_fit_the_budget():
    one = row(12, specials=[0, 11], word_starts=[1, 3, 5, 7, 9])  # words of two tokens, budget round(.34 * 12) = 4
    units = {
        tuple(np.unique(chosen(NgramMasking(rate=0.34), one, n), return_counts=True)[1][1:].tolist())
        for n in range(200)
    }
    assert units == {(2, 2), (4,)}  # a drawn n-gram of three words is cut to two words


def test_a_shorter_ngram_is_used_if_no_longer_one_fits():
    one = row(9, specials=[0, 2, 4, 6, 8])  # single words between special tokens
    assert (chosen(NgramMasking(rate=1.0), one) > 0).tolist() == (~one["special_tokens_mask"]).tolist()


def test_with_max_ngram_1_ngrams_are_single_words():
    hit_S = chosen(NgramMasking(max_ngram=1), pair_sequence(512, 0))
    starts = pair_sequence(512, 0)["word_starts"]
    assert all(np.count_nonzero(starts[hit_S == unit]) == 1 for unit in range(1, hit_S.max() + 1))


def test_ngram_lengths_have_the_paper_distribution():
    length_N = ngram_lengths(3, 1_000_000, MASKING.at(0, 0))
    np.testing.assert_allclose(np.bincount(length_N)[1:] / 1e6, [6 / 11, 3 / 11, 2 / 11], atol=0.002)


@settings(deadline=None, max_examples=100)
@given(num_tokens=st.integers(5, 200), seed=st.integers(0, 10**6))
def test_spans_meet_the_budget_exactly_and_cut_at_most_one_word(num_tokens, seed):
    one = pair_sequence(num_tokens, seed)
    hit_S = chosen(SpanMasking(), one, seed)
    assert np.count_nonzero(hit_S) == int(np.ceil(0.15 * (num_tokens - 3) - 1e-9))
    assert sum(0 < np.count_nonzero(hit_S[word]) < len(word) for word in words_of(one)) <= 1


@settings(deadline=None, max_examples=50)
@given(num_tokens=st.integers(20, 200), seed=st.integers(0, 10**6))
def test_spans_start_at_word_starts(num_tokens, seed):
    one = pair_sequence(num_tokens, seed)
    hit_S = chosen(SpanMasking(), one, seed)
    firsts = [int(np.argmax(hit_S == unit)) for unit in range(1, hit_S.max(initial=0) + 1)]
    assert all(one["word_starts"][first] for first in firsts)


def test_span_lengths_have_the_paper_mean_without_clipping():
    length_N = span_lengths(0.2, 10, 1_000_000, MASKING.at(0, 0))
    assert (length_N.min(), length_N.max()) == (1, 10)
    assert abs(length_N.mean() - 3.797) < 0.01  # with clipping to 10 it would be 4.463
    share_10 = np.bincount(length_N)[1:] / 1e6
    published = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470, 0.0376, 0.0301]
    np.testing.assert_allclose(share_10, published, atol=0.002)


def test_chosen_spans_have_the_paper_mean_in_words():
    one = row(1_000_000, specials=[0, 999_999], word_starts=list(range(1, 999_999, 2)))  # words of two tokens
    hit_S = chosen(SpanMasking(rate=0.01), one)  # so few spans that almost none are adjacent
    assert abs(np.bincount(hit_S)[1:].mean() / 2 - 3.797) < 0.25


def test_adjacent_spans_are_one_unit():
    for sample in range(50):
        hit_S = chosen(SpanMasking(rate=0.5), row(60, specials=[0, 59]), sample)
        assert not np.any((hit_S[1:] > 0) & (hit_S[:-1] > 0) & (hit_S[1:] != hit_S[:-1]))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_outside_0_to_1_is_refused(rate):
    with pytest.raises(
        ValueError, match=r"invalid masking.rate: got .*, expected a fraction greater than 0 and at most 1"
    ):
        TokenMasking(rate=rate)


def test_ngram_keys_are_checked():
    with pytest.raises(ValueError, match=r"invalid masking.max_ngram: got 0, expected a positive number of words"):
        NgramMasking(max_ngram=0)
    with pytest.raises(ValueError, match=r"masking.max_predictions_per_seq: got -1"):
        NgramMasking(max_predictions_per_seq=-1)


def test_span_keys_are_checked():
    with pytest.raises(ValueError, match=r"masking.geometric_p: got 1.0"):
        SpanMasking(geometric_p=1.0)
    with pytest.raises(ValueError, match=r"masking.max_span_length: got 0"):
        SpanMasking(max_span_length=0)
