import itertools
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from preprocessing.text import decode, lines_as_sentences, normalize, sentences, text_key

REPEATABLE = settings(deadline=None, derandomize=True)  # the same examples in each run, also on a slow machine

# Text with marks, quotes, blanks, capitals, several scripts, and characters that normalize must remove.
EVENTFUL = st.text(
    st.sampled_from(
        "aA.!?\u2026'\"()\u201c\u201d \n\n\t\r\x00\u00a0\u3000\u3002\uff01\u4e0b\u00e9e\u03010#\u2028\ufeff\u0391\u0416"
    )
)


def split_by_gpt2(text: str) -> list[str]:
    """Return the words of a text; byte-level BPE merges only inside a word."""
    return [word for word, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]


def test_decode_repairs_and_counts_invalid_bytes() -> None:
    assert decode(b"ab\xffcd\xfe\xfe") == ("ab\ufffdcd\ufffd\ufffd", 3)


def test_decode_does_not_count_existing_replacement_characters() -> None:
    assert decode("\ufffd".encode() + b"\xff") == ("\ufffd\ufffd", 1)


def test_decode_repairs_surrogates_and_truncated_sequences() -> None:
    text, repaired = decode(b"a\xed\xa0\x80b\xe2\x82")
    assert (text.strip("\ufffd"), repaired) == ("a\ufffdb", 2)  # half of a surrogate pair counts as one lost character


def test_decode_removes_a_byte_order_mark() -> None:
    assert decode(b"\xef\xbb\xbftext") == ("text", 0)
    assert decode(b"\xef\xbb\xbftext\xff") == ("text\ufffd", 1)


@REPEATABLE
@given(st.binary())
def test_decode_accepts_any_bytes(data: bytes) -> None:
    text, repaired = decode(data)
    assert (repaired == 0) == (text.encode() == data.removeprefix(b"\xef\xbb\xbf"))


@pytest.mark.parametrize(
    ("raw", "tidy"),
    [
        ("a\x00b\x07c\x9fd", "abcd"),
        ("a\r\nb\rc\x0bd\x0ce\u0085f\u2028g\u2029h", "a\nb\nc\nd\ne\nf\ng\nh"),
        ("a \t b\u00a0\u3000c", "a b c"),
        ("  a  \n  b  ", "a\nb"),
        ("a\n\n\n \n\t\nb", "a\n\nb"),
        ("a\n\nb", "a\n\nb"),
        ("co\u00adop\u200b \ufeffx", "coop x"),
        ("e\u0301 e\x00\u0301", "\u00e9 \u00e9"),
        ("a\ud800b", "ab"),
        ("\U0001f468\u200d\U0001f469 \u0915\u094d\u200d\u0937", "\U0001f468\u200d\U0001f469 \u0915\u094d\u200d\u0937"),
        (" \n\t\x00", ""),
    ],
)
def test_normalize_cleans_characters_and_blanks(raw: str, tidy: str) -> None:
    assert normalize(raw) == tidy


@REPEATABLE
@given(st.one_of(EVENTFUL, st.text(st.characters())))
def test_normalize_is_idempotent(text: str) -> None:
    tidy = normalize(text)
    assert normalize(tidy) == tidy


@REPEATABLE
@given(st.text(st.characters()))
def test_normalized_text_is_nfc_utf8_with_single_blanks(text: str) -> None:
    tidy = normalize(text)
    assert unicodedata.is_normalized("NFC", tidy)
    tidy.encode()
    assert not re.search(r"\n{3}|  | \n|\n |^\s|\s$|[^\S \n]|\x00", tidy)


