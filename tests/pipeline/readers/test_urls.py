"""The URL of each document, from the readers that have one."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.readers import (
    READERS,
    CsvReader,
    JsonArrayReader,
    JsonlReader,
    Source,
    TableReader,
    WarcReader,
    WikiExtractorReader,
    causes_of,
    plan_splits,
    records,
)
from preprocessing.errors import BadInput

ROWS = [
    {"text": f"Text {n}.", "page": {"url": f"http://a.example/{n}"}, "url": f"http://a.example/{n}"} for n in (0, 1)
]
URLS = ["http://a.example/0", "http://a.example/1"]


def _urls(source: Source) -> list[str]:
    return [each.url for split in plan_splits([source]) for each in records(split, 1000) if not each.fault]


def test_json_csv_and_tables_read_the_key_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    (tmp_path / "a.csv").write_text("url,text\n" + "".join(f"{row['url']},{row['text']}\n" for row in ROWS))
    flat = [{"text": row["text"], "url": row["url"]} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(flat), tmp_path / "a.parquet")
    assert _urls(JsonlReader(path=str(tmp_path / "a.jsonl"), url_key="page.url")) == URLS
    assert _urls(JsonArrayReader(path=str(tmp_path / "a.json"), url_key="url")) == URLS
    assert _urls(CsvReader(path=str(tmp_path / "a.csv"), url_key="url")) == URLS
    assert _urls(CsvReader(path=str(tmp_path / "a.csv"), url_key="1")) == URLS
    assert _urls(TableReader(path=str(tmp_path / "a.parquet"), url_key="url")) == URLS
    assert _urls(JsonlReader(path=str(tmp_path / "a.jsonl"))) == ["", ""]
    assert _urls(JsonlReader(path=str(tmp_path / "a.jsonl"), url_key="none")) == ["", ""]
    for source in (
        CsvReader(path=str(tmp_path / "a.csv"), url_key="x"),
        TableReader(path=str(tmp_path / "a.parquet"), url_key="x"),
    ):
        with pytest.raises(BadInput, match=r"missing column 'x', expected one of '"):
            _urls(source)


def test_archives_and_articles_have_their_addresses(tmp_path: Path) -> None:
    page = b"<html><body><p>A page with some words about nothing.</p></body></html>"
    fields = ["WARC/1.0", "WARC-Type: resource", "WARC-Target-URI: <http://a.example/0>", "Content-Type: text/html"]
    head = "\r\n".join([*fields, f"Content-Length: {len(page)}", "", ""])
    (tmp_path / "a.warc").write_bytes(head.encode() + page + b"\r\n\r\n")
    assert _urls(WarcReader(path=str(tmp_path / "a.warc"))) == URLS[:1]
    (tmp_path / "wiki").write_text(
        '<doc id="1" url="http://a.example/0?a=1&amp;b=2" title="T">\nT\n\nWords here.\n</doc>\n'
    )
    assert _urls(WikiExtractorReader(path=str(tmp_path / "wiki"))) == ["http://a.example/0?a=1&b=2"]


def test_an_empty_key_changes_no_hash() -> None:
    assert "url_key" not in causes_of(JsonlReader(path="a"))
    assert causes_of(JsonlReader(path="a", url_key="url"))["url_key"] == "url"
    having = {reader for reader in READERS if "url_key" in reader.__dataclass_fields__}
    assert having == {JsonlReader, JsonArrayReader, CsvReader, TableReader}
    assert not JsonlReader(path="a").has_urls
    assert JsonlReader(path="a", url_key="url").has_urls
    assert WarcReader(path="a").has_urls
