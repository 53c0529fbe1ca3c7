"""What WikiExtractor writes (https://github.com/attardi/wikiextractor) -> articles: its tags, or its JSON lines."""

import json

from pipeline.readers import jsonl
from pipeline.readers.lines import Line, dropped
from pipeline.readers.plain import is_blank
from pipeline.readers.record import BETWEEN, Record
from preprocessing.text import decode


def begins(line: Line) -> bool:
    """Whether an article begins here."""
    return line.content.startswith(b"<doc ")


def is_json(start: bytes) -> bool:
    """Whether a file with this beginning has articles as JSON lines."""
    return start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def is_its_json(start: bytes) -> bool:
    """Whether the first JSON line is one that WikiExtractor wrote.

    >>> is_its_json(b'{"id": "1", "url": "u", "title": "t", "text": "x"}'), is_its_json(b'{"text": "x"}')
    (True, False)
    """
    try:
        value = json.loads(start.lstrip().partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and {"id", "url", "title", "text"} <= set(value) <= {
        "id", "revid", "url", "title", "text",
    }  # fmt: skip


def article(label: str, block: Line) -> Record:
    """What stands between the tags of an article."""
    if not begins(block):
        return dropped(label, block, BETWEEN if is_blank(block) else "no_doc_tag")
    body = block.content.partition(b"\n")[2].rpartition(b"</doc>")
    return Record(label, block.size, *decode(body[0] or body[2]), "", block.start)


def json_article(label: str, block: Line) -> Record:
    """The text of a JSON line."""
    return jsonl.parsed(label, block, "text")
