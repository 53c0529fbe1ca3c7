"""Sources -> splits of about equal work -> records: one for each document, or for bytes that cannot become one.

Nothing in here depends on a format: its files, its cuts, its records and its marks are facts of a reader (reader.py).
"""

import glob
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import xxhash

from pipeline.readers import files
from pipeline.readers.file_ranges import FileRange, weight
from pipeline.readers.files import InputFile, find, has_mark, local, plain_suffix
from pipeline.readers.reader import FileProbe, Reader
from pipeline.readers.record import Record
from pipeline.readers.unsupported import describe_format, match_signature, require_as_called
from pipeline.readers.walk import report_skipped
from pipeline.readers.zip_archive import is_archive
from preprocessing import renames
from preprocessing.errors import BadInput

SPLIT_BYTES: Final = 8 << 20  # of text: seconds of work
MOST_SPLITS: Final = 4096  # of a large input: its splits are larger
MOST_PIECES: Final = 4096
READER_VERSION: Final = 4  # one more whenever the same input gives other documents, or another plan
_PROSE: Final = "text"  # the kind of files that are left out beside formats that lead: a README, a licence
_TEXTS: Final = (".txt", ".text", ".md", "")  # endings of prose
_FIELDS: Final = ("text_key", "element")  # keys that name where in a file its text is
_MOST_LOOKED_AT: Final = 20  # files of a folder with one ending
_MOST_SHOWN: Final = 6
R = TypeVar("R", bound=Reader)


@dataclass(frozen=True)
class InputSplit:
    """What one worker reads at a time. Its name tells the same input, read in the same way."""

    name: str
    source: Reader
    pieces: tuple[FileRange, ...]

    @property
    def weight(self) -> int:
        """About how many bytes of text it has."""
        return sum(piece.weight for piece in self.pieces)


