"""Random draws follow the documented distributions: chi-square tests at p > .01, over fixed seeds.

Other tests cover related facts: 80/10/10 and random replacement IDs in test_rewrite, fractions of labels in
test_segment_pair, budgets in test_choose, the order of an epoch in test_order.
"""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from preprocessing.masking import EntityMasking, Masking, NgramMasking, SpanMasking, TokenMasking, WholeWordMasking
from preprocessing.masking.ngram import ngram_lengths
from preprocessing.masking.span import span_lengths
from preprocessing.objectives import MaskedLM
from preprocessing.packing import SegmentPair
from preprocessing.rng import key
from tests.preprocessing.toy import ToyVocab, random_shard, row, shard

MASKING, SEGMENT = key(0, "masking"), key(0, "segment")
VOCAB = ToyVocab(size=30_522)
NGRAM_SHARES = np.array([6, 3, 2]) / 11
SPAN_SHARES = 0.8 ** np.arange(10) / (0.8 ** np.arange(10)).sum()
UNITS = [
    TokenMasking(),
    TokenMasking(rounding="up"),
    TokenMasking(rounding="stochastic"),
    WholeWordMasking(),
    EntityMasking(),
]
ALL = [*UNITS, NgramMasking(), SpanMasking()]
EACH = pytest.mark.parametrize("masking", ALL, ids=lambda masking: f"{masking.kind}-{masking.rounding}")
PAIRS = pytest.mark.parametrize("negative", ["random", "swapped"])


def fits(count_K: np.ndarray, share_K: np.ndarray) -> bool:
    """Whether counts are consistent with these fractions: chi-square, p > .01."""
    return stats.chisquare(count_K, share_K * np.sum(count_K)).pvalue > 0.01


def is_even(count_K: np.ndarray) -> bool:
    return fits(count_K, np.full(len(count_K), 1 / len(count_K)))


def is_even_without_replacement(count_K: np.ndarray, num_rows: int) -> bool:
    """Chi-square if each sequence hits a fixed number of distinct positions, which reduces the variance of counts."""
    expected, places = count_K.mean(), len(count_K)
    variance = expected * (1 - expected / num_rows) * places / (places - 1)
    return stats.chi2.sf(((count_K - expected) ** 2 / variance).sum(), places - 1) > 0.01


