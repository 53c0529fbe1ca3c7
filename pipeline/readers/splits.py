"""Sources -> splits of about equal work -> records. A record is one document, or bytes that cannot become one.

Nothing in this module depends on a format. The files, ranges, records and signatures of a format are defined by its
reader (reader.py).
"""

import glob
import json
import os
import shlex
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import xxhash

from pipeline.readers import files
from pipeline.readers.companions import is_about_data
from pipeline.readers.file_ranges import FileRange, weight
from pipeline.readers.files import InputFile, find, has_mark, local, plain_suffix
from pipeline.readers.reader import FileProbe, FileReader, Reader
from pipeline.readers.record import Record
from pipeline.readers.unsupported import describe_format, match_signature, require_as_called
from pipeline.readers.walk import report_skipped
from pipeline.readers.zip_archive import is_archive
from preprocessing import renames
from preprocessing.errors import BadInput

SPLIT_BYTES: Final = 8 << 20  # bytes of text: seconds of work
MOST_SPLITS: Final = 4096  # if there would be more, the splits become larger
MOST_PIECES: Final = 4096
READER_VERSION: Final = 4  # increase this if the same input yields other documents or another plan
_PROSE: Final = "text"  # format of a README or a license, which is not read if the directory has data files
_TEXTS: Final = (".txt", ".text", ".md", "")  # file extensions of prose
_FIELDS: Final = ("text_key", "element")  # keys that select the text in a file
_NEWER: Final = ("url_key", "keep")  # keys that were added later, empty by default
_MOST_LOOKED_AT: Final = 20  # files tested per extension of a directory
_MOST_SHOWN: Final = 6
_ONE_FILE: Final = ":FILE"  # end of the remedy for an unread file
R = TypeVar("R", bound=Reader)


@dataclass(frozen=True)
class InputSplit:
    """The input that one worker reads at a time. The name identifies the input and how it is read."""

    name: str
    source: Reader
    pieces: tuple[FileRange, ...]

    @property
    def weight(self) -> int:
        """Approximate number of bytes of text."""
        return sum(piece.weight for piece in self.pieces)


