"""What a record of a task file is, and what each format states about itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

Record = Mapping[str, Any]
"""The columns of a row by name, and by number from 0 where they have no names: text, or what JSON has."""
MOST_NAMED: Final = 20  # rows in a line, by file and number
_PLACE: Final = re.compile(r"(.*?:\d+): ")


@dataclass(frozen=True)
class RecordFault:
    """Why a row is no record: "3 columns, 4 are needed"."""

    why: str


@dataclass
class Records:
    """The records of a file, in order, and where each stands; malformed rows are counted and the first are named."""

    rows: list[Record] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    left_out: int = 0  # records that the task file asks to leave out (SNLI's without a gold label)
    others: int = 0  # records that have none of the values that the split is of (XNLI's other languages)
    remarks: list[str] = field(default_factory=list)  # what else a reader must know of the files

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def notes(self) -> list[str]:
        """What of the files is not used, and what else there is to say of them, a line each."""
        found, read = [*self.remarks], len(self.rows) + self.left_out + self.others + len(self.malformed)
        if self.malformed:
            found.append(f"malformed rows are left out: {describe_faults(self.malformed)}")
        if self.left_out:
            found.append(f"{self.left_out:,} of {read:,} rows are left out, as the task file asks for their values")
        if self.others:
            found.append(f"{self.others:,} of {read:,} rows belong elsewhere: the task file asks for other values")
        return found

    def add(self, found: Record | RecordFault, place: str) -> None:
        """Take over what a format found at a place, a record or a fault."""
        if isinstance(found, RecordFault):
            self.malformed.append(f"{place}: {found.why}")
        else:
            self.rows.append(found)
            self.places.append(place)


def describe_faults(faults: Sequence[str]) -> str:
    """Rows and what is wrong with each ("a.tsv:3: 2 columns") in a line: the first one, and where the others are, as
    far as there is room.

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
    """A part of the union Formats: how the bytes of a file are records."""

    @property
    def kind(self) -> str:
        """Its name in a task file."""

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        """Records and faults in order, each with the number of its first line, from 1, or of its place in the file.

        UnicodeDecodeError where the content is not UTF-8.
        """


def text_of(content: bytes) -> str:
    """UTF-8, without a byte order mark."""
    return content.decode("utf-8-sig")
