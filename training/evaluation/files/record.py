"""Records of task files, and the interface of a format."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

Record = Mapping[str, Any]
"""The columns of a row by name, and by number from 0 if they have no names; values are text or JSON values."""
MOST_NAMED: Final = 20  # maximum number of rows listed in a message
_PLACE: Final = re.compile(r"(.*?:\d+): ")


@dataclass(frozen=True)
class RecordFault:
    """The reason why a row is malformed, for example "got 3 columns, expected 4"."""

    why: str


@dataclass
class Records:
    """The records of a file in order, with their places; malformed rows are kept as messages."""

    rows: list[Record] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    left_out: int = 0  # records that the task file excludes (SNLI's without a gold label)
    others: int = 0  # records that the task file does not include (XNLI's other languages)
    remarks: list[str] = field(default_factory=list)  # other notes on the files

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def notes(self) -> list[str]:
        """Notes on rows that are not used, and other remarks, one line each."""
        notes, read = [*self.remarks], len(self.rows) + self.left_out + self.others + len(self.malformed)
        if self.malformed:
            notes.append(f"malformed rows are left out: {describe_faults(self.malformed)}")
        if self.left_out:
            notes.append(
                f"{self.left_out:,} of {read:,} rows are left out, because the task file excludes their values"
            )
        if self.others:
            notes.append(f"{self.others:,} of {read:,} rows are not in this split: the task file includes other values")
        return notes

    def add(self, record: Record | RecordFault, place: str) -> None:
        """Add a record or a fault, with its place."""
        if isinstance(record, RecordFault):
            self.malformed.append(f"{place}: {record.why}")
        else:
            self.rows.append(record)
            self.places.append(place)


def describe_faults(faults: Sequence[str]) -> str:
    """Describe malformed rows ("a.tsv:3: 2 columns") in one line: the first in full, and the places of the others.

    >>> describe_faults(["a.tsv:3: 2 columns"]), describe_faults(["a.tsv:3: 2 columns", "a.tsv:9: 4 columns"])
    ('a.tsv:3: 2 columns', 'a.tsv:3: 2 columns (and 1 more), also a.tsv:9')
    """
    first, *others = faults
    if not others:
        return first
    places = [found[1] if (found := _PLACE.match(one)) else one for one in others[:MOST_NAMED]]
    rest = ", ..." if len(others) > len(places) else ""
    return f"{first} (and {len(others):,} more), also {', '.join(places)}{rest}"


class RecordFormat(Protocol):
    """A member of the union Formats: parses the bytes of a file into records."""

    @property
    def kind(self) -> str:
        """The name of the format in a task file."""

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        """Yield records and faults in order, each with its first line number (from 1) or its index in the file.

        Raises UnicodeDecodeError if the content is not UTF-8.
        """


@runtime_checkable
class FolderFormat(RecordFormat, Protocol):
    """A format whose path in a task file is a directory."""

    def patterns(self, folder: str) -> tuple[str, ...]:
        """The patterns of its files; the first that exists is read."""

    def describe(self, folder: str) -> str:
        """The directory, and what is read in it, for messages."""


def patterns_of(path: str, format: RecordFormat) -> tuple[str, ...]:
    """The patterns of the files at a path of a task file: the path itself, unless the format reads directories."""
    return format.patterns(path) if isinstance(format, FolderFormat) else (path,)


def describe_path(path: str, format: RecordFormat) -> str:
    """A path of a task file for messages."""
    return format.describe(path) if isinstance(format, FolderFormat) else path


def text_of(content: bytes) -> str:
    """Decode UTF-8, without a byte order mark."""
    return content.decode("utf-8-sig")
