"""The files of a task: its training, development and test splits, and their columns."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, key, require, spec
from training.evaluation.files import Formats, Record, RecordFault, Records, describe_path, exists, patterns_of, read

Values = Mapping[str, tuple[str, ...]]  # some values of each column
Result = TypeVar("Result")
_MOST_BAD: Final = 0.5  # maximum fraction of malformed rows
_AND: Final = " + "  # joins columns whose texts are read as one, with a blank between


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
        require(set(self.folds) <= set(range(10)), "folds", list(self.folds), "integers from 0 to 9")

    def records(self, data: Path) -> Records:
        """Read the records of the files. Raises BadInput if none of the paths exists."""
        chosen = self.select_files(data)
        loaded = read(data, chosen._path(data), chosen.format, chosen.archive_member)
        for column, names in chosen.aligned_files.items():
            loaded = chosen._beside(loaded, column, names, data)
        return of_whole_rows(chosen._filter, loaded)[0]

    def _beside(self, records: Records, column: str, names: tuple[str, str], data: Path) -> Records:
        """Add a column from the aligned files: the first column of each record there.

        A record without a counterpart on its line is malformed, since blank lines are not records. Raises BadInput
        if the files do not end on the same line.
        """
        others = read(data, _other(self._path(data), names), self.format, self.archive_member)
        beside = [_other(place, names) for place in records.places]
        if beside[-1:] != others.places[-1:]:
            ends = " and ".join(places[-1] if places else "nowhere" for places in (records.places, others.places))
            raise BadInput(f"{data}: aligned files must end on the same line, but end at {ends}; give aligned files")
        values = {place: next(iter(row.values())) for row, place in zip(others.rows, others.places, strict=True)}
        kept = replace(records, rows=[], places=[], malformed=[*records.malformed])
        for row, place, there in zip(records.rows, records.places, beside, strict=True):
            has = there in values
            kept.add({**row, column: values.pop(there)} if has else RecordFault(f"no record at {there}"), place)
        for there in values:
            kept.add(RecordFault("no record on this line of the aligned file"), there)
        return kept

    def select_files(self, data: Path) -> "SplitRecords":
        """Return this split or the first of `fallbacks` whose files exist. Raises BadInput if there is none."""
        for one in (self, *self.fallbacks):
            if one._path(data):
                return one
        raise BadInput(
            f"{data}: no such file: {' or '.join(self.displayed_paths)}; set the directory with --task-data-dir"
        )

    def location(self, data: Path) -> str:
        """The absolute path or pattern of the file that is read; a member of an archive follows `#`."""
        chosen = self.select_files(data)
        path = chosen._path(data)
        full = path if "://" in path else str((data / path).absolute())
        return f"{full}#{chosen.archive_member}" if chosen.archive_member else full

    def is_there(self, data: Path) -> bool:
        """Whether one of the paths exists."""
        return any(one._path(data) for one in (self, *self.fallbacks))

    def _path(self, data: Path) -> str:
        return next((pattern for pattern in self.patterns if exists(data, pattern)), "")

    @property
    def displayed_paths(self) -> list[str]:
        """All paths of this split and its fallbacks, for messages."""
        return [describe_path(path, one.format) for one in (self, *self.fallbacks) for path in one.paths]

    @property
    def patterns(self) -> list[str]:
        """The patterns of the files of `paths`: the paths, or patterns below them if the format reads directories."""
        return [pattern for path in self.paths for pattern in patterns_of(path, self.format)]

    def _filter(self, found: Records) -> Records:
        """Apply include, exclude, folds and value_map to the records."""
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
            kept.add(self._rename(row, place), place)
        return kept

    def _tenth(self, record: Record, place: str, number: int) -> int:
        value = str(value_of(record, self.fold_by, place)) if self.fold_by else str(number)
        return int.from_bytes(hashlib.sha256(value.encode()).digest()[:8]) % 10

    def _rename(self, record: Record, place: str) -> Record:
        values = {column: value_of(record, column, place) for column in self.value_map}
        for column, value in values.items():
            name = next((name for name in spellings(value) if name in self.value_map[column]), None)
            values[column] = value if name is None else self.value_map[column][name]
        return {**record, **values}


def _other(name: str, names: tuple[str, str]) -> str:
    """The file name or place in an aligned file.

    >>> _other("europarl.en:7", (".en", ".de"))
    'europarl.de:7'
    """
    return names[1].join(name.rsplit(names[0], 1))


def spellings(value: Any) -> tuple[str, ...]:
    """The spellings of a value in a task file: JSON's true as `true` or `True`, 1.0 as `1.0` or `1`.

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


