import gzip
import json
from pathlib import Path

import pytest

from pipeline import sources
from pipeline.record import BETWEEN, Record
from pipeline.sources import plan_splits, records, sniff
from pipeline.spec import Clean, Jsonl, Source, Text, WikiExtractor
from preprocessing.errors import BadInput


def _read(source: Source, max_chars: int = 10_000) -> list[Record]:
    return [record for split in plan_splits([source], Clean()) for record in records(split, max_chars)]


def _texts(source: Source) -> list[str]:
    return [record.text for record in _read(source) if not record.fault]


def _file(folder: Path, content: bytes, name: str = "file.txt") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def test_text_by_document_is_one_for_each_file(tmp_path: Path) -> None:
    _file(tmp_path, b"One.\n\nStill one.\n", "a")
    _file(tmp_path, b"Two.", "b")
    assert _texts(Text(path=str(tmp_path))) == ["One.\n\nStill one.\n", "Two."]


def test_text_by_line_is_one_for_each_line_with_any_line_end(tmp_path: Path) -> None:
    assert _texts(Text(path=_file(tmp_path, b"One.\r\nTwo.\nThree."), unit="line")) == ["One.\r\n", "Two.\n", "Three."]


def test_text_by_paragraphs_is_what_blank_lines_separate(tmp_path: Path) -> None:
    path = _file(tmp_path, b"\n\nOne.\nStill one.\n \r\n\n\nTwo.\n\n")
    texts = [text.strip() for text in _texts(Text(path=path, unit="paragraphs"))]
    assert texts == ["One.\nStill one.", "Two."]


def test_wikiextractor_is_what_stands_inside_of_the_tags(tmp_path: Path) -> None:
    content = b'<doc id="1" title="One">\nOne\n\nFirst.\n\n</doc>\n\n<doc id="2">\nTwo\n</doc>\n'
    texts = [text.strip() for text in _texts(WikiExtractor(path=_file(tmp_path, content)))]
    assert texts == ["One\n\nFirst.", "Two"]


def test_wikiextractor_drops_what_no_tag_opens_with_a_reason(tmp_path: Path) -> None:
    found = _read(WikiExtractor(path=_file(tmp_path, b'stray\n<doc id="1">\nOne\n</doc>\n')))
    assert [record.fault for record in found] == ["no_doc_tag", ""]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{not json", "bad_json"),
        (b"[" * 100_000, "bad_json"),
        (b'{"text": ' + b"9" * 5000 + b"}", "bad_json"),
        (b'["text"]', "no_field"),
        (b'{"body": "x"}', "no_field"),
        (b'{"text": 1}', "not_a_string"),
        (b'{"text": null}', "not_a_string"),
        (b"   ", BETWEEN),
    ],
)
def test_a_json_line_without_a_text_is_dropped_with_a_reason(tmp_path: Path, line: bytes, fault: str) -> None:
    path = _file(tmp_path, b'{"text": "before"}\n' + line + b'\n{"text": "after"}', "file.jsonl")
    found = _read(Jsonl(path=path), max_chars=1_000_000)
    assert [(record.text, record.fault) for record in found] == [("before", ""), ("", fault), ("after", "")]


def test_invalid_utf8_inside_of_json_is_repaired_and_counted(tmp_path: Path) -> None:
    (found,) = _read(Jsonl(path=_file(tmp_path, b'{"text": "caf\xe9, na\xefve"}\n', "file.jsonl")))
    assert (found.text, found.repaired) == ("caf\ufffd, na\ufffdve", 2)


def test_a_byte_order_mark_does_not_break_the_first_json_line(tmp_path: Path) -> None:
    assert _texts(Jsonl(path=_file(tmp_path, b'\xef\xbb\xbf{"text": "one"}\n', "file.jsonl"))) == ["one"]


def test_a_binary_file_is_one_dropped_document(tmp_path: Path) -> None:
    path = _file(tmp_path, bytes(range(256)) * 100)
    assert _read(Text(path=path, unit="line")) == [Record("file.txt", 25_600, fault="not_text")]


def test_an_empty_file_is_an_empty_document(tmp_path: Path) -> None:
    assert _read(Text(path=_file(tmp_path, b""))) == [Record("file.txt", 0)]


def test_a_line_of_50_mb_is_dropped_by_its_size_alone(tmp_path: Path) -> None:
    path = _file(tmp_path, b"before\n" + b"x" * 50_000_000 + b"\nafter\n")
    found = _read(Text(path=path, unit="line"))
    assert [(record.size, record.text, record.fault) for record in found] == [
        (7, "before\n", ""),
        (50_000_001, "", "too_long"),
        (6, "after\n", ""),
    ]


