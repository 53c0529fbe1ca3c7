"""JSON Lines -> one document per line."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange, pieces_at, text_cuts
from pipeline.readers.files import (
    SNIFFED,
    TORN,
    InputFile,
    Sides,
    display_path,
    find_single_files,
    head,
    plain_suffix,
)
from pipeline.readers.lines import TextLine, drop_record
from pipeline.readers.metadata import overlapping_blocks, require_fields, require_present, to_text
from pipeline.readers.plain import always, is_blank, line_records
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN, CUT_OFF, Record
from pipeline.readers.transcode import blocks_of, require_encoding
from preprocessing.errors import BadInput
from preprocessing.spec import key, spec
from preprocessing.text import decode

_ENDINGS: Final = (".jsonl", ".ndjson", ".json")
_BEGINS: Final = re.compile(rb'\{\s*"')
_FIELD: Final = re.compile(r'\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_PLAIN: Final = json.JSONDecoder()
# digits of a number; Python's json module raises an error for integers of more than 4,300
_MOST_DIGITS: Final = 4000
_LONG_NUMBERS: Final = json.JSONDecoder(parse_int=lambda digits: _number(digits))
_MOST_ASKED: Final = 1000  # lines searched for a key that the first lines lack
_OF_NUMBER: Final = re.compile(r"[-+.0-9eE]+")
_WORDS: Final = ("true", "false", "null", "-Infinity", "NaN")
_LONGEST_ESCAPE: Final = 6  # characters of an escape, e.g. \u0041
_MOST_HEADS: Final = 20  # files whose beginnings are searched for keys
_LONGER: Final = (1 << 20, 1 << 24)  # bytes of a beginning that are read if its first object is longer
_BETWEEN_VALUES: Final = re.compile(r"[\s,]*")
_ABSENT: Final = object()
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # half of a surrogate pair: valid in JSON, not in UTF-8


class MissingKey(BadInput):
    """The documents lack the key of their text. `problem` is the message without its remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)  # both, so that pickle can make the error again
        self.problem, self.remedy = problem, remedy

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


@spec
class JsonlReader(FileReader):
    """JSON Lines files; each line is a document.

    The document is the string at `text_key`. Files may be compressed.
    """

    names: ClassVar[tuple[str, ...]] = ("jsonl",)
    leads: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")  # not .json, which may be a settings file
    usual: ClassVar[tuple[str, ...]] = _ENDINGS
    metadata_fields: ClassVar[tuple[str, ...] | None] = None

    kind: Literal["jsonl"] = "jsonl"
    path: str = key(doc="Path, pattern with * or URL of a file or directory.")
    text_key: str = key(default="text", doc="Key of the text in each object; dots separate nested keys.")
    # Entities or phrases, see `phrases` of the corpus file.
    spans_key: str = key(
        default="", doc="Key of the phrase positions in each document: [[start, stop], ...] in characters."
    )
    url_key: str = key(default="", doc="Key of the URL of each document, for clean.urls.")
    extensions: tuple[str, ...] = key(
        default=(), doc="File extensions to read in a directory; []: the default ones of the format."
    )
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")
    keep: tuple[str, ...] = key(default=(), doc="Keys to keep as metadata, e.g. [url, id]; dots separate nested keys.")

    def __post_init__(self) -> None:
        require_encoding("jsonl.encoding", self.encoding)
        require_fields("jsonl", self.keep, self.metadata_fields)

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        if not is_json_lines(sample):
            return None
        if _fields(sample.start.partition(b"\n")[0]) is None and goes_on(sample.start):
            raise BadInput(
                f"{sample.path}: invalid JSON Lines: one object spans several lines; convert the file to JSON Lines or "
                "a JSON array, e.g. with `jq -c '.data[]'`"
            )
        check_field(sample.path, fields_with(sample, _fields(sample.start)), sample.field)
        return cls(path=sample.path)

    def describe(self) -> str:
        return f"{display_path(self.path, self.extensions)}: read as jsonl"

    def files(self) -> list[Sides]:
        found = find_single_files(self.path, self.extensions or self.usual)
        require_keys(self.path, [file for (file,) in found], self.text_key, self.keep, self.encoding)
        return found

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        (file,) = sides
        return pieces_at(file, text_cuts(file, step))

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        parse = partial(parse_line, field=self.text_key, spans=self.spans_key, url=self.url_key, keep=self.keep)
        return line_records(piece, always, parse, limit, self.encoding)


def is_json_lines(sample: FileProbe) -> bool:
    """Whether a file has an extension of JSON Lines or begins like one."""
    return sample.start != b"" and (
        plain_suffix(sample.file.path) in _ENDINGS or _BEGINS.match(sample.start) is not None
    )