@pytest.mark.parametrize(
    "pieces",
    [
        ["One two.", " Three four!", " Five?", " Six"],
        ["Dr. Smith met Mrs. J. R. Jones, e.g. Tuesday.", " Then left."],
        ["See Fig. 3 and No. 5 on Jan. 7.", " Done."],
        ["I said no.", " It was so."],
        ["It was I.", " Then it rained."],
        ["He is in the U.S. Army."],
        ["It is 20 \u00b0C.", " Roe v. Wade was decided.", " He lived c. 1630 BC.", " MR. BUMBLE left."],
        ['"Why?" he asked.', ' "Because."', " (Really.)", " So."],
        ["What?!", " Yes...", " No\u2026", " Well... maybe."],
        ["It costs 3.50 at www.example.com today.", " 12 more came."],
        ["1. Boil water.", "\n12. Drink."],
        ["A heading", "\n\nA paragraph\nover lines.", "\nNext.", "\n\nlower"],
        ["\u041e\u043d \u0442. \u0435. \u044f.", " \u0414\u0430."],
        ["\u4ed6\u8d70\u4e86\u3002", "\u6211\u4e5f\u662f\uff01", "\u201c\u771f\u7684\uff1f\u201d", "\u5bf9\u3002"],
        ["\u4ed6\u770b\u300a\u4e66\u3002\u300b", "\u6211\u770b\uff61", "\u5bf9"],
        ["\u300c\u4f55\uff1f\u300d", "\u5f7c\u306f\u8a00\u3063\u305f\u3002", " \u300c\u306f\u3044\u3002\u300d"],
    ],
)
def test_text_is_split_at_sentence_ends(pieces: list[str]) -> None:
    assert sentences("".join(pieces)) == pieces


def test_an_empty_text_has_no_sentences() -> None:
    assert sentences("") == []


@REPEATABLE
@given(st.one_of(EVENTFUL, st.text()))
@example("\n\n\n.\n\nA")
def test_joined_sentences_are_the_text(text: str) -> None:
    pieces = sentences(text)
    assert "".join(pieces) == text
    assert "" not in pieces


@REPEATABLE
@given(EVENTFUL.map(lambda text: normalize(re.sub("(?=[\u201c\u3010])", " ", text))))
@example("\u3002\u4e0b. A.\n\nA\u3002a\uff01 \u201cA\u06d4b\n- \u0964")
def test_gpt2_splits_sentences_like_the_whole_text(text: str) -> None:
    """This excludes opening quotation marks after a Chinese mark, because GPT-2 merges the two marks."""
    assert list(itertools.chain.from_iterable(map(split_by_gpt2, sentences(text)))) == split_by_gpt2(text)


@REPEATABLE
@given(EVENTFUL.map(normalize))
def test_no_sentence_is_only_whitespace(text: str) -> None:
    assert all(piece.strip() for piece in [*sentences(text), *lines_as_sentences(text)])


@REPEATABLE
@given(EVENTFUL)
def test_joined_lines_are_the_text(text: str) -> None:
    pieces = lines_as_sentences(text)
    assert "".join(pieces) == text
    assert all("\n" not in piece.strip() for piece in pieces)


@pytest.mark.parametrize("split", [sentences, lines_as_sentences])
def test_an_overlong_sentence_is_split_at_whitespace_or_at_the_limit(split: Callable[[str], list[str]]) -> None:
    words, run = " word" * 2_001, "x" * 20_001
    assert [len(piece) for piece in split("A" + words)] == [10_000 - 4, 10]
    assert [len(piece) for piece in split(run)] == [10_000, 10_000, 1]
    assert "".join(split("A" + words + run)) == "A" + words + run
    assert split("A" + words)[1] == " word word"


@pytest.mark.one_in(4)
@pytest.mark.timeout(120)  # a pattern with backtracking would take hours
@pytest.mark.parametrize(
    "run",
    [
        ".",
        '."',
        ". (",
        ". A",
        "?)",
        "\n",
        '"',
        "\u3002",
        "\u3002\u201d",
        " \t\x00",
        "Dr. ",
        ":",
        ":)",
        "A\n",
        ". AA BB",
        "\u0f0d ",
    ],
)
def test_long_runs_take_linear_time(run: str) -> None:
    text = run * 300_000
    assert "".join(sentences(text)) == text
    normalize(text)


def test_the_key_is_xxh3_of_the_text_with_128_bits() -> None:
    assert text_key("") == bytes.fromhex("99aa06d3014798d86001c324468d497f")  # the value from the specification
    assert text_key("caf\u00e9") == xxhash.xxh3_128("caf\u00e9".encode()).digest()


@pytest.mark.shared
def test_gpt2_splits_real_sentences_like_the_whole_text(shared: Path) -> None:
    text = normalize((shared / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8"))[:200_000]
    pieces = sentences(text)
    assert len(pieces) > 1_000
    assert list(itertools.chain.from_iterable(map(split_by_gpt2, pieces))) == split_by_gpt2(text)
