"""Masking over whole sequences: distributions of the papers, and known bugs of the reference code."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from preprocessing.masking import FragmentMasking, PartialPrediction, RandomSpans
from preprocessing.masking.budget import OrdinaryWords
from preprocessing.masking.ngram import ngram_lengths
from preprocessing.rng import key
from tests.preprocessing.toy import row

MASKING = key(0, "masking")
NGRAM_SHARES = [0.438, 0.219, 0.146, 0.1095, 0.0876]  # XLNet


def fits(count_K: np.ndarray, share_K: np.ndarray) -> bool:
    """Whether counts are consistent with these fractions: chi-square, p > .001."""
    share_K = np.asarray(share_K) / np.sum(share_K)
    return stats.chisquare(count_K, share_K * np.sum(count_K)).pvalue > 0.001


def runs(hit_S: np.ndarray) -> list[tuple[int, int]]:
    """Return the start and length of every unit."""
    return [(int(np.argmax(hit_S == k)), np.count_nonzero(hit_S == k)) for k in range(1, hit_S.max(initial=0) + 1)]


def text_sequence(num_tokens: int, word: int = 1, walls: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """A sequence of words with `word` tokens; only the tokens at `walls` are special."""
    return row(num_tokens, list(walls), list(range(0, num_tokens, word)))


# RandomSpans


@settings(deadline=None, max_examples=200)
@given(
    num_tokens=st.integers(1, 600), rate=st.sampled_from([0.05, 0.15, 0.5, 0.9]), mean=st.sampled_from([1.0, 3.0, 10.0])
)
def test_noise_span_counts_and_positions_equal_the_reference(num_tokens, rate, mean):
    hit_S = RandomSpans(rate=rate, mean_noise_span_length=mean)(text_sequence(num_tokens), MASKING.at(0, num_tokens))
    wanted = min(max(round(rate * num_tokens), 1), num_tokens - 1)
    assert np.count_nonzero(hit_S) == wanted
    assert hit_S.max() == min(max(1, round(wanted / mean)), wanted, num_tokens - wanted)
    if wanted:
        assert hit_S[0] == 0
        assert hit_S[-1] == hit_S.max()
        assert np.all(np.diff(hit_S[hit_S > 0]) <= 1)
        assert np.count_nonzero(np.diff((hit_S > 0).astype(int)) == 1) == hit_S.max()  # none touch


def test_568_tokens_become_512_with_28_sentinels_for_85_tokens():
    hit_S = RandomSpans()(text_sequence(568), MASKING.at(0, 0))
    assert (np.count_nonzero(hit_S), hit_S.max()) == (85, 28)
    assert np.count_nonzero(hit_S == 0) + hit_S.max() + 1 == 512  # and an end token


def test_every_partition_into_noise_spans_is_equally_likely():
    rng, one = MASKING.at(0, 0), text_sequence(10)
    rows = [RandomSpans(rate=0.4, mean_noise_span_length=2.0)(one, rng) for _ in range(15_000)]
    found = Counter(tuple(hit_S.tolist()) for hit_S in rows)
    assert len(found) == 3 * 5  # 4 and 6 are ordered sums of two numbers in 3 and 5 ways
    assert fits(np.array(list(found.values())), np.ones(15))


# Fragment


def test_fragments_are_at_the_start_20_at_the_end_20_and_anywhere_60_percent():
    one = row(22, specials=[0, 21])
    rng = MASKING.at(0, 0)
    starts = [runs(FragmentMasking()(one, rng))[0] for _ in range(10_000)]
    assert {length for _, length in starts} == {11}  # half of the sequence, including its special ends
    count = np.bincount([start - 1 for start, _ in starts], minlength=10)
    assert fits(count, [0.2 + 0.06, *[0.06] * 8, 0.2 + 0.06])


@settings(deadline=None, max_examples=100)
@given(num_tokens=st.integers(3, 80), rate=st.floats(0.01, 1), sample=st.integers(0, 1000))
def test_a_fragment_is_one_run_of_ordinary_tokens(num_tokens, rate, sample):
    hit_S = FragmentMasking(rate=rate)(row(num_tokens, specials=[0, num_tokens - 1]), MASKING.at(0, sample))
    ((start, length),) = runs(hit_S)
    assert length == min(max(1, round(rate * num_tokens)), num_tokens - 2)
    assert (hit_S[start : start + length] == 1).all()
    assert not hit_S[[0, -1]].any()


def test_a_separator_inside_a_fragment_is_not_chosen_and_splits_it():
    hit_S = FragmentMasking(rate=1.0)(row(8, specials=[0, 4, 7]), MASKING.at(0, 0))
    assert hit_S.tolist() == [0, 1, 1, 1, 0, 2, 2, 0]


def test_each_block_has_one_fragment_at_a_uniform_position():
    one, rng = row(512, specials=[]), MASKING.at(0, 0)
    chosen = np.stack([FragmentMasking(rate=0.15, block_size=64)(one, rng) > 0 for _ in range(3000)])
    assert not chosen[:, 0].any()
    for block in range(8):
        part = chosen[:, 1 + 64 * block : 65 + 64 * block]
        assert (part.sum(axis=1) == 9).all()  # floor(.15 * 64) = 9, and floor(.15 * 63) = 9
        first = part.argmax(axis=1)
        assert all(row[at : at + 9].all() for row, at in zip(part, first, strict=True))
        assert fits(np.bincount(first, minlength=part.shape[1] - 8), np.ones(part.shape[1] - 8))


@settings(deadline=None, max_examples=100)
@given(num_tokens=st.integers(2, 200), block=st.integers(1, 80), rate=st.floats(0.05, 1), sample=st.integers(0, 1000))
def test_block_fragments_round_down_and_short_sequences_have_one_fragment(num_tokens, block, rate, sample):
    hit_S = FragmentMasking(rate=rate, block_size=block)(
        row(num_tokens, specials=[num_tokens - 1]), MASKING.at(0, sample)
    )
    shares = [int(rate * min(block, num_tokens - at)) for at in range(1, num_tokens, block)]
    found = [np.count_nonzero(hit_S[at : at + block]) for at in range(1, num_tokens, block)]
    assert hit_S.any()
    assert not hit_S[-1]
    if sum(shares[:-1]):
        assert found[:-1] == shares[:-1]
        assert shares[-1] - 1 <= found[-1] <= shares[-1]  # the last token is special


def test_block_size_defaults_to_no_blocks_and_must_not_be_negative():
    assert FragmentMasking() == FragmentMasking(block_size=0)
    with pytest.raises(
        ValueError, match=r"invalid masking.block_size: got -1, expected a positive number of tokens, or 0"
    ):
        FragmentMasking(block_size=-1)


# Partial


def test_the_halves_of_512_tokens_have_43_and_42_targets():
    for sample in range(50):
        hit_S = PartialPrediction()(row(512, specials=[300, 510, 511]), MASKING.at(0, sample))
        assert (np.count_nonzero(hit_S[:256]), np.count_nonzero(hit_S[256:])) == (43, 42)


@settings(deadline=None, max_examples=200)
@given(num_tokens=st.integers(2, 200), word=st.integers(1, 9), sample=st.integers(0, 10**6))
def test_a_sixth_of_the_tokens_is_chosen_and_units_stay_in_their_half(num_tokens, word, sample):
    one = text_sequence(num_tokens, word, walls=tuple(sorted({num_tokens // 3, num_tokens - 1})))
    hit_S = PartialPrediction()(one, MASKING.at(0, sample))
    assert np.count_nonzero(hit_S) == min(num_tokens // 6, np.count_nonzero(~one["special_tokens_mask"]))
    assert not hit_S[one["special_tokens_mask"]].any()
    seen = hit_S[hit_S > 0]
    assert np.array_equal(np.unique(seen), np.arange(1, hit_S.max() + 1))
    assert np.all(np.diff(seen) >= 0)
    middle = num_tokens // 2
    assert not set(hit_S[:middle].tolist()) & set(hit_S[middle:].tolist()) - {0}


def test_ngram_lengths_have_the_distribution_of_xlnet():
    count = np.bincount(ngram_lengths(5, 100_000, MASKING.at(0, 0)), minlength=6)[1:]
    assert fits(count, NGRAM_SHARES)
    assert abs(count @ np.arange(1, 6) / 100_000 - 2.19) < 0.01


def half_ngrams(long_O: np.ndarray, goal: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return first word and word count of each n-gram in a half; `long_O` has the lengths of the words in tokens."""
    chosen, firsts, _ = PartialPrediction()._ngrams(long_O.tolist(), goal, rng)
    plain = OrdinaryWords(np.zeros(len(long_O), bool), np.ones(len(long_O), bool))
    return runs(plain.units(chosen, firsts))


