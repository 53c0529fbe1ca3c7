"""Input files -> splits of about equal work -> records: one for each document, or for bytes that cannot become one."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, NamedTuple, assert_never

import xxhash

from pipeline import installed
from pipeline.lines import File, Line, find, head, is_text, lines, owned, plain_suffix
from pipeline.record import BETWEEN, Record
from pipeline.spec import Clean, Installed, Jsonl, Source, Text, WikiExtractor
from preprocessing.errors import BadInput
from preprocessing.text import decode

SPLIT_BYTES: Final = 8 << 20  # of text: seconds of work, and few enough splits for a terabyte
MOST_PIECES: Final = 4096
INFLATED: Final = 4  # text compresses to about a quarter
READER_VERSION: Final = 1  # one more whenever the same input gives other documents, or another plan
_JSON_ENDINGS: Final = (".jsonl", ".ndjson", ".json")


class Piece(NamedTuple):
    """A file, or the range of its bytes [start, stop)."""

    file: File
    start: int = 0
    stop: int | None = None

    @property
    def weight(self) -> int:
        """About how many bytes of text."""
        stop = self.file.size if self.stop is None else self.stop
        return (stop - self.start) * (INFLATED if self.file.compression else 1)


@dataclass(frozen=True)
class Split:
    """What one worker reads at a time. Its name tells the same input, read and cleaned in the same way."""

    name: str
    source: Source
    pieces: tuple[Piece, ...]

    @property
    def weight(self) -> int:
        return sum(piece.weight for piece in self.pieces)


def plan_splits(sources: Sequence[Source], clean: Clean) -> list[Split]:
    """The splits of all sources, in an order that does not depend on theirs; BadInput where a source names nothing."""
    splits = [
        Split(_name(source, pieces, clean), source, pieces)
        for source in sources
        for pieces in _grouped(_pieces(source))
    ]
    return sorted(splits, key=lambda split: (split.pieces[0].file.label, split.pieces[0].start, split.name))


def _pieces(source: Source) -> Iterator[Piece]:
    match source:
        case Installed():
            yield from map(Piece, installed.find_modules(source.packages))
            return
        case Jsonl():
            files = find(source.path, _JSON_ENDINGS)
        case Text() | WikiExtractor():
            files = find(source.path)
    for file in files:
        whole = file.compression or (isinstance(source, Text) and source.unit == "document")
        if whole or file.size < 1.5 * SPLIT_BYTES or not is_text(head(file.path)):
            yield Piece(file)
            continue
        cuts = range(0, file.size - SPLIT_BYTES // 2, SPLIT_BYTES)
        yield from (Piece(file, start, stop) for start, stop in zip(cuts, [*cuts[1:], file.size], strict=True))


def _grouped(pieces: Iterator[Piece]) -> Iterator[tuple[Piece, ...]]:
    """Consecutive pieces in groups of about `SPLIT_BYTES`."""
    group, weight = list[Piece](), 0
    for piece in pieces:
        group.append(piece)
        weight += piece.weight
        if weight >= SPLIT_BYTES or len(group) >= MOST_PIECES:
            yield tuple(group)
            group, weight = [], 0
    if group:
        yield tuple(group)


def _name(source: Source, pieces: tuple[Piece, ...], clean: Clean) -> str:
    said = json.dumps([READER_VERSION, asdict(source), asdict(clean), pieces])
    return f"text-{xxhash.xxh3_64(said.encode()).hexdigest()}.arrow"


def records(split: Split, max_chars: int) -> Iterator[Record]:
    """What the files of a split hold, in order; documents of surely more than `max_chars` come without their text."""
    limit = 4 * max_chars + 4096  # UTF-8 takes at most 4 bytes a character; the rest is for tags
    if isinstance(split.source, Installed):
        for piece in split.pieces:
            yield from installed.documentation(piece.file)
        return
    begins, parse = _format(split.source)
    for file, start, stop in split.pieces:
        if start == 0 and not is_text(head(file.path)) and file.size:
            yield Record(file.label, file.size, fault="not_text")
            continue
        mine = owned(lines(file.path, start, stop, limit), stop, begins)
        for block in _blocks(mine, begins, limit):
            yield Record(file.label, block.size, fault=block.fault) if block.fault else parse(file.label, block)
        if not file.size:
            yield Record(file.label, 0)


def _blocks(lines: Iterator[Line], begins: Callable[[Line], bool], limit: int) -> Iterator[Line]:
    """Lines from one begin up to the next, joined as one; of a block longer than `limit` bytes only its size."""
    start, size, fault, content = 0, 0, "", list[bytes]()
    for line in lines:
        if content and begins(line):
            yield Line(start, size, b"".join(content), fault)
            start, size, fault, content = line.start, 0, "", []
        size += line.size
        fault = fault or line.fault or ("too_long" if size > limit else "")
        content.append(b"" if fault else line.content)
        if fault:
            content = [b""]
    if content:
        yield Line(start, size, b"".join(content), fault)


def _format(source: Text | Jsonl | WikiExtractor) -> tuple[Callable[[Line], bool], Callable[[str, Line], Record]]:
    """How a document begins, and how it is read from its lines."""
    match source:
        case Text(unit="document"):
            return lambda line: False, _plain
        case Text(unit="line"):
            return lambda line: True, _plain
        case Text():
            return _is_blank, _paragraph
        case Jsonl():
            return lambda line: True, partial(_json, field=source.field)
        case WikiExtractor():
            return lambda line: line.content.startswith(b"<doc "), _wiki
        case _:
            assert_never(source)


def _is_blank(line: Line) -> bool:
    return not line.fault and not line.content.strip()


def _plain(label: str, block: Line) -> Record:
    return Record(label, block.size, *decode(block.content))


def _paragraph(label: str, block: Line) -> Record:
    return Record(label, block.size, fault=BETWEEN) if _is_blank(block) else _plain(label, block)


def _json(label: str, block: Line, field: str) -> Record:
    if _is_blank(block):
        return Record(label, block.size, fault=BETWEEN)
    line, repaired = decode(block.content)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return Record(label, block.size, fault="bad_json")
    if not isinstance(value, dict) or field not in value:
        return Record(label, block.size, fault="no_field")
    if not isinstance(value[field], str):
        return Record(label, block.size, fault="not_a_string")
    return Record(label, block.size, value[field], repaired)


def _wiki(label: str, block: Line) -> Record:
    if not block.content.startswith(b"<doc "):
        return Record(label, block.size, fault=BETWEEN if _is_blank(block) else "no_doc_tag")
    body = block.content.partition(b"\n")[2].rpartition(b"</doc>")
    return Record(label, block.size, *decode(body[0] or body[2]))


def sniff(path: str) -> Source:
    """The source that a path, folder or glob looks like; `KIND:PATH` (jsonl:PATH, line:PATH, ...) says it instead.

    >>> sniff("paragraphs:books/*.txt")
    Text(kind='text', path='books/*.txt', unit='paragraphs')
    """
    kind, colon, rest = path.partition(":")
    forced: dict[str, Callable[[str], Source]] = {
        "text": lambda path: Text(path=path),
        "line": lambda path: Text(path=path, unit="line"),
        "paragraphs": lambda path: Text(path=path, unit="paragraphs"),
        "jsonl": lambda path: Jsonl(path=path),
        "wikiextractor": lambda path: WikiExtractor(path=path),
        "installed": lambda path: Installed(packages=tuple(filter(None, path.split(",")))),
    }
    if colon and kind in forced:
        return forced[kind](rest)
    files = find(path)
    seen = next(((file, start) for file in files if is_text(start := head(file.path, 1 << 16)) and start.strip()), None)
    if seen is None:
        raise BadInput(f"{path}: holds no text, only empty or binary files; name text, or say {', '.join(forced)}:PATH")
    file, start = seen
    if start.lstrip().startswith(b"<doc "):
        return WikiExtractor(path=path)
    if plain_suffix(file.path) in _JSON_ENDINGS or start.lstrip().startswith(b'{"'):
        _check_field(path, start)
        return Jsonl(path=path)
    if len(files) > 1:
        return Text(path=path)
    return Text(path=path, unit="paragraphs" if b"\n\n" in start.replace(b"\r", b"") else "line")


def _check_field(path: str, start: bytes) -> None:
    """BadInput where the first line of JSON lines has no "text"; a line that is not JSON is counted later."""
    try:
        value = json.loads(decode(start.lstrip().split(b"\n")[0])[0])
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and "text" not in value:
        names = ", ".join(sorted(map(repr, value))[:8])
        raise BadInput(
            f"{path}: its JSON lines have no 'text', but {names}; name one as `field` of the source in a corpus file"
        )
