"""The fields that each reader keeps with a document, and errors for fields that it does not have."""

import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.readers import (
    READERS,
    CsvReader,
    GutenbergReader,
    HtmlReader,
    JsonArrayReader,
    JsonlReader,
    Reader,
    Record,
    Source,
    TableReader,
    WarcReader,
    WikiDumpReader,
    WikiExtractorReader,
    XmlReader,
    causes_of,
    list_kept_fields,
    plan_splits,
    portable,
    records,
)
from preprocessing.errors import BadInput
from preprocessing.spec import InvalidValue
from tests.pipeline.formats import dump, html, page, web_record
from tests.pipeline.readers.reading import write

TEXT = "A document with some words in it."


def metadata_of(source: Source) -> list[dict[str, str | None]]:
    """Return the metadata of the documents of a source."""
    found = [record for split in plan_splits([source]) for record in records(split, 10_000)]
    return [dict(record.metadata) for record in found if not record.fault]


@pytest.mark.parametrize("reader", READERS)
class TestEachReader:
    def test_it_has_the_key_exactly_if_its_documents_have_fields(self, reader: type[Reader], tmp_path: Path) -> None:
        source = reader.from_name(reader.names[0], "a,b")
        has_key = "keep" in {field.name for field in fields(source)}
        assert has_key == (reader.metadata_fields != ())

    def test_its_settings_have_the_key_only_if_it_is_set(self, reader: type[Reader], tmp_path: Path) -> None:
        source = reader.from_name(reader.names[0], "a,b")
        assert "keep" not in causes_of(source)
        assert "keep" not in portable(source)
        assert list_kept_fields(source) == ()

    def test_other_fields_are_refused(self, reader: type[Reader], tmp_path: Path) -> None:
        if not reader.metadata_fields:
            return
        named = ", ".join(reader.metadata_fields)
        with pytest.raises(InvalidValue, match=rf"^invalid \w+\.keep: got 'nothing', expected fields of \w+: {named}$"):
            reader(path="a", keep=("nothing",))  # type: ignore[call-arg]


def test_a_field_is_named_once() -> None:
    with pytest.raises(InvalidValue, match=r"^invalid jsonl\.keep: got 'a', expected the name of each field once$"):
        JsonlReader(path="a", keep=("a", "a"))
    assert len(get_args(Source)) == len(READERS)


class TestJsonLines:
    VALUES = (
        {"text": TEXT, "url": "http://a.org", "meta": {"id": 7, "tags": ["x", "y"]}},
        {"text": TEXT, "url": None, "meta": {"id": 1.5}},
        {"text": TEXT, "is_new": True, "url": "\ud800"},
    )
    KEEP = ("url", "meta.id", "meta.tags", "is_new")
    EXPECTED = (
        {"url": "http://a.org", "meta.id": "7", "meta.tags": '["x","y"]', "is_new": None},
        {"url": None, "meta.id": "1.5", "meta.tags": None, "is_new": None},
        {"url": "\ufffd", "meta.id": None, "meta.tags": None, "is_new": "true"},
    )

    def test_values_are_text_and_missing_ones_are_none(self, tmp_path: Path) -> None:
        path = write(tmp_path, "".join(json.dumps(value) + "\n" for value in self.VALUES), "a.jsonl")
        assert metadata_of(JsonlReader(path=path, keep=self.KEEP)) == list(self.EXPECTED)

    def test_an_array_has_the_same_fields(self, tmp_path: Path) -> None:
        path = write(tmp_path, json.dumps(self.VALUES), "a.json")
        assert metadata_of(JsonArrayReader(path=path, keep=self.KEEP)) == list(self.EXPECTED)

    @pytest.mark.parametrize("reader", [JsonlReader, JsonArrayReader])
    def test_a_key_that_no_document_has_is_refused(self, tmp_path: Path, reader: type[JsonlReader]) -> None:
        values = [{"text": TEXT, "url": "http://a.org"}]
        content = json.dumps(values) if reader is JsonArrayReader else json.dumps(values[0]) + "\n"
        path = write(tmp_path, content, "a.json")
        with pytest.raises(BadInput, match=r"^[^\n]+: missing field 'uri', expected one of 'text', 'url'; change"):
            plan_splits([reader(path=path, keep=("uri",))])

    def test_a_key_far_from_the_start_is_found(self, tmp_path: Path) -> None:
        lines = [json.dumps({"text": TEXT * 40})] * 2000 + [json.dumps({"text": TEXT, "late": "x"})]
        path = write(tmp_path, "\n".join(lines) + "\n", "a.jsonl")
        assert metadata_of(JsonlReader(path=path, keep=("late",)))[-1] == {"late": "x"}

    def test_the_encoding_of_the_source_counts_for_keys(self, tmp_path: Path) -> None:
        (tmp_path / "in.jsonl").write_bytes('{"text": "a", "gr\u00f6\u00dfe": 3}\n'.encode("cp1252"))
        reader = JsonlReader(path=str(tmp_path / "in.jsonl"), encoding="cp1252", keep=("gr\u00f6\u00dfe",))
        assert metadata_of(reader) == [{"gr\u00f6\u00dfe": "3"}]

    def test_another_file_of_the_source_may_have_the_key(self, tmp_path: Path) -> None:
        write(tmp_path, json.dumps({"text": TEXT}) + "\n", "in/a.jsonl")
        write(tmp_path, json.dumps({"text": TEXT, "id": 1}) + "\n", "in/b.jsonl")
        assert metadata_of(JsonlReader(path=str(tmp_path / "in"), keep=("id",))) == [{"id": None}, {"id": "1"}]


