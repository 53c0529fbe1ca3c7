"""Kernels that sign texts return what numpy and xxhash return."""

import sys

import numpy as np
import pytest
import xxhash

from preprocessing.text import hash_bands, minhash, sign_texts
from preprocessing.text.minhash import bands_of, shingles, signature
from preprocessing.text.ngrams import _BLOCK, find_kinds, lower_blocks

pytest.importorskip("numba")
TEXTS = [
    "",
    "...",
    "One two three four five six. One, TWO!",
    "\u4f60\u597d\uff0c\u4e16\u754c abc \u0e20\u0e32\u0e29\u0e32",
    "I\u0307STANBUL \u0130stanbul \u039f\u03a3 \u039f\u03a3\u0391 e\u0301a \u1e9e \U0001d400\U0001f600 x",
    "new \u1c89 \U0001e030 \U00010d50 letters of Unicode 15 and 16",
    "a \x00 b \x01 c\ud800d",
]


@pytest.fixture
def use_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minhash, "_has_kernels", lambda num: True)


def assert_signed_alike(texts: list[str], ngram: int, num: int) -> None:
    signature_NP, has_word_N = sign_texts(texts, ngram, num)
    for text, signature_P, has_word in zip(texts, signature_NP, has_word_N, strict=True):
        shingle_N = shingles(text, ngram)
        assert has_word == (len(shingle_N) > 0)
        assert np.array_equal(signature_P, signature(shingle_N, num) if has_word else np.zeros(num))


@pytest.mark.slow  # compiles
@pytest.mark.parametrize(("ngram", "num"), [(1, 7), (5, 112), (13, 20)])
def test_signatures_are_those_of_numpy(
    ngram: int, num: int, use_kernels: None, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(ngram)
    alphabet = [*"abcdefgh  .", "\u4e00", "\u00e9", "\u0130", "\u03a3", "\u0301", "\n", "\U00020000"]
    made_up = ["".join(rng.choice(alphabet, rng.integers(0, 400))) for _ in range(300)]
    assert_signed_alike(TEXTS + made_up, ngram, num)
    assert not caplog.records


@pytest.mark.slow
def test_long_texts_are_cut_into_the_same_blocks(use_kernels: None) -> None:
    words = "word " * (_BLOCK // 5) + "x" * (2 * _BLOCK + 5) + " end " + "\u4e00" * (_BLOCK + 3)
    assert "\x01" in lower_blocks(words)
    assert_signed_alike([words, "a" * _BLOCK, "a" * (_BLOCK + 1), words[7:]], 5, 16)


@pytest.mark.slow
def test_messages_of_17_to_128_bytes_have_the_hash_of_xxhash() -> None:
    from preprocessing.text.signature_kernels import LEAST_BYTES, MOST_BYTES, hash_message

    rng = np.random.default_rng(0)
    for length in range(LEAST_BYTES, MOST_BYTES + 1):
        for message_M in rng.integers(0, 256, (9_000, length), np.uint8):  # a million in all
            assert hash_message(message_M) == xxhash.xxh3_64_intdigest(message_M.tobytes())


@pytest.mark.slow
@pytest.mark.parametrize(("bands", "rows"), [(14, 8), (1, 4), (20, 31), (256, 5), (9, 3), (3, 40), (300, 4)])
def test_hashes_of_bands_are_those_of_xxhash(bands: int, rows: int, use_kernels: None) -> None:
    rng = np.random.default_rng(rows)
    signature_NP = rng.integers(0, 1 << 32, (11, bands * rows), np.uint32)
    if bands > 256:
        with pytest.raises(ValueError, match="256"):
            hash_bands(signature_NP, bands)
        return
    hash_NB = hash_bands(signature_NP, bands)
    assert hash_NB.dtype == np.uint64
    assert np.array_equal(hash_NB, [bands_of(signature_P, bands) for signature_P in signature_NP])


@pytest.mark.slow
def test_a_difference_is_said_and_numpy_signs(
    use_kernels: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(minhash, "find_kinds", lambda: np.zeros_like(find_kinds()))
    assert_signed_alike(["one two", "three"], 5, 8)
    assert "differ" in caplog.text


def test_without_kernels_numpy_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "preprocessing.text.signature_kernels", None)
    monkeypatch.setattr(minhash, "_has_kernels", lambda num: False)
    assert_signed_alike(TEXTS, 5, 16)
    assert hash_bands(np.zeros((0, 16), np.uint32), 4).shape == (0, 4)