def fields_with(sample: FileProbe, fields: list[str] | None) -> list[str] | None:
    """Keys at the start of a file, plus the text key if it occurs anywhere in the file."""
    first = sample.field.partition(".")[0]
    if fields is None or first in fields or sample.field in fields:
        return fields
    return [*fields, first] if _is_later(sample.file, sample.field) else fields


def _is_later(file: InputFile, field: str) -> bool:
    """Whether an object of the file has the text key at its top level."""
    wanted = {field.partition(".")[0], field}
    names = [json.dumps(name, ensure_ascii=is_escaped).encode() for name in wanted for is_escaped in (False, True)]
    blocks = (block for block in blocks_of(file) if any(name in block for name in names))
    found = (line for block in blocks for line in block.split(b"\n") if any(name in line for name in names))
    for number, line in enumerate(found):
        try:
            value = loads(decode(line)[0])
            if number == _MOST_ASKED or not isinstance(value, dict) or _at(value, field) is not _ABSENT:
                return True
        except (ValueError, RecursionError):  # an incomplete line, or a line inside of an array, is inconclusive
            return True
    return False


def check_field(path: str, fields: Sequence[str] | None, field: str = "text") -> None:
    """Raise MissingKey if the keys of the documents in `path` are known and `field` is not one of them."""
    if fields is not None and field.partition(".")[0] not in fields and field not in fields:
        raise _make_missing_key(path, fields, field)


def _make_missing_key(path: str, fields: Sequence[str], field: str) -> MissingKey:
    have = ", ".join(sorted(map(repr, fields))[:8])
    return MissingKey(
        f"{path}: missing key {field!r}, expected one of {have}",
        "select a key with --data PATH#FIELD or with `text_key` of the source in a corpus file",
    )


def parse_line(
    label: str, block: TextLine, field: str = "text", spans: str = "", url: str = "", keep: Sequence[str] = ()
) -> Record:
    """The record of a line: the string at key `field`, the character ranges at key `spans`, the address at key `url`,
    and the values at the keys `keep`.

    A key may contain dots for nested objects. Unpaired surrogates become U+FFFD.
    """
    if is_blank(block):
        return drop_record(label, block, BETWEEN)
    line, repaired = decode(block.content)
    try:
        value = loads(line)
    except json.JSONDecodeError as error:
        return drop_record(label, block, CUT_OFF if _breaks_off(block.content, line, error) else "bad_json")
    except (ValueError, RecursionError):
        return drop_record(label, block, "bad_json")
    text = _at(value, field)
    if text is _ABSENT:
        return drop_record(label, block, "no_field")
    if not isinstance(text, str):
        return drop_record(label, block, "not_a_string")
    if line.count(_quote(field.rpartition(".")[2])) > 1 and _is_twice(line, field.rpartition(".")[2]):
        return drop_record(label, block, "duplicate_key")
    ranges = as_spans(_at(value, spans), text) if spans else ()
    if ranges is None:
        return drop_record(label, block, "bad_spans")
    if "\\ud" in line or "\\uD" in line:
        text, halves = _SURROGATE.subn("\ufffd", text)
        repaired += halves
    address = _at(value, url) if url else ""
    address = address if isinstance(address, str) else ""
    record = Record(label, block.size, text, repaired, "", block.start, b"", ranges, url=address)
    return record._replace(metadata=_metadata(value, keep)) if keep else record


def _metadata(value: Any, keep: Sequence[str]) -> dict[str, str | None]:
    found = {name: _at(value, name) for name in keep}
    return {name: None if one is _ABSENT else to_text(one) for name, one in found.items()}


def require_keys(path: str, files: Sequence[InputFile], text_key: str, keep: Sequence[str], encoding: str) -> None:
    """Raise BadInput if no object in these JSON files has the key of the text, or a key of `keep`.

    The beginnings of the files are searched first. Then a sample of each file is searched for the key of the text, and
    all files for the quoted last part of a key of `keep`. Files without objects have no key of the text.
    """
    have = list[str]()
    for num_bytes in (SNIFFED, *_LONGER):
        have = have or _list_keys(files, num_bytes, encoding)
    if have and text_key not in have and not any(_is_later(file, text_key) for file in files):
        outer = [name for name in have if "." in text_key or "." not in name]
        raise _make_missing_key(path, outer, text_key)
    missing = [name for name in keep if name not in have]
    for file in files:
        if not missing:
            return
        for block in overlapping_blocks(file.path, encoding):
            missing = [name for name in missing if not _mentions(block, name)]
    if files:
        require_present(path, missing, have)


