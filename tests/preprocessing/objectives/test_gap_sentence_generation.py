"""PEGASUS: masked sentences against a literal ROUGE-1 (arXiv:1912.08777, 3.1), and the content of both sides."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from scipy import stats

from preprocessing.collate import collate_padded
from preprocessing.errors import BadInput
from preprocessing.masking import NoMasking
from preprocessing.objectives import GapSentenceGeneration
from preprocessing.objectives.gap_sentence_generation import rouge_1
from preprocessing.packing import Contiguous
from preprocessing.rng import key
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Row
from tests.preprocessing.toy import ToyStore, ToyVocab, shard

MASKING = key(0, "masking")
PAD, CLS, SEP, MASK = 0, 2, 3, 4
VOCAB = ToyVocab(size=60_000)
PRINCIPAL, RANDOM, LEAD = (
    GapSentenceGeneration(),
    GapSentenceGeneration(selection="random"),
    GapSentenceGeneration(selection="lead"),
)
EACH = pytest.mark.parametrize("gap", [PRINCIPAL, RANDOM, LEAD], ids=lambda gap: gap.selection)


def random_sentences(count: int, kinds: int = 12, seed: int = 0) -> list[list[int]]:
    """Make `count` sentences of 1 to 8 tokens from `kinds` token IDs, so that sentences share or repeat tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(10, 10 + kinds, size=rng.integers(1, 9)).tolist() for _ in range(count)]


def sequence_of(sentences: Sequence[Sequence[int]], front: Sequence[int] = (CLS,), back: Sequence[int] = (SEP,)) -> Row:
    """Make a sequence of sentences between special tokens, as packing `contiguous` does."""
    ids_S = np.array([*front, *chain(*sentences), *back], np.int32)
    special_S = np.ones(len(ids_S), bool)
    special_S[len(front) : len(ids_S) - len(back)] = False
    starts_S = special_S.copy()
    starts_S[len(front) + np.cumsum([0, *map(len, sentences)])[:-1]] = True
    segments_S = np.zeros(len(ids_S), np.int8)
    return {
        "input_ids": ids_S,
        "token_type_ids": segments_S,
        "special_tokens_mask": special_S,
        "sentence_starts": starts_S,
    }


def made(gap: GapSentenceGeneration, before: Row, sample: int = 0) -> Row:
    return gap(before, VOCAB, MASKING.at(0, sample))


def masked_sentences(sentences: Sequence[Sequence[int]], after: Row) -> list[int]:
    """Return the numbers of the masked sentences; check that source and target together are the text."""
    (*source, source_end), (*target, target_end) = after["source_input_ids"].tolist(), after["labels"].tolist()
    assert source_end == target_end == SEP
    found = []
    for number, sentence in enumerate(sentences):
        if source[:1] == [MASK]:
            source, side = source[1:], target
            found.append(number)
        else:
            side = source
        assert side[: len(sentence)] == [*sentence]
        del side[: len(sentence)]
    assert source == target == []
    return found


# Which sentences.


def reference_rouge(sentences: Sequence[Sequence[int]], number: int) -> Fraction:
    """ROUGE-1 F1 of a sentence and all others by its definition: each occurrence counts once on either side."""
    own, others = Counter(sentences[number]), Counter(chain(*sentences[:number], *sentences[number + 1 :]))
    overlap = sum(min(count, others[token]) for token, count in own.items())
    if not overlap:
        return Fraction(0)
    precision, recall = Fraction(overlap, own.total()), Fraction(overlap, others.total())
    return 2 * precision * recall / (precision + recall)


def highest_scores(sentences: Sequence[Sequence[int]], count: int) -> list[int]:
    """Return the sentences with the highest scores; of two equal scores the earlier sentence wins."""
    scores = [reference_rouge(sentences, number) for number in range(len(sentences))]
    return sorted(sorted(range(len(sentences)), key=lambda number: (-scores[number], number))[:count])


@pytest.mark.parametrize("kinds", [2, 12, 500])
@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_scores_equal_rouge_1_by_definition(count: int, kinds: int) -> None:
    for seed in range(20):
        sentences = random_sentences(count, kinds, seed)
        sentence_S = np.repeat(np.arange(count), [len(sentence) for sentence in sentences])
        found_N = rouge_1(np.array([*chain(*sentences)]), sentence_S, count)
        wanted = [float(reference_rouge(sentences, number)) for number in range(count)]
        assert found_N.tolist() == pytest.approx(wanted, rel=1e-12)


