"""Plain text files: the separators of their documents."""

import gzip
import logging
from pathlib import Path

import pytest

from pipeline.readers import TextReader, recognise
from tests.pipeline.readers.reading import read, texts, write

SENTENCES = "The first sentence is here.\nAnd the second one is there.\n"


@pytest.mark.parametrize(
    "blank",
    ["", " ", "\t", "\r", " \r", "\f", "\v", "\0", "\x01", "\x1e", "\x7f", "\x85", "\xa0", "\xad", "\u061c", "\u1680",
     "\u180e", "\u2003", "\u200b", "\u200e", "\u200f", "\u2028", "\u202c", "\u2060", "\u2069", "\u2800", "\u3000",
     "\u3164", "\ufeff", "\uffa0", " \t \u00a0 ", "\u200f \u2060"],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_blank_line_may_contain_blanks(tmp_path: Path, blank: str, encoding: str) -> None:
    """The format of BERT with a space in its blank lines used to be read as one document per line."""
    content = f"{blank}\n".join([SENTENCES] * 3)
    path = write(tmp_path, content.encode(encoding), "a.txt")
    assert recognise(path) == [TextReader(path=path, document_unit="paragraphs")]
    assert [text.strip(blank + "\n") for text in texts(*recognise(path))] == [SENTENCES.strip()] * 3


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.txt", "\r\r".join([SENTENCES.replace("\n", "\r").strip()] * 3), [SENTENCES.strip()] * 3),
        ("a.txt", "\r \r".join([SENTENCES.replace("\n", "\r").strip()] * 3), [SENTENCES.strip()] * 3),
        ("a.txt", "One line.\rAnother one.\r", ["One line.", "Another one."]),
        ("a.jsonl", '{"text": "One."}\r{"text": "Two."}\r{"text": "Three."}', ["One.", "Two.", "Three."]),
        ("a.csv", 'id,text\r1,One.\r2,"Two,\rtwo."\r', ["One.", "Two,\ntwo."]),
        ("a.tsv", "id\ttext\r1\tOne.\r2\tTwo.\r", ["One.", "Two."]),
        ("a.txt", "id,text\r1,One.\r2,Two.\r", ["One.", "Two."]),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_lines_may_end_in_carriage_returns_only(
    tmp_path: Path, name: str, content: str, wanted: list[str], packed: bool, encoding: str
) -> None:
    """A file with only carriage returns used to be read as a single line, or not at all."""
    stored = content.encode(encoding)
    path = write(tmp_path, gzip.compress(stored) if packed else stored, f"{name}.gz" if packed else name)
    assert texts(*recognise(path)) == wanted


def test_a_large_file_with_carriage_returns_is_read_in_one_piece(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"Line {number}.\r" for number in range(2000)), "a.txt")
    (source,) = recognise(path)
    ((piece,),) = [tuple(source.pieces(sides, 1000)) for sides in source.files()]
    found = list(source.records(piece, 10_000))
    assert len(found) == 2000
    assert sum(record.size for record in found) == piece.file.size


@pytest.mark.parametrize("packed", [False, True])
# the last case has a \n right after it
@pytest.mark.parametrize("first", ["Words of a book. \r " * 5000, "x" * 65535 + "\r"])
def test_carriage_returns_in_a_long_first_line_do_not_end_lines(tmp_path: Path, first: str, packed: bool) -> None:
    """After a first line of more than 64 kB, carriage returns used to split each line into several."""
    content = f"{first}\nAnother book.\r\nA third one.\r\n".encode()
    path = write(tmp_path, gzip.compress(content) if packed else content, "a.txt.gz" if packed else "a.txt")
    found = [record.text for record in read(TextReader(path=path, document_unit="line"), max_chars=1_000_000)]
    assert found == [f"{first}\n", "Another book.\r\n", "A third one.\r\n"]


def test_a_final_line_feed_does_not_change_carriage_return_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, "One line.\r" * 9000 + "\n", "a.txt")
    assert list(filter(None, texts(*recognise(path)))) == ["One line."] * 9000


@pytest.mark.parametrize(
    ("line", "unit"), [("A sentence.", "paragraphs"), ("A sentence of a long document. " * 40, "line")]
)
def test_blank_lines_far_from_the_beginning_are_reported(
    tmp_path: Path, line: str, unit: str, caplog: pytest.LogCaptureFixture
) -> None:
    block = f"{line}\n" * (100_000 // len(line))
    path = write(tmp_path, f"{block} \n{block}\n{block}", "a.txt")
    with caplog.at_level(logging.WARNING):
        (source,) = recognise(path)
    assert isinstance(source, TextReader)
    assert source.document_unit == unit
    other = {"line": "paragraphs", "paragraphs": "line"}[unit]
    assert f"to change this, pass {other}:{path}" in caplog.messages[-1]


def test_without_blank_lines_each_line_is_a_document(tmp_path: Path) -> None:
    path = write(tmp_path, "One line.\n" * 20_000, "a.txt")
    assert recognise(path) == [TextReader(path=path, document_unit="line")]
