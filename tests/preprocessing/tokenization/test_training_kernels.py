"""Compiled kernels count words and merge pairs as `tokenizers` does; without them, training gives the same bytes."""

import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from preprocessing.tokenization import ByteLevelBPE, WordPiece, byte_level_bpe, word_counts, wordpiece

numba = pytest.importorskip("numba")

SPECS = (
    WordPiece(vocab_size=400),
    WordPiece(vocab_size=600, lowercase=False),
    WordPiece(vocab_size=400, token_order="frequency"),
    WordPiece(vocab_size=600, lowercase=False, token_order="frequency"),
    ByteLevelBPE(vocab_size=500),
    ByteLevelBPE(vocab_size=500, special_tokens="roberta"),
)
PARTS = (
    *"aabcdeéëÅİ\u0131ßẞ\u017f\u03a3\u03c3\u03c2\u017fñ\u0410йЙ中文𠀀豈か゛がハﾊ가힣각각กำ् ็١２²Ⅷ½",
    *"\u0301\u0308\u0323\u0334\u0345\u05b0\u0651\u302a\u302e\u302f\u1b44\u1dfb\U0001d15e\U0001d165\U0001e000",
    *"\0\x01\t\n\x0b\x0c\r\x1c\x1f \x7f\x85\xa0\xad\u1680\u2000\u2003\u200b\u200d\u2028\u202f\u3000\ufeff\ufffd\ue000",
    *"'\"!.,-_#$%&/@[]{}~`^|«»\u2018\u2019“”—…·¿、。\uff01\uff08\uff09\uff0c؟।\u061d\u2e43€©🙂👩\u200d🚀\U0001fae8\U000e0001\U0010fffd",
    *("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'l", " '", "\r\n", "  ", "\n\n", " \t ", "##", "##a"),
    *("[UNK]", "[CLS]", "<s>", "<|endoftext|>", "</s>", "<mask>", "the ", " ing", "ΟΔΟ\u03a3", "x" * 99, "y" * 100),
    *("z" * 101, "é" * 101, "가" * 60, "ß" * 60 + "\x0b" + "ß" * 60, "-" * 30, "1" * 20, " " * 5, "中" * 130),
)


def make_up(seed: int, num_texts: int = 40, num_parts: int = 60) -> list[str]:
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(PARTS, rng.integers(1, 6))) for _ in range(50)]
    choice = [*PARTS, *words, *(" " + word for word in words)]
    return ["".join(rng.choice(choice, rng.integers(0, num_parts))) for _ in range(num_texts)]


def with_and_without(
    spec: WordPiece | ByteLevelBPE, texts: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    monkeypatch.setattr(word_counts, "_LEAST_CHARS", 0)
    monkeypatch.setattr(word_counts, "_WORTH_COMPILING", 0)
    ours = spec.make(iter(texts)).files
    monkeypatch.setattr(word_counts, "has_compiler", lambda: False)
    return ours, spec.make(iter(texts)).files


def bert(lowercase: bool) -> Tokenizer:
    return wordpiece._tokenizer(models.WordPiece(unk_token="[UNK]"), lowercase)


def count_bert_words(texts: Sequence[str], lowercase: bool) -> tuple[Counter[str], Counter[str]]:
    words, characters = wordpiece._count_words(texts, lowercase)
    return Counter(dict(zip(words.words, words.count_N.tolist(), strict=True))), Counter(characters)


def count_gpt2_words(texts: Sequence[str]) -> Counter[bytes]:
    words = word_counts.count_gpt2_words(texts, 1_000, byte_level_bpe._run_kind, byte_level_bpe._short_words)
    symbols, bounds = words.symbol_S.tobytes(), words.start_N.tolist()
    spelled = [symbols[start:stop] for start, stop in pairwise(bounds)]
    return Counter(dict(zip(spelled, words.count_N.tolist(), strict=True)))


def bert_words_of_library(texts: Sequence[str], lowercase: bool) -> Counter[str]:
    tokenizer = bert(lowercase)
    normal = map(tokenizer.normalizer.normalize_str, wordpiece._without_long_words(texts, lowercase))
    return Counter(word for text in normal for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))