def test_scores_equal_the_example_of_the_pegasus_issue() -> None:
    """google-research/pegasus, issue 163: Pegasus is mythical; it is pure white; it names the model; it is a cool name.
    The scores in that issue follow the definition."""
    sentences = [[10, 11, 12], [13, 11, 14, 15], [13, 16, 17, 18], [13, 11, 19, 20, 21]]
    shared = [1, 2, 1, 2]
    assert [reference_rouge(sentences, number) for number in range(4)] == [Fraction(2 * one, 16) for one in shared]
    assert masked_sentences(
        sentences, made(GapSentenceGeneration(gap_sentences_ratio=0.5), sequence_of(sentences))
    ) == [1, 3]


def test_a_sentence_without_tokens_has_score_zero() -> None:
    assert rouge_1(np.array([], np.int32), np.array([], np.int64), 1).tolist() == [0.0]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_principal_selection_masks_the_sentences_with_the_highest_scores(rate: float) -> None:
    for seed in range(60):
        sentences = random_sentences(count=2 + seed % 15, seed=seed)
        found = masked_sentences(
            sentences, made(GapSentenceGeneration(gap_sentences_ratio=rate), sequence_of(sentences))
        )
        assert found == highest_scores(sentences, len(found))


def test_equal_scores_mask_the_earlier_sentences() -> None:
    for count in (4, 40):
        sentences = [[10, 11], [12], *([13, 14] for _ in range(count))]
        assert masked_sentences(
            sentences, made(GapSentenceGeneration(gap_sentences_ratio=0.5), sequence_of(sentences))
        ) == [*range(2, 2 + (count + 2) // 2)]


def test_scores_count_every_occurrence_and_not_sets_of_tokens() -> None:
    """Ind-Orig: 6 / 14, 4 / 14, 6 / 14, 4 / 14. With token sets (Ind-Uniq) the second score is highest, 4 / 9."""
    sentences = [[10, 10, 10, 15], [11, 12], [10, 10, 10, 16], [11, 12, 17, 18]]
    assert masked_sentences(
        sentences, made(GapSentenceGeneration(gap_sentences_ratio=0.25), sequence_of(sentences))
    ) == [0]


def test_lead_selection_masks_the_first_sentences() -> None:
    sentences = random_sentences(10)
    assert masked_sentences(sentences, made(LEAD, sequence_of(sentences))) == [0, 1, 2]


def test_random_selection_is_uniform() -> None:
    sentences, sets = random_sentences(5), Counter[tuple[int, ...]]()
    for sample in range(2000):
        sets[
            *masked_sentences(
                sentences,
                made(
                    GapSentenceGeneration(gap_sentences_ratio=0.4, selection="random"), sequence_of(sentences), sample
                ),
            )
        ] += 1
    assert sorted(sets) == [*combinations(range(5), 2)]
    assert stats.chisquare([*sets.values()]).pvalue > 0.001


# How many.


@EACH
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.5, 0.99])
def test_at_least_one_and_never_all_sentences_are_masked(gap: GapSentenceGeneration, rate: float) -> None:
    gap = GapSentenceGeneration(gap_sentences_ratio=rate, selection=gap.selection)
    for count in range(2, 24):
        sentences = random_sentences(count, seed=count)
        found = masked_sentences(sentences, made(gap, sequence_of(sentences)))
        assert 1 <= len(found) < count
        assert abs(len(found) - rate * count) <= 0.5 or len(found) in (1, count - 1)


def test_the_number_of_masked_sentences_is_rounded_to_nearest_unlike_pegasus() -> None:
    """GetNumMaskedSentences of pegasus/ops/sentence_selection.cc rounds down; Sesame rounds to the nearest number."""
    for count, reference, ours in [(1, 1, 1), (2, 1, 1), (3, 1, 1), (6, 1, 2), (9, 2, 3), (10, 3, 3), (13, 3, 4)]:
        assert min(int(max(count * 0.3, 1)), count) == reference
        sentences = random_sentences(count, seed=count)
        assert len(masked_sentences(sentences, made(PRINCIPAL, sequence_of(sentences)))) == ours


# Content of both sides.


@EACH
def test_source_and_target_together_are_the_text(gap: GapSentenceGeneration) -> None:
    for seed in range(60):
        sentences = random_sentences(1 + seed % 20, seed=seed)
        assert masked_sentences(sentences, made(gap, sequence_of(sentences), seed))


@EACH
def test_decoder_inputs_are_the_targets_shifted_after_a_padding_token(gap: GapSentenceGeneration) -> None:
    before = sequence_of(random_sentences(10)) | {"next_sentence_label": np.int8(1)}
    copies = {name: np.copy(column) for name, column in before.items()}
    after = made(gap, before)
    assert after["input_ids"].tolist() == [PAD, *after["labels"][:-1].tolist()]
    assert {str(after[name].dtype) for name in ("input_ids", "labels", "source_input_ids")} == {"int32"}
    assert after.keys() == {"input_ids", "token_type_ids", "labels", "source_input_ids", "next_sentence_label"}
    assert len(after["token_type_ids"]) == len(after["input_ids"])
    for name, column in copies.items():
        np.testing.assert_array_equal(before[name], column)