class TestTables:
    COLUMNS: ClassVar[dict[str, list[Any]]] = {
        "text": [TEXT, TEXT],
        "url": ["http://a.org", None],
        "number": [1, 2],
        "when": [datetime(2020, 1, 2, tzinfo=UTC), None],
        "labels": [["a"], []],
    }

    @pytest.mark.parametrize("kind", ["parquet", "arrow"])
    def test_columns_of_any_type_become_text(self, tmp_path: Path, kind: str) -> None:
        table = pa.table(self.COLUMNS)
        if kind == "parquet":
            pq.write_table(table, tmp_path / "a.parquet")
        else:
            with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
                writer.write_table(table)
        first, second = metadata_of(TableReader(path=str(tmp_path), keep=("labels", "number", "url", "when")))
        assert str(first.pop("when")).startswith("2020-01-02 00:00:00")
        assert first == {"labels": '["a"]', "number": "1", "url": "http://a.org"}
        assert second == {"labels": "[]", "number": "2", "url": None, "when": None}

    def test_a_missing_column_is_refused(self, tmp_path: Path) -> None:
        pq.write_table(pa.table(self.COLUMNS), tmp_path / "a.parquet")
        names = "'text', 'url', 'number', 'when', 'labels'"
        with pytest.raises(BadInput, match=rf"^[^\n]+: missing field 'uri', expected one of {names}; change `keep`"):
            plan_splits([TableReader(path=str(tmp_path), keep=("uri",))])

    def test_the_text_column_may_be_kept_too(self, tmp_path: Path) -> None:
        pq.write_table(pa.table(self.COLUMNS), tmp_path / "a.parquet")
        assert metadata_of(TableReader(path=str(tmp_path), keep=("text",)))[0] == {"text": TEXT}

    def test_cells_of_a_csv_file(self, tmp_path: Path) -> None:
        path = write(tmp_path, f"id,text,url\n1,{TEXT},http://a.org\n2,{TEXT},\n", "a.csv")
        found = metadata_of(CsvReader(path=path, keep=("url", "id")))
        assert found == [{"url": "http://a.org", "id": "1"}, {"url": None, "id": "2"}]

    def test_cells_of_a_csv_file_without_header(self, tmp_path: Path) -> None:
        path = write(tmp_path, f"1,{TEXT},http://a.org\n", "a.csv")
        assert metadata_of(CsvReader(path=path, text_key="2", keep=("3",))) == [{"3": "http://a.org"}]

    def test_a_missing_column_of_a_csv_file_is_refused(self, tmp_path: Path) -> None:
        source = CsvReader(path=write(tmp_path, f"id,text\n1,{TEXT}\n", "a.csv"), keep=("url",))
        with pytest.raises(BadInput, match=r"^[^\n]+: missing field 'url', expected one of 'id', 'text'; change"):
            metadata_of(source)


