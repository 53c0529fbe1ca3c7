"""Removal of repeated substrings: compared with a search of all windows in all documents."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.readers import JsonlReader, TextReader
from pipeline.readers import splits as sources
from pipeline.spec import Clean, Corpus, Dedup, MixtureGroup
from pipeline.steps import read_text
from pipeline.steps.documents import Document
from pipeline.steps.edited import rank_of
from pipeline.steps.substrings import cut_ranges, select_smallest
from preprocessing.manifest import Count
from preprocessing.spec import InvalidValue
from preprocessing.text import find_tokens, normalize, text_key
from tests.pipeline.conftest import story
from tests.pipeline.steps.test_dedup import HERE, duplicate_report, kept

LEAST = 10
CLEAN = Clean(min_chars=1, fix_text=False)


def tokens_of(text: str) -> list[tuple[int, int, str]]:
    """Return the tokens of an ASCII text with their positions, found by a regular expression."""
    return [(found.start(), found.end(), found[0]) for found in re.finditer(r"[^\W_]+|[^\w\s]|_", text)]


def search_all(texts: list[str], source: str = "in.txt") -> set[str]:
    """Return what remains of different texts, found by comparing all windows of LEAST tokens."""
    ranked = sorted(texts, key=lambda text: rank_of(Document(text, source, text_key(text)), None))
    first: dict[tuple[str, ...], tuple[int, int]] = {}
    remain = set()
    for number, text in enumerate(ranked):
        tokens = tokens_of(text)
        is_removed = [False] * len(tokens)
        for start in range(len(tokens) - LEAST + 1):
            window = tuple(word for _, _, word in tokens[start : start + LEAST])
            of, at = first.setdefault(window, (number, start))
            if of != number or start - at >= LEAST:
                is_removed[start : start + LEAST] = [True] * LEAST
        removed_chars = set()
        for at, gone in enumerate(is_removed):
            if gone:
                joined = at > 0 and is_removed[at - 1]
                removed_chars.update(range(tokens[at - 1][1] if joined else tokens[at][0], tokens[at][1]))
        left, before = "", True
        for at, char in enumerate(text):
            if at in removed_chars:
                before = False
                continue
            glues = not before and left[-1:].isalnum() and char.isalnum()
            left += (" " if glues else "") + char
            before = True
        remain.add(normalize(left))
    return remain - {""}


def write_lines(folder: Path, texts: list[str]) -> Corpus:
    """Return a corpus of one file with one document per line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    source = TextReader(path=str(folder / "in.txt"), document_unit="line")
    return Corpus(name="test", sources=(source,), clean=CLEAN, dedup=Dedup(substring_min_tokens=LEAST))


def random_texts(seed: int, words: str = "a b c") -> list[str]:
    """Return different texts of few words and marks, so that many windows occur again."""
    rng = np.random.default_rng([32, seed])
    pieces = [" ".join(rng.choice(words.split(), int(rng.integers(6, 25)))) for _ in range(6)]
    texts = set()
    for _ in range(25):
        chosen = rng.choice(pieces, int(rng.integers(1, 5)))
        marks = rng.choice([" ", ", ", "-", " x ", ". "], len(chosen))
        texts.add(normalize("".join(piece + mark for piece, mark in zip(chosen, marks, strict=True))))
    return sorted(texts)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("words", ["a b c", "a b c d e f g h i j k l m n o p", "a"])
@pytest.mark.parametrize("seed", range(2))
def test_the_result_is_that_of_a_search_of_all_windows(tmp_path: Path, seed: int, words: str) -> None:
    texts = random_texts(seed, words)
    found = read_text(write_lines(tmp_path, texts), tmp_path / "text", HERE)
    assert kept(found) == search_all(texts)
    assert found.ledger.is_balanced()


def sentence(seed: int, length: int) -> str:
    """Return random words; two of them share no run of words."""
    return " ".join(f"w{number}" for number in np.random.default_rng([33, seed]).integers(0, 100_000, length).tolist())


