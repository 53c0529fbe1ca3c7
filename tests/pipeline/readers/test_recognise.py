"""Format recognition: several formats in one directory, each file read once, and skipped files reported."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pipeline.readers import (
    CsvReader,
    GutenbergReader,
    HtmlReader,
    JsonArrayReader,
    JsonlReader,
    Record,
    Source,
    TableReader,
    TextReader,
    WikiExtractorReader,
    XmlReader,
    list_unread_files,
    plan_splits,
    recognise,
    sniff,
)
from preprocessing.errors import BadInput
from tests.pipeline.formats import dump, page, web_archive, write_parquet
from tests.pipeline.readers.reading import read, texts, write

FILES = {
    "a.csv": "id,text\n1,From CSV.\n",
    "b.tsv": "id\ttext\n1\tFrom TSV.\n",
    "c.html": "<html><body><p>From a page of HTML.</p></body></html>",
    "d.xml": "<?xml version='1.0'?><r><text>From XML.</text></r>",
    "e.tei": "<TEI><teiHeader><p>No.</p></teiHeader><text><p>From TEI.</p></text></TEI>",
    "f.json": '[{"text": "From an array."}]',
    "g.jsonl": '{"text": "From JSON lines."}\n',
    "h/i.csv": "text;id\nFrom below.;2\n",
}


def _folder(folder: Path, *names: str) -> str:
    for name in names or FILES:
        write(folder, FILES[name], name)
    return str(folder)


def _files(sources: list[Source]) -> list[str]:
    return [file.label for source in sources for sides in source.files() for file in sides]


class TestSeveralFormats:
    def test_each_format_of_a_directory_is_read_and_each_file_once(self, tmp_path: Path) -> None:
        path = _folder(tmp_path)
        write_parquet(tmp_path / "j.parquet", ["From a table."], 1)
        write(tmp_path, web_archive(["From an archive of pages."], True), "k.warc.gz")
        found = recognise(path)
        assert sorted(_files(found)) == sorted(set(_files(found))) == sorted([*FILES, "j.parquet", "k.warc.gz"])
        assert sorted(texts(*found)) == [
            "From CSV.",
            "From JSON lines.",
            "From TEI.",
            "From TSV.",
            "From XML.",
            "From a page of HTML.",
            "From a table.",
            "From an archive of pages.",
            "From an array.",
            "From below.",
        ]
        assert list_unread_files(found) == []

    def test_a_table_and_prose_are_read_as_both(self, tmp_path: Path) -> None:
        path = _folder(tmp_path, "a.csv")
        write(tmp_path, "A document, and prose.\n\nOf two paragraphs.", "b.txt")
        write(tmp_path, "Another one.", "c.md")
        found = recognise(path)
        assert found == [CsvReader(path=path, extensions=(".csv",)), TextReader(path=path, extensions=(".md", ".txt"))]
        assert texts(*found) == ["From CSV.", "A document, and prose.\n\nOf two paragraphs.", "Another one."]

    def test_prose_beside_leading_formats_is_skipped_and_reported(self, tmp_path: Path) -> None:
        path = _folder(tmp_path, "a.csv", "g.jsonl")
        write(tmp_path, "What this folder is.", "README.md")
        found = recognise(path)
        assert sorted(texts(*found)) == ["From CSV.", "From JSON lines."]
        assert list_unread_files(found) == [
            f"{path}: files not read: README.md (text; to read it, pass --data text:FILE)"
        ]

    def test_a_file_that_another_source_reads_is_not_reported(self, tmp_path: Path) -> None:
        path = _folder(tmp_path, "a.csv", "g.jsonl")
        text = write(tmp_path, "What this folder is.", "README.md")
        assert list_unread_files([*recognise(path), TextReader(path=str(text))]) == []

    def test_splits_and_their_names_depend_only_on_the_files(self, tmp_path: Path) -> None:
        path = _folder(tmp_path)
        found = recognise(path)
        assert [asdict(source) for source in recognise(path)] == [asdict(source) for source in found]
        assert plan_splits(found[::-1]) == plan_splits(found)
        assert len({split.name for split in plan_splits(found)}) == len(plan_splits(found))
        assert all(json.dumps(asdict(source)) for source in found)

    def test_extensions_are_case_insensitive(self, tmp_path: Path) -> None:
        write(tmp_path, FILES["a.csv"], "A.CSV")
        write(tmp_path, FILES["c.html"], "B.HTM")
        write(tmp_path, FILES["g.jsonl"], "C.JSONL")
        found = recognise(str(tmp_path))
        assert {type(source) for source in found} == {CsvReader, HtmlReader, JsonlReader}
        assert len(texts(*found)) == 3
        assert texts(replace(TextReader(path=str(tmp_path)), extensions=(".Csv",))) == [FILES["a.csv"].strip()]

    def test_json_lines_with_another_extension_are_read(self, tmp_path: Path) -> None:
        write(tmp_path, FILES["g.jsonl"], "a.txt")
        write(tmp_path, FILES["g.jsonl"], "b.txt")
        assert recognise(str(tmp_path)) == [JsonlReader(path=str(tmp_path), extensions=(".txt",))]
        assert len(texts(*recognise(str(tmp_path)))) == 2

    def test_books_beside_other_formats_are_each_read_once(self, tmp_path: Path) -> None:
        mark = "*** {} OF THE PROJECT GUTENBERG EBOOK X ***\n"
        book = f"{mark.format('START')}Words of it.\n{mark.format('END')}"
        write(tmp_path, book, "a.txt")
        write(tmp_path, "What this folder is.", "README.md")
        write(tmp_path, FILES["a.csv"], "b.csv")
        found = recognise(str(tmp_path))
        assert {type(source) for source in found} == {GutenbergReader, CsvReader, TextReader}
        assert sorted(_files(found)) == ["README.md", "a.txt", "b.csv"]

    def test_a_table_with_another_extension_is_refused_with_the_right_one(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "a.dat", ["From a table."], 1)
        write(tmp_path, web_archive(["A page."], False), "b.txt")
        with pytest.raises(
            BadInput,
            match=r"^[^\n]+\.dat: wrong file extension for its content, table; rename it to \.parquet or [^\n]+$",
        ):
            recognise(str(tmp_path))
        assert texts(sniff(str(tmp_path / "a.dat"))) == ["From a table."]
        _folder(tmp_path, "a.csv")
        found = recognise(str(tmp_path))
        assert found == [CsvReader(path=str(tmp_path), extensions=(".csv",))]
        (line,) = list_unread_files(found)
        assert (
            "a.dat (table; to read it, pass --data table:FILE); b.txt (warc; to read it, pass --data warc:FILE)" in line
        )

    def test_files_of_a_pattern_must_have_one_format(self, tmp_path: Path) -> None:
        path = _folder(tmp_path, "a.csv", "c.html")
        with pytest.raises(
            BadInput, match=r"^[^\n]+\*: pattern matches several formats: csv and html; pass one[^\n]+$"
        ):
            recognise(f"{path}/*")
        assert recognise(f"{path}/*.csv") == [CsvReader(path=f"{path}/*.csv")]
        assert texts(*recognise(f"{path}/*.csv")) == ["From CSV."]

    def test_sniff_refuses_several_formats_and_lists_them(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"^[^\n]+: several formats: csv and html; select one with KIND:PATH$"):
            sniff(_folder(tmp_path, "a.csv", "c.html"))


class TestTextKeys:
    def test_a_text_key_applies_to_all_formats_with_keys(self, tmp_path: Path) -> None:
        write(tmp_path, "id,body\n1,From CSV.\n", "a.csv")
        write(tmp_path, '{"body": "From JSON lines."}\n', "b.jsonl")
        write(tmp_path, '[{"body": "From an array."}]', "c.json")
        write(tmp_path, FILES["c.html"], "d.html")
        found = recognise(f"{tmp_path}#body")
        assert sorted(texts(*found)) == [
            "From CSV.",
            "From JSON lines.",
            "From a page of HTML.",
            "From an array.",
        ]

    def test_a_text_key_for_plain_text_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path, "Prose.\n", "a.txt")
        for given in (f"{path}#body", f"line:{path}#body"):
            with pytest.raises(BadInput, match=r"^[^\n]+ invalid #body: the format text has no fields; remove it$"):
                recognise(given)

    def test_a_file_name_may_contain_a_number_sign(self, tmp_path: Path) -> None:
        path = write(tmp_path, FILES["g.jsonl"], "a#1.jsonl")
        assert recognise(path) == [JsonlReader(path=path)]
        assert recognise(f"{path}#text") == [JsonlReader(path=path)]
        assert recognise(f"jsonl:{path}") == [JsonlReader(path=path)]

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("jsonl:a.jsonl#body", JsonlReader(path="a.jsonl", text_key="body")),
            ("json:a.json#a.b", JsonArrayReader(path="a.json", text_key="a.b")),
            ("csv:docs.csv#2", CsvReader(path="docs.csv", text_key="2")),
            ("tsv:docs.tsv#body", CsvReader(path="docs.tsv", text_key="body", delimiter="\t")),
            ("table:a.parquet#body", TableReader(path="a.parquet", text_key="body")),
            ("xml:a.xml#paragraph", XmlReader(path="a.xml", element="paragraph")),
        ],
    )
    def test_a_text_key_follows_the_path(self, given: str, expected: Source) -> None:
        assert recognise(given) == [expected]


class TestSkippedFiles:
    def test_unreadable_files_are_skipped_with_the_reason(self, tmp_path: Path) -> None:
        path = _folder(tmp_path, "a.csv")
        write(tmp_path, '{\n "setting": 1\n}\n', "b.json")
        write(tmp_path, "<?xml version='1.0'?><settings><a/></settings>", "c.xml")
        found = recognise(path)
        assert texts(*found) == ["From CSV."]
        (line,) = list_unread_files(found)
        assert "b.json (invalid JSON Lines: one object spans several lines" in line
        assert "c.xml (missing element 'text' at the start of the XML, expected one of settings, a; select" in line

    def test_a_single_file_skips_nothing(self, tmp_path: Path) -> None:
        _folder(tmp_path)
        assert list_unread_files(recognise(str(tmp_path / "a.csv"))) == []

    def test_a_wiki_dump_is_not_plain_xml(self, tmp_path: Path) -> None:
        path = write(tmp_path, dump(page("One", "Text.")), "a.xml")
        assert sniff(path).kind == "wiki_dump"


class TestDatasets:
    def _saved(self, folder: Path, **splits: list[str]) -> str:
        import datasets  # slow to import

        found = {name: datasets.Dataset.from_dict({"text": rows}) for name, rows in splits.items()}
        datasets.DatasetDict(found).save_to_disk(str(folder))
        return str(folder)

    def test_the_training_split_is_read_and_the_others_are_reported(self, tmp_path: Path) -> None:
        path = self._saved(tmp_path, test=["Held out."], train=["One.", "Two."], validation=["Held out, too."])
        found = recognise(path)
        assert found == [TableReader(path=path)]
        assert texts(*found) == ["One.", "Two."]
        assert found[0].describe() == (
            f"{path}: read as table, split 'train'; not read: test, validation (to read one, pass --data {path}/SPLIT)"
        )
        assert list_unread_files(found) == []  # one line says it
        (Path(path) / "note.txt").write_text("A note.")
        (line,) = list_unread_files(found)
        assert line == f"{path}: files not read: note.txt (text; to read it, pass --data text:FILE)"
        assert texts(*recognise(f"{path}/validation")) == ["Held out, too."]
        assert texts(TableReader(path=path, split="test")) == ["Held out."]

    def test_a_missing_training_split_is_an_error_with_the_existing_splits(self, tmp_path: Path) -> None:
        path = self._saved(tmp_path, test=["Held out."])
        with pytest.raises(
            BadInput, match=r"^[^\n]+: invalid split: got 'train', expected one of test; set `split`[^\n]+$"
        ):
            recognise(path)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("dataset_dict.json", "{"),
            ("dataset_dict.json", "[]"),
            ("dataset_dict.json", '{"splits": 3}'),
            ("dataset_dict.json", "\xff"),
            ("state.json", "{}"),
            ("state.json", '{"_data_files": [{}]}'),
            ("state.json", '{"_data_files": null}'),
        ],
    )
    def test_a_damaged_index_is_a_one_line_error(self, tmp_path: Path, name: str, content: str) -> None:
        path = write(tmp_path, content.encode("latin-1"), name)
        with pytest.raises(BadInput, match=r"^[^\n]+: not a valid file of the library `datasets`; save[^\n]+$"):
            recognise(str(Path(path).parent))


def test_an_empty_file_of_each_format_is_an_empty_record(tmp_path: Path) -> None:
    for name in ("a.csv", "a.html", "a.xml", "a.json", "a.jsonl"):
        path = write(tmp_path, b"", name)
        assert read(sniff(f"{name[2:]}:{path}")) == [Record(name, 0)]


def test_json_lines_with_a_very_long_first_line_are_recognized(tmp_path: Path) -> None:
    text = "Words of a long document. " * 10_000
    path = write(tmp_path, json.dumps({"text": text}) + "\n" + json.dumps({"text": "Short."}) + "\n", "a.jsonl")
    assert recognise(path) == [JsonlReader(path=path)]
    assert texts(*recognise(path), max_chars=1_000_000) == [text.strip(), "Short."]
    article = {"id": "1", "revid": "2", "url": "u", "title": "A title", "text": text}
    path = write(tmp_path, json.dumps(article) + "\n", "wiki_00")
    assert recognise(path) == [WikiExtractorReader(path=path)]


def test_files_that_look_different_from_their_extension_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "Words.", "a.txt")
    assert recognise(str(tmp_path)) == [TextReader(path=str(tmp_path), document_unit="line")]
    write(tmp_path, "More words.", "b.txt")
    assert recognise(str(tmp_path)) == [TextReader(path=str(tmp_path))]
    assert not caplog.messages
    write(tmp_path, '{"text": "Words of JSON."}\n', "c.txt")
    assert recognise(str(tmp_path)) == recognise(str(tmp_path)) == [TextReader(path=str(tmp_path))]
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}: read as text")
    assert "some of 3 sampled files look different: c.txt (jsonl); " in line


def test_json_lines_with_a_damaged_first_line_are_recognized(tmp_path: Path) -> None:
    path = write(tmp_path, '{"text": "Words of it", "of": }\r\n{"text": "More words."}\n', "a.jsonl")
    assert recognise(path) == [JsonlReader(path=path)]
    assert [record.fault or record.text for record in read(*recognise(path))] == ["bad_json", "More words."]


def test_a_source_names_the_extensions_that_it_reads(tmp_path: Path) -> None:
    write(tmp_path, b"%PDF-1.4", "a.pdf")
    write(tmp_path, "Words.", "b.txt")
    (source,) = recognise(str(tmp_path))
    assert source.describe() == f"{tmp_path} (.txt): read as text, one document per file"
