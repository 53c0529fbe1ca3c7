"""The files of a task: which of them are for training, development and test, and which columns have what."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, require, spec
from training.files import Fault, Formats, Record, Records, is_there, read

Values = Mapping[str, tuple[str, ...]]  # some values of each column
Made = TypeVar("Made")
_AND: Final = " + "  # between columns whose texts are read as one, with a blank between


@spec
class Split:
    """The records of one split, below the data folder.

    Of `paths`, the first that is there is read; * and ? stand for names, ../ for the folder around the data folder.
    Where none is, `or_else` has other places with formats and columns of their own.
    """

    paths: tuple[str, ...]  # where the files may lie, as distributions differ: the first that is there; with * and ?
    format: Annotated[Formats, BY_KIND]
    member: str = ""  # files of an archive
    columns: Mapping[str, str] = field(default_factory=dict)  # in place of those of the task; "": there is none
    only: Values = field(default_factory=dict)  # by column: the values of which a record must have one
    without: Values = field(default_factory=dict)  # by column: records with these values are left out
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by column: what its values stand for
    tenths: tuple[int, ...] = ()  # where one file serves as several splits: which tenths of its records, from 0 to 9
    by: str = ""  # column whose equal values stay in one tenth (a premise, an article); empty: each record on its own
    # columns of files beside, record by record: a part of the file's name, and what stands there in that of the other
    aligned: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    or_else: tuple["Split", ...] = ()  # where none of the paths is there: the first of these that is

    def __post_init__(self) -> None:
        require(len(self.paths) > 0, "paths", [], "one path or more")
        require(set(self.tenths) <= set(range(10)), "tenths", list(self.tenths), "whole numbers from 0 to 9")

    def records(self, data: Path) -> Records:
        """What the files have. BadInput, in one line, where none of the paths is there."""
        chosen = self.chosen(data)
        found = read(data, chosen._path(data), chosen.format, chosen.member)
        for column, names in chosen.aligned.items():
            found = chosen._beside(found, column, names, data)
        return of_whole_rows(chosen._kept, found)[0]

    def _beside(self, found: Records, column: str, names: tuple[str, str], data: Path) -> Records:
        """The records with a column more, the first of each record of the files beside. One that has none on its line
        there, or here, is malformed: blank lines are no records. BadInput where not both end on the same line."""
        others = read(data, _other(self._path(data), names), self.format, self.member)
        beside = [_other(place, names) for place in found.places]
        if beside[-1:] != others.places[-1:]:
            ends = " and ".join(places[-1] if places else "nowhere" for places in (found.places, others.places))
            raise BadInput(f"{data}: the last records stand at {ends}; give aligned files")
        values = {place: next(iter(row.values())) for row, place in zip(others.rows, others.places, strict=True)}
        kept = replace(found, rows=[], places=[], malformed=[*found.malformed])
        for row, place, there in zip(found.rows, found.places, beside, strict=True):
            has = there in values
            kept.add({**row, column: values.pop(there)} if has else Fault(f"nothing stands at {there}"), place)
        for there in values:
            kept.add(Fault("nothing stands on this line of the file that it is aligned with"), there)
        return kept

    def chosen(self, data: Path) -> "Split":
        """Itself or the one of `or_else` whose files are there; BadInput where none is."""
        for one in (self, *self.or_else):
            if one._path(data):
                return one
        paths = [path for one in (self, *self.or_else) for path in one.paths]
        raise BadInput(f"{data}: has no {' and no '.join(paths)}; name the folder with --data-dir")

    def is_there(self, data: Path) -> bool:
        """Whether one of its paths leads to a file."""
        return any(one._path(data) for one in (self, *self.or_else))

    def _path(self, data: Path) -> str:
        return next((path for path in self.paths if is_there(data, path)), "")

    def _kept(self, found: Records) -> Records:
        """The records that belong to the split, with the values that the task knows."""
        if not (self.only or self.without or self.values or self.tenths):
            return found
        kept = replace(found, rows=[], places=[])
        for number, (row, place) in enumerate(zip(found.rows, found.places, strict=True)):
            if self.tenths and self._tenth(row, place, number) not in self.tenths:
                continue
            if any(str(value_of(row, column, place)) not in values for column, values in self.only.items()):
                kept.others += 1
                continue
            if any(str(value_of(row, column, place)) in values for column, values in self.without.items()):
                kept.left_out += 1
                continue
            kept.add(self._renamed(row, place), place)
        return kept

    def _tenth(self, record: Record, place: str, number: int) -> int:
        value = str(value_of(record, self.by, place)) if self.by else str(number)
        return int.from_bytes(hashlib.sha256(value.encode()).digest()[:8]) % 10

    def _renamed(self, record: Record, place: str) -> Record:
        named = {column: str(value_of(record, column, place)) for column in self.values}
        return {**record, **{column: self.values[column].get(value, value) for column, value in named.items()}}


def _other(name: str, names: tuple[str, str]) -> str:
    """The name or place beside a name or place in one of two aligned files.

    >>> _other("europarl.en:7", (".en", ".de"))
    'europarl.de:7'
    """
    return names[1].join(name.rsplit(names[0], 1))


class NoColumn(BadInput):
    """A record has not the column that is asked for."""

    column: str


def of_whole_rows(make: Callable[[Records], Made], records: Records) -> tuple[Made, Records]:
    """What is made of the records, and those that it is made of: where rows have numbers in place of names, one that
    lacks a column which others have is malformed. NoColumn where none has it."""
    while True:
        try:
            return make(records), records
        except NoColumn as error:
            column, found = error.column, records
            if not column.lstrip("-").isdigit() or not any(column in row for row in found.rows):
                raise
            records = replace(found, rows=[], places=[], malformed=[*found.malformed])
            for row, place in zip(found.rows, found.places, strict=True):
                short = Fault(f"{len(row) // 2} columns, column {column} is asked for (the first one is 0)")
                records.add(row if column in row else short, place)


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
    for key in column.split("."):
        try:
            found = _below(found, key)
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
