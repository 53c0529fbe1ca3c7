"""Whitespace of source code: it is kept on request, and sentences are found in the same way."""

import pytest

from preprocessing.text import lines_as_sentences, normalize, sentences
from preprocessing.text.tidy import single_blanks

CODE = "  if a:\n\tb  = 1  # One.  Two.\n\n\n\n    return {\n        'x': 1,\n    }\n\x0c\nclass C:\n    pass"
PROSE = "One  sentence.  Another   one!\tA third?\n\n\n   New paragraph.\u3000Its end.  "


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        (CODE, CODE),
        ("\r\n \t\r\n  a\r\n\tb\r\rc \n \n", "  a\n\tb\n\nc"),
        ("a\x00b\u200b  \xadc", "ab  c"),
        ("e\u0301  x", "\xe9  x"),
        ("a \n b", "a \n b"),
        (" \n\t ", ""),
        ("", ""),
    ],
)
def test_whitespace_can_be_kept(raw: str, kept: str) -> None:
    assert normalize(raw, "keep") == kept
    assert normalize(kept, "keep") == kept


@pytest.mark.parametrize("text", [CODE, PROSE, "a", "\n\n", " ", "", "x\n \ny.  Z", "。\u3000文。  文"])
def test_sentences_are_the_same_with_kept_whitespace(text: str) -> None:
    cut, plain = sentences(text), sentences(single_blanks(text))
    assert "".join(cut) == text
    assert [single_blanks(piece) for piece in cut if piece.strip()] == [single_blanks(piece) for piece in plain]
    assert not any(piece[-1:].isspace() for piece in cut[:-1])


def test_sentences_end_before_runs_of_blanks() -> None:
    assert sentences(PROSE)[:3] == ["One  sentence.", "  Another   one!", "\tA third?"]


def test_lines_keep_their_indentation_and_blank_lines_start_no_sentence() -> None:
    assert lines_as_sentences("  a\n   \n\n\tb\nc  ") == ["  a", "\n   \n\n\tb", "\nc  "]
