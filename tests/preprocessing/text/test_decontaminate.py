"""N-grams that a text shares with evaluation sets, compared with sets of word tuples."""

import random
from collections import Counter

import numpy as np
import pytest

from preprocessing.text import count_shared_ngrams, fewest_words, ngram_hashes

QUESTION = "What is the capital of the country that lies between Spain and the western sea?"  # 15 words


def test_a_question_is_found_regardless_of_case_and_punctuation() -> None:
    known = ngram_hashes([QUESTION], 13)
    assert count_shared_ngrams(f"They asked: {QUESTION.upper().replace(' ', ' - ')} Lisbon.", known, 13) == 3


def test_twelve_shared_words_are_not_enough_for_13_grams() -> None:
    known = ngram_hashes([QUESTION], 13)
    assert count_shared_ngrams(" ".join(QUESTION.split()[:12]) + " land?", known, 13) == 0
    assert count_shared_ngrams(" ".join(QUESTION.split()[:13]), known, 13) == 1


@pytest.mark.parametrize(("num_words", "found"), [(7, 0), (8, 1), (12, 1), (13, 1)])
def test_a_short_evaluation_text_is_one_ngram_from_eight_words(num_words: int, found: int) -> None:
    short = " ".join(QUESTION.split()[:num_words])
    assert count_shared_ngrams(f"before {short} after", ngram_hashes([short], 13), 13) == found


def test_a_part_of_a_short_evaluation_text_does_not_match() -> None:
    short = " ".join(QUESTION.split()[:10])
    assert count_shared_ngrams(" ".join(QUESTION.split()[1:10]), ngram_hashes([short], 13), 13) == 0


def test_an_ngram_size_below_eight_is_used_exactly() -> None:
    known = ngram_hashes(["one two three", "one two"], 3)
    assert len(known) == 1
    assert count_shared_ngrams("zero one two three", known, 3) == 1


def test_hashes_are_sorted_unique_and_independent_of_text_order() -> None:
    texts = [QUESTION, "short one", QUESTION.lower(), " ".join(map(str, range(40)))]
    known = ngram_hashes(texts, 13)
    assert known.dtype == np.uint64
    assert (np.diff(known.astype(object)) > 0).all()
    assert known.tolist() == ngram_hashes(reversed(texts), 13).tolist()
    assert len(known) == 3 + 28


@pytest.mark.parametrize("text", ["", "...", "word"])
def test_a_text_without_ngrams_shares_nothing(text: str) -> None:
    assert count_shared_ngrams(text, ngram_hashes([QUESTION], 13), 13) == 0


def test_without_evaluation_texts_nothing_is_shared() -> None:
    assert count_shared_ngrams(QUESTION, ngram_hashes([], 13), 13) == 0


@pytest.mark.parametrize("ngram", [1, 5, 8, 10, 13, 64])
def test_the_count_equals_that_of_word_tuples(ngram: int) -> None:
    draw = random.Random(ngram)
    for _ in range(60):
        texts = [draw.choices("ab", k=draw.randint(0, 90)) for _ in range(4)]
        known = set[tuple[str, ...]]()
        for words in texts:
            if len(words) >= ngram:
                known |= {tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)}
            elif len(words) >= 8:
                known.add(tuple(words))
        text = draw.choices("ab", k=draw.randint(0, 60)) + draw.choice(texts)
        lengths = {len(words) for words in known}
        expected = sum(tuple(text[i : i + n]) in known for n in lengths for i in range(len(text) - n + 1))
        found = count_shared_ngrams(" ".join(text), ngram_hashes(map(" ".join, texts), ngram), ngram)
        assert found == expected


@pytest.mark.parametrize(("ngram", "short"), [(13, 2), (8, 2), (5, 1), (1, 0)])
def test_too_short_texts_are_counted(ngram: int, short: int) -> None:
    num = Counter[str]()
    ngram_hashes(["one two three four", "a b c d e f g", " ".join("abcdefghi"), "word " * 30], ngram, num)
    assert (num["texts"], num["too_short"]) == (4, short)
    assert fewest_words(ngram) == min(ngram, 8)
