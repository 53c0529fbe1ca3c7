"""Paths, folders, globs and URLs -> files; files -> bytes, decompressed, in UTF-8, in bounded memory."""

import bz2
import codecs
import glob
import hashlib
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import pyarrow as pa

from pipeline.readers import zip_archive
from pipeline.readers.walk import facts_of, require_file, walk
from preprocessing.encodings import LOST, wide
from preprocessing.errors import BadInput
from preprocessing.stand_ins import require_itself

COMPRESSED: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz"}
SNIFFED: Final = 1 << 16  # bytes by which a format is recognised
_PIECE: Final = 1 << 13  # bytes of an archive that are read at a time
_GATHERED: Final = 8  # of these, decompressed and handed on together
_BLOCK: Final = 1 << 20  # bytes asked for at a time where a file is far away
_MOST_RATIO: Final = 200  # decompressed : compressed; text has 3 to 10, a few words again and again 100, a bomb 1000
_HARMLESS: Final = 1 << 28  # decompressed bytes that may have any ratio
_XZ_MEMORY: Final = 1 << 28  # bytes that its decoder may ask for: xz -9 needs 65 MB
TORN: Final = (  # what is raised for an archive that breaks off, or is none
    OSError,
    EOFError,
    pa.ArrowInvalid,
    lzma.LZMAError,
    zlib.error,
)
_CONTROLS: Final = [*range(1, 9), *range(14, 27), *range(28, 32)]  # all but NUL, white space and escape
_MARKS: Final = (
    b"\xff\xfe",
    b"\xfe\xff",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"PK\x03\x04",
    b"BZh",
    b"\xfd7zXZ",
    b"\x89PNG",
    b"%PDF",
    b"PAR1",
    b"ARROW1",
)
BYTE_ORDER_MARK: Final = codecs.BOM_UTF8  # which says nothing, but stands there
_ORDERS: Final = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")  # byte order marks
_UNMARKED: Final = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # what is meant by a name where there is none
_TAR_MARK: Final = 257  # byte of a .tar at which its mark stands
# Keys by which different stores name the version of a file.
_VERSIONS: Final = {"etag", "checksum", "generation", "mtime", "modified", "lastmodified", "created"}


class InputFile(NamedTuple):
    """An input file; `label` is its name inside of the folder that was given, the same on every machine."""

    label: str
    path: str  # or URL
    size: int  # bytes where it is stored
    changed: int  # time of the last change, ns; of a URL a hash of its version in the store

    @property
    def compression(self) -> str | None:
        return compression_of(self.path) or ("zip" if zip_archive.is_member(self.path) else None)


Sides = tuple[InputFile, ...]
"""Files that are read side by side, line by line: one for each language of a translation, else a single file."""


def is_url(path: str) -> bool:
    """Whether fsspec opens it; a kind before a path is no protocol.

    >>> is_url("s3://bucket/wiki"), is_url("jsonl:wiki.txt")
    (True, False)
    """
    return "://" in path


def absolute(path: str, folder: Path) -> str:
    """A path seen from `folder`; a URL stays as it is.

    >>> absolute("../a.txt", Path("/texts/old")), absolute("s3://bucket/b", Path("/texts"))
    ('/texts/a.txt', 's3://bucket/b')
    """
    return path if is_url(path) else os.path.abspath(folder / path)


def local(path: str) -> str:
    """A path without the `file://` before it: files of this machine are read directly."""
    return path.removeprefix("file://")


def find(path: str, endings: tuple[str, ...] = ()) -> list[InputFile]:
    """The files that a path, a folder, a glob or a URL of these names, in order; BadInput where there are none.

    Folders are searched in depth (walk.py), for names with one of `endings` (all names, without endings).
    """
    path = local(path)
    return sorted(_find_remote(path, endings) if is_url(path) else _find_local(path, endings))


def find_single_files(path: str, endings: tuple[str, ...] = ()) -> list[Sides]:
    """The files of `find`, each of them read by itself."""
    return [(file,) for file in find(path, endings)]


