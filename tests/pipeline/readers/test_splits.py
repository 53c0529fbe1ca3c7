import bz2
import glob
import gzip
from pathlib import Path

import fsspec
import pytest

from pipeline.readers import (
    GutenbergReader,
    JsonlReader,
    ParallelReader,
    Record,
    Source,
    TableReader,
    TextReader,
    WarcReader,
    WikiDumpReader,
    WikiExtractorReader,
    list_unread_files,
    plan_splits,
    recognise,
    records,
    sniff,
)
from pipeline.readers import splits as sources
from pipeline.readers.record import BETWEEN
from preprocessing.errors import BadInput
from tests.pipeline.formats import dump, json_lines, multistream, page, web_archive, write_arrow, write_parquet


def _read(source: Source, max_chars: int = 10_000) -> list[Record]:
    return [record for split in plan_splits([source]) for record in records(split, max_chars)]


def _texts(source: Source) -> list[str]:
    return [record.text for record in _read(source) if not record.fault]


def _file(folder: Path, content: bytes, name: str = "file.txt") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def test_unit_document_gives_one_document_per_file(tmp_path: Path) -> None:
    _file(tmp_path, b"One.\n\nStill one.\n", "a")
    _file(tmp_path, b"Two.", "b")
    assert _texts(TextReader(path=str(tmp_path))) == ["One.\n\nStill one.\n", "Two."]


def test_unit_line_gives_one_document_per_line_with_any_line_end(tmp_path: Path) -> None:
    assert _texts(TextReader(path=_file(tmp_path, b"One.\r\nTwo.\nThree."), document_unit="line")) == [
        "One.\r\n",
        "Two.\n",
        "Three.",
    ]


def test_unit_paragraphs_splits_at_blank_lines(tmp_path: Path) -> None:
    path = _file(tmp_path, b"\n\nOne.\nStill one.\n \r\n\n\nTwo.\n\n")
    texts = [text.strip() for text in _texts(TextReader(path=path, document_unit="paragraphs"))]
    assert texts == ["One.\nStill one.", "Two."]


def test_wikiextractor_documents_are_the_content_of_doc_tags(tmp_path: Path) -> None:
    content = b'<doc id="1" title="One">\nOne\n\nFirst.\n\n</doc>\n\n<doc id="2">\nTwo\n</doc>\n'
    texts = [text.strip() for text in _texts(WikiExtractorReader(path=_file(tmp_path, content)))]
    assert texts == ["One\n\nFirst.", "Two"]


def test_wikiextractor_text_outside_doc_tags_is_dropped_with_a_reason(tmp_path: Path) -> None:
    found = _read(WikiExtractorReader(path=_file(tmp_path, b'stray\n<doc id="1">\nOne\n</doc>\n')))
    assert [record.fault for record in found] == ["no_doc_tag", ""]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{not json", "bad_json"),
        (b"[" * 100_000, "bad_json"),
        (b'{"text": ' + b"9" * 5000 + b"}", "not_a_string"),
        (b'["text"]', "no_field"),
        (b'{"body": "x"}', "no_field"),
        (b'{"text": 1}', "not_a_string"),
        (b'{"text": null}', "not_a_string"),
        (b"   ", BETWEEN),
    ],
)
def test_a_json_line_without_text_is_dropped_with_a_reason(tmp_path: Path, line: bytes, fault: str) -> None:
    path = _file(tmp_path, b'{"text": "before"}\n' + line + b'\n{"text": "after"}', "file.jsonl")
    found = _read(JsonlReader(path=path), max_chars=1_000_000)
    assert [(record.text, record.fault) for record in found] == [("before", ""), ("", fault), ("after", "")]


def test_invalid_utf8_in_json_is_repaired_and_counted(tmp_path: Path) -> None:
    (found,) = _read(JsonlReader(path=_file(tmp_path, b'{"text": "caf\xe9, na\xefve"}\n', "file.jsonl")))
    assert (found.text, found.repaired) == ("caf\ufffd, na\ufffdve", 2)


def test_a_byte_order_mark_does_not_break_the_first_json_line(tmp_path: Path) -> None:
    assert _texts(JsonlReader(path=_file(tmp_path, b'\xef\xbb\xbf{"text": "one"}\n', "file.jsonl"))) == ["one"]