def plan_splits(sources: Sequence[Reader]) -> list[InputSplit]:
    """The splits of all sources. Their order does not depend on that of the sources.

    Raises BadInput if a source has no files.
    """
    found = [(source, source.files()) for source in sources]
    for source, all_sides in found:
        if not source.located:
            continue  # the user neither named nor downloaded these files
        files = [file for sides in all_sides for file in sides]
        _report_html_pages(source, require_as_called(files), len(files))
    total = sum(weight(file, file.size) for _, files in found for sides in files for file in sides)
    step = max(SPLIT_BYTES, total // MOST_SPLITS)
    splits = [
        InputSplit(_name(source, pieces), source, pieces)
        for source, files in found
        for pieces in _group((piece for sides in files for piece in source.pieces(sides, step)), step)
    ]
    return sorted(splits, key=lambda split: (split.pieces[0].file.label, split.pieces[0].start, split.name))


def _report_html_pages(source: Reader, pages: list[InputFile], num_files: int) -> None:
    """Report HTML pages among text files, because their tags become text. They are often error pages of a server."""
    pages = [file for file in pages if plain_suffix(file.path) in _TEXTS]
    if source.kind == _PROSE and 0 < len(pages) < num_files:
        report_skipped(
            f"{source.place}: HTML pages are read as text, including tags: {pages[0].label}{_more(len(pages) - 1)}; "
            "remove error pages, and move other pages to their own directory or rename them to .html"
        )


def _group(pieces: Iterator[FileRange], step: int) -> Iterator[tuple[FileRange, ...]]:
    """Consecutive file ranges in groups of about `step` bytes of text."""
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
    made_of = json.dumps([READER_VERSION, causes_of(source), pieces])
    return f"text-{xxhash.xxh3_64(made_of.encode()).hexdigest()}.arrow"


def records(split: InputSplit, max_chars: int) -> Iterator[Record]:
    """The records of a split, in order. Documents certain to exceed `max_chars` have no text."""
    for piece in split.pieces:
        yield from piece_records(split.source, piece, max_chars)


def piece_records(source: Reader, piece: FileRange, max_chars: int) -> Iterator[Record]:
    """Like `records`, for one file range. An empty file is truncated if its format requires a signature."""
    limit = 4 * max_chars + 4096  # UTF-8 takes at most 4 bytes per character; the rest is for tags
    if piece.file.size:
        yield from source.records(piece, limit)
    else:
        yield Record(piece.file.label, 0, fault="truncated" if has_mark(piece.file) else "")


def portable(source: Reader) -> dict[str, object]:
    """The keys and values of a source, without local paths."""
    return {key: value for key, value in causes_of(source).items() if key not in source.located}


def causes_of(source: Reader) -> dict[str, Any]:
    """The keys and values of a source that determine its documents.

    Keys that are newer than the first corpora are omitted if empty, so that those corpora keep their hashes.
    """
    return {key: value for key, value in asdict(source).items() if value or key not in _NEWER}


def parse_named_source(given: str, readers: Sequence[type[R]]) -> tuple[str, R] | None:
    """The name in `NAME:PLACE` and its source; None for a path or URL that does not begin with a reader name."""
    name, colon, place = given.partition(":")
    reader = next((reader for reader in readers if name in reader.names), None)
    if reader is None or not colon or place.startswith("//"):
        now = renames.new_value("sources", name, "kind")
        if now and colon and not os.path.lexists(given):
            raise BadInput(f"{given}: {renames.answer(f'{name}:', f'{now}:')}")
        return None
    place, field = _with_field(place)
    try:
        return name, _of_field(reader.from_name(name, place), field, given)
    except ValueError as error:
        raise BadInput(f"{given}: {error}") from None


def _with_field(place: str) -> tuple[str, str]:
    """Split `PATH#FIELD` into path and field. The field is "" if there is none or if # is part of the file name.

    >>> _with_field("news.jsonl#body"), _with_field("news.jsonl")
    (('news.jsonl', 'body'), ('news.jsonl', ''))
    """
    path, mark, field = place.rpartition("#")
    return (path, field) if mark and path and not os.path.lexists(place) else (place, "")


def _of_fields(sources: list[R], field: str, given: str) -> list[R]:
    """The sources with this text key, if their format has one. Raises BadInput if no format has one."""
    any_has = any(map(_has_field, sources))
    return [_of_field(s, field if _has_field(s) or not any_has else "", given) for s in sources]


def _of_field(source: R, field: str, given: str) -> R:
    """The source with this text key. Raises BadInput if its format has none."""
    if not field:
        return source
    key = next((key for key in _FIELDS if key in source.__dataclass_fields__), "")
    if not key:
        raise BadInput(f"{given}: invalid #{field}: the format {source.kind} has no fields; remove it")
    return replace(source, **{key: field})


def absolute(given: str, folder: Path, readers: Sequence[type[R]]) -> str:
    """`PATH` or `NAME:PLACE` with absolute paths, resolved relative to `folder`."""
    found = parse_named_source(given, readers)
    return f"{found[0]}:{found[1].resolve_paths(folder).place}" if found else files.absolute(given, folder)


def list_unread_files(sources: Sequence[Reader], readers: Sequence[type[Reader]]) -> list[str]:
    """Messages about files that no source reads, one per directory; [] if the sources read all files.

    The card and the license of a dataset, and the files that `describe` of a source reports, are not reported.
    """
    located = [source for source in sources if "path" in source.located]
    folders = dict.fromkeys(source.place for source in located if _may_be_folder(source.place))
    if not folders:
        return []
    read = {file.path for source in located for sides in source.files() for file in sides}
    read |= {file.path for source in located if isinstance(source, FileReader) for file in source.list_left_out()}
    return [line for folder in folders for line in _list_unread(folder, read, readers)]


def _may_be_folder(path: str) -> bool:
    return files.is_url(local(path)) or Path(local(path)).is_dir() or is_archive(path)


def _list_unread(folder: str, read: Set[str], readers: Sequence[type[Reader]]) -> list[str]:
    looked_at, groups = dict[str, list[str]](), dict[str, list[InputFile]]()
    for file in find(folder):
        if file.path in read or is_about_data(file.label, _start_of_text(file)):
            continue
        alike = looked_at.setdefault(plain_suffix(file.path), [])
        what = _describe_unread(file, readers) if len(alike) < _MOST_LOOKED_AT else alike[0]
        alike.append(what)
        groups.setdefault(what, []).append(file)
    if not groups:
        return []
    unread = {file.path for each in groups.values() for file in each}
    shown = []
    for what, each in groups.items():
        others = (read | unread) - {file.path for file in each}
        remedy = _with_pattern(what, Path(local(folder)), each, others)
        shown.append(f"{each[0].label}{_more(len(each) - 1)} ({remedy})")
    more = sum(map(len, list(groups.values())[_MOST_SHOWN:]))
    return [f"{folder}: files not read: {'; '.join(shown[:_MOST_SHOWN])}{_more(more)}"]


def _start_of_text(file: InputFile) -> bytes:
    """The first bytes of a file whose name ends in .md; b"" for others, which need not be read."""
    return files.read_stored_head(file.path) if plain_suffix(file.path) == ".md" else b""


def _with_pattern(what: str, folder: Path, found: Sequence[InputFile], others: Set[str]) -> str:
    """The description of several files with a glob for them, if they are local and no other file matches it."""
    suffixes = {"".join(Path(file.path).suffixes[-2 if file.compression else -1 :]) for file in found}
    kind, ending = what.partition(";")[0], suffixes.pop()
    is_shared = any(path.endswith(ending) for path in others)
    if not what.endswith(_ONE_FILE) or len(found) < 2 or suffixes or not ending or is_shared or not folder.is_dir():
        return what
    below = "**/" if any(Path(file.path).parent != folder for file in found) else ""
    pattern = f"{glob.escape(str(folder))}/{below}*{ending}"
    return f"{kind}; to read them, pass --data {shlex.quote(f'{kind}:{pattern}')}"


def _describe_unread(file: InputFile, readers: Sequence[type[Reader]]) -> str:
    """What an unread file looks like, and a remedy."""
    try:
        source = _of_group(file.path, "text", [file], False, True, readers)
    except BadInput as error:
        return str(error).removeprefix(f"{file.path}: ")
    return (
        f"{source.kind}; to read it, pass --data {source.kind}{_ONE_FILE}"
        if source
        else "; ".join(describe_format(file))
    )


def _more(count: int) -> str:
    """The end of a shortened list of names.

    >>> _more(2), _more(-1)
    (' and 2 more', '')
    """
    return f" and {count:,} more" if count > 0 else ""


def recognise(given: str, readers: Sequence[type[R]]) -> list[R]:
    """The sources at a path, one for each format of its files. `NAME:PLACE` selects a format.

    Files of a directory are grouped by file extension. The first file of a group that a reader recognizes determines
    the format of the group; differing files are reported. A text file next to tables or JSON Lines is taken for a
    README and not read; `left_out` reports it.

    Raises BadInput if no file can be read, and describes what the files look like.
    """
    if forced := parse_named_source(given, readers):
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
        _report_differing_files(path, source, group, readers)
        sources.setdefault(_key(source), (source, []))[1].append(ending)
        if _reads_a_folder(source, path):
            return [source]
    if not sources:
        raise why[0] if why else _unreadable_error(path, files, readers)
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
    """Raise BadInput if a pattern matches several formats, because each source would read all matching files."""
    if len(sources) > 1 and _is_pattern(path):
        kinds = " and ".join(dict.fromkeys(source.kind for source in sources))
        raise BadInput(
            f"{path}: pattern matches several formats: {kinds}; pass one pattern per format, or their directory"
        )


def sniff(path: str, readers: Sequence[type[R]]) -> R:
    """The only source of `recognise`. Raises BadInput if there are several."""
    found = recognise(path, readers)
    if len(found) > 1:
        kinds = " and ".join(source.kind for source in found)
        raise BadInput(f"{path}: several formats: {kinds}; select one with KIND:PATH")
    return found[0]


def _of_group(
    path: str, field: str, group: list[InputFile], alone: bool, first: bool, readers: Sequence[type[R]]
) -> R | None:
    """The source for the first of these files that a reader recognizes; None if there is none."""
    for number, file in enumerate(group[:_MOST_LOOKED_AT]):
        sample = FileProbe(path, file, alone, first and number == 0, field)
        if match_signature(sample.start):
            continue
        for reader in readers:
            if (source := reader.looks_like(sample)) is not None:
                return source
    return None


def _report_differing_files(path: str, source: Reader, group: list[InputFile], readers: Sequence[type[Reader]]) -> None:
    """Report sampled files of a group that are read as one format but look like another."""
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
            f"{path}: read as {source.kind}, like other files with this extension, but some of {len(looked_at)} "
            f"sampled files look different: {shown}; use a separate directory or file extension for each format, or "
            "select one with KIND:PATH"
        )