NO_LABEL_GIVEN: Final = "-1"  # placeholder of a label that is not published


def is_missing(value: Any) -> bool:
    """Whether an answer is missing: null, a blank cell or a NaN.

    >>> [is_missing(value) for value in (None, " ", float("nan"), 0, False, "0")]
    [True, True, True, False, False, False]
    """
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def label_of(value: Any, labels: Sequence[str]) -> str | None:
    """Return the label that matches a value, or None if the label is missing.

    A label is missing if it is empty, or -1 where -1 is not a label (GLUE's tests). Raises ValueError for another
    value.

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
    """A record lacks a required column."""

    column: str


class BadRows(BadInput):
    """Malformed records; `why` maps their indices to reasons."""

    why: dict[int, str]


def each_row(records: Records, make: Callable[[Record, str], Result]) -> list[Result]:
    """Apply `make` to each record and its place.

    Raises BadRows with all records for which `make` raises BadInput, and NoColumn if a record lacks a column.
    """
    results, why = list[Result](), dict[int, str]()
    for number, (record, place) in enumerate(zip(records.rows, records.places, strict=True)):
        try:
            results.append(make(record, place))
        except NoColumn:
            raise
        except BadInput as error:
            why[number] = str(error)
    if why:
        raise bad_rows_error(why, len(records))
    return results


def bad_rows_error(why: dict[int, str], of: int) -> BadRows:
    """Return the error for malformed records, in one line."""
    others = f"; {len(why) - 1:,} more of {of:,} rows cannot be used" if len(why) > 1 else ""
    error = BadRows(f"{next(iter(why.values()))}{others}")
    error.why = why
    return error


def of_whole_rows(make: Callable[[Records], Result], records: Records) -> tuple[Result, Records]:
    """Apply `make` to the well-formed records; return its result and these records.

    Records are malformed if they lack a column that others have, or if `make` rejects them. Raises NoColumn if all
    records lack the column, and BadRows if most records are malformed: then the task file is wrong.
    """
    while True:
        try:
            return make(records), records
        except NoColumn as error:
            incomplete = {
                n: message
                for n, row in enumerate(records.rows)
                if (message := _explain_missing_column(row, error.column))
            }
            if len(incomplete) == len(records):
                raise
            records = _without(records, incomplete)
        except BadRows as error:
            if len(error.why) > _MOST_BAD * len(records):
                raise
            why = {n: text.removeprefix(f"{records.places[n]}: ") for n, text in error.why.items()}
            records = _without(records, why)


def _without(records: Records, why: Mapping[int, str]) -> Records:
    """Mark the records with these indices as malformed."""
    remaining = replace(records, rows=[], places=[], malformed=[*records.malformed])
    for number, (row, place) in enumerate(zip(records.rows, records.places, strict=True)):
        remaining.add(RecordFault(why[number]) if number in why else row, place)
    return remaining


def _explain_missing_column(record: Record, column: str) -> str:
    """A message that the record lacks the column, or "" if it has it."""
    try:
        value_of(record, column, "")
    except NoColumn as error:
        if column.lstrip("-").isdigit():
            return f"missing column {column}: the row has {len(record) // 2} columns (the first one is 0)"
        return str(error).removeprefix(": ")
    return ""


def value_of(record: Record, column: str, place: str) -> Any:
    """Return the value of a column, given by a name with dots or by a number. Raises NoColumn if it is missing.

    Names joined by " + " are columns whose texts are concatenated with blanks. A name below a list selects from each
    element.

    >>> value_of({"choices": [{"text": "a"}, {"text": "b"}]}, "choices.text", "dev.jsonl:1")
    ['a', 'b']
    """
    if column in record:
        return record[column]
    if _AND in column:
        return " ".join(str(value_of(record, part, place)) for part in column.split(_AND))
    value: Any = record
    for part in column.split("."):
        try:
            value = _below(value, part)
        except (KeyError, IndexError, ValueError, TypeError):
            names = (
                ", ".join(name for name in record if not name.lstrip("-").isdigit())
                or f"{len(record) // 2} without names"
            )
            error = NoColumn(f"{place}: missing column {column}; the columns are {names}")
            error.column = column
            raise error from None
    return value


def _below(value: Any, key: str) -> Any:
    if isinstance(value, list) and not key.lstrip("-").isdigit():
        return [one[key] for one in value]
    return value[int(key)] if isinstance(value, list) else value[key]