def test_a_repeated_passage_stays_once_and_its_context_stays(tmp_path: Path) -> None:
    passage, before = sentence(0, 30), [sentence(number, 12) for number in range(1, 5)]
    texts = [f"{before[0]}. {passage}. {before[1]}", f"{before[2]}: {passage}; {before[3]}"]
    found = kept(read_text(write_lines(tmp_path, texts), tmp_path / "text", HERE))
    assert sorted(text.count(passage) for text in found) == [0, 1]
    assert all(any(each in text for text in found) for each in before)


def test_a_shorter_passage_stays(tmp_path: Path) -> None:
    passage = sentence(0, LEAST - 1)
    texts = [f"{sentence(number, 20)} {passage} {sentence(number + 10, 20)}" for number in range(1, 4)]
    assert kept(read_text(write_lines(tmp_path, texts), tmp_path / "text", HERE)) == set(texts)


def test_a_passage_that_a_document_repeats_stays_once(tmp_path: Path) -> None:
    passage = sentence(0, 15)
    text = f"One {passage} two {passage} three {passage} four"
    found = read_text(write_lines(tmp_path, [text]), tmp_path / "text", HERE)
    assert kept(found) == {f"One {passage} two three four"}
    assert found.substrings == {"documents": 1, "removed": 2}
    assert found.ledger.dropped["repeated_substring"] == Count(0, 2 * len(passage) + 2)


def test_a_document_that_becomes_too_short_is_dropped_and_reported(tmp_path: Path) -> None:
    whole = f"{sentence(0, 40)} {sentence(1, 40)}"
    texts = [whole, f"See {sentence(0, 40)}"]
    corpus = replace(write_lines(tmp_path, texts), clean=replace(CLEAN, min_chars=20))
    found = read_text(corpus, tmp_path / "text", HERE)
    assert kept(found) in ({whole}, {texts[1], sentence(1, 40)})
    if len(kept(found)) == 1:
        assert found.ledger.dropped["repeated_substring"] == Count(1, len(texts[1]))
        (report,) = duplicate_report(found)
        assert report["reason"] == "repeated_substring"
        assert (report["key"], report["kept_key"]) == (text_key(texts[1]).hex(), text_key(whole).hex())


def test_the_first_group_of_a_mixture_keeps_a_passage(tmp_path: Path) -> None:
    passage, groups = sentence(0, 30), []
    for start, name in enumerate(("one", "two", "three")):
        (tmp_path / name).mkdir()
        lines = [f"{sentence(number + start, 20)} {passage}" for number in (10, 20)]
        (tmp_path / name / f"{name}.txt").write_text("\n".join(lines) + "\n")
        source = TextReader(path=str(tmp_path / name), document_unit="line")
        groups.append(MixtureGroup(name=name, weight=1, sources=(source,)))
    dedup, all_train = Dedup(substring_min_tokens=LEAST), {"validation_ratio": 0.0, "test_ratio": 0.0}
    corpus = Corpus(name="test", mixture=tuple(groups), clean=CLEAN, dedup=dedup, **all_train)
    found = read_text(corpus, tmp_path / "text", HERE)
    with_passage = [d.source for d in found.documents(0, 6) if passage in d.text]
    assert with_passage == ["one.txt"]