def test_neighboring_masked_sentences_have_one_mask_each() -> None:
    after = made(
        GapSentenceGeneration(gap_sentences_ratio=0.5, selection="lead"),
        sequence_of([[10, 11], [12], [13, 14, 15], [16]]),
    )
    assert after["source_input_ids"].tolist() == [MASK, MASK, 13, 14, 15, 16, SEP]
    assert after["labels"].tolist() == [10, 11, 12, SEP]


def test_keep_ratio_keeps_predicted_sentences_in_the_source() -> None:
    sentences, gap, kept = (
        [[number, number] for number in range(10, 30)],
        GapSentenceGeneration(gap_sentences_ratio=0.5, keep_ratio=0.2),
        [],
    )
    for sample in range(300):
        after, plain = (
            made(gap, sequence_of(sentences), sample),
            made(GapSentenceGeneration(gap_sentences_ratio=0.5), sequence_of(sentences), sample),
        )
        assert after["labels"].tolist() == plain["labels"].tolist()
        masks = after["source_input_ids"].tolist().count(MASK)
        assert len(after["source_input_ids"]) == len(plain["source_input_ids"]) + 10 - masks
        kept.append(10 - masks)
    assert stats.binomtest(sum(kept), 3000, 0.2).pvalue > 0.001
    assert gap.shares(NoMasking()) == pytest.approx((0.6, 0.5))


def test_a_separator_between_documents_is_on_neither_side() -> None:
    before = sequence_of([[10, 11], [12, 13], [SEP], [14], [15, 16]])
    before["special_tokens_mask"][5] = True
    after = made(GapSentenceGeneration(gap_sentences_ratio=0.5, selection="lead"), before)
    assert masked_sentences([[10, 11], [12, 13], [14], [15, 16]], after) == [0, 1]


@EACH
def test_a_partial_first_sentence_counts_as_a_sentence(gap: GapSentenceGeneration) -> None:
    sentences = random_sentences(10)
    whole = sequence_of(sentences, front=(), back=())
    inside = whole | {"sentence_starts": whole["sentence_starts"] & (np.arange(len(whole["input_ids"])) > 0)}
    assert not inside["sentence_starts"][0]
    assert_same(made(gap, inside), made(gap, whole))
    assert len(masked_sentences(sentences, made(gap, inside))) == 3


@EACH
def test_a_single_sentence_is_generated_from_a_mask(gap: GapSentenceGeneration) -> None:
    for sentence in ([10], [10, 11, 10]):
        after = made(gap, sequence_of([sentence]))
        assert after["source_input_ids"].tolist() == [MASK, SEP]
        assert after["labels"].tolist() == [*sentence, SEP]


@EACH
@pytest.mark.parametrize("front", [[CLS], []])
@pytest.mark.parametrize("back", [[SEP], []])
def test_a_sequence_of_special_tokens_has_two_empty_sides(
    gap: GapSentenceGeneration, front: list[int], back: list[int]
) -> None:
    after = made(gap, sequence_of([], front, back))
    assert (after["source_input_ids"].tolist(), after["input_ids"].tolist(), after["labels"].tolist()) == (
        [SEP],
        [PAD],
        [SEP],
    )


# Sequences of a corpus.


def documents(longest: int) -> ToyStore:
    """A store of sentences with at most `longest` tokens, and of documents with one sentence."""
    rng = np.random.default_rng(0)
    lengths = [rng.integers(1, longest, size=rng.integers(1, 9)).tolist() for _ in range(60)]
    return ToyStore((shard([*lengths, [longest], [longest], [1]]),))


SEGMENTS = [
    Contiguous(unit="sentence", cross_documents=False),
    Contiguous(unit="sentence"),
    Contiguous(unit="token"),
    Contiguous(unit="token", add_separators=False),
    Contiguous(unit="token", cross_documents=False),
]


def rows_of(segment: Contiguous, gap: GapSentenceGeneration, longest: int) -> ExampleDataset:
    return ExampleDataset(
        documents(longest), VOCAB, ExampleSpec(packing=segment, masking=NoMasking(), objective=gap), length=32
    )


