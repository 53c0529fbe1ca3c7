"""PEGASUS: which sentences are masked, against a literal ROUGE-1 (arXiv:1912.08777, 3.1), and what both sides read."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from scipy import stats

from preprocessing.collate import padded
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


def text(count: int, kinds: int = 12, seed: int = 0) -> list[list[int]]:
    """So many sentences of 1 to 8 tokens, of so many kinds that sentences share tokens, and some have one twice."""
    rng = np.random.default_rng(seed)
    return [rng.integers(10, 10 + kinds, size=rng.integers(1, 9)).tolist() for _ in range(count)]


def row_of(sentences: Sequence[Sequence[int]], front: Sequence[int] = (CLS,), back: Sequence[int] = (SEP,)) -> Row:
    """A row of the sentences between special tokens, as segment `packed` makes it."""
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


def gaps(sentences: Sequence[Sequence[int]], after: Row) -> list[int]:
    """Numbers of the masked sentences: source and target, put together again sentence by sentence, are the text."""
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


def literal_rouge(sentences: Sequence[Sequence[int]], number: int) -> Fraction:
    """ROUGE-1 F1 of a sentence and all others by its definition: an occurrence counts once on either side."""
    own, others = Counter(sentences[number]), Counter(chain(*sentences[:number], *sentences[number + 1 :]))
    overlap = sum(min(count, others[token]) for token, count in own.items())
    if not overlap:
        return Fraction(0)
    precision, recall = Fraction(overlap, own.total()), Fraction(overlap, others.total())
    return 2 * precision * recall / (precision + recall)


def best(sentences: Sequence[Sequence[int]], count: int) -> list[int]:
    """The sentences of the highest scores, the earlier one of two that are alike."""
    scores = [literal_rouge(sentences, number) for number in range(len(sentences))]
    return sorted(sorted(range(len(sentences)), key=lambda number: (-scores[number], number))[:count])


@pytest.mark.parametrize("kinds", [2, 12, 500])
@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_the_score_is_rouge_by_its_definition(count: int, kinds: int) -> None:
    for seed in range(20):
        sentences = text(count, kinds, seed)
        sentence_S = np.repeat(np.arange(count), [len(sentence) for sentence in sentences])
        found_N = rouge_1(np.array([*chain(*sentences)]), sentence_S, count)
        wanted = [float(literal_rouge(sentences, number)) for number in range(count)]
        assert found_N.tolist() == pytest.approx(wanted, rel=1e-12)


def test_the_score_of_the_example_that_the_authors_were_asked_about() -> None:
    """google-research/pegasus, issue 163: Pegasus is mythical; it is pure white; it names the model; it is a cool name.
    The scores there are those of the definition."""
    sentences = [[10, 11, 12], [13, 11, 14, 15], [13, 16, 17, 18], [13, 11, 19, 20, 21]]
    shared = [1, 2, 1, 2]
    assert [literal_rouge(sentences, number) for number in range(4)] == [Fraction(2 * one, 16) for one in shared]
    assert gaps(sentences, made(GapSentenceGeneration(gap_sentences_ratio=0.5), row_of(sentences))) == [1, 3]


def test_a_sentence_without_tokens_shares_nothing() -> None:
    assert rouge_1(np.array([], np.int32), np.array([], np.int64), 1).tolist() == [0.0]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_principal_sentences_are_those_that_score_highest(rate: float) -> None:
    for seed in range(60):
        sentences = text(count=2 + seed % 15, seed=seed)
        found = gaps(sentences, made(GapSentenceGeneration(gap_sentences_ratio=rate), row_of(sentences)))
        assert found == best(sentences, len(found))


def test_of_sentences_that_score_alike_the_earlier_ones_are_masked() -> None:
    for count in (4, 40):
        sentences = [[10, 11], [12], *([13, 14] for _ in range(count))]
        assert gaps(sentences, made(GapSentenceGeneration(gap_sentences_ratio=0.5), row_of(sentences))) == [
            *range(2, 2 + (count + 2) // 2)
        ]


def test_sentences_are_scored_by_every_occurrence_and_not_by_their_sets_of_tokens() -> None:
    """Ind-Orig: 6 / 14, 4 / 14, 6 / 14, 4 / 14. By sets (Ind-Uniq) the second one scores highest, 4 / 9."""
    sentences = [[10, 10, 10, 15], [11, 12], [10, 10, 10, 16], [11, 12, 17, 18]]
    assert gaps(sentences, made(GapSentenceGeneration(gap_sentences_ratio=0.25), row_of(sentences))) == [0]


def test_lead_sentences_are_the_first_ones() -> None:
    sentences = text(10)
    assert gaps(sentences, made(LEAD, row_of(sentences))) == [0, 1, 2]


def test_any_set_of_random_sentences_is_as_likely() -> None:
    sentences, sets = text(5), Counter[tuple[int, ...]]()
    for sample in range(2000):
        sets[
            *gaps(
                sentences,
                made(GapSentenceGeneration(gap_sentences_ratio=0.4, selection="random"), row_of(sentences), sample),
            )
        ] += 1
    assert sorted(sets) == [*combinations(range(5), 2)]
    assert stats.chisquare([*sets.values()]).pvalue > 0.001


# How many.


@EACH
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.5, 0.99])
def test_at_least_one_sentence_is_masked_and_never_all_of_several(gap: GapSentenceGeneration, rate: float) -> None:
    gap = GapSentenceGeneration(gap_sentences_ratio=rate, selection=gap.selection)
    for count in range(2, 24):
        sentences = text(count, seed=count)
        found = gaps(sentences, made(gap, row_of(sentences)))
        assert 1 <= len(found) < count
        assert abs(len(found) - rate * count) <= 0.5 or len(found) in (1, count - 1)


def test_pegasus_reference_rounds_the_number_down_and_masks_all_of_one() -> None:
    """GetNumMaskedSentences of pegasus/ops/sentence_selection.cc; ours is the nearest number."""
    for count, reference, ours in [(1, 1, 1), (2, 1, 1), (3, 1, 1), (6, 1, 2), (9, 2, 3), (10, 3, 3), (13, 3, 4)]:
        assert min(int(max(count * 0.3, 1)), count) == reference
        sentences = text(count, seed=count)
        assert len(gaps(sentences, made(PRINCIPAL, row_of(sentences)))) == ours


# What both sides read.


@EACH
def test_source_and_target_put_together_are_the_text(gap: GapSentenceGeneration) -> None:
    for seed in range(60):
        sentences = text(1 + seed % 20, seed=seed)
        assert gaps(sentences, made(gap, row_of(sentences), seed))


@EACH
def test_the_decoder_reads_its_target_behind_the_padding(gap: GapSentenceGeneration) -> None:
    before = row_of(text(10)) | {"next_sentence_label": np.int8(1)}
    copies = {name: np.copy(column) for name, column in before.items()}
    after = made(gap, before)
    assert after["input_ids"].tolist() == [PAD, *after["labels"][:-1].tolist()]
    assert {str(after[name].dtype) for name in ("input_ids", "labels", "source_input_ids")} == {"int32"}
    assert after.keys() == {"input_ids", "token_type_ids", "labels", "source_input_ids", "next_sentence_label"}
    assert len(after["token_type_ids"]) == len(after["input_ids"])
    for name, column in copies.items():
        np.testing.assert_array_equal(before[name], column)


def test_neighbouring_gaps_have_a_mask_each() -> None:
    after = made(
        GapSentenceGeneration(gap_sentences_ratio=0.5, selection="lead"), row_of([[10, 11], [12], [13, 14, 15], [16]])
    )
    assert after["source_input_ids"].tolist() == [MASK, MASK, 13, 14, 15, 16, SEP]
    assert after["labels"].tolist() == [10, 11, 12, SEP]


def test_a_share_of_the_gap_sentences_stays_in_the_source_and_is_predicted_all_the_same() -> None:
    sentences, gap, kept = (
        [[number, number] for number in range(10, 30)],
        GapSentenceGeneration(gap_sentences_ratio=0.5, keep_ratio=0.2),
        [],
    )
    for sample in range(300):
        after, plain = (
            made(gap, row_of(sentences), sample),
            made(GapSentenceGeneration(gap_sentences_ratio=0.5), row_of(sentences), sample),
        )
        assert after["labels"].tolist() == plain["labels"].tolist()
        masks = after["source_input_ids"].tolist().count(MASK)
        assert len(after["source_input_ids"]) == len(plain["source_input_ids"]) + 10 - masks
        kept.append(10 - masks)
    assert stats.binomtest(sum(kept), 3000, 0.2).pvalue > 0.001
    assert gap.shares(NoMasking()) == pytest.approx((0.6, 0.5))


def test_a_separator_between_two_documents_is_on_neither_side() -> None:
    before = row_of([[10, 11], [12, 13], [SEP], [14], [15, 16]])
    before["special_tokens_mask"][5] = True
    after = made(GapSentenceGeneration(gap_sentences_ratio=0.5, selection="lead"), before)
    assert gaps([[10, 11], [12, 13], [14], [15, 16]], after) == [0, 1]


@EACH
def test_a_row_that_begins_inside_of_a_sentence_has_the_rest_of_it_as_its_first(gap: GapSentenceGeneration) -> None:
    sentences = text(10)
    whole = row_of(sentences, front=(), back=())
    inside = whole | {"sentence_starts": whole["sentence_starts"] & (np.arange(len(whole["input_ids"])) > 0)}
    assert not inside["sentence_starts"][0]
    assert_same(made(gap, inside), made(gap, whole))
    assert len(gaps(sentences, made(gap, inside))) == 3


@EACH
def test_a_row_of_one_sentence_is_generated_from_a_mask(gap: GapSentenceGeneration) -> None:
    for sentence in ([10], [10, 11, 10]):
        after = made(gap, row_of([sentence]))
        assert after["source_input_ids"].tolist() == [MASK, SEP]
        assert after["labels"].tolist() == [*sentence, SEP]


@EACH
@pytest.mark.parametrize("front", [[CLS], []])
@pytest.mark.parametrize("back", [[SEP], []])
def test_a_row_of_special_tokens_has_two_empty_sides(
    gap: GapSentenceGeneration, front: list[int], back: list[int]
) -> None:
    after = made(gap, row_of([], front, back))
    assert (after["source_input_ids"].tolist(), after["input_ids"].tolist(), after["labels"].tolist()) == (
        [SEP],
        [PAD],
        [SEP],
    )


# Rows of a corpus.


def documents(longest: int) -> ToyStore:
    """Sentences of up to so many tokens, and documents of one sentence."""
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
def test_neither_side_is_longer_than_the_model_reads(
    segment: Contiguous, gap: GapSentenceGeneration, longest: int
) -> None:
    rows = rows_of(segment, gap, longest)
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    assert max(len(row[name]) for row in found for name in ("input_ids", "labels", "source_input_ids")) <= 32
    assert len(padded(found, 32, pad=PAD)["input_ids"]) == len(found)


def test_a_row_that_is_full_is_as_long_as_the_model_reads() -> None:
    """Where rows have no special tokens of their own; `sentences` brings two that neither side keeps."""
    rows = rows_of(Contiguous(unit="token", add_separators=False), PRINCIPAL, longest=200)
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    assert max(len(row["labels"]) for row in found) == 32


@pytest.mark.parametrize("segment", SEGMENTS[:2], ids=str)
def test_every_token_of_a_corpus_is_on_one_side(segment: Contiguous) -> None:
    """The ids of a toy corpus count up from 10."""
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
def test_the_same_address_gives_the_same_bytes(gap: GapSentenceGeneration) -> None:
    before = row_of(text(10))
    for sample in range(20):
        one, other = made(gap, before, sample), made(gap, before, sample)
        assert {name: column.tobytes() for name, column in one.items()} == {
            name: column.tobytes() for name, column in other.items()
        }


def test_another_address_masks_other_sentences_where_they_are_random_and_only_there() -> None:
    sentences = text(10)
    for gap, most in ((PRINCIPAL, 1), (LEAD, 1), (RANDOM, 20)):
        found = {tuple(gaps(sentences, made(gap, row_of(sentences), sample))) for sample in range(20)}
        assert min(most, 15) <= len(found) <= most


# Facts.


def test_a_row_says_what_it_needs_and_how_long_it_may_be() -> None:
    for gap in (PRINCIPAL, RANDOM, LEAD):
        assert gap.required_columns == {"input_ids", "special_tokens_mask", "sentence_starts"}
        assert gap.produced_columns == gap.possible_columns == {"labels", "source_input_ids"}
        assert gap.raw_length(512, NoMasking()) == 511
        assert (gap.selects, gap.two_sided, gap.specials) == (True, True, ("pad", "sep", "mask"))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_shares_are_those_of_the_tokens_but_for_masks_and_ends(rate: float) -> None:
    gap, sentences = (
        GapSentenceGeneration(gap_sentences_ratio=rate),
        [[*range(10 + start, 60 + start)] for start in range(0, 500, 50)],
    )
    after, num_tokens = made(gap, row_of(sentences)), 500
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
def test_gap_sentences_are_described_in_a_line(gap: GapSentenceGeneration, line: str) -> None:
    assert gap.describe() == line


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5])
def test_a_rate_is_a_share_of_the_sentences(rate: float) -> None:
    message = rf"invalid objective\.gap_sentences_ratio: got {rate}, expected a fraction between 0 and 1"
    with pytest.raises(ValueError, match=message):
        GapSentenceGeneration(gap_sentences_ratio=rate)
