"""What is drawn has the distribution that is claimed: chi-square tests at p > .01, over fixed seeds.

Beside these: 80/10/10 and any swapped id in test_rewrite, shares of labels in test_segment, budgets in test_choose,
the order of an epoch in test_order.
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
PAIRS = pytest.mark.parametrize("negative", ["random", "swap"])


def fits(count_K: np.ndarray, share_K: np.ndarray) -> bool:
    """Whether counts may well come from these shares: chi-square, p > .01."""
    return stats.chisquare(count_K, share_K * np.sum(count_K)).pvalue > 0.01


def is_even(count_K: np.ndarray) -> bool:
    return fits(count_K, np.full(len(count_K), 1 / len(count_K)))


def is_even_without_replacement(count_K: np.ndarray, num_rows: int) -> bool:
    """Chi-square where each row hits the same number of distinct places, so that counts vary less than freely drawn."""
    expected, places = count_K.mean(), len(count_K)
    variance = expected * (1 - expected / num_rows) * places / (places - 1)
    return stats.chi2.sf(((count_K - expected) ** 2 / variance).sum(), places - 1) > 0.01


def long_row(num_tokens: int, word: int = 1, walls: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """A row of words of `word` tokens, special tokens at both ends and at `walls`; each word is a unit."""
    specials = [0, *walls, num_tokens - 1]
    one = row(num_tokens, specials, [at for wall, end in pairwise(specials) for at in range(wall + 1, end, word)])
    one["input_ids"][~one["special_tokens_mask"]] += 1000
    return one | {"unit_starts": one["word_starts"]}


def hits(masking: Masking, one: dict[str, np.ndarray], num_rows: int) -> np.ndarray:
    return np.stack([masking(one, MASKING.at(0, sample)) for sample in range(num_rows)])


@pytest.mark.parametrize("num_tokens", [12, 30, 33])
def test_stochastic_rounding_rounds_up_as_often_as_the_fraction_says(num_tokens: int) -> None:
    hit_RS = hits(TokenMasking(rounding="stochastic"), long_row(num_tokens), 4000)
    up = np.count_nonzero(hit_RS, axis=1) - int(0.15 * num_tokens)
    fraction = 0.15 * num_tokens % 1
    assert fits(np.bincount(up, minlength=2), np.array([1 - fraction, fraction]))


def outcomes(masking: Masking, unit: str, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a token was asked (one of each unit, if a unit has one outcome), and 0 masked, 1 swapped, 2 kept."""
    one, places, kinds = long_row(256, word=1 if unit == "span" else 2), [], []
    dice = key(1 + ALL.index(masking), "masking")  # its own for each part, so that the tests are independent
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
def test_outcomes_are_eighty_ten_ten(masking: Masking, unit: str) -> None:
    _, kind_M = outcomes(masking, unit, 150)
    assert len(kind_M) > 1300
    assert fits(np.bincount(kind_M), np.array([0.8, 0.1, 0.1]))