def long_sequence(num_tokens: int, word: int = 1, walls: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """A sequence of words with `word` tokens; special tokens at both ends and at `walls`; each word is a unit."""
    specials = [0, *walls, num_tokens - 1]
    one = row(num_tokens, specials, [at for wall, end in pairwise(specials) for at in range(wall + 1, end, word)])
    one["input_ids"][~one["special_tokens_mask"]] += 1000
    return one | {"unit_starts": one["word_starts"]}


def hits(masking: Masking, one: dict[str, np.ndarray], num_rows: int) -> np.ndarray:
    return np.stack([masking(one, MASKING.at(0, sample)) for sample in range(num_rows)])


@pytest.mark.parametrize("num_tokens", [12, 30, 33])
def test_stochastic_rounding_rounds_up_with_the_fractional_probability(num_tokens: int) -> None:
    hit_RS = hits(TokenMasking(rounding="stochastic"), long_sequence(num_tokens), 4000)
    up = np.count_nonzero(hit_RS, axis=1) - int(0.15 * num_tokens)
    fraction = 0.15 * num_tokens % 1
    assert fits(np.bincount(up, minlength=2), np.array([1 - fraction, fraction]))


def outcomes(masking: Masking, unit: str, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return target positions (one per unit if `unit` is "span") and their outcomes: 0 masked, 1 random, 2 kept."""
    one, places, kinds = long_sequence(256, word=1 if unit == "span" else 2), [], []
    dice = key(1 + ALL.index(masking), "masking")  # a separate key for each part makes the tests independent
    for sample in range(num_rows):
        before = one | {"hits": masking(one, MASKING.at(0, sample))}
        after = MaskedLM(replace_unit=unit)(before, VOCAB, dice.at(unit == "span", sample))
        kind_S = np.where(
            after["input_ids"] == VOCAB.mask, 0, np.where(after["input_ids"] != before["input_ids"], 1, 2)
        )
        at = np.flatnonzero(before["hits"]) if unit == "token" else np.unique(before["hits"], return_index=True)[1][1:]
        places.append(at)
        kinds.append(kind_S[at])
    return np.concatenate(places), np.concatenate(kinds)


@EACH
@pytest.mark.parametrize("unit", ["token", "span"])
def test_replacements_are_80_10_10(masking: Masking, unit: str) -> None:
    _, kind_M = outcomes(masking, unit, 150)
    assert len(kind_M) > 1300
    assert fits(np.bincount(kind_M), np.array([0.8, 0.1, 0.1]))


def test_replacements_are_independent_of_the_position() -> None:
    at_M, kind_M = outcomes(TokenMasking(), "token", 500)
    assert stats.contingency.chi2_contingency(np.histogram2d(at_M // 32, kind_M, bins=(8, 3))[0]).pvalue > 0.01


@pytest.mark.parametrize(
    ("masking", "word"),
    [(masking, 1) for masking in UNITS] + [(WholeWordMasking(), 2), (EntityMasking(), 3)],
    ids=lambda part: part if isinstance(part, int) else f"{part.kind}-{part.rounding}",
)
def test_all_positions_are_chosen_equally_often(masking: Masking, word: int) -> None:
    one = long_sequence(63, word, walls=(31,))
    count_S = np.count_nonzero(hits(masking, one, 2500), axis=0)
    assert is_even_without_replacement(count_S[~one["special_tokens_mask"] & one["word_starts"]], 2500)


def test_spans_start_at_every_position_equally_often() -> None:
    one = long_sequence(63, walls=(31,))
    count_S = np.count_nonzero(
        hits(SpanMasking(rate=0.01), one, 4000), axis=0
    )  # with a budget of one token, this is the start of a span
    assert is_even(count_S[~one["special_tokens_mask"]])


def test_ngrams_start_at_every_word_equally_often() -> None:
    """Ordinary words form a circle; an n-gram that crosses a special token or the end becomes two units."""
    one = long_sequence(63, walls=(31,))
    hit_RS = hits(NgramMasking(rate=0.5, max_predictions_per_seq=3), one, 6000)
    whole_RS = hit_RS[hit_RS.max(axis=1) == 1]  # three words as one unit
    places = [*range(1, 29), *range(32, 60)]
    count_S = np.bincount(whole_RS.argmax(axis=1), minlength=63)
    assert np.flatnonzero(count_S).tolist() == places
    assert is_even(count_S[places])
    cut_R2 = hit_RS[(hit_RS[:, [1, 61]] > 0).all(axis=1)]
    assert len(cut_R2) > 20
    assert (cut_R2[:, 1] != cut_R2[:, 61]).all()


@pytest.mark.parametrize(
    "masking",
    [NgramMasking(), NgramMasking(ngram_weights=(0.8, 0.1, 0.1), ngram_unit="token")],
    ids=["albert", "unilm"],
)
def test_ngrams_cover_every_position_equally_often(masking: Masking) -> None:
    """Positions beside a special token and at both ends used to be chosen half as often."""
    one, num_rows = long_sequence(63, walls=(31,)), 6000
    count_S = np.count_nonzero(hits(masking, one, num_rows), axis=0)[~one["special_tokens_mask"]]
    share = count_S.mean() / num_rows
    assert np.abs(count_S - count_S.mean()).max() < 4 * (num_rows * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("masking", [NgramMasking(), SpanMasking()], ids=["ngrams", "spans"])
def test_positions_beside_special_tokens_are_not_preferred(masking: Masking) -> None:
    one = long_sequence(103, walls=(51,))
    count_S = np.count_nonzero(hits(masking, one, 2000), axis=0)
    inner = count_S[[*range(12, 40), *range(62, 90)]]
    assert count_S[[1, 50, 52, 101]].max() < inner.mean() + 3 * inner.std()


def test_span_lengths_are_geometric() -> None:
    assert fits(np.bincount(span_lengths(0.2, 10, 200_000, MASKING.at(0, 0)))[1:], SPAN_SHARES)


def test_ngram_lengths_are_proportional_to_one_over_n() -> None:
    assert fits(np.bincount(ngram_lengths(3, 200_000, MASKING.at(0, 0)))[1:], NGRAM_SHARES)
    fifth = 1 / np.arange(1, 6)
    assert fits(np.bincount(ngram_lengths(5, 200_000, MASKING.at(0, 1)))[1:], fifth / fifth.sum())


def test_ngrams_in_a_sequence_have_the_paper_lengths_in_words() -> None:
    one = long_sequence(20_002, word=2, walls=(5001, 9001))
    num_words = [np.bincount(choice[choice > 0])[1:] // 2 for choice in hits(NgramMasking(), one, 8)]
    found = np.concatenate(num_words)  # the budget cuts at most one of the 900 n-grams of a sequence
    assert len(found) > 7000
    assert fits(np.bincount(found)[1:], NGRAM_SHARES)
    assert abs(found.mean() - 18 / 11) < 3 * found.std() / len(found) ** 0.5


@PAIRS
@pytest.mark.parametrize("most_sentences", [3, 30])
def test_pair_labels_are_balanced(negative: str, most_sentences: int) -> None:
    text = random_shard(2000, most_sentences=most_sentences)
    plans = [SegmentPair(negatives=negative).plan(text, 128, 0, SEGMENT.at(copy, 0)) for copy in range(10)]
    assert is_even(np.bincount(np.concatenate([plan.pair_label_R for plan in plans]), minlength=2))


@PAIRS
def test_pair_labels_are_independent_of_the_previous_label(negative: str) -> None:
    text = shard([[20] * 4000, [20, 20]])  # one long document, so that many pairs are consecutive
    label_R = SegmentPair(negatives=negative, short_seq_prob=0.0).plan(text, 128, 0, SEGMENT.at(0, 0)).pair_label_R
    assert len(label_R) > 500
    assert is_even(np.bincount(2 * label_R[:-1].astype(int) + label_R[1:], minlength=4))


def test_every_document_is_a_random_partner_equally_often() -> None:
    text = shard([[5] * 4] * 20)
    ids_of_b = []
    for copy in range(200):
        plan = SegmentPair(negatives="random").plan(text, 13, 0, SEGMENT.at(copy, 0))
        ids_of_b.append(plan.start_RP[plan.pair_label_R == 1, 1])
    assert is_even(np.bincount(np.concatenate(ids_of_b) // 20, minlength=20))


def test_a_chunk_is_split_after_each_sentence_equally_often() -> None:
    plan = SegmentPair(negatives="swapped", short_seq_prob=0.0).plan(shard([[5] * 6] * 3000), 33, 0, SEGMENT.at(0, 0))
    # lengths of A before the swap
    longs = (plan.stop_RP.astype(int) - plan.start_RP)[np.arange(len(plan)), plan.pair_label_R]
    assert is_even(np.bincount(longs // 5, minlength=6)[1:])


def test_a_tenth_of_the_documents_has_a_uniform_short_target() -> None:
    text = shard([[1] * 60] * 6000)
    plan = SegmentPair(negatives="swapped").plan(text, 63, 0, SEGMENT.at(0, 0))
    begins = plan.start_RP.min(axis=1) % 60 == 0  # first pairs only: one draw per document
    target = (plan.stop_RP.astype(int) - plan.start_RP).sum(axis=1)[begins]
    assert len(target) == 6000
    short = 0.1 * 57 / 59  # a target of 59 leaves one token, which joins the pair; a target of 60 is not short
    assert fits(np.array([(target < 59).sum(), (target >= 59).sum()]), np.array([short, 1 - short]))
    assert is_even(np.bincount(target[target < 59], minlength=59)[2:])