def test_a_binary_file_is_one_dropped_document(tmp_path: Path) -> None:
    path = _file(tmp_path, bytes(range(256)) * 100)
    assert _read(TextReader(path=path, document_unit="line")) == [
        Record("file.txt", 25_600, fault="not_text", snippet=bytes(range(200)))
    ]


def test_an_empty_file_is_an_empty_document(tmp_path: Path) -> None:
    assert _read(TextReader(path=_file(tmp_path, b""))) == [Record("file.txt", 0)]


def test_a_line_of_50_mb_is_dropped_and_counted(tmp_path: Path) -> None:
    path = _file(tmp_path, b"before\n" + b"x" * 50_000_000 + b"\nafter\n")
    found = _read(TextReader(path=path, document_unit="line"))
    assert [(record.size, record.text, record.fault) for record in found] == [
        (7, "before\n", ""),
        (50_000_001, "", "too_long"),
        (6, "after\n", ""),
    ]


def _texts_of(folder: Path, kind: str) -> tuple[Source, int]:
    """Return a source of this kind with 300 texts, and its size in bytes."""
    bodies = [f"Text {number}.\n" * (number % 5 + 1) for number in range(300)]
    pages = dump(*(page(f"Page {number}", body) for number, body in enumerate(bodies)))
    others = [f"Autre {number}.\n" for number in range(sum(map(len, bodies)))]
    match kind:
        case "line":
            return TextReader(path=_file(folder, content := "".join(bodies).encode()), document_unit="line"), len(
                content
            )
        case "paragraphs":
            return TextReader(
                path=_file(folder, content := "\n\n".join(bodies).encode()), document_unit="paragraphs"
            ), len(content)
        case "wikiextractor":
            tagged = (f'<doc id="{number}">\n{body}\n</doc>\n' for number, body in enumerate(bodies))
            return WikiExtractorReader(path=_file(folder, content := "".join(tagged).encode())), len(content)
        case "wikiextractor json":
            lines = json_lines([{"id": "1", "url": "", "title": "", "text": body} for body in bodies])
            return WikiExtractorReader(path=_file(folder, lines)), len(lines)
        case "jsonl":
            return JsonlReader(path=_file(folder, content := json_lines([{"text": body} for body in bodies]))), len(
                content
            )
        case "wiki_dump":
            return WikiDumpReader(path=_file(folder, pages)), len(pages)
        case "wiki_dump.bz2" | "WIKI_DUMP.BZ2":
            return WikiDumpReader(path=_file(folder, multistream(pages, pages=7), kind)), len(pages)
        case "warc" | "warc.gz":
            zipped = kind == "warc.gz"
            archive = web_archive(bodies, zipped)
            return WarcReader(path=_file(folder, archive, f"a.{kind}")), len(
                gzip.decompress(archive) if zipped else archive
            )
        case "parquet":
            write_parquet(folder / "a.parquet", bodies, 7)
            return TableReader(path=str(folder / "a.parquet")), len("".join(bodies))
        case "arrow" | "arrows":
            write_arrow(folder / f"a.{kind}", bodies, 7, stream=kind == "arrows")
            return TableReader(path=str(folder / f"a.{kind}")), len("".join(bodies))
        case _:
            ours = "".join(bodies).splitlines(keepends=True)
            theirs = others[: len(ours)]
            paths = (_file(folder, "".join(ours).encode(), "a.en"), _file(folder, "".join(theirs).encode(), "a.fr"))
            return ParallelReader(paths=paths), len("".join(ours + theirs))


