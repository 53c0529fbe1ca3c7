"""Aligned files, one per language -> documents: line i of all files, with a blank line between its sides."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

import numpy as np

from pipeline.readers.file_ranges import FileRange, ranges, weight
from pipeline.readers.files import InputFile, Sides, absolute, find, open_bytes
from pipeline.readers.lines import TextLine, lines, lines_of_range
from pipeline.readers.plain import always
from pipeline.readers.reader import FileProbe
from pipeline.readers.record import BETWEEN, SNIPPET, Record
from pipeline.readers.transcode import Transcoder, require_encoding
from preprocessing.encodings import UTF8
from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from preprocessing.text import decode

_BLOCK: Final = 1 << 20
_BETWEEN_SIDES: Final = "\n\n"


@spec
class ParallelReader:
    """Aligned text files, one per language; equal line numbers form a document.

    The lines of the files are the sides of the document, which are stored as its spans.
    """

    names: ClassVar[tuple[str, ...]] = ("parallel",)
    located: ClassVar[tuple[str, ...]] = ("paths",)
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = ()
    of_folder: ClassVar[bool] = False
    metadata_fields: ClassVar[tuple[str, ...] | None] = ()
    has_urls: ClassVar[bool] = False

    kind: Literal["parallel"] = "parallel"
    paths: tuple[str, ...] = key(doc="Paths to the aligned files, one per language.")
    encoding: str = key(default="", doc="Text encoding of all files; empty: detected for each file.")

    def __post_init__(self) -> None:
        require_encoding("parallel.encoding", self.encoding)
        require(len(self.paths) >= 2, "parallel.paths", self.paths, "at least two paths")

    @property
    def place(self) -> str:
        return ",".join(self.paths)

    @classmethod
    def from_name(cls, name: str, place: str) -> Self:
        return cls(paths=tuple(place.split(",")))

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        """Returns None: one path does not identify its translations."""
        return None

    def describe(self) -> str:
        return f"{', '.join(self.paths)}: read as parallel, one document per aligned line"

    def resolve_paths(self, folder: Path) -> Self:
        return replace(self, paths=tuple(absolute(path, folder) for path in self.paths))

    def files(self) -> list[Sides]:
        return find_sides(self.paths)

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        total = sum(weight(side, side.size) for side in sides)
        share = step * sides[0].size // max(1, sum(side.size for side in sides))
        each = [ranges(cuts) for cuts in align_cuts(sides, max(1, share))]
        for (start, stop), *others in zip(*each, strict=True):
            beside = tuple((side, *other) for side, other in zip(sides[1:], others, strict=True))
            yield FileRange(sides[0], start, stop, total // len(each[0]), beside)

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        sides = ((piece.file, piece.start, piece.stop), *piece.beside)
        return pairs(piece.file.label, sides, limit, self.encoding)


def find_sides(paths: Sequence[str]) -> list[Sides]:
    """The files of all languages, grouped by position: the first file of each path, then the second, and so on."""
    found = [find(path) for path in paths]
    if len(set(map(len, found))) > 1:
        have = ", ".join(f"{path} has {len(files)}" for path, files in zip(paths, found, strict=True))
        raise BadInput(f"parallel: file counts differ: {have}; pass the same number of files for each language")
    return list(zip(*found, strict=True))


def align_cuts(sides: Sides, step: int) -> list[list[int]]:
    """Positions at which to divide each file, about every `step` bytes of the first one.

    Raises BadInput if line counts differ. This reads all files, because one missing line on a side would misalign all
    later documents.
    """
    plain = not any(side.compression for side in sides)
    numbers, total = _line_numbers(sides[0].path, step if plain else None)
    found = [_places(side.path, numbers) for side in sides]
    if len({count for _, count in found}) > 1 or any(count != total for _, count in found):
        have = ", ".join(f"{side.path} has {count:,}" for side, (_, count) in zip(sides, found, strict=True))
        raise BadInput(f"parallel: line counts differ: {have}; pass files with equal line counts")
    return [places for places, _ in found]


def _line_numbers(path: str, step: int | None) -> tuple[list[int], int]:
    """Numbers of the lines that begin about every `step` bytes, and the total number of lines."""
    numbers, last, size, count, end = list[int](), 0, 0, 0, b"\n"
    with open_bytes(path) as file:
        while block := file.read(_BLOCK):
            size, count, end = size + len(block), count + block.count(b"\n"), block[-1:]
            if step is not None and size - last >= step and count > (numbers[-1] if numbers else 0):
                numbers.append(count)
                last = size
    total = count + (end != b"\n")
    return [number for number in numbers if number < total], total


def _places(path: str, numbers: list[int]) -> tuple[list[int], int]:
    """Byte positions of the lines with these numbers (ascending, from 1), and the total number of lines."""
    places, size, count, end, wanted = list[int](), 0, 0, b"\n", iter([*numbers, -1])
    number = next(wanted)
    with open_bytes(path) as file:
        while block := file.read(_BLOCK):
            here = block.count(b"\n")
            while count < number <= count + here:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                places.append(size + int(ends[number - count - 1]) + 1)
                number = next(wanted)
            size, count, end = size + len(block), count + here, block[-1:]
    return places, count + (end != b"\n")


def pairs(
    label: str, sides: Sequence[tuple[InputFile, int, int | None]], limit: int, encoding: str = ""
) -> Iterator[Record]:
    """The documents of aligned ranges, given as (file, start, stop) for each side."""
    recoders = [Transcoder(side, encoding) for side, _, _ in sides]
    each = [
        lines_of_range(lines(side.path, start, stop, limit, recode, recode.whole), stop, always)
        for (side, start, stop), recode in zip(sides, recoders, strict=True)
    ]
    for lines_of_sides in zip_longest(*each):
        # a damaged side may have an additional line
        together = tuple(line for line in lines_of_sides if line is not None)
        others = [str(recode.used) for recode in recoders if recode.used != UTF8]
        record = _document(label, together)
        if len(together) < len(sides) and not record.fault:
            record = Record(label, record.size, fault="one_sided", start=record.start)
        yield record._replace(encoding=" and ".join(dict.fromkeys(others)))


def _document(label: str, together: tuple[TextLine, ...]) -> Record:
    size, start = sum(line.size for line in together), together[0].start
    contents = [line.content.strip() for line in together]
    if why := _fault(together, contents):
        return Record(label, size, fault=why, start=start, snippet=b"\n".join(contents)[:SNIPPET])
    texts, repaired = zip(*map(decode, contents), strict=True)
    ends = list(accumulate(len(text) + len(_BETWEEN_SIDES) for text in texts))
    spans = tuple(
        (end - len(text) - len(_BETWEEN_SIDES), end - len(_BETWEEN_SIDES))
        for text, end in zip(texts, ends, strict=True)
    )
    return Record(label, size, _BETWEEN_SIDES.join(texts), sum(repaired), start=start, spans=spans)


def _fault(together: tuple[TextLine, ...], contents: list[bytes]) -> str:
    if faults := [line.fault for line in together if line.fault]:
        return faults[0]
    if all(contents):
        return ""
    return "one_sided" if any(contents) else BETWEEN
