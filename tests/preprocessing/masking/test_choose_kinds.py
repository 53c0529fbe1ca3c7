"""Masking as in XLM, ERNIE, fairseq, SpanBERT's ablation and UniLM."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from preprocessing.errors import BadInput
from preprocessing.masking import EntityMasking, Masking, NgramMasking, SpanMasking, TokenMasking, require_hits
from preprocessing.masking.ngram import ngram_lengths
from preprocessing.objectives import MaskedLM
from preprocessing.rng import key
from tests.preprocessing.toy import ToyVocab, row

MASKING = key(0, "masking")


def chosen(masking: Masking, one: dict[str, np.ndarray], sample: int = 0) -> np.ndarray:
    return masking(one, MASKING.at(0, sample))


# Token masking as in XLM, ERNIE and fairseq


def test_independent_rounding_draws_per_token_and_may_choose_none():
    one = row(22, specials=[0, 21])
    masking, rng = TokenMasking(rounding="independent"), MASKING.at(0, 0)
    counts = [np.count_nonzero(masking(one, rng)) for _ in range(20_000)]
    share_K = stats.binom.pmf(np.arange(9), 20, 0.15)
    count_K = np.bincount(np.minimum(counts, 8), minlength=9)
    share_K[8] = 1 - share_K[:8].sum()
    assert stats.chisquare(count_K, share_K * 20_000).pvalue > 0.001
    assert count_K[0] > 0


def test_mask_special_tokens_chooses_special_tokens_as_often_as_others():
    one = row(20, specials=[0, 10, 19])
    masking = TokenMasking(rounding="stochastic", mask_special_tokens=True)
    rng = MASKING.at(0, 0)
    count_S = sum((masking(one, rng) > 0).astype(int) for _ in range(20_000))
    assert stats.chisquare(count_S).pvalue > 0.001
    assert count_S.sum() == 20_000 * 3  # .15 * 20, where all 20 tokens count


def test_chosen_special_tokens_are_valid_hits_only_with_mask_special_tokens() -> None:
    """A run with this key once ended at the first of its sequences that were validated."""
    special_S = np.array([True, False, False])
    hits = np.array([1, 0, 2])
    require_hits(TokenMasking(rounding="stochastic", mask_special_tokens=True), hits, special_S)
    with pytest.raises(BadInput, match="got 1 selected special token, expected none"):
        require_hits(TokenMasking(), hits, special_S)


def test_sample_alpha_weights_tokens_by_inverse_counts():
    one = row(12, specials=[0, 11]) | {"counts": np.array([0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 0])}
    masking = TokenMasking(rate=0.1, rounding="up", sample_alpha=0.5)
    rng = MASKING.at(0, 0)
    count_S = sum((masking(one, rng) > 0).astype(int) for _ in range(20_000))
    weight = 1 / np.arange(1, 11)
    assert stats.chisquare(count_S[1:-1], 20_000 * weight / weight.sum()).pvalue > 0.001
    assert not count_S[[0, 11]].any()


def test_rare_tokens_are_drawn_without_replacement():
    one = row(5, specials=[0, 4]) | {"counts": np.array([0, 1, 4, 16, 0])}
    masking = TokenMasking(rate=0.6, rounding="up", sample_alpha=0.5)
    rng = MASKING.at(0, 0)
    left_out = np.bincount([int(np.argmin(masking(one, rng)[1:4])) for _ in range(20_000)], minlength=3)
    p = np.array([4, 2, 1]) / 7
    pairs = {(i, j): p[i] * p[j] / (1 - p[i]) for i in range(3) for j in range(3) if i != j}
    wanted = [sum(share for pair, share in pairs.items() if out not in pair) for out in range(3)]
    assert stats.chisquare(left_out, 20_000 * np.array(wanted)).pvalue > 0.001


def test_an_uncounted_token_is_as_rare_as_a_token_counted_once():
    one = row(4, specials=[0, 3]) | {"counts": np.array([0, 0, 1, 0])}
    rng = MASKING.at(0, 0)
    firsts = sum(int(TokenMasking(rate=0.5, rounding="up", sample_alpha=0.5)(one, rng)[1] > 0) for _ in range(2000))
    assert stats.binomtest(firsts, 2000, 0.5).pvalue > 0.001


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sample_alpha": 2.0}, "invalid masking.sample_alpha: got 2.0, expected a number from 0 to 1"),
        (
            {"rounding": "independent", "max_predictions_per_seq": 5},
            "invalid masking.max_predictions_per_seq: got 5, expected 0 with rounding independent",
        ),
        (
            {"rounding": "independent", "sample_alpha": 0.5},
            "invalid masking.sample_alpha: got 0.5, expected 0 with rounding independent",
        ),
        (
            {"mask_special_tokens": True, "sample_alpha": 0.5},
            "invalid masking.mask_special_tokens: got True, expected false if sample_alpha is above 0",
        ),
    ],
)
def test_token_keys_are_checked(keys, message):
    with pytest.raises(ValueError, match=message):
        TokenMasking(**keys)


# Entity masking as in the released ERNIE/batching.py


@pytest.mark.parametrize(("level", "specials"), [(1.0, [0, 9]), (0.0, [0, 9])], ids=["characters", "units"])
def test_ernie_masks_12_replaces_1_5_and_keeps_1_5_percent(level, specials):
    """A draw above .15 makes the token no target, above .03 a mask, above .015 a random token, else a kept token."""
    one = row(10, specials, word_starts=[1, 3, 5, 7])
    one |= {"unit_starts": one["word_starts"]}
    masking, kinds = EntityMasking(rounding="independent", token_level_prob=level), np.zeros(4, int)
    for sample in range(8_000):
        draws = MASKING.at(0, sample)
        made = MaskedLM()(one | {"hits": masking(one, draws)}, ToyVocab(size=30_000), draws)
        inner, now = one["input_ids"][1:-1], made["input_ids"][1:-1]
        asked = made["labels"][1:-1] >= 0
        is_mask, is_same = now == 4, now == inner
        kinds += [np.count_nonzero(k) for k in (~asked, is_mask, asked & ~is_mask & ~is_same, asked & is_same)]
    np.testing.assert_allclose(kinds / kinds.sum(), [0.85, 0.12, 0.015, 0.015], atol=0.003)


def test_a_unit_is_chosen_by_the_draw_of_its_first_token():
    one = row(42, specials=[0, 41], word_starts=list(range(1, 41, 5)))
    one |= {"unit_starts": one["word_starts"]}
    count_W = np.zeros(8, int)
    for sample in range(5000):
        hit_W5 = (chosen(EntityMasking(rounding="independent"), one, sample)[1:-1] > 0).reshape(8, 5)
        assert np.all(hit_W5 == hit_W5[:, :1])
        count_W += hit_W5[:, 0]
    assert abs(count_W.mean() / 5000 - 0.15) < 0.006


def test_token_level_prob_is_the_fraction_of_sequences_with_single_tokens():
    one = row(42, specials=[0, 41], word_starts=list(range(1, 41, 5)))
    one |= {"unit_starts": one["word_starts"]}
    rows = [chosen(EntityMasking(token_level_prob=0.3, rate=0.25), one, sample) for sample in range(2000)]
    is_whole = [
        np.all((hit_S[1:-1].reshape(8, 5) > 0).all(1) == (hit_S[1:-1].reshape(8, 5) > 0).any(1)) for hit_S in rows
    ]
    assert abs(np.mean(is_whole) - 0.7) < 0.03


# Spans over phrases, n-grams with other weights


def phrase_sequence(num_tokens: int = 202) -> dict[str, np.ndarray]:
    """A sequence of one-token words; the first three of every ten words are a phrase."""
    one = row(num_tokens, specials=[0, num_tokens - 1])
    starts = (np.arange(num_tokens) - 1) % 10
    return one | {"unit_starts": ~np.isin(starts, [1, 2]) | one["special_tokens_mask"]}


def test_phrases_are_chosen_whole_and_once_within_the_budget():
    one = phrase_sequence()
    phrases = (np.arange(1, 201).reshape(20, 10))[:, :3]
    for sample in range(100):
        hit_S = chosen(SpanMasking(phrase_prob=1.0), one, sample) > 0
        assert hit_S.sum() == 30
        assert hit_S[phrases].all(axis=1).sum() == 10
        assert not hit_S[np.setdiff1d(np.arange(202), phrases)].any()


def test_phrase_prob_is_the_fraction_of_phrase_spans():
    one = phrase_sequence(20_002)
    hit_S = chosen(SpanMasking(phrase_prob=0.5, rate=0.02), one)  # so few spans that almost none are adjacent
    longs = np.bincount(hit_S)[1:]
    geometric = 0.8 ** np.arange(10) / (0.8 ** np.arange(10)).sum()
    assert abs(np.mean(longs == 3) - (0.5 + 0.5 * geometric[2])) < 0.12


def test_without_phrases_spans_are_geometric():
    one = row(102, specials=[0, 101])
    hit_S = chosen(SpanMasking(phrase_prob=1.0), one | {"unit_starts": one["word_starts"]})
    assert np.count_nonzero(hit_S) == 15


def test_two_words_at_the_start_can_be_a_phrase():
    one = row(10, specials=[])
    one |= {"unit_starts": np.arange(10) != 1}
    for sample in range(20):
        assert np.flatnonzero(chosen(SpanMasking(phrase_prob=1.0, rate=0.2), one, sample)).tolist() == [0, 1]


def reference_span_tokens(num_tokens: int, budget: int, longest: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Span masking of SpanBERT 3.1 over one-token words: a span starts at a token that is not yet chosen."""
    weight, found = 0.8 ** np.arange(longest), set[int]()
    while len(found) < budget:
        first = int(rng.integers(num_tokens))
        if first in found:
            continue
        for token in range(first, min(num_tokens, first + int(rng.choice(longest, p=weight / weight.sum())) + 1)):
            if len(found) < budget:
                found.add(token)
    return tuple(sorted(found))


