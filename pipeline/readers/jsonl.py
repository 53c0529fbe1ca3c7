"""JSON lines -> documents."""

import json
import re
from typing import Any, Final

from pipeline.readers.lines import Line, dropped
from pipeline.readers.plain import is_blank
from pipeline.readers.record import BETWEEN, Record
from preprocessing.text import decode

_ABSENT: Final = object()
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # half a character: JSON can hold it, UTF-8 cannot


def parsed(label: str, block: Line, field: str = "text", spans: str = "") -> Record:
    """The string at `field` of the object in a line, and the ranges of its characters at `spans`.

    A field is a name, or names with dots between for objects in objects. Half characters become U+FFFD.
    """
    if is_blank(block):
        return dropped(label, block, BETWEEN)
    line, repaired = decode(block.content)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return dropped(label, block, "bad_json")
    text = _at(value, field)
    if text is _ABSENT:
        return dropped(label, block, "no_field")
    if not isinstance(text, str):
        return dropped(label, block, "not_a_string")
    if line.count(json.dumps(field.rpartition(".")[2])) > 1 and _is_twice(line, field.rpartition(".")[2]):
        return dropped(label, block, "duplicate_key")
    ranges = as_spans(_at(value, spans), text) if spans else ()
    if ranges is None:
        return dropped(label, block, "bad_spans")
    if "\\ud" in line or "\\uD" in line:
        text, halves = _SURROGATE.subn("\ufffd", text)
        repaired += halves
    return Record(label, block.size, text, repaired, "", block.start, b"", ranges)


def names(start: bytes) -> list[str] | None:
    """The fields of the first line; None where it is not an object in JSON."""
    try:
        value = json.loads(decode(start.lstrip().partition(b"\n")[0])[0])
    except (ValueError, RecursionError):
        return None
    return list(value) if isinstance(value, dict) else None


def _at(value: Any, field: str) -> Any:
    """What stands at a field: at its whole name, else at its names one by one; _ABSENT where nothing does."""
    if isinstance(value, dict) and field in value:
        return value[field]
    first, dot, rest = field.partition(".")
    return _at(value[first], rest) if dot and isinstance(value, dict) and first in value else _ABSENT


def as_spans(value: Any, text: str) -> tuple[tuple[int, int], ...] | None:
    """[[start, stop], ...] as ranges of the characters of `text`; none of these is (), and None is for what is wrong.

    >>> as_spans([[0, 2], [3, 5]], "ab cd"), as_spans(None, "ab"), as_spans([[1, 9]], "ab"), as_spans("0-2", "ab")
    (((0, 2), (3, 5)), (), None, None)
    """
    if value is None or value is _ABSENT:
        return ()
    try:
        ranges = sorted((start, stop) for start, stop in value)
        sound = all(type(at) is int for span in ranges for at in span)
        sound = sound and all(0 <= start < stop <= len(text) for start, stop in ranges)
    except (TypeError, ValueError):
        return None
    return tuple(ranges) if sound else None


def _is_twice(line: str, name: str) -> bool:
    """Whether an object in a line of JSON has one name twice: which of the two is meant, nobody knows."""
    twice = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        twice = twice or sum(key == name for key, _ in pairs) > 1
        return dict(pairs)

    json.loads(line, object_pairs_hook=look)
    return twice
