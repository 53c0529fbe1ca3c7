"""Input files -> splits of about equal work -> records: one for each document, or for bytes that cannot become one."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, NamedTuple, assert_never

import xxhash

from pipeline.readers import cut as cuts
from pipeline.readers import installed, jsonl, parallel, plain, warc, wiki_dump, wikiextractor
from pipeline.readers import table as tables
from pipeline.readers.files import File, find, head, is_text, open_stored, plain_suffix
from pipeline.readers.lines import Line, blocks, lines, owned
from pipeline.readers.record import SNIPPET, Record
from pipeline.spec import (
    Books,
    Installed,
    Jsonl,
    Parallel,
    Source,
    Table,
    Text,
    Warc,
    WikiDump,
    WikiExtractor,  # fmt: skip
)
from preprocessing.errors import BadInput

SPLIT_BYTES: Final = 8 << 20  # of text: seconds of work
MOST_SPLITS: Final = 4096  # of a large input: its splits are larger
MOST_PIECES: Final = 4096
INFLATED: Final = 4  # text compresses to about a quarter
READER_VERSION: Final = 2  # one more whenever the same input gives other documents, or another plan
_JSON_ENDINGS: Final = (".jsonl", ".ndjson", ".json")
_SNIFFED: Final = 1 << 16  # bytes looked at

Lines = Text | Books | Jsonl | WikiDump | WikiExtractor  # sources whose documents are lines of a file
Begins = Callable[[Line], bool]
Parse = Callable[[str, Line], Record]


class Piece(NamedTuple):
    """A file, or a range [start, stop) of it: of its bytes, or of the parts of a table."""

    file: File
    start: int = 0
    stop: int | None = None
    weight: int = 0  # about how many bytes of text
    beside: tuple[tuple[File, int, int | None], ...] = ()  # the same lines in other languages


@dataclass(frozen=True)
class Split:
    """What one worker reads at a time. Its name tells the same input, read in the same way."""

    name: str
    source: Source
    pieces: tuple[Piece, ...]

    @property
    def weight(self) -> int:
        return sum(piece.weight for piece in self.pieces)


def plan_splits(sources: Sequence[Source]) -> list[Split]:
    """The splits of all sources, in an order that does not depend on theirs; BadInput where a source names nothing."""
    found = [(source, _files(source)) for source in sources]
    total = sum(_weight(file, file.size) for _, files in found for sides in files for file in sides)
    step = max(SPLIT_BYTES, total // MOST_SPLITS)
    splits = [
        Split(_name(source, pieces), source, pieces)
        for source, files in found
        for pieces in _grouped((piece for sides in files for piece in _pieces(source, sides, step)), step)
    ]
    return sorted(splits, key=lambda split: (split.pieces[0].file.label, split.pieces[0].start, split.name))


def _files(source: Source) -> list[tuple[File, ...]]:
    """The files of a source; for aligned ones, those that belong together."""
    match source:
        case Installed():
            files = installed.find_modules(source.packages)
        case Parallel():
            return parallel.find_sides(source.paths)
        case Table():
            files = tables.files(source.path)
        case Jsonl():
            files = find(source.path, _JSON_ENDINGS)
        case Warc():
            files = find(source.path, warc.ENDINGS)
        case Text() | Books() | WikiDump() | WikiExtractor():
            files = find(source.path)
        case _:
            assert_never(source)
    return [(file,) for file in files]


def _weight(file: File, stored: int) -> int:
    return stored * (INFLATED if file.compression else 1)


def _pieces(source: Source, sides: tuple[File, ...], step: int) -> Iterator[Piece]:
    """A file, or several side by side, cut to about `step` bytes of text where that can be done."""
    file = sides[0]
    match source:
        case Table():
            yield from _parts(file, tables.parts(file, source.field, source.spans), step)
            return
        case Parallel():
            weight = sum(_weight(side, side.size) for side in sides)
            share = step * file.size // max(1, sum(side.size for side in sides))
            places = parallel.aligned_cuts(sides, max(1, share))
            each = [cuts.ranges(cut) for cut in places]
            for (start, stop), *others in zip(*each, strict=True):
                beside = tuple((side, *other) for side, other in zip(sides[1:], others, strict=True))
                yield Piece(file, start, stop, weight // len(each[0]), beside)
            return
        case Installed() | Text(unit="document") | Books():
            at = list[int]()
        case Text() | Jsonl() | WikiDump() | WikiExtractor() | Warc():
            at = _cuts(source, file, step) if _weight(file, file.size) >= 1.5 * step else []
        case _:
            assert_never(source)
    for start, stop in cuts.ranges(at):
        yield Piece(file, start, stop, _weight(file, (file.size if stop is None else stop) - start))


def _cuts(source: Source, file: File, step: int) -> list[int]:
    """Where a large file is cut, in stored bytes."""
    match source, file.compression:
        case Warc(), None:
            return cuts.at_members(file.path, file.size, step, cuts.PLAIN_WARC)
        case Warc(), "gzip":
            return cuts.at_members(file.path, file.size, step // INFLATED, cuts.GZIP_WARC)
        case WikiDump(), "bz2":
            return cuts.at_members(file.path, file.size, step // INFLATED, cuts.BZ2_PAGES)
        case _, None if is_text(_stored_head(file.path)):  # UTF-16 is not, as it is stored
            return cuts.by_bytes(file.size, step)
        case _:
            return []


def _parts(file: File, sizes: list[int], step: int) -> Iterator[Piece]:
    """The parts of a table together in ranges of about `step` bytes."""
    if sum(sizes) < 1.5 * step:
        yield Piece(file, 0, None, max(file.size, sum(sizes)))
        return
    start, weight = 0, 0
    for part, size in enumerate(sizes, start=1):
        weight += size
        if weight >= step or part == len(sizes):
            yield Piece(file, start, part if part < len(sizes) else None, weight)
            start, weight = part, 0


def _stored_head(path: str) -> bytes:
    with open_stored(path) as file:
        return file.read(_SNIFFED)


def _grouped(pieces: Iterator[Piece], step: int) -> Iterator[tuple[Piece, ...]]:
    """Consecutive pieces in groups of about `step` bytes of text."""
    group, weight = list[Piece](), 0
    for piece in pieces:
        group.append(piece)
        weight += piece.weight
        if weight >= step or len(group) >= MOST_PIECES:
            yield tuple(group)
            group, weight = [], 0
    if group:
        yield tuple(group)


def _name(source: Source, pieces: tuple[Piece, ...]) -> str:
    said = json.dumps([READER_VERSION, asdict(source), pieces])
    return f"text-{xxhash.xxh3_64(said.encode()).hexdigest()}.arrow"


def records(split: Split, max_chars: int) -> Iterator[Record]:
    """What the files of a split hold, in order; documents of surely more than `max_chars` come without their text."""
    limit = 4 * max_chars + 4096  # UTF-8 takes at most 4 bytes a character; the rest is for tags
    for piece in split.pieces:
        yield from _records(split.source, piece, limit) if piece.file.size else [Record(piece.file.label, 0)]


def _records(source: Source, piece: Piece, limit: int) -> Iterator[Record]:
    file, start, stop = piece[:3]
    match source:
        case Installed():
            return installed.documentation(file)
        case Table():
            return tables.documents(file, start, stop, source.field, source.spans, limit)
        case Parallel():
            sides = [(side.path, first, last) for side, first, last in ((file, start, stop), *piece.beside)]
            return parallel.pairs(file.label, sides, limit)
        case Warc():
            return warc.documents(file.label, file.path, start, stop, limit)
        case Text() | Books() | Jsonl() | WikiDump() | WikiExtractor():
            return _of_lines(source, piece, limit)
        case _:
            assert_never(source)


def _of_lines(source: Lines, piece: Piece, limit: int) -> Iterator[Record]:
    file, start, stop = piece[:3]
    first = head(file.path)
    if start == 0 and not is_text(first):
        yield Record(file.label, file.size, fault="not_text", snippet=first[:SNIPPET])
        return
    begins, parse = _format(source, first)
    if isinstance(source, WikiDump):
        limit = max(limit, wiki_dump.MOST_BYTES)  # most of a page may be markup
    found = lines(file.path, start, stop, limit)
    if not file.compression:
        found = owned(found, stop, begins)
    for block in found if begins is plain.always else blocks(found, begins, limit):
        if block.fault:
            yield Record(file.label, block.size, fault=block.fault, start=block.start, snippet=block.content)
        else:
            yield parse(file.label, block)


def _format(source: Lines, start: bytes) -> tuple[Begins, Parse]:
    """How a document begins in a file with this beginning, and how it is read from its lines."""
    match source:
        case Text(unit="document"):
            return plain.never, plain.document
        case Text(unit="line"):
            return plain.always, plain.document
        case Text():
            return plain.is_blank, plain.paragraph
        case Books():
            return plain.never, plain.book
        case Jsonl():
            return plain.always, partial(jsonl.parsed, field=source.field, spans=source.spans)
        case WikiDump():
            return wiki_dump.begins, partial(wiki_dump.article, hidden=wiki_dump.hidden_namespaces(start))
        case WikiExtractor() if wikiextractor.is_json(start):
            return plain.always, wikiextractor.json_article
        case WikiExtractor():
            return wikiextractor.begins, wikiextractor.article
        case _:
            assert_never(source)


def sniff(path: str) -> Source:
    """The source that a path, folder, glob or URL looks like; `KIND:PATH` (jsonl:PATH, line:PATH, ...) says it instead.

    >>> sniff("paragraphs:books/*.txt")
    Text(kind='text', path='books/*.txt', unit='paragraphs')
    """
    forced: dict[str, Callable[[str], Source]] = {
        "text": lambda path: Text(path=path),
        "line": lambda path: Text(path=path, unit="line"),
        "paragraphs": lambda path: Text(path=path, unit="paragraphs"),
        "books": lambda path: Books(path=path),
        "jsonl": lambda path: Jsonl(path=path),
        "table": lambda path: Table(path=path),
        "wiki_dump": lambda path: WikiDump(path=path),
        "wikiextractor": lambda path: WikiExtractor(path=path),
        "parallel": lambda path: Parallel(paths=tuple(path.split(","))),
        "warc": lambda path: Warc(path=path),
        "installed": lambda path: Installed(packages=tuple(filter(None, path.split(",")))),
    }
    kind, colon, rest = path.partition(":")
    if colon and kind in forced and not rest.startswith("//"):
        return forced[kind](rest)
    if tables.is_saved(path):
        return _with_field(path, Table(path=path), tables.columns(tables.files(path)[0]))
    files = find(path)
    telling = (*tables.ENDINGS, *warc.ENDINGS)  # beside these, a README is no text to learn from
    for file in sorted(files, key=lambda file: plain_suffix(file.path) not in telling):
        if source := _sniffed(path, file, alone=len(files) == 1):
            return source
    raise BadInput(f"{path}: holds no text, only empty or binary files; name text, or say {', '.join(forced)}:PATH")


def _sniffed(path: str, file: File, *, alone: bool) -> Source | None:
    """The source that a path with this file looks like; None where the file does not tell."""
    if tables.is_table(_stored_head(file.path)):
        return _with_field(path, Table(path=path), tables.columns(file))
    start = head(file.path, _SNIFFED).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start or not is_text(start[:8192]):
        return None
    if start.startswith(b"WARC/"):
        return Warc(path=path)
    if start.startswith(b"<mediawiki") or b"\n<mediawiki" in start[:1024]:
        return WikiDump(path=path)
    if start.startswith(b"<doc "):
        return WikiExtractor(path=path)
    if plain_suffix(file.path) in _JSON_ENDINGS or start.startswith(b'{"'):
        if wikiextractor.is_its_json(start):
            return WikiExtractor(path=path)
        return _with_field(path, Jsonl(path=path), jsonl.names(start))
    if plain.BOOK_MARK.search(start):
        return Books(path=path)
    if not alone:
        return Text(path=path)
    return Text(path=path, unit="paragraphs" if b"\n\n" in start.replace(b"\r", b"") else "line")


def _with_field(path: str, source: Source, names: Sequence[str] | None) -> Source:
    """The source, where "text" is among the names of its fields, or nobody knows them; BadInput where it is not."""
    if names is not None and "text" not in names:
        have = ", ".join(sorted(map(repr, names))[:8])
        raise BadInput(
            f"{path}: its documents have no 'text', but {have}; name one as `field` of the source in a corpus file"
        )
    return source