def gpt2_words_of_library(texts: Sequence[str]) -> Counter[bytes]:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    parts = (part for text in texts for part in byte_level_bpe._short_words(text))
    return Counter(byte_level_bpe.utf8_of(word) for part in parts for word, _ in split(part))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_vocabularies_are_those_of_the_library(
    spec: WordPiece | ByteLevelBPE, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = with_and_without(spec, make_up(seed), monkeypatch)
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
@pytest.mark.parametrize("size", [300, 2_000])
def test_many_vocabularies_are_those_of_the_library(seed: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = make_up(seed, 200, 100)
    for spec in (
        WordPiece(vocab_size=size + 400),
        WordPiece(vocab_size=size + 400, lowercase=False, token_order="frequency"),
        ByteLevelBPE(vocab_size=size, special_tokens="roberta"),
    ):
        with monkeypatch.context() as patch:
            ours, theirs = with_and_without(spec, texts, patch)
        assert ours == theirs


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("seed", range(10, 15))
def test_bert_words_and_characters_are_counted_as_by_the_library(seed: int, lowercase: bool) -> None:
    texts = make_up(seed)
    words, characters = count_bert_words(texts, lowercase)
    assert words == bert_words_of_library(texts, lowercase)
    alphabet = wordpiece._alphabet(characters, 400, bert(lowercase))
    short = wordpiece._without_long_words(texts, lowercase)
    assert alphabet == wordpiece._alphabet(wordpiece._count_characters(short), 400, bert(lowercase))


@pytest.mark.parametrize("seed", range(20, 25))
def test_gpt2_words_are_counted_as_by_the_library(seed: int) -> None:
    texts = make_up(seed)
    assert count_gpt2_words(texts) == gpt2_words_of_library(texts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a",
        "\n\n",
        "a  b",
        "a \n b",
        "a\t",
        "it's  'so' ''s x'll'l'",
        "a" * 1_001 + " b",
        " " * 2_500 + "a",
        "1" * 3_000,
        "-" * 1_500 + "'s",
        "e\u0301" * 150,
        "x\x0b" * 300,
        "q\x0ba " + "q" * 500_000,
        "\u0e01" * 20_000,
    ],
    ids=lambda text: repr(text)[:20],
)
def test_one_text(text: str) -> None:
    assert count_gpt2_words([text]) == gpt2_words_of_library([text])
    for lowercase in (True, False):
        assert count_bert_words([text], lowercase)[0] == bert_words_of_library([text], lowercase)


def test_marks_are_ordered_as_by_the_library() -> None:
    """U+302E and U+1B44 remain when accents are removed, and NFD puts the one of the lower class first."""
    text = "a\u302e\u1b44b c\u1b44\u302e d\u302e\u0301\u1b44e"
    assert count_bert_words([text], True)[0] == bert_words_of_library([text], True)
    assert "a\u1b44\u302eb" in count_bert_words([text], True)[0]


def test_arrays_grow() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.integers(10**12, size=30_000).tolist()))] * 2
    assert count_gpt2_words(texts) == gpt2_words_of_library(texts)
    assert count_bert_words(texts, True)[0] == bert_words_of_library(texts, True)


def test_texts_without_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in SPECS:
        for texts in ([], [""], ["\x0b\x0c", " \n"]):
            with monkeypatch.context() as patch:
                ours, theirs = with_and_without(spec, texts, patch)
            assert ours == theirs


def test_repeated_tokens_and_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pairs can make the same token, which then arises again in pairs that were queued or merged before."""
    rng = np.random.default_rng(1)
    texts = ["".join(rng.choice(list("ab "), 3_000, p=[0.5, 0.4, 0.1])) for _ in range(4)]
    for spec in (WordPiece(vocab_size=2_000), ByteLevelBPE(vocab_size=2_000)):
        with monkeypatch.context() as patch:
            ours, theirs = with_and_without(spec, texts, patch)
        assert ours == theirs


SCRIPT = """
import hashlib, sys
if {without}:
    sys.modules["numba"] = None
