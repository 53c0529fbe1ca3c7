"""Training time is quadratic in the longest word, so a word of 1 MB in a corpus must not slow it down."""

import pytest

from preprocessing.tokenization import ByteLevelBPE, WordPiece, byte_level_bpe, train
from preprocessing.tokenization import wordpiece as module

TEXT = "the cat sat on a mat and the dogs ran after it quickly while nobody was looking at their unhappy faces. "


def without_long_words(text: str, lowercase: bool = True) -> str:
    return module._without_long_words([text], lowercase)[0]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"a {'x' * 101} b", "a b"),
        (f"a {'x' * 100} b", f"a {'x' * 100} b"),
        (f"a {'x' * 5000}.{'y' * 101}, b", "a . , b"),
        (f"{'x' * 101}", ""),
        ("\u0915\u0941" * 99, "\u0915\u0941" * 99),  # lower-casing removes the combining marks, so 99 letters remain
        ("e\u0301" * 100, "e\u0301" * 100),
        ("\u4e2d" * 500, "\u4e2d" * 500),  # each character is a word
        ("\U00020000" * 500, "\U00020000" * 500),
        ("\u3042" * 101, ""),  # a run of kana is one word, as in BERT
        ("x" * 60 + "\u2014" + "y" * 60, "x" * 60 + "\u2014" + "y" * 60),  # a dash separates words
        ("x" * 200 + "\u2014" + "y", "\u2014 y"),
    ],
)
def test_words_of_more_than_100_characters_are_removed(text: str, kept: str) -> None:
    assert without_long_words(text).split() == kept.split()


def test_combining_marks_count_in_a_cased_vocabulary() -> None:
    assert without_long_words("\u0915\u0941" * 99, lowercase=False).strip() == ""


def test_text_without_long_words_is_trained_unchanged() -> None:
    assert without_long_words(TEXT) == TEXT
    long = f"{TEXT}{'xyzzy' * 400} {TEXT}"
    assert (
        train(WordPiece(vocab_size=90), [long] * 3).files
        == train(WordPiece(vocab_size=90), [f"{TEXT}  {TEXT}"] * 3).files
    )


def test_a_long_word_is_unknown() -> None:
    vocab = train(WordPiece(vocab_size=90), [TEXT * 3])
    assert vocab.encode("e" * 101) == [vocab.unk]


@pytest.mark.parametrize("order", ["training", "frequency"])
def test_the_trainer_gets_no_long_words(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer takes quadratic time in the longest word, so a word of 1 MB is removed before training."""
    seen = list[int]()
    whole = module._train

    def recording_train(texts: list[str], size: int, lowercase: bool) -> dict[str, int]:
        seen.extend(max(map(len, text.split())) for text in texts)
        return whole(texts, size, lowercase)

    monkeypatch.setattr(module, "_train", recording_train)
    spec = WordPiece(vocab_size=90, token_order=order)  # type: ignore[arg-type]
    assert spec.least_size([TEXT + "x" * 1_000_000]) == spec.least_size([TEXT])
    train(spec, [TEXT + "q" * 1_000_000, TEXT])
    assert max(seen) <= 100


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        (TEXT, [len(TEXT)]),
        ("x" * 1_000, [1_000]),
        ("x" * 1_001, [1_000, 1]),
        (f"a {'1' * 2_000}b", [1_002, 1_001]),
        (f"{'-' * 1_500} a", [1_000, 502]),
        ("a" + " " * 2_000 + "b", [1_001, 1_001]),
        ("\n" * 999 + "\t" * 600, [1_000, 599]),
        ("\u4e2d" * 999 + "\u3002" + "\u4e2d" * 999, [1_999]),
        ("ab1 " * 2_000, [8_000]),
        ("", [0]),
    ],
)
def test_long_words_are_split_for_byte_bpe(text: str, lengths: list[int]) -> None:
    parts = list(byte_level_bpe._short_words(text))
    assert "".join(parts) == text
    assert list(map(len, parts)) == lengths


def test_byte_bpe_learns_from_long_words() -> None:
    vocab = train(ByteLevelBPE(vocab_size=270), ["xyzzy" * 2_000])
    assert any(vocab.piece(id) == "xyzzy" for id in range(vocab.size))