def test_headers_of_a_web_archive(tmp_path: Path) -> None:
    content = html(f"<html><body><main><p>{TEXT}</p></main></body></html>".encode())
    record = web_record("response", content).replace(b"WARC-Date", b"WARC-Target-URI: <http://a.org/x>\r\nWARC-Date", 1)
    path = write(tmp_path, record + web_record("response", content), "a.warc")
    first, second = metadata_of(WarcReader(path=path, keep=("url", "date", "id")))
    assert first == {"url": "http://a.org/x", "date": "2020-01-01T00:00:00Z", "id": "<urn:uuid:1>"}
    assert second["url"] is None


def test_fields_of_a_page_of_a_wiki_dump(tmp_path: Path) -> None:
    one = page("Two words", TEXT * 3, extra="    <id>12</id>\n").replace(
        "<revision>\n", "<revision>\n      <id>99</id>\n      <timestamp>2020-01-01T00:00:00Z</timestamp>\n"
    )
    content = dump(one).replace(b"<siteinfo>", b"<siteinfo><base>https://x.org/wiki/Main_Page</base>", 1)
    path = write(tmp_path, content, "a.xml")
    assert metadata_of(WikiDumpReader(path=path, keep=("id", "title", "url", "date", "revision_id"))) == [
        {
            "id": "12",
            "title": "Two words",
            "url": "https://x.org/wiki/Two_words",
            "date": "2020-01-01T00:00:00Z",
            "revision_id": "99",
        }
    ]


def test_attributes_of_an_extracted_article(tmp_path: Path) -> None:
    path = write(tmp_path, f'<doc id="1" url="http://a.org?a=1&amp;b=2" title="T">\nT\n\n{TEXT}\n</doc>\n', "a")
    expected = {"id": "1", "url": "http://a.org?a=1&b=2", "revid": None, "title": "T"}
    assert metadata_of(WikiExtractorReader(path=path, keep=("id", "url", "revid", "title"))) == [expected]
    value = {"id": "1", "revid": "2", "url": "http://a.org", "title": "T", "text": TEXT}
    path = write(tmp_path, json.dumps(value) + "\n", "b.json")
    assert metadata_of(WikiExtractorReader(path=path, keep=("url", "revid"))) == [{"url": "http://a.org", "revid": "2"}]


def test_attributes_of_an_xml_element(tmp_path: Path) -> None:
    path = write(tmp_path, f'<r><text id="1" n="x">{TEXT}</text><text id="2">{TEXT}</text></r>', "a.xml")
    assert metadata_of(XmlReader(path=path, keep=("id", "n"))) == [{"id": "1", "n": "x"}, {"id": "2", "n": None}]
    with pytest.raises(BadInput, match=r"^[^\n]+: missing field 'url', expected one of 'id', 'n'; change `keep`"):
        plan_splits([XmlReader(path=path, keep=("url",))])


def test_fields_of_a_web_page(tmp_path: Path) -> None:
    head = '<head><title> A\n title </title><link rel="canonical" href="http://a.org/"></head>'
    path = write(tmp_path, f'<html lang="en">{head}<body><p>{TEXT}</p></body></html>', "a.html")
    expected = {"url": "http://a.org/", "title": "A title", "language": "en"}
    assert metadata_of(HtmlReader(path=path, keep=("url", "title", "language"))) == [expected]
    path = write(tmp_path, f"<html><body><p>{TEXT}</p></body></html>", "b.html")
    assert metadata_of(HtmlReader(path=path, keep=("url", "title", "language"))) == [dict.fromkeys(expected)]


def test_header_of_a_book(tmp_path: Path) -> None:
    header = "Title: X\n\nAuthor: Y Z\n\nRelease Date: May 5, 2006 [EBook #18]\nLanguage: English\n\n"
    content = f"{header}*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n\n{TEXT}\nTitle: no\n"
    source = GutenbergReader(path=write(tmp_path, content, "a.txt"), keep=("id", "title", "author", "date", "language"))
    assert metadata_of(source) == [
        {"id": "18", "title": "X", "author": "Y Z", "date": "May 5, 2006", "language": "English"}
    ]


def test_records_without_the_key_have_no_metadata(tmp_path: Path) -> None:
    values: dict[str, Any] = {"text": TEXT, "url": "http://a.org"}
    path = write(tmp_path, json.dumps(values) + "\n", "a.jsonl")
    (record,) = (record for split in plan_splits([JsonlReader(path=path)]) for record in records(split, 1000))
    assert record == Record("a.jsonl", len(json.dumps(values)) + 1, TEXT)
