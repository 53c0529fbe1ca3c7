"""The interface of a reader, which each class of the union `Source` implements.

A reader is a frozen `@spec` class in its own file. Its fields are the keys of a source in a corpus file. All facts
about its format are defined in the same class. Generic code (splits.py, the corpus job, the data card) uses only this
interface.
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
    read_stored_head,
)
from pipeline.readers.record import Record
from preprocessing.spec import spec


@dataclass(frozen=True)
class FileProbe:
    """A file from which the format of a path is recognized."""

    path: str  # as passed by the user: a file, a directory, a glob or a URL
    file: InputFile  # one of the files at the path
    alone: bool  # whether it is the only file
    first: bool  # whether it is the first file tested at this path
    field: str = "text"  # key or column of the text, if the format has any

    @cached_property
    def stored(self) -> bytes:
        """The first 64 KB of the file as stored, compressed or not."""
        return read_stored_head(self.file.path)

    @cached_property
    def inside(self) -> bytes:
        """The first 64 KB after decompression, without leading white space, whether text or not."""
        return head(self.file.path, SNIFFED).removeprefix(BYTE_ORDER_MARK).lstrip()

    @cached_property
    def start(self) -> bytes:
        """Like `inside`, with line feeds as line ends; b"" if the file is empty or not text."""
        start = self.inside if is_text(self.inside[:8192]) else b""
        return start.replace(b"\r", b"\n") if ends_in_returns(start, self.file.path) else start


class Reader(Protocol):
    """Properties and methods of a format that Sesame needs to turn its files into documents."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    names: ClassVar[tuple[str, ...]]
    """Names that select the format with `--data NAME:PLACE`, whatever the files look like; unique among readers."""

    located: ClassVar[tuple[str, ...]]
    """Keys with local paths. Hashes and the data card of a corpus omit them."""

    leads: ClassVar[tuple[str, ...]]
    """Extensions of files in a directory that are tested first, so that e.g. a README does not determine the format."""

    usual: ClassVar[tuple[str, ...]]
    """Default file extensions in a directory, if the key `extensions` is empty; (): all files."""

    metadata_fields: ClassVar[tuple[str, ...] | None]
    """Fields of a document that the key `keep` may name; None: any field of the files; (): none, and no such key."""

    @property
    def kind(self) -> str:
        """The name of the format in a corpus file."""

    @property
    def place(self) -> str:
        """The text after `NAME:` in `--data`: a path, several paths separated by commas, or names of packages."""

    @property
    def of_folder(self) -> bool:
        """Whether a file in the directory `place` lists the files of the source, so that others are ignored."""

    @property
    def has_urls(self) -> bool:
        """Whether records have the address of their page, so that `clean.urls` can drop some of them."""

    @classmethod
    def from_name(cls, name: str, place: str) -> Self:
        """The source for `--data NAME:PLACE`, where NAME is one of `names`. Raises ValueError for an invalid place."""

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        """The source for the path of the sample if it has this format, else None.

        Readers try in the order of the union. Raises BadInput if the format matches but its documents cannot be found.
        """

    def describe(self) -> str:
        """One line that describes how the source is read."""

    def resolve_paths(self, folder: Path) -> Self:
        """The source with absolute paths, resolved relative to `folder`. URLs stay unchanged."""

    def files(self) -> list[Sides]:
        """The files of the source in order, grouped by those read together. Raises BadInput if there are none."""

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        """Divide one element of `files` into ranges of about `step` bytes of text; one range if it cannot be divided.

        The records must not depend on the division.
        """

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        """The records of a range that is not empty, in order. A record is a document, or bytes with a fault.

        The sizes of the records add up to the bytes of the range. A text of more than `limit` bytes may be omitted,
        with the fault "too_long". Damaged input becomes the fault of a record; OSError is raised only for the disk and
        the network.
        """


@spec
class FileReader:
    """Base class of readers that find their files by one key `path` and read each file separately.

    A subclass redeclares `kind` and `path`, with its own kind. It overrides methods if its format differs.
    """

    located: ClassVar[tuple[str, ...]] = ("path",)
    usual: ClassVar[tuple[str, ...]]
    metadata_fields: ClassVar[tuple[str, ...] | None] = ()

    kind: str = ""
    path: str

    @property
    def place(self) -> str:
        return self.path

    @property
    def of_folder(self) -> bool:
        return False

    @property
    def has_urls(self) -> bool:
        return bool(getattr(self, "url_key", ""))

    @classmethod
    def from_name(cls, name: str, place: str) -> Self:
        return cls(path=place)

    def list_left_out(self) -> list[InputFile]:
        """The files in the directory `place` that `describe` already reports as not read."""
        return []

    def resolve_paths(self, folder: Path) -> Self:
        return replace(self, path=absolute(self.path, folder))

    def files(self) -> list[Sides]:
        return find_single_files(self.path, getattr(self, "extensions", ()) or self.usual)

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        """Each file as one range. A format that can be divided overrides this method."""
        return pieces_at(sides[0], [])
