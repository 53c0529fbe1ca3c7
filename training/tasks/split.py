"""The files of a task: which of them are for training, development and test, and which columns have what."""

import hashlib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, spec
from training.files import Formats, Record, Records, read


@spec
class Split:
    """The records of one split, below the data folder."""

    paths: tuple[
        str, ...
    ]  # where they may lie, as distributions differ: the first that is there; * and ? stand for names
    format: Annotated[Formats, BY_KIND]
    member: str = ""  # files of an archive
    columns: Mapping[str, str] = field(default_factory=dict)  # in place of those of the task
    half: Literal["", "even", "odd"] = ""  # of the records, where one file serves as two splits
    half_by: str = ""  # column whose equal values stay in one half (a premise, an article); empty: each on its own

    def records(self, data: Path) -> Records:
        """What the files have. BadInput, in one line, where none of the paths is there."""
        found = read(data, self._path(data), self.format, self.member)
        if not self.half:
            return found
        kept = [number for number, row in enumerate(found.rows) if self._half_of(row, number) == self.half]
        return Records([found.rows[n] for n in kept], [found.places[n] for n in kept], found.malformed)

    def is_there(self, data: Path) -> bool:
        """Whether one of its paths leads to a file."""
        return any(self._leads(data, path) for path in self.paths)

    def _path(self, data: Path) -> str:
        path = next((path for path in self.paths if self._leads(data, path)), "")
        if not path:
            raise BadInput(f"{data}: has no {' and no '.join(self.paths)}; name the folder with --data-dir")
        return path

    @staticmethod
    def _leads(data: Path, path: str) -> bool:
        return (
            next(data.glob(path), None) is not None if any(mark in path for mark in "*?[") else (data / path).exists()
        )

    def _half_of(self, record: Record, number: int) -> str:
        value = str(record[self.half_by]) if self.half_by else str(number)
        return "even" if hashlib.sha256(value.encode()).digest()[0] % 2 == 0 else "odd"


def value_of(record: Record, column: str, place: str) -> Any:
    """What a record has in a column, which a dotted name or a number names; BadInput where it has none."""
    found: Any = record
    for key in column.split(".") if column not in record else [column]:
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            names = ", ".join(name for name in record if not name.lstrip("-").isdigit()) or f"{len(record)} of them"
            raise BadInput(f"{place}: has no column {column}; its columns are {names}") from None
    return found