@pytest.mark.one_in(5)
@pytest.mark.parametrize("longest", [12, 200])
@pytest.mark.parametrize(
    "gap",
    [
        PRINCIPAL,
        GapSentenceGeneration(gap_sentences_ratio=0.99),
        GapSentenceGeneration(gap_sentences_ratio=0.01, selection="random"),
    ],
    ids=str,
)
@pytest.mark.parametrize("segment", SEGMENTS, ids=str)
def test_no_side_exceeds_the_model_length(segment: Contiguous, gap: GapSentenceGeneration, longest: int) -> None:
    rows = rows_of(segment, gap, longest)
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    assert max(len(row[name]) for row in found for name in ("input_ids", "labels", "source_input_ids")) <= 32
    assert len(collate_padded(found, 32, pad=PAD)["input_ids"]) == len(found)


def test_a_full_sequence_has_the_model_length() -> None:
    """Without separators only: unit `sentence` adds two special tokens, which are on neither side."""
    rows = rows_of(Contiguous(unit="token", add_separators=False), PRINCIPAL, longest=200)
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    assert max(len(row["labels"]) for row in found) == 32


@pytest.mark.parametrize("segment", SEGMENTS[:2], ids=str)
def test_every_token_of_a_corpus_is_on_one_side(segment: Contiguous) -> None:
    """The IDs of the toy corpus count up from 10, so each token is unique."""
    rows = rows_of(segment, RANDOM, longest=40)
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    sides = chain.from_iterable(row[name].tolist() for row in found for name in ("labels", "source_input_ids"))
    assert sorted(id for id in sides if id >= 10) == rows.store.shards[0].ids_T.tolist()


def test_a_vocabulary_without_a_mask_is_refused() -> None:
    sampling = ExampleSpec(packing=SEGMENTS[0], masking=NoMasking(), objective=PRINCIPAL)
    with pytest.raises(
        BadInput, match="'gap_sentence_generation' needs the special token 'mask', which the tokenizer does not have"
    ):
        ExampleDataset(documents(12), ToyVocab(mask=None), sampling, length=32)


# Draws.


def assert_same(one: Row, other: Row) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@EACH
def test_equal_addresses_give_equal_bytes(gap: GapSentenceGeneration) -> None:
    before = sequence_of(random_sentences(10))
    for sample in range(20):
        one, other = made(gap, before, sample), made(gap, before, sample)
        assert {name: column.tobytes() for name, column in one.items()} == {
            name: column.tobytes() for name, column in other.items()
        }


def test_the_address_changes_only_random_selections() -> None:
    sentences = random_sentences(10)
    for gap, most in ((PRINCIPAL, 1), (LEAD, 1), (RANDOM, 20)):
        found = {tuple(masked_sentences(sentences, made(gap, sequence_of(sentences), sample))) for sample in range(20)}
        assert min(most, 15) <= len(found) <= most


# Facts.


def test_facts_of_gap_sentence_generation() -> None:
    for gap in (PRINCIPAL, RANDOM, LEAD):
        assert gap.required_columns == {"input_ids", "special_tokens_mask", "sentence_starts"}
        assert gap.produced_columns == gap.possible_columns == {"labels", "source_input_ids"}
        assert gap.raw_length(512, NoMasking()) == 511
        assert (gap.selects, gap.two_sided, gap.specials) == (True, True, ("pad", "sep", "mask"))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_shares_are_fractions_of_tokens_without_masks_and_end_tokens(rate: float) -> None:
    gap, sentences = (
        GapSentenceGeneration(gap_sentences_ratio=rate),
        [[*range(10 + start, 60 + start)] for start in range(0, 500, 50)],
    )
    after, num_tokens = made(gap, sequence_of(sentences)), 500
    read, written = gap.shares(NoMasking())
    assert len(after["labels"]) - 1 == pytest.approx(written * num_tokens)
    assert len(after["source_input_ids"]) - 1 - 10 * rate == pytest.approx(read * num_tokens)


@pytest.mark.parametrize(
    ("gap", "line"),
    [
        (PRINCIPAL, "30% of the sentences masked and predicted (highest ROUGE-1 F1)"),
        (RANDOM, "30% of the sentences masked and predicted (random)"),
        (LEAD, "30% of the sentences masked and predicted (first ones)"),
        (
            GapSentenceGeneration(gap_sentences_ratio=0.45, keep_ratio=0.2),
            "45% of the sentences masked and predicted (highest ROUGE-1 F1); 20% of them stay in the source",
        ),
    ],
)
def test_descriptions_are_one_line(gap: GapSentenceGeneration, line: str) -> None:
    assert gap.describe() == line


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5])
def test_gap_sentences_ratio_must_be_between_0_and_1(rate: float) -> None:
    message = rf"invalid objective\.gap_sentences_ratio: got {rate}, expected a fraction between 0 and 1"
    with pytest.raises(ValueError, match=message):
        GapSentenceGeneration(gap_sentences_ratio=rate)