@pytest.mark.parametrize("kind", ["line", "paragraphs", "wikiextractor", "jsonl"])
def test_splits_change_nothing_and_account_for_each_byte(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [f"Text {number}.\n" * (number % 5 + 1) for number in range(300)]
    content = {
        "line": "".join(bodies),
        "paragraphs": "\n\n".join(bodies),
        "wikiextractor": "".join(f'<doc id="{number}">\n{body}\n</doc>\n' for number, body in enumerate(bodies)),
        "jsonl": "".join(json.dumps({"text": body}) + "\n" for body in bodies),
    }[kind]
    path = _file(tmp_path, content.encode())
    source = {"wikiextractor": WikiExtractor(path=path), "jsonl": Jsonl(path=path)}.get(kind) or sniff(f"{kind}:{path}")
    whole = [record.text.strip() for record in _read(source) if not record.fault]
    for size in (97, 1000):
        monkeypatch.setattr(sources, "SPLIT_BYTES", size)
        assert len(plan_splits([source], Clean())) > 5
        found = _read(source)
        assert [record.text.strip() for record in found if not record.fault] == whole
        assert sum(record.size for record in found) == len(content)


def test_the_order_of_sources_does_not_change_the_splits(tmp_path: Path) -> None:
    paths = [Text(path=_file(tmp_path, b"text", name)) for name in ("b", "a", "c")]
    assert plan_splits(paths, Clean()) == plan_splits(paths[::-1], Clean())


def test_a_split_has_another_name_when_its_file_or_the_cleaning_changes(tmp_path: Path) -> None:
    source = Text(path=_file(tmp_path, b"text"))
    names = {plan_splits([source], clean)[0].name for clean in (Clean(), Clean(), Clean(min_chars=5))}
    _file(tmp_path, b"other text")
    assert len(names | {plan_splits([source], Clean())[0].name}) == 3


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("file.txt", b'<doc id="1" url="" title="">\nOne\n</doc>\n', "wikiextractor"),
        ("file.txt", b'{"text": "one"}\n', "jsonl"),
        ("file.jsonl.gz", gzip.compress(b'{"text": "one"}\n'), "jsonl"),
        ("file.txt", b"A sentence.\nAnother.\n\nNext document.\n", "paragraphs"),
        ("file.txt", b"A document.\nAnother.\n", "line"),
    ],
)
def test_sniff_recognises_a_format_by_looking(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    source = sniff(_file(tmp_path, content, name))
    assert (source.unit if isinstance(source, Text) else source.kind) == expected


def test_sniff_takes_each_of_several_text_files_as_a_document(tmp_path: Path) -> None:
    _file(tmp_path, b"One.\n\nMore.", "a.txt")
    _file(tmp_path, b"Two.", "b.txt")
    assert sniff(str(tmp_path)) == Text(path=str(tmp_path), unit="document")


def test_sniff_takes_a_said_format_for_granted() -> None:
    assert sniff("jsonl:no such file") == Jsonl(path="no such file")


def test_sniff_tells_which_fields_json_lines_have_instead_of_text(tmp_path: Path) -> None:
    path = _file(tmp_path, b'{"title": "One", "body": "..."}\n', "file.jsonl")
    with pytest.raises(BadInput, match=r"^[^\n]+ have no 'text', but 'body', 'title'; name one as `field`[^\n]+$"):
        sniff(path)


def test_sniff_refuses_a_folder_without_text_in_one_line(tmp_path: Path) -> None:
    _file(tmp_path, b"\x89PNG\r\n\x1a\n", "picture.txt")
    _file(tmp_path, b"", "empty.txt")
    with pytest.raises(BadInput, match=r"^[^\n]+: holds no text[^\n]+$"):
        sniff(str(tmp_path))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("path", "expected", "documents"),
    [
        ("text/tinyshakespeare/input.txt", "paragraphs", 7222),
        ("text/parallel/train.en.gz", "line", 29_000),
        ("text/novels100.tar.bz2", "binary", 0),
    ],
)
def test_sniff_reads_files_that_nobody_here_wrote(shared: Path, path: str, expected: str, documents: int) -> None:
    if expected == "binary":
        with pytest.raises(BadInput, match="holds no text"):
            sniff(str(shared / path))
        return
    source = sniff(str(shared / path))
    assert isinstance(source, Text)
    assert source.unit == expected
    assert len([record for record in _read(source) if not record.fault]) == documents