def _key(source: Reader) -> str:
    """A key that is equal for sources that differ only in their file extensions."""
    return json.dumps({key: value for key, value in asdict(source).items() if key != "extensions"}, sort_keys=True)


def _reads_a_folder(source: Reader, path: str) -> bool:
    """Whether a file in the directory lists the files of the source."""
    return source.of_folder and path == source.place


def _of_endings(source: R, endings: list[str], several: bool) -> R:
    """The source restricted to these extensions, if there are several sources or its defaults do not include them."""
    named = several or (source.usual and not set(source.usual).issuperset(endings))
    if not named or not _has_endings(source):
        return source
    return replace(source, extensions=tuple(sorted(endings)))


def _is_pattern(path: str) -> bool:
    return glob.has_magic(path) and not os.path.lexists(path)


def _check_ending(source: Reader, file: InputFile) -> None:
    """Raise BadInput if a source reads only files with fixed extensions and this file has another one."""
    if not _has_endings(source) and source.usual and plain_suffix(file.path) not in source.usual:
        raise BadInput(
            f"{file.path}: wrong file extension for its content, {source.kind}; rename it to "
            f"{' or '.join(source.usual)}"
        )


def _has_endings(source: Reader) -> bool:
    """Whether the source has the key `extensions`."""
    return "extensions" in source.__dataclass_fields__


def _has_field(source: Reader) -> bool:
    return any(key in source.__dataclass_fields__ for key in _FIELDS)


def _unreadable_error(path: str, files: list[InputFile], readers: Sequence[type[Reader]]) -> BadInput:
    """The error for a path without a readable file."""
    (what, todo), more = describe_format(files[0]), _more(len(files) - 1)
    name = "" if len(files) == 1 else f"{files[0].label} is "
    names = ", ".join(sorted(name for reader in readers for name in reader.names))
    return BadInput(
        f"{path}: no readable text: {name}{what}{more}; {todo}, or pass KIND:PATH, where KIND is one of {names}"
    )
