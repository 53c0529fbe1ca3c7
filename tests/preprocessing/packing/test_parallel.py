from collections import Counter

import numpy as np
import pytest
from scipy import stats

from preprocessing.errors import BadInput
from preprocessing.packing import ParallelSentences, SingleSentence
from preprocessing.rng import key
from tests.preprocessing.toy import ToyShard, ToyVocab, shard

SEGMENT = key(0, "segment")
VOCAB = ToyVocab()
SEP = VOCAB.sep
Sides = list[list[int]]  # lengths of the sentences of each side


def bitext(documents: list[tuple[str, Sides]]) -> ToyShard:
    """Make a shard from (source, sides) per document.

    A document with one side is text in one language; its units are words of one token.
    """
    text = shard([[length for side in sides for length in side] for _, sides in documents])
    units_T = np.ones(len(text.ids_T), dtype=bool)
    at = 0
    for _, sides in documents:
        for side in sides:
            if len(sides) > 1:
                units_T[at + 1 : at + sum(side)] = False
            at += sum(side)
    names = tuple(source for source, _ in documents)
    return ToyShard(**{**vars(text), "units_T": units_T, "source_names": names})


def rows_of(segment: ParallelSentences | SingleSentence, text: ToyShard, length: int, copy: int = 0):
    plan = segment.plan(text, length, 0, SEGMENT.at(copy, 0))
    return [segment.row(plan, i, text, VOCAB) for i in range(len(plan))]


def is_translation(row) -> bool:
    special_S = row["special_tokens_mask"]
    return bool(np.any(special_S[1:-2] & special_S[2:-1]))  # </s> </s> between the sides


TWO = [("europarl.en-fr.en", [[3, 2], [4]]), ("europarl.en-fr.en", [[2], [3]])]
MONO = [("wiki.en", [[5, 6]]), ("wiki.fr", [[4, 4]]), ("wiki.en", [[7]])]
NAMES = ("en", "fr")


def test_positions_start_again_on_the_second_side_of_a_translation():
    rows = rows_of(ParallelSentences(translation_ratio=1.0, languages=NAMES), bitext(TWO), 32)
    row = next(row for row in rows if len(row["input_ids"]) == 13)
    assert row["input_ids"].tolist() == [SEP, 10, 11, 12, 13, 14, SEP, SEP, 15, 16, 17, 18, SEP]
    assert row["languages"].tolist() == [0] * 7 + [1] * 6
    assert row["positions"].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5]
    assert row["special_tokens_mask"].tolist() == (row["input_ids"] == SEP).tolist()
    assert (row["languages"].dtype, row["positions"].dtype) == (np.int8, np.int32)
    assert len(rows) == 2


def test_without_reset_positions_there_is_no_position_column():
    segment = ParallelSentences(translation_ratio=1.0, reset_positions=False, languages=NAMES)
    assert "positions" not in segment.produced_columns
    assert set(rows_of(segment, bitext(TWO), 32)[0]) == segment.produced_columns | {"unit_starts"}


@pytest.mark.parametrize(
    "segment", [ParallelSentences(languages=NAMES), ParallelSentences(translation_ratio=0.0, languages=NAMES)]
)
def test_sequences_have_the_produced_columns(segment):
    for row in rows_of(segment, bitext(TWO + MONO), 16):
        assert set(row) == segment.produced_columns | {"unit_starts"}


def test_text_of_a_language_is_one_stream_with_a_separator_after_each_sentence():
    rows = rows_of(
        ParallelSentences(translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES), bitext(MONO), 9
    )
    english = [row["input_ids"].tolist() for row in rows if row["languages"][0] == 0]
    assert english == [  # the French document between the two English ones is in another stream
        [SEP, 10, 11, 12, 13, 14, SEP, 15, 16],
        [SEP, 17, 18, 19, 20, SEP, 29, 30, 31],
        [SEP, 32, 33, 34, 35, SEP],
    ]
    french = [row["input_ids"].tolist() for row in rows if row["languages"][0] == 1]
    assert french == [[SEP, 21, 22, 23, 24, SEP, 25, 26, 27], [SEP, 28, SEP]]


@pytest.mark.parametrize("length", [5, 8, 13, 40])
def test_every_token_of_a_language_is_in_its_stream_once(length):
    rng = np.random.default_rng(0)
    documents = [
        (("wiki.en", "wiki.fr")[rng.integers(2)], [rng.integers(1, 12, size=rng.integers(1, 6)).tolist()])
        for _ in range(40)
    ]
    text = bitext(documents)
    rows = rows_of(ParallelSentences(translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES), text, length)
    found = [id for row in rows for id in row["input_ids"].tolist() if id != SEP]
    missing = set(text.ids_T.tolist()) - set(found)
    assert len(found) == len(set(found))
    assert len(missing) <= 2  # the remainder of each language
    for row in rows:
        assert len(row["input_ids"]) <= length
        source = np.searchsorted(text.offset_N1, row["input_ids"][~row["special_tokens_mask"]] - 10, side="right") - 1
        assert {text.source_names[document] for document in source} == {("wiki.en", "wiki.fr")[row["languages"][0]]}


