"""T5's objectives. The oracles are literal forms of the reference (t5/data/preprocessors.py)."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from preprocessing.errors import BadInput
from preprocessing.masking import NoMasking, RandomSpans, TokenMasking
from preprocessing.objectives import Deshuffling, PrefixLM, SpanCorruption
from preprocessing.rng import key
from tests.preprocessing.toy import ToyVocab, row

MASKING = key(0, "masking")
END, START = 3, 0
LAST = 32_099


@dataclass(frozen=True)
class T5Vocab(ToyVocab):
    size: int = 32_100
    sentinels: int = 100


VOCAB = T5Vocab(special_ids=(0, 1, 2, 3, 4, *range(32_000, 32_100)))


def with_hits(is_hit: list[bool] | np.ndarray) -> dict[str, np.ndarray]:
    return row(len(is_hit), specials=[]) | {"hits": np.cumsum(is_hit).astype(np.int32) * np.array(is_hit)}


def noised(num_tokens: int, sample: int = 0) -> dict[str, np.ndarray]:
    before = row(num_tokens, specials=[])
    return before | {"hits": RandomSpans()(before, MASKING.at(0, sample))}


def made(objective: SpanCorruption | PrefixLM | Deshuffling, before: dict[str, np.ndarray], sample: int = 0) -> dict:
    return objective(before, VOCAB, MASKING.at(1, sample))


def reference_unique_sentinels(ids: np.ndarray, is_noise: np.ndarray) -> list[int]:
    """noise_span_to_unique_sentinel of the reference, token by token."""
    out, last, seen = [], False, 0
    for id, noise in zip(ids.tolist(), is_noise.tolist(), strict=True):
        if noise and not last:
            seen += 1
            out.append(LAST + 1 - seen)
        elif not noise:
            out.append(id)
        last = noise
    return out


@pytest.mark.parametrize(("length", "raw", "answer"), [(512, 568, 114), (256, 284, 58), (128, 141, 29), (64, 70, 14)])
def test_lengths_equal_the_reference_exactly(length: int, raw: int, answer: int) -> None:
    assert SpanCorruption().raw_length(length, RandomSpans()) == raw
    for sample in range(20):
        after = made(SpanCorruption(), noised(raw, sample))
        assert (len(after["source_input_ids"]), len(after["labels"]), len(after["input_ids"])) == (
            length,
            answer,
            answer,
        )


@pytest.mark.parametrize(
    "objective",
    [
        SpanCorruption(),
        SpanCorruption(collapse_spans=False),
        SpanCorruption(targets="all"),
        SpanCorruption(targets="all", collapse_spans=False),
    ],
    ids=str,
)
@pytest.mark.parametrize("masking", [RandomSpans(), RandomSpans(rate=0.5), TokenMasking()], ids=str)
def test_no_side_exceeds_the_length(objective: SpanCorruption, masking: RandomSpans | TokenMasking) -> None:
    before = row(objective.raw_length(128, masking), specials=[])
    for sample in range(20):
        after = made(objective, before | {"hits": masking(before, MASKING.at(0, sample))})
        assert max(len(after["source_input_ids"]), len(after["input_ids"])) <= 128


def test_sequences_with_random_spans_equal_the_reference() -> None:
    for sample in range(50):
        before = noised(568, sample)
        is_noise, after = before["hits"] > 0, made(SpanCorruption(), before)
        assert after["source_input_ids"].tolist() == [*reference_unique_sentinels(before["input_ids"], is_noise), END]
        assert after["labels"].tolist() == [*reference_unique_sentinels(before["input_ids"], ~is_noise), END]


def test_decoder_inputs_are_the_targets_after_a_start_token() -> None:
    after = made(SpanCorruption(), noised(141))
    assert after["input_ids"].tolist() == [START, *after["labels"][:-1].tolist()]
    assert {name: str(after[name].dtype) for name in ("input_ids", "labels", "source_input_ids", "token_type_ids")} == {
        "input_ids": "int32",
        "labels": "int32",
        "source_input_ids": "int32",
        "token_type_ids": "int8",
    }
    assert set(after) == {
        "input_ids",
        "labels",
        "source_input_ids",
        "token_type_ids",
    }  # no other column of the input, such as hits


def test_targets_inserted_at_their_sentinels_restore_the_text() -> None:
    for masking in (RandomSpans(), TokenMasking()):
        for sample in range(20):
            before = row(200, specials=[])
            after = made(SpanCorruption(), before | {"hits": masking(before, MASKING.at(0, sample))})
            answer = after["labels"][:-1]
            pieces = {int(piece[0]): piece[1:] for piece in np.split(answer, np.flatnonzero(answer > 32_000))[1:]}
            whole = [id for token in after["source_input_ids"][:-1].tolist() for id in pieces.get(token, [token])]
            assert whole == before["input_ids"].tolist()


def test_adjacent_chosen_tokens_are_one_span() -> None:
    before = row(6, specials=[]) | {"hits": np.array([0, 1, 2, 0, 3, 3])}
    assert made(SpanCorruption(), before)["source_input_ids"].tolist() == [10, LAST, 13, LAST - 1, END]


def test_noise_at_the_start_has_a_sentinel_unlike_in_t5() -> None:
    before = with_hits([True, False, False, True, False])
    ids, is_noise, after = before["input_ids"], before["hits"] > 0, made(SpanCorruption(), before)
    # 10 follows no sentinel, and the last sentinel has no tokens
    assert reference_unique_sentinels(ids, ~is_noise) == [10, LAST, 13, LAST - 1]
    assert after["labels"].tolist() == [LAST, 10, LAST - 1, 13, END]
    assert after["source_input_ids"].tolist() == [LAST, 11, 12, LAST - 1, 14, END]


def test_without_collapse_chosen_tokens_are_deleted_and_predicted() -> None:
    after = made(SpanCorruption(collapse_spans=False), with_hits([False, True, True, False, True]))
    assert (after["source_input_ids"].tolist(), after["labels"].tolist()) == ([10, 13, END], [11, 12, 14, END])


def test_mass_style_has_one_sentinel_per_token_and_predicts_the_whole_text() -> None:
    after = made(SpanCorruption(targets="all", collapse_spans=False), with_hits([False, True, True, False, True]))
    assert after["source_input_ids"].tolist() == [10, LAST, LAST, 13, LAST, END]
    assert after["labels"].tolist() == [10, 11, 12, 13, 14, END]


def test_targets_all_works_with_collapsed_spans() -> None:
    after = made(SpanCorruption(targets="all"), with_hits([False, True, True, False, True]))
    assert after["source_input_ids"].tolist() == [10, LAST, 13, LAST - 1, END]
    assert after["labels"].tolist() == [10, 11, 12, 13, 14, END]


def test_random_replace_prob_replaces_chosen_tokens_by_ordinary_ones() -> None:
    before = with_hits([True] * 100_000)
    source = made(SpanCorruption(targets="all", collapse_spans=False, random_replace_prob=0.1), before)[
        "source_input_ids"
    ][:-1]
    swapped = source[source != LAST]
    assert stats.binomtest(len(swapped), 100_000, 0.1).pvalue > 0.001
    assert not np.isin(swapped, VOCAB.special_ids).any()  # in the reference, random IDs may be sentinels
    assert stats.chisquare(np.histogram(swapped, bins=8, range=(5, 32_000))[0]).pvalue > 0.001


def test_more_spans_than_sentinels_are_refused_unlike_in_t5() -> None:
    before = with_hits([False, True] * 101)
    assert min(reference_unique_sentinels(before["input_ids"], before["hits"] > 0)[1::2]) < VOCAB.special_ids[5]
    with pytest.raises(BadInput, match="101 selected spans, but the tokenizer has 100 sentinel tokens"):
        made(SpanCorruption(), before)


def test_deleted_spans_require_no_sentinels() -> None:
    assert SpanCorruption().specials == ("pad", "sep", "sentinel")
    assert SpanCorruption(collapse_spans=False).specials == ("pad", "sep")


def test_random_replace_prob_requires_targets_all_without_collapse() -> None:
    with pytest.raises(
        ValueError,
        match=r"invalid objective.random_replace_prob: got 0.1, expected 0 unless "
        r"targets is all and collapse_spans is false",
    ):
        SpanCorruption(random_replace_prob=0.1)
    with pytest.raises(
        ValueError, match=r"invalid objective.random_replace_prob: got 2, expected a probability from 0 to 1"
    ):
        SpanCorruption(targets="all", collapse_spans=False, random_replace_prob=2)


def test_the_prefix_length_is_uniform_and_both_parts_are_the_text() -> None:
    before, cuts = row(11, specials=[]), []
    for sample in range(1000):
        after = made(PrefixLM(), before, sample)
        source, answer = after["source_input_ids"], after["labels"]
        assert source[-1] == answer[-1] == END
        assert [*source[:-1].tolist(), *answer[:-1].tolist()] == before["input_ids"].tolist()
        cuts.append(len(source) - 1)
    assert min(cuts) == 1  # neither part is empty
    assert stats.chisquare(np.bincount(cuts, minlength=11)[1:]).pvalue > 0.001
    assert PrefixLM().raw_length(512, NoMasking()) == 512


def test_deshuffling_keeps_every_token_in_uniform_order() -> None:
    before, orders = row(3, specials=[]), {}
    for sample in range(1200):
        after = made(Deshuffling(), before, sample)
        order = tuple(after["source_input_ids"][:-1].tolist())
        orders[order] = orders.get(order, 0) + 1
        assert after["labels"].tolist() == [*before["input_ids"].tolist(), END]
    assert len(orders) == 6
    assert {tuple(sorted(order)) for order in orders} == {(10, 11, 12)}
    assert stats.chisquare(list(orders.values())).pvalue > 0.001
    assert Deshuffling().raw_length(512, NoMasking()) == 511


def test_as_many_spans_as_sentinels_are_accepted() -> None:
    after = made(SpanCorruption(), with_hits([False, True] * 100))
    assert after["source_input_ids"][-2] == LAST - 99


@pytest.mark.parametrize("collapse", [True, False])
@pytest.mark.parametrize(
    "masking",
    [
        RandomSpans(),
        RandomSpans(mean_noise_span_length=1.0),
        RandomSpans(rate=0.5),
        RandomSpans(rate=0.8, mean_noise_span_length=10.0),
    ],
    ids=str,
)
def test_raw_length_is_the_longest_text_that_fits_both_sides(masking: RandomSpans, collapse: bool) -> None:
    objective = SpanCorruption(collapse_spans=collapse)
    raw = objective.raw_length(128, masking)
    longest = []
    for num_tokens in (raw, raw + 1):
        before = row(num_tokens, specials=[])
        after = made(objective, before | {"hits": masking(before, MASKING.at(0, 0))})
        longest.append(max(len(after["source_input_ids"]), len(after["labels"])))
    assert longest[0] <= 128 < longest[1]


def test_the_target_is_described_as_spans_or_whole_text() -> None:
    assert SpanCorruption().target == SpanCorruption(collapse_spans=False).target == "masked spans"
    assert (
        SpanCorruption(targets="all").target
        == SpanCorruption(targets="all", collapse_spans=False).target
        == "the whole text"
    )


def test_targets_all_without_collapse_requires_sentinels() -> None:
    assert SpanCorruption(targets="all", collapse_spans=False).specials == ("pad", "sep", "sentinel")


def test_a_side_of_one_token_holds_only_its_end() -> None:
    assert SpanCorruption().raw_length(1, RandomSpans()) == 0