def first_two(count: int) -> list[list[tuple[int, int]]]:
    """Return the first two n-grams of each draw over one-token words; leave out draws that wrap around."""
    rng = MASKING.at(0, 0)
    found = [half_ngrams(np.ones(2_000, int), 43, rng) for _ in range(count)]
    # the circle of words is not cut between these n-grams
    return [each[:2] for each in found if each[-1][0] - each[0][0] < 1_000]


def test_ngram_lengths_and_distances_follow_the_paper():
    """Each n-gram has a random place in its six words, so distances 1 to 11 follow the sum of two dice minus 1."""
    found = first_two(5_000)
    assert fits(np.bincount([long for each in found for _, long in each], minlength=6)[1:], NGRAM_SHARES)
    apart = [second - first for (first, one), (second, other) in found if one == other == 1]
    assert fits(np.bincount(apart, minlength=12)[1:], [1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1])


def test_an_ngram_consists_of_whole_words():
    one = text_sequence(300, word=3)
    words = OrdinaryWords(one["special_tokens_mask"], one["word_starts"])
    for sample in range(100):
        chosen, firsts, left = PartialPrediction()._ngrams(words.long_O.tolist(), 48, MASKING.at(0, sample))
        hit_W3 = words.units(chosen, firsts).reshape(-1, 3)
        assert (hit_W3 == hit_W3[:, :1]).all()
        assert np.count_nonzero(hit_W3) == 48 - left


