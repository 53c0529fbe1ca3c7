"""The generated text of ablation tables contains its planted patterns at the recorded positions."""

import json
from pathlib import Path

import numpy as np
import pytest

from orchestration.reports.ablations import corpus
from orchestration.reports.ablations import synthetic_language as table_text
from orchestration.reports.ablations.synthetic_language import AT, build_language, spell_word, write


@pytest.fixture(autouse=True)
def limit_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_text, "NUM_DOCUMENTS", 50)


def documents(folder: Path) -> list[dict]:
    return [json.loads(line) for line in write(folder).read_text().splitlines()]


def test_all_words_have_different_spellings() -> None:
    words = [spell_word(word).lower() for word in range(AT["second"] + 48)]
    assert len(set(words)) == len(words)


def test_names_and_phrases_are_at_their_spans(tmp_path: Path) -> None:
    names = {spell_word(word) for word in range(AT["name"], AT["noun"])}
    determiners = {spell_word(AT["determiner"] + number) for number in (0, 1)}
    phrases = {f"{spell_word(AT['first'] + i)} {spell_word(AT['second'] + i)}" for i in range(48)}
    for document in documents(tmp_path):
        found = [document["text"][start:stop].split(" ") for start, stop in document["names"]]
        assert all(determiner in determiners and name in names for determiner, name in found)
        assert {document["text"][start:stop] for start, stop in document["phrases"]} <= phrases
        words = document["text"].replace("\n", " ").split(" ")
        assert len(document["names"]) == sum(word in names for word in words) > 0


def test_particle_at_the_end_of_a_sentence_follows_its_determiner(tmp_path: Path) -> None:
    ends = {spell_word(AT["determiner"] + number): spell_word(AT["particle"] + number) for number in (0, 1)}
    for document in documents(tmp_path):
        for sentence in document["text"].split("\n"):
            first, *_, last = sentence.split(" ")
            assert last == ends[first]


def test_markers_encode_the_position_in_a_document() -> None:
    made = build_language(seed=1, num_documents=200)
    sentence_T = np.repeat(np.arange(len(made.num_words_M)), made.num_words_M)
    first_N = np.cumsum(made.num_sentences_N) - made.num_sentences_N
    place_M = np.arange(len(made.num_words_M)) - np.repeat(first_N, made.num_sentences_N)
    share_M = place_M / np.repeat(made.num_sentences_N, made.num_sentences_N)
    is_marker_T = (made.word_T >= AT["marker"]) & (made.word_T < AT["name"])
    stage_T = (made.word_T[is_marker_T] - AT["marker"]) // 3
    np.testing.assert_array_equal(stage_T, np.floor(10 * share_M[sentence_T[is_marker_T]] + 1e-9))


def test_existing_text_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text("{}")
    assert write(tmp_path).read_text() == "{}"


def test_three_corpora_share_the_same_text(tmp_path: Path) -> None:
    plain, names, phrases = (corpus(tmp_path, units) for units in ("", "names", "phrases"))
    assert [one.name for one in (plain, names, phrases)] == ["mini_world", "mini_world_names", "mini_world_phrases"]
    assert [one.phrases for one in (plain, names, phrases)] == ["", "given", "given"]
    assert len({one.sources[0].path for one in (plain, names, phrases)}) == 1