def _list_keys(files: Sequence[InputFile], num_bytes: int, encoding: str) -> list[str]:
    """The keys of the objects in the first bytes of the first files."""
    found = dict[str, None]()
    for file in files[:_MOST_HEADS]:
        with suppress(*TORN):
            found |= dict.fromkeys(_iterate_keys(head(file.path, num_bytes, encoding)))
    return [*found]


def _mentions(block: bytes, name: str) -> bool:
    last = name.rpartition(".")[2]
    return any(json.dumps(last, ensure_ascii=is_escaped).encode() in block for is_escaped in (False, True))


def _iterate_keys(start: bytes) -> Iterator[str]:
    """The keys of the objects at the start of a file of JSON Lines or of an array; nested ones after a dot."""
    text = decode(start)[0]
    at = len(text) - len(text.lstrip("\ufeff \t\r\n[,"))
    with suppress(ValueError, RecursionError):
        while at < len(text):
            value, stop = scan(text, at)
            yield from _paths(value)
            between = _BETWEEN_VALUES.match(text, stop)
            at = between.end() if between else len(text)


def _paths(value: Any, before: str = "") -> Iterator[str]:
    for name, below in value.items() if isinstance(value, dict) else ():
        yield before + name
        yield from _paths(below, f"{before}{name}.")


def _breaks_off(content: bytes, line: str, error: json.JSONDecodeError) -> bool:
    """Whether a line is an incomplete object at the end of a file."""
    if content.endswith(b"\n") or not line.lstrip().startswith("{"):
        return False
    rest = line.rstrip()[error.pos :]
    is_escape = error.msg.startswith("Invalid \\") and len(rest) < _LONGEST_ESCAPE
    is_value = any(word.startswith(rest) for word in _WORDS) or _OF_NUMBER.fullmatch(rest) is not None
    return is_value or is_escape or error.msg.startswith("Unterminated string")


def loads(text: str) -> Any:
    """Like json.loads, but numbers of more than 4,300 digits become infinite instead of raising an error."""
    try:
        if text.startswith("{"):  # the usual line, without the functions of `json` around the scanner
            value, stop = _PLAIN.raw_decode(text)
            if stop == len(text) or text[stop:] in ("\n", "\r\n"):
                return value
    except ValueError:
        pass  # json.loads raises the error
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _LONG_NUMBERS.decode(text)


@cache
def _quote(name: str) -> str:
    return json.dumps(name)


def scan(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at `start`, and its end. Raises the errors of raw_decode in the json module."""
    try:
        return _PLAIN.raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _LONG_NUMBERS.raw_decode(text, start)


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def goes_on(start: bytes) -> bool:
    """Whether the object at the start of a file continues on the second line.

    >>> goes_on(b'{\\n  "data": []\\n}'), goes_on(b'{"text": damaged}\\r\\n'), goes_on(b'{"text": "long')
    (True, False, False)
    """
    line, end, _ = start.partition(b"\n")
    return line.startswith(b"{") and end != b"" and not line.rstrip().endswith(b"}")


def fields_of_line(line: str) -> list[str]:
    """Keys of the object in a line of JSON. The line may be incomplete.

    >>> fields_of_line('{"id": "1", "text": "Words that go')
    ['id', 'text']
    """
    found, at = list[str](), 0
    with suppress(ValueError, RecursionError):
        while match := _FIELD.match(line, at):
            found.append(json.loads(match[1]))
            _, at = scan(line, match.end())
    return found


def _fields(start: bytes) -> list[str] | None:
    """Keys of the objects in the lines; None if no line is a JSON object."""
    found = dict[str, None]()
    for line in start.splitlines():
        with suppress(ValueError, RecursionError):
            value = loads(decode(line)[0])
            found |= dict.fromkeys(value) if isinstance(value, dict) else {}
    return list(found) or None


def _at(value: Any, field: str) -> Any:
    """The value at a key: first the whole name, then its parts at dots. Returns _ABSENT if there is none."""
    if isinstance(value, dict) and field in value:
        return value[field]
    first, dot, rest = field.partition(".")
    return _at(value[first], rest) if dot and isinstance(value, dict) and first in value else _ABSENT


def as_spans(value: Any, text: str) -> tuple[tuple[int, int], ...] | None:
    """[[start, stop], ...] as character ranges of `text`; () if `value` is missing, None if it is invalid.

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
    """Whether an object in a line of JSON has a key twice, so that its value is ambiguous."""
    twice = False

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        twice = twice or sum(key == name for key, _ in pairs) > 1
        return dict(pairs)

    json.loads(line, object_pairs_hook=note, parse_int=_number)
    return twice