def _find_local(path: str, endings: tuple[str, ...]) -> Iterator[InputFile]:
    top = Path(path)
    if top.is_dir():
        found = [file for label, name in walk(top) if not _is_hidden(label) for file in _stored(label, name)]
    elif os.path.lexists(top):
        require_file(top, facts_of(top))
        found = list(_stored(top.name, top))
    elif glob.has_magic(path):
        fixed = Path(*_until(top.parts, glob.has_magic))
        names = list(_matching(path))
        found = [file for name in names for file in _stored(os.path.relpath(name, fixed), Path(name))]
        if not found:
            raise BadInput(f"{path}: no file matches; check the pattern")
    elif path == "-":
        raise BadInput("-: standard input cannot be read twice; write its text to a file first, and give that")
    else:
        raise BadInput(f"{path}: no such file or folder; check the path")
    if top.is_dir() or zip_archive.is_archive(path):
        found = [file for file in found if _wanted(file.label, endings)]
        if not found:
            raise _nothing_inside(path, endings)
    yield from found


def _matching(pattern: str) -> Iterator[str]:
    """The files that a pattern matches; BadInput for what is neither a file nor a folder."""
    for name in glob.glob(pattern, recursive=True):
        facts = facts_of(Path(name))
        if not stat.S_ISDIR(facts.st_mode):
            require_file(Path(name), facts)
            yield name


def _stored(label: str, path: Path) -> Iterator[InputFile]:
    """A file, or those that a zip archive holds."""
    if not os.access(path, os.R_OK):
        raise BadInput(f"{path}: cannot be read; check its permissions")
    facts = path.stat()
    name = os.fsencode(label).decode("utf-8", "backslashreplace")  # a name may be any bytes
    if zip_archive.is_archive(path):
        require_itself(path)
        for member in zip_archive.members(path):
            yield InputFile(f"{name}/{member.name}", member.path, member.size, member.changed)
    else:
        yield InputFile(name, str(path), facts.st_size, facts.st_mtime_ns)


def _find_remote(path: str, endings: tuple[str, ...]) -> Iterator[InputFile]:
    """As `_find_local`, through fsspec, whose stores raise errors of any class."""
    store, inside = _store(path)
    try:
        if glob.has_magic(inside):
            top = "/".join(_until(tuple(inside.split("/")), glob.has_magic))
            found = {name: facts for name, facts in store.glob(inside, detail=True).items() if facts["type"] == "file"}
        elif store.isdir(inside):
            found = store.find(inside, detail=True)
            top = inside.rstrip("/")
            found = {name: facts for name, facts in found.items() if _wanted(name[len(top) :].strip("/"), endings)}
            if not found:
                raise _nothing_inside(path, endings)
        else:
            top, found = inside.rpartition("/")[0], {inside: store.info(inside)}
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file or folder; check the URL") from None
    except Exception as error:  # stores share no class of errors
        raise BadInput(f"{path}: {_brief(error)}; check the URL and the credentials in the environment") from None
    if not found:
        raise BadInput(f"{path}: no file matches; check the pattern")
    for name, facts in found.items():
        label, url = name[len(top) :].strip("/"), str(store.unstrip_protocol(name))
        if facts.get("size") is None:
            raise BadInput(f"{url}: its store does not say how large it is; copy it to a disk first")
        yield InputFile(label, url, int(facts["size"]), _version(facts))


