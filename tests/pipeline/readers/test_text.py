"""Files of text alone: what separates the documents in them."""

import logging
from pathlib import Path

import pytest

from pipeline.readers import Text, recognise
from tests.pipeline.readers.reading import texts, write

SENTENCES = "The first sentence is here.\nAnd the second one is there.\n"


@pytest.mark.parametrize(
    "blank", ["", " ", "\t", "\r", " \r", "\f", "\v", "\u00a0", "\u3000", "\u2003", "\u200b", " \t \u00a0 "]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_blank_line_may_hold_blanks(tmp_path: Path, blank: str, encoding: str) -> None:
    """The format of BERT with a space in its blank lines was read as a document a line."""
    content = f"{blank}\n".join([SENTENCES] * 3)
    path = write(tmp_path, content.encode(encoding), "a.txt")
    assert recognise(path) == [Text(path=path, unit="paragraphs")]
    assert [text.strip("\u200b\n") for text in texts(*recognise(path))] == [SENTENCES.strip()] * 3


@pytest.mark.parametrize(
    ("line", "unit"), [("A sentence.", "paragraphs"), ("A sentence of a long document. " * 40, "line")]
)
def test_blank_lines_far_from_the_beginning_are_seen_and_said(
    tmp_path: Path, line: str, unit: str, caplog: pytest.LogCaptureFixture
) -> None:
    block = f"{line}\n" * (100_000 // len(line))
    path = write(tmp_path, f"{block} \n{block}\n{block}", "a.txt")
    with caplog.at_level(logging.WARNING):
        (source,) = recognise(path)
    assert isinstance(source, Text)
    assert source.unit == unit
    other = {"line": "paragraphs", "paragraphs": "line"}[unit]
    assert f"{other}:{path} reads it the other way" in caplog.messages[-1]


def test_without_blank_lines_each_line_is_a_document(tmp_path: Path) -> None:
    path = write(tmp_path, "One line.\n" * 20_000, "a.txt")
    assert recognise(path) == [Text(path=path, unit="line")]
