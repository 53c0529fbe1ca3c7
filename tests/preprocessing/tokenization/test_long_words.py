"""The time of trainers is quadratic in the longest word: one of a MB in a corpus must not hold it up."""

import pytest

from preprocessing.tokenization import ByteLevelBPE, WordPiece, byte_level_bpe, train
from preprocessing.tokenization import wordpiece as module

TEXT = "the cat sat on a mat and the dogs ran after it quickly while nobody was looking at their unhappy faces. "


def left(text: str, lowercase: bool = True) -> str:
    return module._without_long_words([text], lowercase)[0]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"a {'x' * 101} b", "a b"),
        (f"a {'x' * 100} b", f"a {'x' * 100} b"),
        (f"a {'x' * 5000}.{'y' * 101}, b", "a . , b"),
        (f"{'x' * 101}", ""),
        ("\u0915\u0941" * 99, "\u0915\u0941" * 99),  # without its marks, as it is lower-cased, it has 99 letters
        ("e\u0301" * 100, "e\u0301" * 100),
        ("\u4e2d" * 500, "\u4e2d" * 500),  # each is a word
        ("\U00020000" * 500, "\U00020000" * 500),
        ("\u3042" * 101, ""),  # kana are a word together, as in BERT
        ("x" * 60 + "\u2014" + "y" * 60, "x" * 60 + "\u2014" + "y" * 60),  # a dash is between words
        ("x" * 200 + "\u2014" + "y", "\u2014 y"),
    ],
)
def test_long_words_are_left_out(text: str, kept: str) -> None:
    assert left(text).split() == kept.split()


def test_marks_that_a_cased_vocabulary_keeps_count() -> None:
    assert left("\u0915\u0941" * 99, lowercase=False).strip() == ""


def test_text_without_long_words_is_trained_on_as_it_is() -> None:
    assert left(TEXT) == TEXT
    long = f"{TEXT}{'xyzzy' * 400} {TEXT}"
    assert (
        train(WordPiece(vocab_size=90), [long] * 3).files
        == train(WordPiece(vocab_size=90), [f"{TEXT}  {TEXT}"] * 3).files
    )


def test_a_long_word_is_unknown_whatever_it_was_trained_on() -> None:
    vocab = train(WordPiece(vocab_size=90), [TEXT * 3])
    assert vocab.encode("e" * 101) == [vocab.unk]


@pytest.mark.parametrize("order", ["training", "frequency"])
def test_the_trainer_sees_no_word_that_is_longer(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is quadratic in the longest word: of a word of a MB it gets nothing."""
    seen = list[int]()
    whole = module._train

    def counting(texts: list[str], size: int, lowercase: bool) -> dict[str, int]:
        seen.extend(max(map(len, text.split())) for text in texts)
        return whole(texts, size, lowercase)

    monkeypatch.setattr(module, "_train", counting)
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
def test_long_words_are_cut_for_byte_bpe(text: str, lengths: list[int]) -> None:
    parts = list(byte_level_bpe._short_words(text))
    assert "".join(parts) == text
    assert list(map(len, parts)) == lengths


def test_byte_bpe_learns_from_long_words_too() -> None:
    vocab = train(ByteLevelBPE(vocab_size=270), ["xyzzy" * 2_000])
    assert any(vocab.piece(id) == "xyzzy" for id in range(vocab.size))
