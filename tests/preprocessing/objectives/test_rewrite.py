import numpy as np
import pytest
from scipy import stats

from preprocessing.masking import NoMasking, SpanMasking, TokenMasking, WholeWordMasking
from preprocessing.objectives import CausalLM, MaskedLM
from preprocessing.rng import key
from preprocessing.schema import IGNORE
from tests.preprocessing.toy import ToyVocab, row

MASKING = key(0, "masking")
VOCAB = ToyVocab(size=30_522, special_ids=(0, 100, 101, 102, 103), mask=103, cls=101, sep=102, unk=100)


def with_hits(masking, num_tokens=512, sample=0):
    one = row(num_tokens, specials=[0, num_tokens - 1], word_starts=list(range(1, num_tokens, 3)))
    one["input_ids"] = one["input_ids"] + 20_000  # these IDs equal neither the mask nor a likely random token
    return one | {"hits": masking(one, MASKING.at(0, sample))}


def outcomes(cloze, masking, num_rows=1954):
    """Return the outcome of each chosen token (0 masked, 1 random, 2 kept), and the set of outcomes of each unit."""
    tokens, units = [], []
    for sample in range(num_rows):
        before = with_hits(masking, sample=sample)
        after = cloze(before, VOCAB, MASKING.at(1, sample))
        kind_S = np.where(
            after["input_ids"] == VOCAB.mask, 0, np.where(after["input_ids"] != before["input_ids"], 1, 2)
        )
        tokens.append(kind_S[before["hits"] > 0])
        units += [set(kind_S[before["hits"] == unit].tolist()) for unit in range(1, before["hits"].max() + 1)]
    return np.concatenate(tokens), units


@pytest.mark.parametrize("masking", [TokenMasking(), WholeWordMasking()], ids=["tokens", "words"])
def test_replacements_are_80_10_10_over_a_million_tokens(masking):
    kind_M, _ = outcomes(MaskedLM(), masking)
    count_3 = np.bincount(kind_M, minlength=3)
    np.testing.assert_allclose(count_3 / len(kind_M), [0.8, 0.1, 0.1], atol=0.005)
    expected_3 = len(kind_M) * np.array([0.8, 0.1, 0.1])
    assert ((count_3 - expected_3) ** 2 / expected_3).sum() < 13.8  # chi-square, 2 degrees of freedom, p = .001


def test_replace_unit_span_gives_a_span_one_outcome():
    _, units = outcomes(MaskedLM(replace_unit="span"), SpanMasking(), num_rows=1000)
    mixed = [unit for unit in units if len(unit) > 1]
    assert len(mixed) < 0.001 * len(units)  # only if the random token equals the original
    kind_U = np.array([min(unit) for unit in units])
    np.testing.assert_allclose(np.bincount(kind_U) / len(kind_U), [0.8, 0.1, 0.1], atol=0.015)


def test_replace_unit_token_mixes_outcomes_inside_a_span():
    _, units = outcomes(MaskedLM(), SpanMasking(), num_rows=20)
    assert any(len(unit) > 1 for unit in units)


def test_labels_are_the_original_tokens_and_other_tokens_stay():
    before = with_hits(TokenMasking())
    after = MaskedLM()(before, VOCAB, MASKING.at(0, 0))
    asked_S = before["hits"] > 0
    np.testing.assert_array_equal(after["labels"], np.where(asked_S, before["input_ids"], IGNORE))
    np.testing.assert_array_equal(after["input_ids"][~asked_S], before["input_ids"][~asked_S])
    assert (after["input_ids"].dtype, after["labels"].dtype) == (np.int32, np.int32)


def test_the_input_is_not_modified():
    before = with_hits(TokenMasking())
    ids_S = before["input_ids"].copy()
    MaskedLM()(before, VOCAB, MASKING.at(0, 0))
    np.testing.assert_array_equal(before["input_ids"], ids_S)


def random_ids(swap_from):
    vocab = ToyVocab(size=12, special_ids=(9, 0, 2, 11, 3), mask=9)
    before = row(100_000, specials=[])
    before["input_ids"][:] = 1
    before["hits"] = np.ones(100_000, np.int32)
    return MaskedLM(mask_replace_prob=0.0, random_replace_prob=1.0, random_token_source=swap_from)(
        before, vocab, MASKING.at(0, 0)
    )["input_ids"]


def test_random_tokens_are_uniform_over_non_special_tokens():
    count_V = np.bincount(random_ids("non_special"), minlength=12)
    assert np.flatnonzero(count_V).tolist() == [1, 4, 5, 6, 7, 8, 10]
    assert ((count_V[count_V > 0] - 100_000 / 7) ** 2 / (100_000 / 7)).sum() < 22.5  # 6 degrees of freedom, p = .001


