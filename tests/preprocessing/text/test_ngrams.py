"""Hashes of words and n-grams are equal if and only if the words are."""

import random
import subprocess
import sys

import numpy as np
import pytest

from preprocessing.text import ngrams
from preprocessing.text.ngrams import hash_ngrams, hash_words


def same(a: str, b: str) -> bool:
    return hash_words(a).tolist() == hash_words(b).tolist()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The cat, sat.", "the CAT sat"),
        ("well-known", "well known"),
        ("\u00c9t\u00e9", "\u00e9t\u00c9"),
        ("a\n\nb\tc", "a b c"),
        ("\u201ca\u201d \u2014 b\u2026", "a b"),
    ],
)
def test_case_punctuation_and_whitespace_are_ignored(a: str, b: str) -> None:
    assert same(a, b)


@pytest.mark.parametrize(("a", "b"), [("ab", "ba"), ("ab", "a b"), ("a b", "b a"), ("cafe", "caf\u00e9"), ("1", "2")])
def test_letters_digits_accents_and_order_matter(a: str, b: str) -> None:
    assert not same(a, b)


@pytest.mark.parametrize(
    ("text", "num_words"),
    [
        ("\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002", 6),
        ("\u3053\u308c\u306fABC\u3067\u3059", 6),
        ("x\u4e2dy", 3),
        ("\u0e2a\u0e27", 2),
        ("\ud55c\uad6d\uc5b4 \ubb38\uc7a5", 2),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", 1),
        ("... \u3002 !", 0),
        ("", 0),
    ],
)
def test_scripts_without_spaces_have_one_word_per_character(text: str, num_words: int) -> None:
    assert len(hash_words(text)) == num_words


def test_a_word_has_the_same_hash_at_every_position(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(f"word{i % 7}" for i in range(2_000))
    hash_W = hash_words(text)
    assert len(np.unique(hash_W)) == 7
    monkeypatch.setattr(ngrams, "_BLOCK", 64)
    assert hash_words(text).tolist() == hash_W.tolist()


def test_ngram_hashes_are_independent_of_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    word_W = hash_words(" ".join(map(str, range(500))))
    whole = [hash_ngrams(word_W, n).tolist() for n in (1, 2, 5, 13, 64)]
    monkeypatch.setattr(ngrams, "_BLOCK", 80)
    assert [hash_ngrams(word_W, n).tolist() for n in (1, 2, 5, 13, 64)] == whole


@pytest.mark.parametrize("ngram", [1, 2, 5, 13])
def test_hashes_are_equal_if_and_only_if_the_words_are(ngram: int) -> None:
    draw = random.Random(ngram)
    words = draw.choices(["a", "b", "aa", "ab", "ba"], k=600)
    hash_N = hash_ngrams(hash_words(" ".join(words)), ngram).tolist()
    by_hash, by_words = dict[int, tuple[str, ...]](), set()
    for i, digest in enumerate(hash_N):
        spelled = tuple(words[i : i + ngram])
        assert by_hash.setdefault(digest, spelled) == spelled
        by_words.add(spelled)
    assert len(hash_N) == 600 - ngram + 1
    assert len(by_hash) == len(by_words)


def test_fewer_words_than_an_ngram_give_no_hash() -> None:
    assert hash_ngrams(hash_words("one two"), 3).tolist() == []


def test_every_bit_of_a_hash_is_balanced() -> None:
    """Numbers differ in few bits, hashes in half of them; chi-square over 64 bits, 0.1% critical value 112.3."""
    hash_W = hash_words(" ".join(map(str, range(20_000))))
    ones_64 = np.array([int((hash_W >> np.uint64(bit) & np.uint64(1)).sum()) for bit in range(64)])
    assert ((ones_64 - 10_000) ** 2 / 5_000).sum() < 112.3


def test_hashes_are_the_same_in_any_process() -> None:
    code = "from preprocessing.text.ngrams import *\nprint(hash_ngrams(hash_words('Any process, any day'), 2).tolist())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{hash_ngrams(hash_words('any process any day'), 2).tolist()}\n"}


def test_the_hash_is_the_documented_polynomial() -> None:
    """The same hash in Python integers shows that arithmetic modulo 2**64 is independent of the numpy version."""
    value = sum((ord(char) + 1) * ngrams._BASE**power for power, char in enumerate("word")) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ value >> shift) * factor % 2**64
    assert hash_words("x, Word")[1] == value ^ value >> 31


@pytest.mark.parametrize("text", ["\ud800 a", "\U0010ffff", "a" * 100_000, "\u0130stanbul"])
def test_any_text_has_hashes(text: str) -> None:
    assert hash_words(text).dtype == np.uint64