def _store(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path in there."""
    import fsspec  # 80 ms, which paths of this machine need not cost

    try:
        return fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise BadInput(f"{url}: {_brief(error)}") from None
    except ValueError as error:
        known = "file, memory, http, s3, gs and the others of fsspec"
        raise BadInput(f"{url}: {_brief(error)}; protocols are {known}") from None
    except Exception as error:  # stores share no class of errors
        raise BadInput(f"{url}: {_brief(error)}; check the URL and the credentials in the environment") from None


def _brief(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _version(facts: dict[str, Any]) -> int:
    """The version of a file in its store, as a number of 63 bits."""
    version = sorted((name, str(value)) for name, value in facts.items() if name.replace("_", "").lower() in _VERSIONS)
    return int.from_bytes(hashlib.sha256(repr(version).encode()).digest()[:8], "big") >> 1


def _wanted(label: str, endings: tuple[str, ...]) -> bool:
    return not _is_hidden(label) and (not endings or plain_suffix(label) in map(str.lower, endings))


def _is_hidden(label: str) -> bool:
    return any(part.startswith(".") and part != ".." for part in label.split("/"))


def _nothing_inside(path: str, endings: tuple[str, ...]) -> BadInput:
    return BadInput(f"{path}: a folder without {' or '.join(endings) or 'any'} files; name one that holds text")


def plain_suffix(name: Path | str) -> str:
    """The ending of a name in lower case, compression apart.

    >>> plain_suffix("Wiki.JSONL.zst")
    '.jsonl'
    """
    stem, ending = _stem_and_ending(name)
    return _stem_and_ending(stem)[1] if ending in COMPRESSED else ending


def compression_of(name: Path | str) -> str | None:
    """How a file of this name is compressed.

    >>> compression_of("OLD.TXT.GZ"), compression_of("a.txt")
    ('gzip', None)
    """
    return COMPRESSED.get(_stem_and_ending(name)[1])


def _stem_and_ending(name: Path | str) -> tuple[str, str]:
    """As of pathlib, in lower case; a plan asks this some times for each of perhaps 100,000 files."""
    last = str(name).rstrip("/").rpartition("/")[2].lower()
    at = last.rfind(".")
    return (last[:at], last[at:]) if 0 < at < len(last) - 1 else (last, "")


def has_mark(file: InputFile) -> bool:
    """Whether files of this name begin with bytes that say what they are, so that an empty one is none.

    >>> has_mark(InputFile("a", "a.parquet", 0, 0)), has_mark(InputFile("a", "a.jsonl", 0, 0))
    (True, False)
    """
    return compression_of(file.path) is not None or plain_suffix(file.path) in (".parquet", ".arrow", ".feather")


def display_path(path: str, endings: tuple[str, ...]) -> str:
    """A path, and which files of it are meant where not all that a format usually has.

    >>> display_path("texts", (".csv", "")), display_path("texts", ())
    ('texts (.csv, no ending)', 'texts')
    """
    return f"{path} ({', '.join(ending or 'no ending' for ending in endings)})" if endings else path


def _until(parts: tuple[str, ...], stop: Callable[[str], bool]) -> Iterator[str]:
    for part in parts:
        if stop(part):
            return
        yield part


def open_stored(path: str) -> io.BufferedReader:
    """A file as it is stored, or a member of a zip archive as it was before; for reading at any place."""
    if zip_archive.is_member(path):
        return zip_archive.open_member(path)
    if not is_url(path):
        return open(path, "rb")
    store, inside = _store(path)
    return io.BufferedReader(store.open(inside, "rb"), _BLOCK)


def stored_head(path: str) -> bytes:
    """The first 64 KB of a file as it is stored; b"" of a damaged member of an archive."""
    with open_stored(path) as file:
        try:
            return file.read(SNIFFED)
        except OSError as error:
            raise_if_ours(error)
            return b""  # a damaged member of an archive


class _EndsHere(Exception):
    """The rest of a compressed file is not read: its fault, or how many stored bytes behind it are none of it."""

    def __init__(self, fault: str, trailing: int = 0) -> None:
        super().__init__(fault)
        self.fault, self.trailing = fault, trailing


class DecodedFile(io.RawIOBase):
    """What a file holds, decompressed and in UTF-8; where it cannot be read on it ends, with a `fault`.

    `fault` is "truncated" where the archive breaks off or is none, "bomb" where it grows beyond _MOST_RATIO, else "".
    `trailing` is the number of stored bytes behind a whole archive that are no archive; NULs there are padding.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.fault, self.trailing, self.rest = pieces, "", 0, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while not self.rest and (piece := next(self.pieces, None)) is not None:
                self.rest = memoryview(piece)
        except _EndsHere as end:
            self.fault, self.trailing, self.pieces = end.fault, end.trailing, iter(())
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def open_bytes(path: str, start: int = 0, stop: int | None = None, encoding: str = "") -> io.BufferedReader:
    """What a file holds: decompressed where its name says so, in UTF-8 where it is UTF-16 or UTF-32.

    `encoding` is a codec that all of it is decoded by, from its begin on, whatever it looks like; the lines of other
    files become UTF-8 one by one (transcode.py). Of a compressed file that is several end to end, [start, stop) may be
    a range of whole ones, in compressed bytes. Where a compressed file cannot be read on, the stream ends;
    `describe_fault` tells whether it did.
    """
    file = _decompressed(path, start, stop)
    encoding = encoding or wide(file.peek(_PIECE)[:_PIECE])
    return io.BufferedReader(DecodedFile(_utf8(file, encoding))) if encoding else file


def open_lines(path: str, start: int = 0, stop: int | None = None, encoding: str = "") -> io.BufferedReader:
    """As `open_bytes`, with a line feed at the end of each line: files of old Macs have carriage returns alone."""
    file = open_bytes(path, start, stop, encoding)
    if start or stop is not None or b"\n" in file.peek(_PIECE):
        return file
    if not ends_in_returns(head(path, SNIFFED, encoding), path, encoding):
        return file
    return io.BufferedReader(DecodedFile(_with_line_feeds(file)))


def ends_in_returns(start: bytes, path: str, encoding: str = "") -> bool:
    """Whether the lines of a file end in carriage returns alone, so that there seems to be one line.

    `start` is how it begins. Where that has no line feed, all is read up to the first one: a long line may have
    carriage returns in it. A line feed at the very end is none between lines.
    """
    if b"\r" not in start or b"\n" in start.rstrip():
        return False
    with open_bytes(path, encoding=encoding) as file:
        is_last = False
        while block := file.read(_BLOCK):
            _, line_feed, behind = block.partition(b"\n")
            if behind.strip() or (is_last and block.strip()):
                return False
            is_last = is_last or line_feed != b""
    return True


def _with_line_feeds(file: io.BufferedReader) -> Iterator[bytes]:
    while block := file.read(_PIECE):
        yield block.replace(b"\r", b"\n")
    if describe_fault(file) or count_trailing_bytes(file):
        raise _EndsHere(describe_fault(file), count_trailing_bytes(file))


def _decompressed(path: str, start: int = 0, stop: int | None = None) -> io.BufferedReader:
    compression = compression_of(path)
    if compression is None:
        if zip_archive.is_member(path):
            return io.BufferedReader(DecodedFile(_unzipped(path)))
        return open_stored(path)
    return io.BufferedReader(DecodedFile(_inflated(path, compression, start, stop)), _GATHERED * _PIECE)


def _unzipped(path: str) -> Iterator[bytes]:
    try:
        with zip_archive.open_member(path) as file:
            while block := file.read(_PIECE):
                yield block
    except zip_archive.TORN as error:
        raise_if_ours(error)
        raise _EndsHere("truncated") from None


def wide_encoding(path: str) -> str:
    """The codec of a file that is UTF-16 or UTF-32, else ""."""
    with _decompressed(path) as file:
        return wide(file.peek(_PIECE)[:_PIECE])


def describe_fault(file: io.BufferedReader) -> str:
    """Why a stream of `open_bytes` ended before the end of its file, or "" where it did not."""
    return file.raw.fault if isinstance(file.raw, DecodedFile) else ""


def count_trailing_bytes(file: io.BufferedReader) -> int:
    """How many stored bytes stand behind the archive of a stream that was read to its end, and are none of it."""
    return file.raw.trailing if isinstance(file.raw, DecodedFile) else 0


def _inflated(path: str, compression: str, start: int, stop: int | None) -> Iterator[bytes]:
    """Decompressed: members, frames and streams end to end as one; windows of zstd up to 128 MB."""
    done = 0
    try:
        with _archive(path, start, stop) as stored:
            most = _HARMLESS + _MOST_RATIO * _left(stored)
            for piece in _zstd(stored) if compression == "zstd" else _members(stored, compression):
                done += len(piece)
                if done > most:
                    raise _EndsHere("bomb")
                yield piece
    except TORN as error:
        raise_if_ours(error)
        if compression == "zstd":
            yield b"".join(_before_the_tear(path, start, stop, done))
        raise _EndsHere("truncated") from None


def _left(stored: BinaryIO) -> int:
    """The bytes of a compressed file from where it stands."""
    at = stored.tell()
    if isinstance(raw := getattr(stored, "raw", None), zip_archive.ZipMember):
        return raw.size - at  # to seek its end is to read all of it
    end = stored.seek(0, io.SEEK_END)
    stored.seek(at)
    return end - at


def _zstd(stored: BinaryIO) -> Iterator[bytes]:
    """Frames of zstd end to end, by pyarrow; an error where one is damaged or breaks off."""
    with pa.input_stream(stored, compression="zstd") as stream:
        while piece := stream.read(_PIECE):
            yield piece


class _Decompressor(Protocol):
    """What decoders of Python have in common: those of bz2 and xz, and _Gunzip."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gunzip:
    """A member of gzip, as the decoders of bz2 and xz read theirs; of a damaged one all that stands before it."""

    def __init__(self) -> None:
        self.zlib, self.held, self.needs_input = zlib.decompressobj(31), b"", True
        self.error: zlib.error | None = None

    @property
    def eof(self) -> bool:
        return self.zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self.zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if self.error:
            raise self.error
        data, before = self.held + data, self.zlib.copy()
        try:
            piece = self.zlib.decompress(data, max_length)
        except zlib.error as error:
            self.error, self.needs_input = error, False
            return b"".join(_byte_by_byte(before, data))
        self.held = self.zlib.unconsumed_tail
        self.needs_input = not self.held and len(piece) < max_length
        return piece


def _byte_by_byte(decoder: Any, data: bytes) -> Iterator[bytes]:
    """What can be decompressed before a damaged place: a call that meets it gives nothing."""
    with suppress(zlib.error):
        while byte := decoder.decompress(data, 1):
            yield byte
            data = decoder.unconsumed_tail


_STREAMS: Final[dict[str, tuple[bytes, Callable[[], _Decompressor]]]] = {  # how each begins, and what reads it
    "gzip": (b"\x1f\x8b", _Gunzip),
    "bz2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
}


def _members(stored: BinaryIO, compression: str) -> Iterator[bytes]:
    """Members of an archive end to end, with padding of NULs between and behind them; an error where one is damaged,
    breaks off, or wants too much memory. What else stands behind the last one is counted, as gzip warns of it."""
    mark, begin = _STREAMS[compression]
    decoder, rest = begin(), stored.read(_PIECE)
    while rest:
        yield decoder.decompress(rest, _GATHERED * _PIECE)
        while not decoder.needs_input and not decoder.eof:
            yield decoder.decompress(b"", _GATHERED * _PIECE)
        if not decoder.eof:
            rest = stored.read(_PIECE)
            continue
        rest = decoder.unused_data.lstrip(b"\0")
        while not rest and (block := stored.read(_PIECE)):
            rest = block.lstrip(b"\0")
        if not rest:
            return
        if len(rest) < len(mark):
            rest += stored.read(_PIECE)
        if not rest.startswith(mark):
            raise _EndsHere("", len(rest) + sum(map(len, iter(lambda: stored.read(_BLOCK), b""))))
        decoder = begin()
    raise EOFError("breaks off")


def _archive(path: str, start: int, stop: int | None) -> BinaryIO:
    """A range of a compressed file, from where it stands."""
    file = open_stored(path)
    file.seek(start)
    if stop is None:
        return file
    with file:
        return io.BytesIO(file.read(stop - start))


def raise_if_ours(error: Exception) -> None:
    """Raise an error of the disk or the network; return where it is one of the archive."""
    if getattr(error, "errno", None) is not None or isinstance(error, TimeoutError | ConnectionError):
        raise error


def _before_the_tear(path: str, start: int, stop: int | None, done: int) -> Iterator[bytes]:
    """What of zstd can be read after the first `done` bytes, byte by byte: pyarrow drops a piece that is not full."""
    with suppress(*TORN), pa.input_stream(_archive(path, start, stop), compression="zstd") as stream:
        while done:
            done -= len(stream.read(min(done, _PIECE)))
        while byte := stream.read(1):
            yield byte


def _utf8(file: io.BufferedReader, encoding: str) -> Iterator[bytes]:
    if encoding in _UNMARKED and not file.peek(4)[:4].startswith(_ORDERS):
        encoding = _UNMARKED[encoding]
    decoder, block = codecs.getincrementaldecoder(encoding)(errors="replace"), b" "
    while block:
        block = file.read(_PIECE)
        text = decoder.decode(block, final=not block)
        yield LOST.join(part.encode(errors="replace") for part in text.split("\ufffd"))
    if describe_fault(file) or count_trailing_bytes(file):
        raise _EndsHere(describe_fault(file), count_trailing_bytes(file))


def head(path: str, size: int = 8192, encoding: str = "") -> bytes:
    """The first bytes of what a file holds, as `open_bytes` gives it; b"" where it cannot be decompressed."""
    with open_bytes(path, encoding=encoding) as file:
        return file.read(size)


def is_text(start: bytes) -> bool:
    r"""Whether a file that starts so is text: no other format's mark, hardly any control characters, some NULs at most.

    >>> is_text(b"plain\x00 text"), is_text("plain text".encode("utf-16-le")), is_text(b"\x7fELF\x01\x02")
    (True, False, False)
    """
    controls = sum(start.count(byte) for byte in _CONTROLS)
    other = start.startswith(_MARKS) or start[_TAR_MARK:].startswith(b"ustar")
    return not other and start.count(0) <= 0.25 * len(start) and controls <= 0.03 * len(start)