def plan_splits(sources: Sequence[Reader]) -> list[InputSplit]:
    """The splits of all sources, in an order that does not depend on theirs; BadInput where a source names nothing."""
    found = [(source, source.files()) for source in sources]
    for source, all_sides in found:
        if not source.located:
            continue  # nobody has named or fetched its files
        files = [file for sides in all_sides for file in sides]
        _say_pages(source, require_as_called(files), len(files))
    total = sum(weight(file, file.size) for _, files in found for sides in files for file in sides)
    step = max(SPLIT_BYTES, total // MOST_SPLITS)
    splits = [
        InputSplit(_name(source, pieces), source, pieces)
        for source, files in found
        for pieces in _grouped((piece for sides in files for piece in source.pieces(sides, step)), step)
    ]
    return sorted(splits, key=lambda split: (split.pieces[0].file.label, split.pieces[0].start, split.name))


def _say_pages(source: Reader, pages: list[InputFile], num_files: int) -> None:
    """Say which files of a text are pages of HTML, whose tags become text: what a server says of an error, perhaps."""
    pages = [file for file in pages if plain_suffix(file.path) in _TEXTS]
    if source.kind == _PROSE and 0 < len(pages) < num_files:
        report_skipped(
            f"{source.place}: pages of HTML among text, with all tags: {pages[0].label}{_more(len(pages) - 1)}; take "
            "out what are errors of a server, and give pages a folder of their own, or the ending .html"
        )


def _grouped(pieces: Iterator[FileRange], step: int) -> Iterator[tuple[FileRange, ...]]:
    """Consecutive pieces in groups of about `step` bytes of text."""
    group, weight = list[FileRange](), 0
    for piece in pieces:
        group.append(piece)
        weight += piece.weight
        if weight >= step or len(group) >= MOST_PIECES:
            yield tuple(group)
            group, weight = [], 0
    if group:
        yield tuple(group)


def _name(source: Reader, pieces: tuple[FileRange, ...]) -> str:
    made_of = json.dumps([READER_VERSION, asdict(source), pieces])
    return f"text-{xxhash.xxh3_64(made_of.encode()).hexdigest()}.arrow"


def records(split: InputSplit, max_chars: int) -> Iterator[Record]:
    """What the files of a split hold, in order; documents of surely more than `max_chars` come without their text."""
    for piece in split.pieces:
        yield from piece_records(split.source, piece, max_chars)


def piece_records(source: Reader, piece: FileRange, max_chars: int) -> Iterator[Record]:
    """As `records`, of one piece. An empty file of a format that has a beginning is cut off before it."""
    limit = 4 * max_chars + 4096  # UTF-8 takes at most 4 bytes a character; the rest is for tags
    if piece.file.size:
        yield from source.records(piece, limit)
    else:
        yield Record(piece.file.label, 0, fault="truncated" if has_mark(piece.file) else "")


def portable(source: Reader) -> dict[str, object]:
    """The keys of a source and their values, without the paths of this machine."""
    return {key: value for key, value in asdict(source).items() if key not in source.located}


def named(given: str, readers: Sequence[type[R]]) -> tuple[str, R] | None:
    """The name in `NAME:PLACE` and the source that it means; None for a path or URL without the name of a reader."""
    name, colon, place = given.partition(":")
    reader = next((reader for reader in readers if name in reader.names), None)
    if reader is None or not colon or place.startswith("//"):
        now = renames.new_value("sources", name, "kind")
        if now and colon and not os.path.lexists(given):
            raise BadInput(f"{given}: {renames.answer(f'{name}:', f'{now}:')}")
        return None
    place, field = _with_field(place)
    try:
        return name, _of_field(reader.named(name, place), field, given)
    except ValueError as error:
        raise BadInput(f"{given}: {error}") from None


def _with_field(place: str) -> tuple[str, str]:
    """The path and the field in `PATH#FIELD`; "" for a path alone, as one with a # in its name.

    >>> _with_field("news.jsonl#body"), _with_field("news.jsonl")
    (('news.jsonl', 'body'), ('news.jsonl', ''))
    """
    path, mark, field = place.rpartition("#")
    return (path, field) if mark and path and not os.path.lexists(place) else (place, "")


def _of_fields(sources: list[R], field: str, given: str) -> list[R]:
    """The sources with another field, where their formats have one; BadInput where none has."""
    any_has = any(map(_has_field, sources))
    return [_of_field(s, field if _has_field(s) or not any_has else "", given) for s in sources]


def _of_field(source: R, field: str, given: str) -> R:
    """The source with another field; BadInput where its format has none."""
    if not field:
        return source
    key = next((key for key in _FIELDS if key in source.__dataclass_fields__), "")
    if not key:
        raise BadInput(f"{given}: #{field} names a field, but {source.kind} has none; leave it out")
    return replace(source, **{key: field})


def absolute(given: str, folder: Path, readers: Sequence[type[R]]) -> str:
    """`PATH` or `NAME:PLACE` with absolute paths, seen from `folder`."""
    found = named(given, readers)
    return f"{found[0]}:{found[1].anchored(folder).place}" if found else files.absolute(given, folder)


def left_out(sources: Sequence[Reader], readers: Sequence[type[Reader]]) -> list[str]:
    """Which files of their folders sources do not read, a line for each folder; none where they read all of them."""
    of_folder: dict[str, list[Reader]] = {}
    for source in sources:
        if "path" in source.located and _may_be_folder(source.place):
            of_folder.setdefault(source.place, []).append(source)
    return [line for folder, ours in of_folder.items() for line in _left_out(folder, ours, readers)]


def _may_be_folder(path: str) -> bool:
    return files.is_url(local(path)) or Path(local(path)).is_dir() or is_archive(path)


def _left_out(folder: str, sources: Sequence[Reader], readers: Sequence[type[Reader]]) -> list[str]:
    read = {file.path for source in sources for sides in source.files() for file in sides}
    looked_at, groups = dict[str, list[str]](), dict[str, list[InputFile]]()
    for file in find(folder):
        if file.path in read:
            continue
        alike = looked_at.setdefault(plain_suffix(file.path), [])
        said = _said(file, readers) if len(alike) < _MOST_LOOKED_AT else alike[0]
        alike.append(said)
        groups.setdefault(said, []).append(file)
    if not groups:
        return []
    shown = [f"{each[0].label}{_more(len(each) - 1)} ({said})" for said, each in groups.items()]
    more = sum(map(len, list(groups.values())[_MOST_SHOWN:]))
    return [f"{folder}: left out: {'; '.join(shown[:_MOST_SHOWN])}{_more(more)}"]


def _said(file: InputFile, readers: Sequence[type[Reader]]) -> str:
    """What a file that is not read looks like, and what to do."""
    try:
        source = _of_group(file.path, "text", [file], False, True, readers)
    except BadInput as error:
        return str(error).removeprefix(f"{file.path}: ")
    return f"{source.kind}; --data {source.kind}:FILE reads it" if source else "; ".join(describe_format(file))


def _more(count: int) -> str:
    """How a list of names goes on.

    >>> _more(2), _more(-1)
    (' and 2 more', '')
    """
    return f" and {count:,} more" if count > 0 else ""


def recognise(given: str, readers: Sequence[type[R]]) -> list[R]:
    """The sources that a path looks like, one for each format that its files have; `NAME:PLACE` forces one.

    Files of a folder are known by their endings: the first one of each that a reader recognises speaks for the others,
    and where some of these look otherwise, that is said.
    Prose beside tables and JSON lines is a README, and left out; what is left out, `left_out` says.
    BadInput where no file of it can be read, with what it looks like.
    """
    if forced := named(given, readers):
        return [forced[1]]
    path, field = _with_field(given)
    files = find(path)
    groups = _by_ending(files)
    in_folder = [file.path for file in files] != [local(path)] and not _is_pattern(path)
    leads = {ending for reader in readers for ending in reader.leads}
    sources, others, why = dict[str, tuple[R, list[str]]](), 0, list[BadInput]()
    usual = leads.union(_TEXTS, *(reader.usual for reader in readers))
    for ending, group in sorted(groups.items(), key=lambda item: item[0] not in leads):
        if ending in usual or len(files) == 1:
            require_as_called(group[:_MOST_LOOKED_AT])
        try:
            source = _of_group(path, field or "text", group, len(files) == 1, not sources and not others, readers)
            if source is not None and in_folder and not _reads_a_folder(source, path):
                _check_ending(source, group[0])
        except BadInput as error:
            why.append(error)
            source = None
        is_readme = source is not None and source.kind == _PROSE and sources and leads.intersection(groups)
        if source is None or (is_readme and not _is_pattern(path)):
            others += 1
            continue
        _say_what_differs(path, source, group, readers)
        sources.setdefault(_key(source), (source, []))[1].append(ending)
        if _reads_a_folder(source, path):
            return [source]
    if not sources:
        raise why[0] if why else _refused(path, files, readers)
    several = len(sources) > 1 or others > 0
    found = [_of_endings(source, ends, several) if in_folder else source for source, ends in sources.values()]
    _check_pattern(path, found)
    return _of_fields(found, field, given)


def _by_ending(files: Sequence[InputFile]) -> dict[str, list[InputFile]]:
    groups: dict[str, list[InputFile]] = {}
    for file in files:
        groups.setdefault(plain_suffix(file.path), []).append(file)
    return groups


def _check_pattern(path: str, sources: Sequence[Reader]) -> None:
    """BadInput where a pattern matches several formats: each would read all files that it matches."""
    if len(sources) > 1 and _is_pattern(path):
        kinds = " and ".join(dict.fromkeys(source.kind for source in sources))
        raise BadInput(f"{path}: matches {kinds}; give each a pattern of its own, or their folder")


def sniff(path: str, readers: Sequence[type[R]]) -> R:
    """The only source of `recognise`; BadInput where there are several."""
    found = recognise(path, readers)
    if len(found) > 1:
        kinds = " and ".join(source.kind for source in found)
        raise BadInput(f"{path}: holds {kinds}; name one with KIND:PATH")
    return found[0]


def _of_group(
    path: str, field: str, group: list[InputFile], alone: bool, first: bool, readers: Sequence[type[R]]
) -> R | None:
    """The source that the first of these files that is recognised looks like."""
    for number, file in enumerate(group[:_MOST_LOOKED_AT]):
        sample = FileProbe(path, file, alone, first and number == 0, field)
        if match_signature(sample.start):
            continue
        for reader in readers:
            if (source := reader.looks_like(sample)) is not None:
                return source
    return None


def _say_what_differs(path: str, source: Reader, group: list[InputFile], readers: Sequence[type[Reader]]) -> None:
    """Say which files of a group, of some that are looked at, are read as one format and look like another one."""
    looked_at = group[:: -(-len(group) // _MOST_LOOKED_AT)] if len(group) > 1 else []
    differ: dict[str, list[InputFile]] = {}
    for file in looked_at:
        with suppress(BadInput):
            found = _of_group(path, "text", [file], False, False, readers)
            if found is not None and found.kind != source.kind:
                differ.setdefault(found.kind, []).append(file)
    if differ:
        shown = "; ".join(f"{each[0].label}{_more(len(each) - 1)} ({kind})" for kind, each in differ.items())
        report_skipped(
            f"{path}: read as {source.kind}, as other files with this ending are, but of {len(looked_at)} looked at "
            f"these seem to be something else: {shown}; give each format a folder or an ending of its own, or name one "
            "with KIND:PATH"
        )


def _key(source: Reader) -> str:
    """What sources have in common that differ only in the endings of their files."""
    return json.dumps({key: value for key, value in asdict(source).items() if key != "extensions"}, sort_keys=True)


def _reads_a_folder(source: Reader, path: str) -> bool:
    """Whether the folder itself says what it holds."""
    return source.of_folder and path == source.place


def _of_endings(source: R, endings: list[str], several: bool) -> R:
    """The source with only those files of its folder, where it is one of several, or does not read them by itself."""
    named = several or (source.usual and not set(source.usual).issuperset(endings))
    if not named or not _has_endings(source):
        return source
    return replace(source, extensions=tuple(sorted(endings)))


def _is_pattern(path: str) -> bool:
    return glob.has_magic(path) and not os.path.lexists(path)


def _check_ending(source: Reader, file: InputFile) -> None:
    """BadInput where a format has endings of its own, and a file of a folder none of these: it would not be read."""
    if not _has_endings(source) and source.usual and plain_suffix(file.path) not in source.usual:
        raise BadInput(
            f"{file.path}: is a {source.kind} by what it holds, but not by its name; give it the ending "
            f"{' or '.join(source.usual)}"
        )


def _has_endings(source: Reader) -> bool:
    """Whether a key of the source says which files of a folder it reads."""
    return "extensions" in source.__dataclass_fields__


def _has_field(source: Reader) -> bool:
    return any(key in source.__dataclass_fields__ for key in _FIELDS)


def _refused(path: str, files: list[InputFile], readers: Sequence[type[Reader]]) -> BadInput:
    """Why a path cannot be read."""
    (what, todo), more = describe_format(files[0]), _more(len(files) - 1)
    name = "" if len(files) == 1 else f"{files[0].label} is "
    names = ", ".join(sorted(name for reader in readers for name in reader.names))
    return BadInput(
        f"{path}: holds no text: {name}{what}{more}; {todo}, or say KIND:PATH, where KIND is one of {names}"
    )