def varied_sequence(num_tokens: int, walls: tuple[int, ...], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A sequence of words with 1 to 8 tokens, 3.2 on average, as in text with long words, names or other languages."""
    long_W = rng.choice(8, num_tokens, p=[0.15, 0.2, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05]) + 1
    return row(num_tokens, list(walls), [0, *np.cumsum(long_W)[np.cumsum(long_W) < num_tokens].tolist()])


@pytest.mark.parametrize("words", ["one token", "long"])
def test_targets_are_equally_frequent_in_each_eighth_of_a_sequence(words):
    """A sequence as in XLNet; its second half has three special tokens.

    When word lengths were counted in tokens, the counts were 66,000 and 1,200.
    """
    count_S, num_rows, walls = np.zeros(512), 2500, (400, 510, 511)
    for sample in range(num_rows):
        one = (
            varied_sequence(512, walls, np.random.default_rng(sample))
            if words == "long"
            else text_sequence(512, 1, walls)
        )
        count_S += PartialPrediction()(one, MASKING.at(0, sample)) > 0
    share_K = count_S.reshape(8, 64).sum(axis=1) / [64, 64, 64, 64, 64, 64, 63, 62] / num_rows
    np.testing.assert_allclose(share_K, [43 / 256] * 4 + [42 / 253] * 4, rtol=0.04)
    edges = count_S[[0, 1, 2, 253, 254, 255, 256, 257, 258, 507, 508, 509]] / num_rows
    np.testing.assert_allclose(edges, 1 / 6, atol=0.025)


def test_one_token_words_are_targets_equally_often():
    rows = [PartialPrediction()(text_sequence(60), MASKING.at(0, sample)) > 0 for sample in range(6000)]
    count_S, deviation = np.sum(rows, axis=0), (6000 / 6 * 5 / 6) ** 0.5
    assert np.abs(count_S - 1000).max() < 4 * deviation


@pytest.mark.parametrize("word", [2, 4, 8])
def test_the_tokens_of_a_word_are_targets_equally_often(word):
    """In the released code, the first of four tokens is a target in 29% of the draws and the last in 9%."""
    rows = [PartialPrediction()(text_sequence(256, word), MASKING.at(0, sample)) > 0 for sample in range(1500)]
    np.testing.assert_allclose(np.mean(rows, axis=0).reshape(-1, word).mean(axis=0), 1 / 6, rtol=0.05)


def test_single_tokens_fill_the_budget_that_ngrams_leave():
    one = text_sequence(120, word=60)  # one word in each half, which ends with the half
    rng = MASKING.at(0, 0)
    rows = [PartialPrediction()(one, rng) for _ in range(2000)]
    assert all(np.count_nonzero(hit_S) == 20 for hit_S in rows)
    count_S = np.sum([hit_S > 0 for hit_S in rows], axis=0)
    np.testing.assert_allclose(count_S / 2000, 1 / 6, atol=0.04)


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"group_size": 1}, "masking.group_size: got 1"), ({"max_ngram": 0}, "masking.max_ngram: got 0")],
)
def test_partial_prediction_keys_are_checked(keys, message):
    with pytest.raises(ValueError, match=message):
        PartialPrediction(**keys)