def test_random_tokens_from_the_vocabulary_include_special_tokens():
    assert len(np.unique(random_ids("vocabulary"))) == 12


def test_random_tokens_from_the_row_follow_its_frequencies():
    before = row(100_000, specials=[0, 99_999])
    before["input_ids"][1:-1] = np.repeat([7, 8, 9], [10_000, 29_998, 60_000])
    before["hits"] = (~before["special_tokens_mask"]).astype(np.int32)
    after = MaskedLM(mask_replace_prob=0.0, random_replace_prob=1.0, random_token_source="row")(
        before, VOCAB, MASKING.at(0, 0)
    )
    count = np.bincount(after["input_ids"][1:-1], minlength=10)
    assert count.sum() == count[7:].sum()
    assert stats.chisquare(count[7:], [10_000, 29_998, 60_000]).pvalue > 0.001


def test_random_tokens_from_the_corpus_follow_the_stream_frequencies():
    before = row(100_000, specials=[0, 99_999])
    before |= {
        "hits": (~before["special_tokens_mask"]).astype(np.int32),
        "stream": np.repeat([7, 8, 9], [100, 300, 600]),
    }
    after = MaskedLM(mask_replace_prob=0.0, random_replace_prob=1.0, random_token_source="corpus")(
        before, VOCAB, MASKING.at(0, 0)
    )
    count = np.bincount(after["input_ids"][1:-1], minlength=10)
    assert count.sum() == count[7:].sum()
    assert stats.chisquare(count[7:], 99_998 * np.array([0.1, 0.3, 0.6])).pvalue > 0.001


def test_the_stream_column_is_required_only_for_corpus_tokens_and_removed():
    before = with_hits(TokenMasking()) | {"stream": np.array([7], np.uint16)}
    assert set(before) - set(MaskedLM(random_token_source="corpus")(before, VOCAB, MASKING.at(0, 0))) == {"stream"}
    assert MaskedLM(random_token_source="corpus").required_columns - MaskedLM().required_columns == {"stream"}


def test_without_hits_there_are_no_labels():
    before = row(10, specials=[0, 9]) | {"hits": np.zeros(10, np.int32)}
    for unit in ("token", "span"):
        after = MaskedLM(replace_unit=unit)(before, VOCAB, MASKING.at(0, 0))
        assert (after["labels"] == IGNORE).all()
    empty = row(2, specials=[0, 1]) | {"hits": np.zeros(2, np.int32)}
    assert (MaskedLM(random_token_source="row")(empty, VOCAB, MASKING.at(0, 0))["labels"] == IGNORE).all()


def test_raw_length_is_one_longer_for_causal_lm():
    assert [objective.raw_length(512, NoMasking()) for objective in (MaskedLM(), CausalLM())] == [512, 513]


def test_causal_lm_predicts_the_next_token():
    before = row(5, specials=[2])
    after = CausalLM()(before, VOCAB, MASKING.at(0, 0))
    assert after["input_ids"].tolist() == [10, 11, 3, 13]
    assert after["labels"].tolist() == [11, 3, 13, 14]
    assert {len(column) for column in after.values()} == {4}


def test_causal_lm_keeps_the_pair_label():
    before = row(5, specials=[]) | {"next_sentence_label": np.int8(1)}
    assert CausalLM()(before, VOCAB, MASKING.at(0, 0))["next_sentence_label"] == 1


def test_probabilities_are_checked():
    with pytest.raises(
        ValueError, match=r"invalid objective.mask_replace_prob: got -0.1, expected a probability from 0 to 1"
    ):
        MaskedLM(mask_replace_prob=-0.1)
    with pytest.raises(
        ValueError, match=r"invalid objective.mask_replace_prob \+ random_replace_prob: got 1.1, expected at most 1"
    ):
        MaskedLM(mask_replace_prob=0.8, random_replace_prob=0.3)
    assert MaskedLM(mask_replace_prob=0.9, random_replace_prob=0.1).random_replace_prob == 0.1


def test_without_hits_no_token_is_replaced():
    before = row(10, specials=[0, 9]) | {"hits": np.zeros(10, np.int32)}
    after = MaskedLM(mask_replace_prob=0.0, random_replace_prob=1.0, random_token_source="row")(
        before, VOCAB, MASKING.at(0, 0)
    )
    assert after["input_ids"].tolist() == before["input_ids"].tolist()


@pytest.mark.parametrize("cloze", [MaskedLM(), MaskedLM(replace_unit="span")], ids=lambda cloze: cloze.replace_unit)
def test_a_sequence_without_tokens_has_no_labels(cloze: MaskedLM) -> None:
    before = row(0, specials=[]) | {"hits": np.zeros(0, np.int32)}
    assert cloze(before, VOCAB, MASKING.at(0, 0))["labels"].tolist() == []