@pytest.mark.parametrize("size", [2_000, 1 << 20])
def test_the_result_does_not_depend_on_the_division_of_the_input(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{story(number)} {story(number % 7)}" for number in range(40)]
    expected = read_text(write_lines(tmp_path / "a", texts), tmp_path / "text", HERE).hash
    monkeypatch.setattr(sources, "SPLIT_BYTES", size)
    assert read_text(write_lines(tmp_path / "b", texts[::-1]), tmp_path / "other", HERE).hash == expected


def test_lines_are_removed_before_substrings(tmp_path: Path) -> None:
    line, passage = sentence(0, 30), sentence(1, 30)
    for number in range(3):
        text = f"{line}\n{sentence(number + 10, 20)} {passage} {sentence(number + 20, 20)}\n"
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.txt").write_text(text)
    source, both = TextReader(path=str(tmp_path / "in")), Dedup(line_min_chars=20, substring_min_tokens=LEAST)
    found = read_text(Corpus(name="test", sources=(source,), clean=CLEAN, dedup=both), tmp_path / "out", HERE)
    texts = sorted(kept(found))
    assert [sum(text.count(each) for text in texts) for each in (line, passage)] == [1, 1]
    assert found.ledger.dropped["repeated_line"].bytes == 2 * (len(line) + 1)
    assert found.ledger.dropped["repeated_substring"].bytes == 2 * (len(passage) + 1)
    assert found.ledger.is_balanced()


def test_equal_documents_after_the_removal_are_kept_once(tmp_path: Path) -> None:
    passages = [sentence(number, 40) for number in range(3)]
    texts = [*passages, *(f"Same beginning of this text {passage}" for passage in passages)]
    found = read_text(write_lines(tmp_path, texts), tmp_path / "text", HERE)
    assert len(kept(found)) == found.ledger.kept.documents
    assert found.ledger.is_balanced()


def test_marked_phrases_outside_of_removed_passages_stay(tmp_path: Path) -> None:
    passage, other = sentence(0, 20), sentence(1, 15)
    texts = [f"{other} New York {passage} Red Sea {sentence(2, 15)}", f"{passage} Black Forest"]
    phrases = ["New York", passage[3:20], "Red Sea", "Black Forest"]
    lines = []
    for text in texts:
        spans = [[text.index(phrase), text.index(phrase) + len(phrase)] for phrase in phrases if phrase in text]
        lines.append(json.dumps({"text": text, "spans": spans}))
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    source = JsonlReader(path=str(tmp_path / "in.jsonl"), spans_key="spans")
    dedup = Dedup(substring_min_tokens=LEAST)
    corpus = Corpus(name="test", sources=(source,), clean=CLEAN, dedup=dedup, phrases="given")
    found = read_text(corpus, tmp_path / "text", HERE)
    marked = [
        each.text[start:stop]
        for each in found.documents(0, 2)
        for start, stop in zip(each.spans[::2], each.spans[1::2], strict=True)
    ]
    assert sorted(marked) == sorted(phrases)  # the phrase in the passage stays once
    assert found.phrases["repeated_substring"] == 1


def test_positions_of_the_smallest_hashes_are_those_of_a_plain_search() -> None:
    hash_N = np.random.default_rng(5).integers(0, 9, 300).astype(np.uint64)
    plain = {
        max(at for at in range(start, start + 7) if hash_N[at] == hash_N[start : start + 7].min())
        for start in range(len(hash_N) - 6)
    }
    assert select_smallest(hash_N, 7).tolist() == sorted(plain)


def test_tokens_are_words_and_marks() -> None:
    text = "Don't stop: 3,5 - \u00fcber_all!\t\u4f60\u597d \U0002ebf0\U0002ebf1 \ue000\u200b"
    tokens = find_tokens(text)
    found = [text[start:stop] for start, stop in zip(tokens.start_T, tokens.stop_T, strict=True)]
    assert found == [
        *("Don", "'", "t", "stop", ":", "3", ",", "5", "-", "\u00fcber", "_", "all", "!", "\u4f60", "\u597d"),
        *("\U0002ebf0", "\U0002ebf1", "\ue000"),  # newer than Unicode 14.0, and for private use
    ]


@pytest.mark.parametrize(
    ("text", "ranges", "left"),
    [
        ("ab cd ef", [(3, 5)], "ab  ef"),
        ("ab,cd,ef", [(2, 6)], "ab ef"),
        ("\u4f60,\u597d", [(1, 2)], "\u4f60\u597d"),
        ("ab", [(0, 2)], ""),
    ],
)
def test_words_are_not_joined(text: str, ranges: list[tuple[int, int]], left: str) -> None:
    assert cut_ranges(text, ranges)[0] == left


@pytest.mark.parametrize("least", [-1, 1, 9])
def test_too_few_tokens_are_refused(least: int) -> None:
    with pytest.raises(
        InvalidValue, match=r"^invalid dedup\.substring_min_tokens: got -?\d, expected 0, or 10 or more"
    ):
        Dedup(substring_min_tokens=least)


def test_without_the_key_the_hash_of_the_settings_is_unchanged() -> None:
    assert "substring_min_tokens" not in Corpus(name="a").causes["dedup"]
    settings: dict[str, Any] = Corpus(name="a", dedup=Dedup(substring_min_tokens=50)).causes["dedup"]
    assert settings["substring_min_tokens"] == 50