@pytest.mark.parametrize(
    "kind",
    [
        *("line", "paragraphs", "wikiextractor", "wikiextractor json", "jsonl", "wiki_dump"),
        *("wiki_dump.bz2", "WIKI_DUMP.BZ2", "warc", "warc.gz", "parquet", "arrow", "arrows", "parallel"),
    ],
)
def test_splits_do_not_change_the_text_and_count_each_byte(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.readers.parallel._BLOCK", 64)
    source, size = _texts_of(tmp_path, kind)
    whole = [record for record in _read(source) if not record.fault]
    assert len(whole) >= 300
    for step in (97, 1000, 3000):
        monkeypatch.setattr(sources, "SPLIT_BYTES", step)
        assert len(plan_splits([source])) >= 3
        found = _read(source)
        assert [record.text.strip() for record in found if not record.fault] == [
            record.text.strip() for record in whole
        ]
        assert sum(record.size for record in found) == size
        if not kind.lower().endswith((".gz", ".bz2")):
            assert [record.start for record in found if not record.fault] == [record.start for record in whole]


def test_a_large_input_has_larger_splits_and_not_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SPLIT_BYTES", 10)
    monkeypatch.setattr(sources, "MOST_SPLITS", 20)
    source, _ = _texts_of(tmp_path, "line")
    assert 10 < len(plan_splits([source])) <= 20


def test_the_order_of_sources_does_not_change_the_splits(tmp_path: Path) -> None:
    paths = [TextReader(path=_file(tmp_path, b"text", name)) for name in ("b", "a", "c")]
    assert plan_splits(paths) == plan_splits(paths[::-1])


def test_the_name_of_a_split_changes_with_its_file(tmp_path: Path) -> None:
    source = TextReader(path=_file(tmp_path, b"text"))
    names = {plan_splits([source])[0].name, plan_splits([source])[0].name}
    _file(tmp_path, b"other text")
    assert len(names | {plan_splits([source])[0].name}) == 2


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("file.txt", b'<doc id="1" url="" title="">\nOne\n</doc>\n', "wikiextractor"),
        ("file.txt", b'{"text": "one"}\n', "jsonl"),
        ("file.jsonl.gz", gzip.compress(b'{"text": "one"}\n', mtime=0), "jsonl"),
        ("file.txt", b'{"id": "1", "url": "u", "title": "t", "text": "x"}\n', "wikiextractor"),
        ("file.xml.bz2", bz2.compress(dump(page("One", "Text."))), "wiki_dump"),
        ("file.xml", dump(page("One", "Text.")).decode().encode("utf-16"), "wiki_dump"),
        ("file.warc.gz", web_archive(["One"], compressed=True), "warc"),
        ("file.warc", web_archive(["One"], compressed=False), "warc"),
        ("file.txt", b"*** START OF THE PROJECT GUTENBERG EBOOK X ***\nText.\n", "gutenberg"),
        ("file.txt", "One line.\n".encode("utf-16"), "line"),
        ("file.txt", b"A sentence.\nAnother.\n\nNext document.\n", "paragraphs"),
        ("file.txt", b"A document.\nAnother.\n", "line"),
    ],
)
def test_sniff_recognizes_formats_by_content(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    source = sniff(_file(tmp_path, content, name))
    assert (source.document_unit if isinstance(source, TextReader) else source.kind) == expected


def test_sniff_reads_the_tables_of_a_directory_without_its_readme(tmp_path: Path) -> None:
    _file(tmp_path, b"# About this data\n", "README.md")
    write_parquet(tmp_path / "a.parquet", ["One."], 1)
    assert _texts(sniff(str(tmp_path))) == ["One."]


def test_sniff_reads_several_text_files_as_one_document_each(tmp_path: Path) -> None:
    _file(tmp_path, b"One.\n\nMore.", "a.txt")
    _file(tmp_path, b"Two.", "b.txt")
    assert sniff(str(tmp_path)) == TextReader(path=str(tmp_path), document_unit="document")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows"])
def test_sniff_recognizes_tables(tmp_path: Path, kind: str) -> None:
    source, _ = _texts_of(tmp_path, kind)
    assert sniff(str(tmp_path)) == TableReader(path=str(tmp_path))
    assert isinstance(source, TableReader)
    assert sniff(source.path) == source


@pytest.mark.parametrize(
    ("first_bytes", "source"),
    [
        ("jsonl:no such file", JsonlReader(path="no such file")),
        ("jsonl:s3://bucket/a", JsonlReader(path="s3://bucket/a")),
        ("gutenberg:a", GutenbergReader(path="a")),
        ("table:a", TableReader(path="a")),
        ("wiki_dump:a", WikiDumpReader(path="a")),
        ("warc:a", WarcReader(path="a")),
        ("parallel:a.en,a.fr", ParallelReader(paths=("a.en", "a.fr"))),
    ],
)
def test_sniff_accepts_a_given_format_without_a_check(first_bytes: str, source: Source) -> None:
    assert sniff(first_bytes) == source


def test_sniff_does_not_take_a_protocol_for_a_format() -> None:
    fsspec.filesystem("memory").pipe("/sniffed/a.txt", b"One.\n\nTwo.\n")
    assert sniff("memory://sniffed/a.txt") == TextReader(path="memory://sniffed/a.txt", document_unit="paragraphs")
    assert _texts(sniff("memory://sniffed/a.txt")) == ["One.\n", "\nTwo.\n"]


def test_sniff_lists_the_existing_keys_if_text_is_missing(tmp_path: Path) -> None:
    path = _file(tmp_path, b'{"title": "One", "body": "..."}\n', "file.jsonl")
    with pytest.raises(
        BadInput,
        match=r"^[^\n]+ missing key 'text', expected one of 'body', 'title'; select a key with --data[^\n]+$",
    ):
        sniff(path)


def test_sniff_refuses_a_directory_without_text_in_one_line(tmp_path: Path) -> None:
    _file(tmp_path, b"\x89PNG\r\n\x1a\n", "picture.txt")
    _file(tmp_path, b"", "empty.txt")
    with pytest.raises(BadInput, match=r"^[^\n]+: no readable text[^\n]+$"):
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
def test_sniff_reads_real_files(shared: Path, path: str, expected: str, documents: int) -> None:
    if expected == "binary":
        with pytest.raises(BadInput, match="no readable text"):
            sniff(str(shared / path))
        return
    source = sniff(str(shared / path))
    assert isinstance(source, TextReader)
    assert source.document_unit == expected
    assert len([record for record in _read(source) if not record.fault]) == documents


def test_prose_beside_json_lines_is_skipped_and_reported(tmp_path: Path) -> None:
    (tmp_path / "a note.txt").write_text("What this folder is.")
    (tmp_path / "text.jsonl").write_text('{"text": "A document."}\n')
    source = sniff(str(tmp_path))
    assert source == JsonlReader(path=str(tmp_path), extensions=(".jsonl",))
    assert list_unread_files([source]) == [
        f"{tmp_path}: files not read: a note.txt (text; to read it, pass --data text:FILE)"
    ]
    assert list_unread_files([JsonlReader(path=str(tmp_path / "text.jsonl"))]) == []
    (tmp_path / "a note.txt").unlink()
    assert list_unread_files([source]) == []


class TestUnreadFilesOfOneKind:
    """Several unread files are read with a glob, and not one by one."""

    def list_unread_files(self, folder: Path, *names: str) -> str:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("What this is, in a sentence.\n")
        (folder / "a.jsonl").write_text('{"text": "A document of this directory."}\n')
        (line,) = list_unread_files(recognise(str(folder)))
        return line

    def test_a_glob_for_the_files_of_a_directory(self, tmp_path: Path) -> None:
        line = self.list_unread_files(tmp_path / "raw text", "b.txt", "c.txt", "d.txt")
        wanted = f"'text:{tmp_path / 'raw text'}/*.txt'"
        assert line.endswith(f": files not read: b.txt and 2 more (text; to read them, pass --data {wanted})")
        (source,) = recognise(wanted.strip("'"))
        assert len(source.files()) == 3

    def test_a_glob_for_files_in_several_directories(self, tmp_path: Path) -> None:
        line = self.list_unread_files(tmp_path / "[raw]", "b.txt", "below/c.txt")
        assert f"text:{glob.escape(str(tmp_path / '[raw]'))}/**/*.txt" in line
        (source,) = recognise(f"text:{glob.escape(str(tmp_path / '[raw]'))}/**/*.txt")
        assert len(source.files()) == 2

    @pytest.mark.parametrize("names", [("README", "LICENSE"), ("b.txt", "c.md"), ("b.txt",)])
    def test_no_glob_if_it_would_match_other_files(self, tmp_path: Path, names: tuple[str, ...]) -> None:
        assert self.list_unread_files(tmp_path, *names).endswith("(text; to read it, pass --data text:FILE)")
