"""The facts that every reader has, each class of the union `Source` in the door.

A reader is a frozen `@spec` class in a file of its own. Its keys are what a corpus file may say of a source; all that
is true of its format stands in the same class. Generic code (splits.py, the corpus job, the data card) asks the class.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from pipeline.readers.file_ranges import FileRange, pieces_at
from pipeline.readers.files import (
    BYTE_ORDER_MARK,
    SNIFFED,
    InputFile,
    Sides,
    absolute,
    ends_in_returns,
    find_single_files,
    head,
    is_text,
    stored_head,
)
from pipeline.readers.record import Record
from preprocessing.spec import spec


@dataclass(frozen=True)
class FileProbe:
    """A file by which the format of a path is recognised."""

    path: str  # as it was given: a file, a folder, a glob or a URL
    file: InputFile  # one of those that the path names
    alone: bool  # whether it is the only one
    first: bool  # whether no other file of the path was looked at before
    field: str = "text"  # where it has its text, if it has fields

    @cached_property
    def stored(self) -> bytes:
        """The first 64 KB of the file as it is stored, compressed or not."""
        return stored_head(self.file.path)

    @cached_property
    def inside(self) -> bytes:
        """The first 64 KB decompressed, without white space before them, whether they are text or not."""
        return head(self.file.path, SNIFFED).removeprefix(BYTE_ORDER_MARK).lstrip()

    @cached_property
    def start(self) -> bytes:
        """The same, as lines are read; b"" where the file is empty or no text."""
        start = self.inside if is_text(self.inside[:8192]) else b""
        return start.replace(b"\r", b"\n") if ends_in_returns(start, self.file.path) else start


class Reader(Protocol):
    """What a class has to say of a format, so that its files become documents everywhere in Sesame."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    names: ClassVar[tuple[str, ...]]
    """The names by which `--data NAME:PLACE` forces it, whatever the files look like; no other reader has them."""

    located: ClassVar[tuple[str, ...]]
    """The keys that hold paths of this machine: hashes of a corpus and its data card leave them out."""

    leads: ClassVar[tuple[str, ...]]
    """Endings, compression apart, of files that are looked at first in a folder: a README beside them tells nothing."""

    usual: ClassVar[tuple[str, ...]]
    """Endings of the files of a folder that it reads, unless its key `extensions` names others; of none it reads all.
    """

    @property
    def kind(self) -> str:
        """The word for the format in a corpus file."""

    @property
    def place(self) -> str:
        """What follows `NAME:` in `--data`: the path, several of them with commas between, or names of packages."""

    @property
    def of_folder(self) -> bool:
        """Whether a file in the folder `place` lists what belongs to it, whatever else lies in there."""

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        """The source that `--data NAME:PLACE` means, NAME one of `names`; ValueError for an impossible place."""

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        """The source of the sample's path where the sample is of this format; None where another reader may try.

        Readers try in the order of the union. BadInput where the format is this one but its documents cannot be found.
        """

    def describe(self) -> str:
        """How the source is read, in one line."""

    def anchored(self, folder: Path) -> Self:
        """The source with absolute paths, seen from `folder`; URLs stay as they are."""

    def files(self) -> list[Sides]:
        """The files of the source in order, grouped as they are read side by side; BadInput where there are none."""

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        """One element of `files` as pieces of about `step` bytes of text, as one piece where it cannot be cut.

        However a file is cut, the records of its pieces are the same.
        """

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        """The records of a piece that is not empty, in order: a document, or bytes that are none and why.

        The sizes of the records add up to the bytes of the piece. A text of more than `limit` bytes may be left out, as
        "too_long". Damaged input is a fault of a record; OSError only for the disk and the network.
        """


@spec
class FileReader:
    """Base class of the readers that find their files by one key `path` and read each file alone.

    A subclass declares `kind` and `path` again, with its own kind. It overrides a method where its format differs.
    """

    located: ClassVar[tuple[str, ...]] = ("path",)
    usual: ClassVar[tuple[str, ...]]

    kind: str = ""
    path: str

    @property
    def place(self) -> str:
        return self.path

    @property
    def of_folder(self) -> bool:
        return False

    @classmethod
    def named(cls, name: str, place: str) -> Self:
        return cls(path=place)

    def anchored(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single_files(self.path, getattr(self, "extensions", ()) or self.usual)

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        """Each file as one piece; a format that can be cut overrides this."""
        return pieces_at(sides[0], [])
