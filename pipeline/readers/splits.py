"""Sources -> splits of about equal work -> records: one for each document, or for bytes that cannot become one.

Nothing in here depends on a format: its files, its cuts, its records and its marks are facts of a reader (reader.py).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeVar

import xxhash

from pipeline.readers import files
from pipeline.readers.cut import Piece, weight
from pipeline.readers.files import find, plain_suffix
from pipeline.readers.reader import Reader, Sample
from pipeline.readers.record import Record
from preprocessing.errors import BadInput

SPLIT_BYTES: Final = 8 << 20  # of text: seconds of work
MOST_SPLITS: Final = 4096  # of a large input: its splits are larger
MOST_PIECES: Final = 4096
READER_VERSION: Final = 3  # one more whenever the same input gives other documents, or another plan
R = TypeVar("R", bound=Reader)


@dataclass(frozen=True)
class Split:
    """What one worker reads at a time. Its name tells the same input, read in the same way."""

    name: str
    source: Reader
    pieces: tuple[Piece, ...]

    @property
    def weight(self) -> int:
        """About how many bytes of text it has."""
        return sum(piece.weight for piece in self.pieces)


def plan_splits(sources: Sequence[Reader]) -> list[Split]:
    """The splits of all sources, in an order that does not depend on theirs; BadInput where a source names nothing."""
    found = [(source, source.files()) for source in sources]
    total = sum(weight(file, file.size) for _, files in found for sides in files for file in sides)
    step = max(SPLIT_BYTES, total // MOST_SPLITS)
    splits = [
        Split(_name(source, pieces), source, pieces)
        for source, files in found
        for pieces in _grouped((piece for sides in files for piece in source.pieces(sides, step)), step)
    ]
    return sorted(splits, key=lambda split: (split.pieces[0].file.label, split.pieces[0].start, split.name))


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


def _name(source: Reader, pieces: tuple[Piece, ...]) -> str:
    made_of = json.dumps([READER_VERSION, asdict(source), pieces])
    return f"text-{xxhash.xxh3_64(made_of.encode()).hexdigest()}.arrow"


def records(split: Split, max_chars: int) -> Iterator[Record]:
    """What the files of a split hold, in order; documents of surely more than `max_chars` come without their text."""
    limit = 4 * max_chars + 4096  # UTF-8 takes at most 4 bytes a character; the rest is for tags
    for piece in split.pieces:
        yield from split.source.records(piece, limit) if piece.file.size else [Record(piece.file.label, 0)]


def portable(source: Reader) -> dict[str, object]:
    """The keys of a source and their values, without the paths of this machine."""
    return {key: value for key, value in asdict(source).items() if key not in source.located}


def named(given: str, readers: Sequence[type[R]]) -> tuple[str, R] | None:
    """The name in `NAME:PLACE` and the source that it means; None for a path or URL without the name of a reader."""
    name, colon, place = given.partition(":")
    reader = next((reader for reader in readers if name in reader.names), None)
    if reader is None or not colon or place.startswith("//"):
        return None
    try:
        return name, reader.named(name, place)
    except ValueError as error:
        raise BadInput(f"{given}: {error}") from None


def absolute(given: str, folder: Path, readers: Sequence[type[R]]) -> str:
    """`PATH` or `NAME:PLACE` with absolute paths, seen from `folder`."""
    found = named(given, readers)
    return f"{found[0]}:{found[1].anchored(folder).place}" if found else files.absolute(given, folder)


def left_out(source: Reader) -> list[str]:
    """Which files of its folder a source does not read, in one line; none where it reads all of them."""
    if "path" not in source.located or not Path(source.place).is_dir():
        return []
    read = {file.path for sides in source.files() for file in sides}
    others = [file.label for file in find(source.place) if file.path not in read]
    if not others:
        return []
    return [f"{source.place}: left out as no {source.kind}: {', '.join(others[:3])}{_more(len(others) - 3)}"]


def _more(count: int) -> str:
    """How a list of names goes on.

    >>> _more(2), _more(-1)
    (' and 2 more', '')
    """
    return f" and {count} more" if count > 0 else ""


def sniff(path: str, readers: Sequence[type[R]]) -> R:
    """The source that a path looks like to the first reader that recognises a file of it; `NAME:PLACE` forces one."""
    if found := named(path, readers):
        return found[1]
    leads = {ending for reader in readers for ending in reader.leads}
    in_order = sorted(find(path), key=lambda file: plain_suffix(file.path) not in leads)
    for number, file in enumerate(in_order):
        sample = Sample(path, file, alone=len(in_order) == 1, first=number == 0)
        for reader in readers:
            if (source := reader.looks_like(sample)) is not None:
                return source
    kinds = ", ".join(sorted(name for reader in readers for name in reader.names))
    raise BadInput(
        f"{path}: holds no text, only empty or binary files; name text, or say KIND:PATH, where KIND is one of {kinds}"
    )