from preprocessing.tokenization import ByteLevelBPE, WordPiece, word_counts
assert {without} or "numba" not in sys.modules
word_counts._LEAST_CHARS = word_counts._WORTH_COMPILING = 0
assert word_counts.has_compiler() != {without}
texts = ["the cat sat on the mat, and the café's dogs ran \\u4e2d\\u6587 "] * 9
for spec in (WordPiece(vocab_size=99), ByteLevelBPE(vocab_size=299)):
    print(hashlib.sha256(b"".join(spec.make(texts).files.values())).hexdigest())
"""


def test_without_the_compiler_training_gives_the_same_bytes() -> None:
    with_, without = (
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(without=without)], capture_output=True, text=True, check=True
        ).stdout
        for without in (False, True)
    )
    assert with_ == without
    assert len(with_.split()) == 2


def test_a_kernel_compiles_where_no_cache_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from preprocessing import jit

    def double(number: int) -> int:
        return 2 * number

    def fail(*words: object, **more: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(jit.os, "makedirs", fail)
    compiled = jit.kernel(double)
    assert compiled(21) == 42
    assert not compiled._cache.has_code()


def test_a_short_text_is_not_worth_the_compiler() -> None:
    by_kernels, texts = word_counts.choose_kernels(iter(["a", "b"]))
    assert not by_kernels
    assert list(texts) == ["a", "b"]


@pytest.mark.parametrize(
    ("num_chars", "is_compiled", "by_kernels"),
    [(9, True, False), (10, True, True), (19, False, False), (20, False, True)],
)
def test_kernels_that_must_be_compiled_need_more_text(
    num_chars: int, is_compiled: bool, by_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_counts, "_LEAST_CHARS", 10)
    monkeypatch.setattr(word_counts, "_WORTH_COMPILING", 20)
    monkeypatch.setattr(word_counts, "_are_kernels_compiled", lambda: is_compiled)
    found, texts = word_counts.choose_kernels(iter("a" * num_chars))
    assert (found, "".join(texts)) == (by_kernels, "a" * num_chars)


def test_texts_that_were_read_to_choose_are_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_counts, "_LEAST_CHARS", 3)
    monkeypatch.setattr(word_counts, "_WORTH_COMPILING", 3)
    by_kernels, texts = word_counts.choose_kernels(iter(["ab", "cd", "ef"]))
    assert by_kernels
    assert list(texts) == ["ab", "cd", "ef"]


def test_a_small_vocabulary_is_refused_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, messages = ["the quick brown fox jumps over the lazy dog"], list[str]()
    for installed in (True, False):
        monkeypatch.setattr(word_counts, "_LEAST_CHARS", 0)
        monkeypatch.setattr(word_counts, "_WORTH_COMPILING", 0)
        monkeypatch.setattr(word_counts, "has_compiler", lambda installed=installed: installed)
        with pytest.raises(ValueError, match="vocab_size") as error:
            WordPiece(vocab_size=20).make(texts)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uncased", "cased", "gpt2"])
def test_every_code_point_between_letters(kind: str) -> None:
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(codes), 1 << 16):
        texts = [f"a{chr(code)}b {chr(code)} 1{chr(code)}{chr(code)}'" for code in codes[start : start + (1 << 16)]]
        if kind == "gpt2":
            assert count_gpt2_words(texts) == gpt2_words_of_library(texts)
        else:
            lowercase = kind == "uncased"
            assert count_bert_words(texts, lowercase)[0] == bert_words_of_library(texts, lowercase)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("spec", SPECS, ids=repr)
@pytest.mark.parametrize(
    "file",
    ["text/wikitext2/valid.txt", "text/tinyshakespeare/input.txt", "zh/zh_samples", "sentences"],
)
def test_real_text(spec: WordPiece | ByteLevelBPE, file: str, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / file
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    texts = [each.read_text(encoding="utf-8") for each in files]
    spec = replace(spec, vocab_size=9_000)
    ours, theirs = with_and_without(spec, texts, monkeypatch)
    assert hashlib.sha256(b"".join(ours.values())).digest() == hashlib.sha256(b"".join(theirs.values())).digest()