def test_spans_start_at_tokens_not_yet_chosen():
    rng, other, one = MASKING.at(0, 0), MASKING.at(0, 1), row(6, specials=[])
    masking = SpanMasking(rate=2 / 3, max_span_length=2)
    ours = Counter(tuple(np.flatnonzero(masking(one, rng)).tolist()) for _ in range(6000))
    theirs = Counter(reference_span_tokens(6, 4, 2, other) for _ in range(6000))
    assert ours.keys() == theirs.keys()
    table = [[side[tokens] for tokens in sorted(ours)] for side in (ours, theirs)]
    assert stats.chi2_contingency(table).pvalue > 0.001


def test_required_columns_follow_phrase_prob_and_sample_alpha():
    assert SpanMasking(phrase_prob=0.5).required_columns - SpanMasking().required_columns == {"unit_starts"}
    assert TokenMasking(sample_alpha=0.5).required_columns - TokenMasking().required_columns == {"counts"}


def test_ngram_weights_replace_the_default_distribution():
    length_N = ngram_lengths(3, 100_000, MASKING.at(0, 0), (0.8, 0.1, 0.1))
    assert stats.chisquare(np.bincount(length_N)[1:], 100_000 * np.array([0.8, 0.1, 0.1])).pvalue > 0.001
    with pytest.raises(ValueError, match=r"invalid masking.ngram_weights: got \(0.8, 0.1\), expected 3 probabilities"):
        NgramMasking(ngram_weights=(0.8, 0.1))


UNILM = NgramMasking(ngram_weights=(0.8, 0.1, 0.1), ngram_unit="token")


def test_token_ngrams_ignore_words_and_follow_their_weights():
    one = row(20_002, specials=[0, 9_000, 20_001], word_starts=list(range(1, 20_001, 4)))  # words of four tokens
    found = np.concatenate([np.bincount(chosen(UNILM, one, sample))[1:] for sample in range(3)])
    assert stats.chisquare(np.bincount(found)[1:], len(found) * np.array([0.8, 0.1, 0.1])).pvalue > 0.001


def test_token_ngrams_do_not_read_word_starts():
    assert NgramMasking().required_columns - UNILM.required_columns == {"word_starts"}
    one = row(512, specials=[0, 200, 511])
    bare = {name: column for name, column in one.items() if name != "word_starts"}
    np.testing.assert_array_equal(chosen(UNILM, bare), chosen(NgramMasking(ngram_weights=UNILM.ngram_weights), one))