def test_outcomes_do_not_depend_on_where_a_token_stands() -> None:
    at_M, kind_M = outcomes(TokenMasking(), "token", 500)
    assert stats.contingency.chi2_contingency(np.histogram2d(at_M // 32, kind_M, bins=(8, 3))[0]).pvalue > 0.01


@pytest.mark.parametrize(
    ("masking", "word"),
    [(masking, 1) for masking in UNITS] + [(WholeWordMasking(), 2), (EntityMasking(), 3)],
    ids=lambda part: part if isinstance(part, int) else f"{part.kind}-{part.rounding}",
)
def test_first_and_last_and_all_other_places_are_chosen_equally_often(masking: Masking, word: int) -> None:
    one = long_row(63, word, walls=(31,))
    count_S = np.count_nonzero(hits(masking, one, 2500), axis=0)
    assert is_even_without_replacement(count_S[~one["special_tokens_mask"] & one["word_starts"]], 2500)


def test_a_span_begins_at_every_place_equally_often() -> None:
    one = long_row(63, walls=(31,))
    count_S = np.count_nonzero(
        hits(SpanMasking(rate=0.01), one, 4000), axis=0
    )  # a budget of one token: where it begins
    assert is_even(count_S[~one["special_tokens_mask"]])


def test_an_ngram_begins_at_every_word_equally_often() -> None:
    """The ordinary words are a circle; what reaches over a special token, or the end, is two units."""
    one = long_row(63, walls=(31,))
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
def test_every_place_is_chosen_equally_often_by_ngrams(masking: Masking) -> None:
    """Beside a special token and at both ends as anywhere else: half as often before."""
    one, num_rows = long_row(63, walls=(31,)), 6000
    count_S = np.count_nonzero(hits(masking, one, num_rows), axis=0)[~one["special_tokens_mask"]]
    share = count_S.mean() / num_rows
    assert np.abs(count_S - count_S.mean()).max() < 4 * (num_rows * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("masking", [NgramMasking(), SpanMasking()], ids=["ngrams", "spans"])
def test_no_place_beside_a_wall_is_favoured_by_runs_of_words(masking: Masking) -> None:
    one = long_row(103, walls=(51,))
    count_S = np.count_nonzero(hits(masking, one, 2000), axis=0)
    inner = count_S[[*range(12, 40), *range(62, 90)]]
    assert count_S[[1, 50, 52, 101]].max() < inner.mean() + 3 * inner.std()


def test_lengths_of_spans_are_geometric() -> None:
    assert fits(np.bincount(span_lengths(0.2, 10, 200_000, MASKING.at(0, 0)))[1:], SPAN_SHARES)


def test_lengths_of_ngrams_go_by_one_over_n() -> None:
    assert fits(np.bincount(ngram_lengths(3, 200_000, MASKING.at(0, 0)))[1:], NGRAM_SHARES)
    fifth = 1 / np.arange(1, 6)
    assert fits(np.bincount(ngram_lengths(5, 200_000, MASKING.at(0, 1)))[1:], fifth / fifth.sum())


def test_ngrams_in_a_row_have_the_lengths_of_the_paper_in_words() -> None:
    one = long_row(20_002, word=2, walls=(5001, 9001))
    num_words = [np.bincount(choice[choice > 0])[1:] // 2 for choice in hits(NgramMasking(), one, 8)]
    found = np.concatenate(num_words)  # the budget cuts at most one of the 900 of a row
    assert len(found) > 7000
    assert fits(np.bincount(found)[1:], NGRAM_SHARES)
    assert abs(found.mean() - 18 / 11) < 3 * found.std() / len(found) ** 0.5


@PAIRS
@pytest.mark.parametrize("most_sentences", [3, 30])
def test_the_label_of_a_pair_is_a_fair_coin(negative: str, most_sentences: int) -> None:
    text = random_shard(2000, most_sentences=most_sentences)
    plans = [SegmentPair(negatives=negative).plan(text, 128, 0, SEGMENT.at(copy, 0)) for copy in range(10)]
    assert is_even(np.bincount(np.concatenate([plan.pair_label_R for plan in plans]), minlength=2))


@PAIRS
def test_labels_do_not_depend_on_the_label_before(negative: str) -> None:
    text = shard([[20] * 4000, [20, 20]])  # one long document, so that pairs follow each other
    label_R = SegmentPair(negatives=negative, short_seq_prob=0.0).plan(text, 128, 0, SEGMENT.at(0, 0)).pair_label_R
    assert len(label_R) > 500
    assert is_even(np.bincount(2 * label_R[:-1].astype(int) + label_R[1:], minlength=4))


def test_every_other_document_is_a_partner_equally_often() -> None:
    text = shard([[5] * 4] * 20)
    ids_of_b = []
    for copy in range(200):
        plan = SegmentPair(negatives="random").plan(text, 13, 0, SEGMENT.at(copy, 0))
        ids_of_b.append(plan.start_RP[plan.pair_label_R == 1, 1])
    assert is_even(np.bincount(np.concatenate(ids_of_b) // 20, minlength=20))


def test_a_chunk_is_split_behind_each_sentence_equally_often() -> None:
    plan = SegmentPair(negatives="swapped", short_seq_prob=0.0).plan(shard([[5] * 6] * 3000), 33, 0, SEGMENT.at(0, 0))
    longs = (plan.stop_RP.astype(int) - plan.start_RP)[np.arange(len(plan)), plan.pair_label_R]  # A before the swap
    assert is_even(np.bincount(longs // 5, minlength=6)[1:])


def test_one_document_in_ten_has_a_short_target_and_each_length_comes_equally_often() -> None:
    text = shard([[1] * 60] * 6000)
    plan = SegmentPair(negatives="swapped").plan(text, 63, 0, SEGMENT.at(0, 0))
    begins = plan.start_RP.min(axis=1) % 60 == 0  # first pairs: one draw per document
    target = (plan.stop_RP.astype(int) - plan.start_RP).sum(axis=1)[begins]
    assert len(target) == 6000
    short = 0.1 * 57 / 59  # a target of 59 leaves one token, which joins, and one of 60 is not short
    assert fits(np.array([(target < 59).sum(), (target >= 59).sum()]), np.array([short, 1 - short]))
    assert is_even(np.bincount(target[target < 59], minlength=59)[2:])
