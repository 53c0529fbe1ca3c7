"""Small files in the formats of other programs."""

import bz2
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def page(title: str, markup: str, ns: int = 0, extra: str = "") -> str:
    """Return a page of a MediaWiki dump."""
    markup = markup.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{ns}</ns>\n{extra}    <revision>\n"
        f'      <text xml:space="preserve">{markup}</text>\n    </revision>\n  </page>\n'
    )


def dump(*pages: str) -> bytes:
    """Return a MediaWiki dump whose file namespace is called Datei."""
    start = '<mediawiki version="0.10">\n  <siteinfo>\n    <namespaces>\n      <namespace key="6">Datei</namespace>\n'
    return f"{start}    </namespaces>\n  </siteinfo>\n{''.join(pages)}</mediawiki>\n".encode()


def multistream(content: bytes, pages: int) -> bytes:
    """Return a dump with Wikimedia's compression: one bz2 stream each for the head, every few pages, and the end."""
    head, *parts = content.split(b"  <page>\n")
    parts[-1], end = parts[-1].removesuffix(b"</mediawiki>\n"), b"</mediawiki>\n"
    groups = [b"".join(b"  <page>\n" + part for part in parts[at : at + pages]) for at in range(0, len(parts), pages)]
    return b"".join(map(bz2.compress, [head, *groups, end]))


def web_record(kind: str, content: bytes, content_type: str = "application/http; msgtype=response") -> bytes:
    """Return a record of a web archive."""
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
    return (
        f"{head}Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content + b"\r\n\r\n"
    )


def html(body: bytes, head: bytes = b"Content-Type: text/html; charset=utf-8", status: bytes = b"200 OK") -> bytes:
    """Return a response of a web server."""
    return b"HTTP/1.1 " + status + b"\r\n" + head + b"\r\n\r\n" + body


def web_archive(texts: list[str], compressed: bool) -> bytes:
    """Return a web archive with a page for each text, each after a request record."""
    found = [web_record("warcinfo", b"software: none\r\n", "application/warc-fields")]
    for text in texts:
        found.append(web_record("request", b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request"))
        found.append(web_record("response", html(f"<html><body><main><p>{text}</p></main></body></html>".encode())))
    return b"".join(map(gzip.compress, found) if compressed else found)


def write_parquet(path: Path, texts: list[str], rows: int) -> None:
    """Write a Parquet file with row groups of `rows` rows."""
    pq.write_table(pa.table({"text": texts, "other": list(range(len(texts)))}), path, row_group_size=rows)


def write_arrow(path: Path, texts: list[str], rows: int, stream: bool = False) -> None:
    """Write an Arrow file or stream with record batches of `rows` rows."""
    table = pa.table({"other": list(range(len(texts))), "text": texts})
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def json_lines(values: list[object]) -> bytes:
    """Return values as JSON, one per line."""
    return "".join(json.dumps(value) + "\n" for value in values).encode()