def test_sides_of_translations_are_also_text_of_their_languages():
    rows = rows_of(
        ParallelSentences(translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES), bitext(TWO), 32
    )
    assert [row["input_ids"].tolist() for row in rows] == [
        [SEP, 10, 11, 12, SEP, 13, 14, SEP, 19, 20, SEP],
        [SEP, 15, 16, 17, 18, SEP, 21, 22, 23, SEP],
    ]


def test_the_first_side_has_the_language_of_its_file_name():
    swapped = [(source.replace("fr.en", "fr.fr"), sides) for source, sides in TWO]
    row = rows_of(ParallelSentences(translation_ratio=1.0, languages=NAMES), bitext(swapped), 32)[0]
    assert (row["languages"][0], row["languages"][-1]) == (1, 0)


def test_unnamed_sides_are_numbered_and_two_are_drawn():
    text = bitext([("val.de.gz", [[2], [3], [4], [5]])] * 3)
    seen = Counter()
    for copy in range(400):
        for row in rows_of(ParallelSentences(translation_ratio=1.0, language_sampling_alpha=1.0), text, 32, copy):
            seen[int(row["languages"][0]), int(row["languages"][-1])] += 1
    assert set(seen) == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert max(seen.values()) < 1.3 * min(seen.values())


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_translation_ratio_is_a_fraction_of_tokens(share, alpha):
    rng = np.random.default_rng(0)
    short = [("a.en-fr.en", [[int(rng.integers(1, 9))], [int(rng.integers(1, 9))]]) for _ in range(400)]
    long = [("a.en-de.en", [[int(rng.integers(9, 30))], [int(rng.integers(9, 30))]]) for _ in range(40)]
    text = bitext(short + long + [("wiki.en", [[9] * 40]), ("wiki.fr", [[7, 30] * 9])] * 20)
    rows = rows_of(
        ParallelSentences(translation_ratio=share, language_sampling_alpha=alpha, languages=("en", "fr", "de")),
        text,
        64,
    )
    tokens = [sum(len(row["input_ids"]) for row in rows if is_translation(row) == kind) for kind in (False, True)]
    assert abs(tokens[1] / sum(tokens) - share) < 0.01


@pytest.mark.parametrize("alpha", [1.0, 0.7, 0.5, 0.0])
def test_languages_are_sampled_by_the_power_alpha(alpha):
    text = bitext([("wiki.en", [[7] * 9])] * 90 + [("wiki.fr", [[7] * 9])] * 10)
    rows = rows_of(ParallelSentences(translation_ratio=0.0, language_sampling_alpha=alpha, languages=NAMES), text, 9)
    share = np.mean([row["languages"][0] == 1 for row in rows])
    assert abs(share - 0.1**alpha / (0.1**alpha + 0.9**alpha)) < 0.003


def test_repeated_sequences_are_drawn_again_in_each_epoch():
    text = bitext([("wiki.en", [[7] * 9])] * 90 + [("wiki.fr", [[7] * 9])] * 10)
    segment = ParallelSentences(translation_ratio=0.0, language_sampling_alpha=0.7, languages=NAMES)
    one, other = (segment.plan(text, 9, 0, SEGMENT.at(epoch, 0)) for epoch in (0, 1))
    assert len(one) == len(other)
    assert not np.array_equal(one.start_RP, other.start_RP)


def test_too_long_translations_are_dropped_and_counted():
    text = bitext([*TWO, ("europarl.en-fr.en", [[20], [20]])])
    plan = ParallelSentences(translation_ratio=1.0, languages=NAMES).plan(text, 16, 0, SEGMENT.at(0, 0))
    assert plan.counts["dropped_translations"] == 1
    assert plan.counts["translations"] == len(plan) == 2


def test_a_document_of_a_translation_source_without_sides_is_dropped():
    text = bitext([*TWO, ("europarl.en-fr.en", [[6]])])
    plan = ParallelSentences(translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES).plan(
        text, 32, 0, SEGMENT.at(0, 0)
    )
    assert plan.counts["unaligned_documents"] == 1
    rows = rows_of(ParallelSentences(translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES), text, 32)
    assert max(row["input_ids"].max() for row in rows) == 23


def test_single_word_documents_do_not_turn_a_source_into_a_translation():
    text = bitext([("wiki.en", [[5]]), ("wiki.en", [[1], [1]]), ("wiki.en", [[6]])])
    rows = rows_of(ParallelSentences(translation_ratio=0.0, languages=NAMES), text, 32)
    assert [row["input_ids"].tolist() for row in rows] == [
        [SEP, *range(10, 15), SEP, 15, SEP, 16, SEP, *range(17, 23), SEP]
    ]


