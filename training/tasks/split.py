"""The files of a task: which of them are for training, development and test, and which columns have what."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, key, require, spec
from training.files import Formats, Record, RecordFault, Records, exists, read

Values = Mapping[str, tuple[str, ...]]  # some values of each column
Made = TypeVar("Made")
_MOST_BAD: Final = 0.5  # share of rows that are left out as no questions of the task
_AND: Final = " + "  # between columns whose texts are read as one, with a blank between


@spec
class SplitRecords:
    """Files of one split, below the data directory.

    The first of `paths` that exists is read; * and ? are wildcards, and ../ is the parent of the data directory. If
    none exists, `fallbacks` has other places with their own formats and columns.
    """

    paths: tuple[str, ...] = key(doc="Possible paths, with * and ?; the first that exists is read.")
    format: Annotated[Formats, BY_KIND] = key(doc="File format.")
    archive_member: str = key(default="", doc="Path in an archive; empty: the file is no archive.")
    columns: Mapping[str, str] = key(
        default_factory=dict, doc='Columns that replace those of the task; "": the split has none.'
    )
    include: Values = key(default_factory=dict, doc="Values by column; records without one of them are left out.")
    exclude: Values = key(default_factory=dict, doc="Values by column; records with one of them are left out.")
    value_map: Mapping[str, Mapping[str, str]] = key(default_factory=dict, doc="Replacement of values, by column.")
    folds: tuple[int, ...] = key(
        default=(), doc="Tenths of the records to use, from 0 to 9, if one file has several splits; []: all."
    )
    fold_by: str = key(
        default="", doc="Column whose equal values stay in one tenth, e.g. a premise; empty: each record separately."
    )
    aligned_files: Mapping[str, tuple[str, str]] = key(
        default_factory=dict, doc="Columns from aligned files: a part of the file name, and its replacement there."
    )
    fallbacks: tuple["SplitRecords", ...] = key(
        default=(), doc="Alternatives if none of the paths exists; the first that exists is read."
    )

    def __post_init__(self) -> None:
        require(len(self.paths) > 0, "paths", [], "one path or more")
        require(set(self.folds) <= set(range(10)), "folds", list(self.folds), "whole numbers from 0 to 9")

    def records(self, data: Path) -> Records:
        """What the files have. BadInput, in one line, where none of the paths is there."""
        chosen = self.chosen(data)
        found = read(data, chosen._path(data), chosen.format, chosen.archive_member)
        for column, names in chosen.aligned_files.items():
            found = chosen._beside(found, column, names, data)
        return of_whole_rows(chosen._kept, found)[0]

    def _beside(self, found: Records, column: str, names: tuple[str, str], data: Path) -> Records:
        """The records with a column more, the first of each record of the files beside. One that has none on its line
        there, or here, is malformed: blank lines are no records. BadInput where not both end on the same line."""
        others = read(data, _other(self._path(data), names), self.format, self.archive_member)
        beside = [_other(place, names) for place in found.places]
        if beside[-1:] != others.places[-1:]:
            ends = " and ".join(places[-1] if places else "nowhere" for places in (found.places, others.places))
            raise BadInput(f"{data}: the last records stand at {ends}; give aligned files")
        values = {place: next(iter(row.values())) for row, place in zip(others.rows, others.places, strict=True)}
        kept = replace(found, rows=[], places=[], malformed=[*found.malformed])
        for row, place, there in zip(found.rows, found.places, beside, strict=True):
            has = there in values
            kept.add({**row, column: values.pop(there)} if has else RecordFault(f"nothing stands at {there}"), place)
        for there in values:
            kept.add(RecordFault("nothing stands on this line of the file that it is aligned with"), there)
        return kept

    def chosen(self, data: Path) -> "SplitRecords":
        """Itself or the one of `fallbacks` whose files are there; BadInput where none is."""
        for one in (self, *self.fallbacks):
            if one._path(data):
                return one
        paths = [path for one in (self, *self.fallbacks) for path in one.paths]
        raise BadInput(f"{data}: has no {' and no '.join(paths)}; name the folder with --task-data-dir")

    def is_there(self, data: Path) -> bool:
        """Whether one of its paths leads to a file."""
        return any(one._path(data) for one in (self, *self.fallbacks))

    def _path(self, data: Path) -> str:
        return next((path for path in self.paths if exists(data, path)), "")

    def _kept(self, found: Records) -> Records:
        """The records that belong to the split, with the values that the task knows."""
        if not (self.include or self.exclude or self.value_map or self.folds):
            return found
        kept = replace(found, rows=[], places=[])
        for number, (row, place) in enumerate(zip(found.rows, found.places, strict=True)):
            if self.folds and self._tenth(row, place, number) not in self.folds:
                continue
            if any(not _is_among(value_of(row, column, place), values) for column, values in self.include.items()):
                kept.others += 1
                continue
            if any(_is_among(value_of(row, column, place), values) for column, values in self.exclude.items()):
                kept.left_out += 1
                continue
            kept.add(self._renamed(row, place), place)
        return kept

    def _tenth(self, record: Record, place: str, number: int) -> int:
        value = str(value_of(record, self.fold_by, place)) if self.fold_by else str(number)
        return int.from_bytes(hashlib.sha256(value.encode()).digest()[:8]) % 10

    def _renamed(self, record: Record, place: str) -> Record:
        found = {column: value_of(record, column, place) for column in self.value_map}
        for column, value in found.items():
            name = next((name for name in spellings(value) if name in self.value_map[column]), None)
            found[column] = value if name is None else self.value_map[column][name]
        return {**record, **found}


def _other(name: str, names: tuple[str, str]) -> str:
    """The name or place beside a name or place in one of two aligned files.

    >>> _other("europarl.en:7", (".en", ".de"))
    'europarl.de:7'
    """
    return names[1].join(name.rsplit(names[0], 1))


def spellings(value: Any) -> tuple[str, ...]:
    """How a task file may write a value of a record: JSON's true as `true` or `True`, 1.0 as `1.0` or `1`.

    >>> spellings(True), spellings(1.0), spellings("true")
    (('true', 'True'), ('1.0', '1'), ('true',))
    """
    if isinstance(value, bool):
        return str(value).lower(), str(value)
    if isinstance(value, float) and value.is_integer():
        return str(value), str(int(value))
    return (str(value),)


def _is_among(value: Any, values: Sequence[str]) -> bool:
    return any(name in values for name in spellings(value))


NO_LABEL_GIVEN: Final = "-1"  # what stands in the place of a label that is kept back


def is_missing(value: Any) -> bool:
    """Whether a record has nothing in the place of an answer: null, a blank cell, a NaN.

    >>> [is_missing(value) for value in (None, " ", float("nan"), 0, False, "0")]
    [True, True, True, False, False, False]
    """
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def label_of(value: Any, labels: Sequence[str]) -> str | None:
    """Which of these labels a value of a record is; None where the record has none: nothing, or -1 where that is no
    label (GLUE's tests). ValueError where it is another.

    >>> label_of(True, ["false", "true"]), label_of(-1, ["0", "1"]), label_of("", ["0", "1"])
    ('true', None, None)
    """
    if value is None:
        return None
    names = spellings(value)
    if found := next((name for name in names if name in labels), None):
        return found
    if is_missing(value) or NO_LABEL_GIVEN in names:
        return None
    raise ValueError(value)


class NoColumn(BadInput):
    """A record has not the column that is asked for."""

    column: str


class BadRows(BadInput):
    """Records that are no questions of a task, and why: by their numbers."""

    why: dict[int, str]


def each_row(records: Records, make: Callable[[Record, str], Made]) -> list[Made]:
    """What is made of each record and its place. BadRows, with all of those of which nothing can be made; NoColumn
    where one has not a column that is asked for."""
    found, why = list[Made](), dict[int, str]()
    for number, (record, place) in enumerate(zip(records.rows, records.places, strict=True)):
        try:
            found.append(make(record, place))
        except NoColumn:
            raise
        except BadInput as error:
            why[number] = str(error)
    if why:
        raise bad_rows_error(why, len(records))
    return found


def bad_rows_error(why: dict[int, str], of: int) -> BadRows:
    """The error of records that are no questions, in one line."""
    others = f"; {len(why) - 1:,} more of {of:,} rows cannot be used" if len(why) > 1 else ""
    error = BadRows(f"{next(iter(why.values()))}{others}")
    error.why = why
    return error


def of_whole_rows(make: Callable[[Records], Made], records: Records) -> tuple[Made, Records]:
    """What is made of the records, and those that it is made of: others, which lack a column that some have, or are no
    questions of the task, are malformed. NoColumn where none has the column, BadRows where most are no questions: the
    task file is wrong then."""
    while True:
        try:
            return make(records), records
        except NoColumn as error:
            lacking = {n: said for n, row in enumerate(records.rows) if (said := _lacks(row, error.column))}
            if len(lacking) == len(records):
                raise
            records = _without(records, lacking)
        except BadRows as error:
            if len(error.why) > _MOST_BAD * len(records):
                raise
            why = {n: text.removeprefix(f"{records.places[n]}: ") for n, text in error.why.items()}
            records = _without(records, why)


def _without(records: Records, why: Mapping[int, str]) -> Records:
    """The records but for those with these numbers, which are malformed."""
    found = replace(records, rows=[], places=[], malformed=[*records.malformed])
    for number, (row, place) in enumerate(zip(records.rows, records.places, strict=True)):
        found.add(RecordFault(why[number]) if number in why else row, place)
    return found


def _lacks(record: Record, column: str) -> str:
    """That a record has not a column, "" where it has."""
    try:
        value_of(record, column, "")
    except NoColumn as error:
        if column.lstrip("-").isdigit():
            return f"{len(record) // 2} columns, column {column} is asked for (the first one is 0)"
        return str(error).removeprefix(": ")
    return ""


def value_of(record: Record, column: str, place: str) -> Any:
    """What a record has in a column, which a dotted name or a number names; BadInput where it has none.

    Names with " + " between are columns whose texts are read as one. A name below a list is what each of its parts has.

    >>> value_of({"choices": [{"text": "a"}, {"text": "b"}]}, "choices.text", "dev.jsonl:1")
    ['a', 'b']
    """
    if column in record:
        return record[column]
    if _AND in column:
        return " ".join(str(value_of(record, part, place)) for part in column.split(_AND))
    found: Any = record
    for name in column.split("."):
        try:
            found = _below(found, name)
        except (KeyError, IndexError, ValueError, TypeError):
            names = (
                ", ".join(name for name in record if not name.lstrip("-").isdigit())
                or f"{len(record) // 2} without names"
            )
            lacking = NoColumn(f"{place}: has no column {column}; its columns are {names}")
            lacking.column = column
            raise lacking from None
    return found


def _below(found: Any, key: str) -> Any:
    if isinstance(found, list) and not key.lstrip("-").isdigit():
        return [one[key] for one in found]
    return found[int(key)] if isinstance(found, list) else found[key]