def test_a_source_without_a_language_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"arrow: cannot infer the language of source 'wiki'; include one of"):
        rows_of(ParallelSentences(translation_ratio=0.0, languages=NAMES), bitext([("wiki", [[5]])]), 16)


def test_a_corpus_without_units_has_no_translations():
    with pytest.raises(
        BadInput, match=r"has no translations, but packing.translation_ratio is 0.5; use sources of kind"
    ):
        rows_of(ParallelSentences(), shard([[5, 5]]), 16)
    assert len(rows_of(ParallelSentences(translation_ratio=0.0), shard([[5, 5]]), 16)) == 1


def test_an_empty_shard_has_no_sequences():
    empty = bitext([])
    assert rows_of(ParallelSentences(), empty, 16) == []
    assert rows_of(ParallelSentences(translation_ratio=0.0), empty, 16) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"language_sampling_alpha": 1.5}, "packing.language_sampling_alpha: got 1.5"),
        ({"languages": ("en", "en")}, "packing.languages: got .*each at most once"),
    ],
)
def test_parallel_keys_are_checked(keys, message):
    with pytest.raises(ValueError, match=message):
        ParallelSentences(**keys)


def test_a_single_sentence_has_the_language_of_its_document():
    rows = rows_of(SingleSentence(languages=NAMES), bitext(MONO), 16)
    assert [row["input_ids"].tolist() for row in rows[:2]] == [[SEP, *range(10, 15), SEP], [SEP, *range(15, 21), SEP]]
    assert [row["languages"].tolist() for row in rows] == [[0] * 7, [0] * 8, [1] * 6, [1] * 6, [0] * 9]
    assert rows[0]["languages"].dtype == np.int8
    assert all(set(row) == SingleSentence(languages=NAMES).produced_columns | {"unit_starts"} for row in rows)


def test_without_languages_there_is_no_language_column():
    assert all("languages" not in row for row in rows_of(SingleSentence(), bitext(MONO), 16))


def test_a_single_sentence_without_a_language_is_bad_input():
    with pytest.raises(BadInput, match=r"cannot infer the language of source 'wiki'; include one of"):
        rows_of(SingleSentence(languages=NAMES), bitext([("wiki", [[3]])]), 16)


LINES = [("wiki.en", [[3, 5, 2, 4, 6, 3, 4, 5]]), ("wiki.fr", [[4, 2, 5, 3, 6]]), ("wiki.en", [[7, 3, 2, 5, 4]])]


def sentences_of(segment: ParallelSentences, copy: int = 0) -> dict[int, list[tuple[int, ...]]]:
    """Return the sentences of each language in order, from sequences long enough for a whole language."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for row in rows_of(segment, bitext(LINES), 200, copy):
        stops = np.flatnonzero(row["input_ids"] == SEP)
        assert len(set(row["languages"].tolist())) == 1
        found.setdefault(int(row["languages"][0]), []).extend(
            tuple(part[part != SEP].tolist()) for part in np.split(row["input_ids"], stops)[1:] if len(part) > 1
        )
    return found


def test_shuffled_sentences_stay_in_their_language_and_change_per_epoch():
    plain = ParallelSentences(translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES)
    shuffled = ParallelSentences(
        translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES, sentence_order="shuffled"
    )
    in_order, first, again, other = (
        sentences_of(plain), sentences_of(shuffled), sentences_of(shuffled), sentences_of(shuffled, copy=1)
    )  # fmt: skip
    assert first == again
    assert {language: sorted(found) for language, found in first.items()} == {
        language: sorted(found) for language, found in in_order.items()
    }
    assert all(first[language] != in_order[language] != other[language] for language in (0, 1))
    assert first[0] != other[0]
    documents = [sentence[0] >= 42 for sentence in first[0]]  # tokens of the third document have the highest IDs
    assert documents != sorted(documents)


def test_every_position_of_a_shuffled_sentence_is_equally_likely():
    shuffled = ParallelSentences(
        translation_ratio=0.0, language_sampling_alpha=1.0, languages=NAMES, sentence_order="shuffled"
    )
    orders = [sentences_of(shuffled, copy)[1] for copy in range(600)]
    places = np.bincount([found.index(sorted(found)[0]) for found in orders], minlength=5)
    assert stats.chisquare(places).pvalue > 0.001


def test_shuffled_sentences_leave_translations_unchanged():
    rows = rows_of(
        ParallelSentences(translation_ratio=1.0, languages=NAMES, sentence_order="shuffled"), bitext(TWO), 32
    )
    assert sorted(len(row["input_ids"]) for row in rows) == [9, 13]
