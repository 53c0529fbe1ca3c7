"""Paths, directories, globs and URLs -> files; files -> bytes, decompressed, in UTF-8, with bounded memory."""

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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import pyarrow as pa

from pipeline.readers import zip_archive
from pipeline.readers.companions import find_companions
from pipeline.readers.walk import facts_of, require_file, walk
from preprocessing.encodings import LOST, wide
from preprocessing.errors import BadInput
from preprocessing.object_store import brief, open_store
from preprocessing.stand_ins import require_itself

COMPRESSED: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz"}
SNIFFED: Final = 1 << 16  # bytes read to recognize a format
_PIECE: Final = 1 << 13  # bytes read from an archive at a time
_PIECES_PER_BLOCK: Final = 8  # decompressed blocks have up to this number of pieces
_BLOCK: Final = 1 << 20  # bytes per request to a remote file
# maximum ratio of decompressed to compressed bytes; text has 3 to 10, a few repeated words 100, a zip bomb 1000
_MOST_RATIO: Final = 200
_HARMLESS: Final = 1 << 28  # decompressed bytes below which any ratio is accepted
_XZ_MEMORY: Final = 1 << 28  # memory limit of the xz decoder in bytes: xz -9 needs 65 MB
TORN: Final = (  # errors raised for a truncated or invalid archive
    OSError,
    EOFError,
    pa.ArrowInvalid,
    lzma.LZMAError,
    zlib.error,
)
# control characters except NUL, white space and escape
_CONTROLS: Final = [*range(1, 9), *range(14, 27), *range(28, 32)]
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
BYTE_ORDER_MARK: Final = codecs.BOM_UTF8  # UTF-8 does not need it, but some files begin with it
_ORDERS: Final = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")  # byte order marks
_UNMARKED: Final = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # byte order if the file has no byte order mark
_TAR_MARK: Final = 257  # position of the signature in a .tar
# Keys that different stores use for the version of a file.
_VERSIONS: Final = {"etag", "checksum", "generation", "mtime", "modified", "lastmodified", "created"}


class InputFile(NamedTuple):
    """An input file. `label` is its path relative to the input directory, the same on every machine."""

    label: str
    path: str  # or URL
    size: int  # bytes as stored
    changed: int  # modification time in ns; for a URL, a hash of its version in the store

    @property
    def compression(self) -> str | None:
        return compression_of(self.path) or ("zip" if zip_archive.is_member(self.path) else None)


Sides = tuple[InputFile, ...]
"""Files that are read together, line by line: one per language of a translation, otherwise a single file."""


def is_url(path: str) -> bool:
    """Whether fsspec must open the path. A kind before a path (jsonl:PATH) is not a protocol.

    >>> is_url("s3://bucket/wiki"), is_url("jsonl:wiki.txt")
    (True, False)
    """
    return "://" in path


def absolute(path: str, folder: Path) -> str:
    """Resolve a path relative to `folder`. URLs are returned unchanged.

    >>> absolute("../a.txt", Path("/texts/old")), absolute("s3://bucket/b", Path("/texts"))
    ('/texts/a.txt', 's3://bucket/b')
    """
    return path if is_url(path) else os.path.abspath(folder / path)


def local(path: str) -> str:
    """Remove `file://` from a path, because local files are read without fsspec."""
    return path.removeprefix("file://")


def find(path: str, endings: tuple[str, ...] = ()) -> list[InputFile]:
    """Files at a path, directory, glob or URL, in order. Raises BadInput if there are none.

    Directories are searched recursively (walk.py) for the extensions `endings`; () means all files.
    """
    path = local(path)
    return sorted(_find_remote(path, endings) if is_url(path) else _find_local(path, endings))


def find_single_files(path: str, endings: tuple[str, ...] = ()) -> list[Sides]:
    """The files of `find`, each as a tuple of its own."""
    return [(file,) for file in find(path, endings)]


def _find_local(path: str, endings: tuple[str, ...]) -> Iterator[InputFile]:
    top = Path(path)
    if top.is_dir():
        found = [file for label, name in walk(top) if not _is_hidden(label) for file in _expand_archive(label, name)]
        found = _without_companions(found)
    elif os.path.lexists(top):
        require_file(top, facts_of(top))
        found = list(_expand_archive(top.name, top))
    elif glob.has_magic(path):
        fixed = Path(*_until(top.parts, glob.has_magic))
        names = list(_find_matching(path))
        found = [file for name in names for file in _expand_archive(os.path.relpath(name, fixed), Path(name))]
        found = _without_companions(found) or found  # a pattern may match nothing else
        if not found:
            raise BadInput(f"{path}: no file matches; check the pattern")
    elif path == "-":
        raise BadInput("-: standard input cannot be read twice; write its text to a file and pass the file")
    else:
        raise BadInput(f"{path}: no such file or directory; check the path")
    if top.is_dir() or zip_archive.is_archive(path):
        found = [file for file in found if _is_wanted(file.label, endings)]
        if not found:
            raise _nothing_inside(path, endings)
    yield from found


def _without_companions(found: list[InputFile]) -> list[InputFile]:
    """The files without those that Hugging Face `datasets` writes beside its tables, e.g. its caches."""
    companions = find_companions({file.label: file.size for file in found})
    return [file for file in found if file.label not in companions]


def _find_matching(pattern: str) -> Iterator[str]:
    """Files that match a pattern. Raises BadInput for anything that is neither a file nor a directory."""
    for name in glob.glob(pattern, recursive=True):
        facts = facts_of(Path(name))
        if not stat.S_ISDIR(facts.st_mode):
            require_file(Path(name), facts)
            yield name


def _expand_archive(label: str, path: Path) -> Iterator[InputFile]:
    """The file, or its members if it is a zip archive."""
    if not os.access(path, os.R_OK):
        raise BadInput(f"{path}: permission denied; make the file readable")
    facts = path.stat()
    name = os.fsencode(label).decode("utf-8", "backslashreplace")  # names may contain any bytes
    if zip_archive.is_archive(path):
        require_itself(path)
        for member in zip_archive.members(path):
            yield InputFile(f"{name}/{member.name}", member.path, member.size, member.changed)
    else:
        yield InputFile(name, str(path), facts.st_size, facts.st_mtime_ns)


def _find_remote(path: str, endings: tuple[str, ...]) -> Iterator[InputFile]:
    """Like `_find_local`, through fsspec. Its file systems raise errors of any class."""
    store, inside = open_store(path)
    try:
        if glob.has_magic(inside):
            top = "/".join(_until(tuple(inside.split("/")), glob.has_magic))
            found = {name: facts for name, facts in store.glob(inside, detail=True).items() if facts["type"] == "file"}
        elif store.isdir(inside):
            found = store.find(inside, detail=True)
            top = inside.rstrip("/")
            labels = {name: name[len(top) :].strip("/") for name in found}
            companions = find_companions({labels[name]: int(facts.get("size") or 0) for name, facts in found.items()})
            wanted = {name for name, label in labels.items() if label not in companions and _is_wanted(label, endings)}
            found = {name: facts for name, facts in found.items() if name in wanted}
            if not found:
                raise _nothing_inside(path, endings)
        else:
            top, found = inside.rpartition("/")[0], {inside: store.info(inside)}
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file or directory; check the URL") from None
    except Exception as error:  # the file systems of fsspec have no common class of errors
        raise BadInput(f"{path}: {brief(error)}; check the URL and the credentials in the environment") from None
    if not found:
        raise BadInput(f"{path}: no file matches; check the pattern")
    for name, facts in found.items():
        label, url = name[len(top) :].strip("/"), str(store.unstrip_protocol(name))
        if facts.get("size") is None:
            raise BadInput(f"{url}: the store does not report the file size; copy the file to a local disk")
        yield InputFile(label, url, int(facts["size"]), _version(facts))


def _version(facts: dict[str, Any]) -> int:
    """The version of a file in its store, as a 63-bit number."""
    version = sorted((name, str(value)) for name, value in facts.items() if name.replace("_", "").lower() in _VERSIONS)
    return int.from_bytes(hashlib.sha256(repr(version).encode()).digest()[:8], "big") >> 1


def _is_wanted(label: str, endings: tuple[str, ...]) -> bool:
    return not _is_hidden(label) and (not endings or plain_suffix(label) in map(str.lower, endings))


def _is_hidden(label: str) -> bool:
    return any(part.startswith(".") and part != ".." for part in label.split("/"))


def _nothing_inside(path: str, endings: tuple[str, ...]) -> BadInput:
    kinds = f"{' or '.join(endings)} files" if endings else "files"
    return BadInput(f"{path}: no {kinds} in this directory; pass a directory that contains text")


def plain_suffix(name: Path | str) -> str:
    """The file extension in lower case, without the extension of a compression.

    >>> plain_suffix("Wiki.JSONL.zst")
    '.jsonl'
    """
    stem, ending = _stem_and_ending(name)
    return _stem_and_ending(stem)[1] if ending in COMPRESSED else ending


def compression_of(name: Path | str) -> str | None:
    """The compression of a file by its name, or None.

    >>> compression_of("OLD.TXT.GZ"), compression_of("a.txt")
    ('gzip', None)
    """
    return COMPRESSED.get(_stem_and_ending(name)[1])


def _stem_and_ending(name: Path | str) -> tuple[str, str]:
    """The stem and extension as in pathlib, in lower case.

    pathlib is too slow: a plan needs them several times for each of up to 100,000 files.
    """
    last = str(name).rstrip("/").rpartition("/")[2].lower()
    at = last.rfind(".")
    return (last[:at], last[at:]) if 0 < at < len(last) - 1 else (last, "")


def has_mark(file: InputFile) -> bool:
    """Whether files of this name begin with a signature, so that an empty file is damaged.

    >>> has_mark(InputFile("a", "a.parquet", 0, 0)), has_mark(InputFile("a", "a.jsonl", 0, 0))
    (True, False)
    """
    return compression_of(file.path) is not None or plain_suffix(file.path) in (".parquet", ".arrow", ".feather")


def display_path(path: str, endings: tuple[str, ...]) -> str:
    """A path, followed by the file extensions in parentheses if a source restricts them.

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
    """Open a file as stored, or a zip member decompressed, for random access.

    Raises BadInput if a store does not let this user read the file.
    """
    if zip_archive.is_member(path):
        return zip_archive.open_member(path)
    if not is_url(path):
        return open(path, "rb")
    store, inside = open_store(path)
    with _explain_refusal(path):
        return io.BufferedReader(store.open(inside, "rb"), _BLOCK)


def read_stored_head(path: str) -> bytes:
    """The first 64 KB of a file as stored; b"" for a damaged zip member.

    Raises BadInput like `open_stored`.
    """
    with open_stored(path) as file, _explain_refusal(path):
        try:
            return file.read(SNIFFED)
        except OSError as error:
            raise_if_ours(error)
            return b""  # a damaged zip member


@contextmanager
def _explain_refusal(path: str) -> Iterator[None]:
    """Raise BadInput if a store refuses to read a file of the block. Its error has no `errno` (s3fs, gcsfs)."""
    try:
        yield
    except PermissionError as error:
        if error.errno is not None:
            raise
        raise BadInput(f"{path}: cannot read the file ({error}); check its permissions and your credentials") from None


class _EndsHere(Exception):
    """Raised where the readable part of a compressed file ends: at a fault, or before `trailing` other bytes."""

    def __init__(self, fault: str, trailing: int = 0) -> None:
        super().__init__(fault)
        self.fault, self.trailing = fault, trailing


class DecodedFile(io.RawIOBase):
    """Decompressed content of a file in UTF-8. At damage the stream ends, and `fault` is set.

    `fault` is "truncated" if the archive is incomplete or invalid, "bomb" if it expands beyond _MOST_RATIO, else "".
    `trailing` is the number of stored bytes after a complete archive that do not belong to it, without NUL bytes, which
    are padding.
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
    """Open a file for reading: decompressed according to its name, and in UTF-8 if it is UTF-16 or UTF-32.

    `encoding` is a codec for the whole file; without it, lines of other encodings are converted one by one
    (transcode.py). In a file of concatenated compressed members, [start, stop) may be a range of whole members, in
    stored bytes. The stream of a damaged file ends early; `describe_fault` returns why.
    """
    file = _open_decompressed(path, start, stop)
    encoding = encoding or wide(file.peek(_PIECE)[:_PIECE])
    return io.BufferedReader(DecodedFile(_utf8(file, encoding))) if encoding else file


def open_lines(path: str, start: int = 0, stop: int | None = None, encoding: str = "") -> io.BufferedReader:
    """Like `open_bytes`, but with line feeds as line ends. Files of old Macs have carriage returns only."""
    file = open_bytes(path, start, stop, encoding)
    if start or stop is not None or b"\n" in file.peek(_PIECE):
        return file
    if not ends_in_returns(head(path, SNIFFED, encoding), path, encoding):
        return file
    return io.BufferedReader(DecodedFile(_with_line_feeds(file)))


def ends_in_returns(start: bytes, path: str, encoding: str = "") -> bool:
    """Whether the lines of a file end in carriage returns only.

    `start` contains its first bytes. If they contain no line feed, the rest of the file is searched for one, because a
    long line may contain carriage returns. A single line feed at the end of the file is ignored.
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


def _open_decompressed(path: str, start: int = 0, stop: int | None = None) -> io.BufferedReader:
    compression = compression_of(path)
    if compression is None:
        if zip_archive.is_member(path):
            return io.BufferedReader(DecodedFile(_unzip(path)))
        return open_stored(path)
    return io.BufferedReader(DecodedFile(_inflate(path, compression, start, stop)), _PIECES_PER_BLOCK * _PIECE)


def _unzip(path: str) -> Iterator[bytes]:
    try:
        with zip_archive.open_member(path) as file:
            while block := file.read(_PIECE):
                yield block
    except zip_archive.TORN as error:
        raise_if_ours(error)
        raise _EndsHere("truncated") from None


def wide_encoding(path: str) -> str:
    """The codec of a UTF-16 or UTF-32 file, otherwise ""."""
    with _open_decompressed(path) as file:
        return wide(file.peek(_PIECE)[:_PIECE])


def describe_fault(file: io.BufferedReader) -> str:
    """The fault that ended a stream of `open_bytes` early; "" if there is none."""
    return file.raw.fault if isinstance(file.raw, DecodedFile) else ""


def count_trailing_bytes(file: io.BufferedReader) -> int:
    """Number of stored bytes after the archive that do not belong to it. The stream must have been read to its end."""
    return file.raw.trailing if isinstance(file.raw, DecodedFile) else 0


def _inflate(path: str, compression: str, start: int, stop: int | None) -> Iterator[bytes]:
    """Decompressed blocks of all members, frames or streams of a file. zstd windows may have up to 128 MB."""
    done = 0
    try:
        with _archive(path, start, stop) as stored:
            most = _HARMLESS + _MOST_RATIO * _count_remaining(stored)
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


def _count_remaining(stored: BinaryIO) -> int:
    """Number of stored bytes after the current position."""
    at = stored.tell()
    if isinstance(raw := getattr(stored, "raw", None), zip_archive.ZipMember):
        return raw.size - at  # seeking to the end of a zip member would decompress all of it
    end = stored.seek(0, io.SEEK_END)
    stored.seek(at)
    return end - at


def _zstd(stored: BinaryIO) -> Iterator[bytes]:
    """Decompressed blocks of all zstd frames, by pyarrow. Raises an error if a frame is damaged or truncated."""
    with pa.input_stream(stored, compression="zstd") as stream:
        while piece := stream.read(_PIECE):
            yield piece


class _Decompressor(Protocol):
    """Common interface of Python's bz2 and xz decoders and of _Gunzip."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gunzip:
    """Decoder of a gzip member with the interface of Python's bz2 and xz decoders.

    It returns all bytes before a damaged place.
    """

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
    """The bytes before damage, decompressed one by one, because a call that reaches the damage returns no bytes."""
    with suppress(zlib.error):
        while byte := decoder.decompress(data, 1):
            yield byte
            data = decoder.unconsumed_tail


_STREAMS: Final[dict[str, tuple[bytes, Callable[[], _Decompressor]]]] = {  # signature and decoder of each compression
    "gzip": (b"\x1f\x8b", _Gunzip),
    "bz2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
}


def _members(stored: BinaryIO, compression: str) -> Iterator[bytes]:
    """Decompressed blocks of concatenated members. NUL bytes between and after members are padding.

    Raises an error if a member is damaged, is truncated or needs too much memory. Bytes after the last member are
    counted; the gzip program ignores them with a warning.
    """
    mark, begin = _STREAMS[compression]
    decoder, rest = begin(), stored.read(_PIECE)
    while rest:
        yield decoder.decompress(rest, _PIECES_PER_BLOCK * _PIECE)
        while not decoder.needs_input and not decoder.eof:
            yield decoder.decompress(b"", _PIECES_PER_BLOCK * _PIECE)
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
    raise EOFError("truncated")


def _archive(path: str, start: int, stop: int | None) -> BinaryIO:
    """A range [start, stop) of a compressed file, from `start`."""
    file = open_stored(path)
    file.seek(start)
    if stop is None:
        return file
    with file:
        return io.BytesIO(file.read(stop - start))


def raise_if_ours(error: Exception) -> None:
    """Raise the error if it comes from the disk, the network or a store. Return if the archive is damaged.

    An error of a store may have no `errno`: s3fs raises such a PermissionError for an object that may not be read.
    """
    of_store = TimeoutError | ConnectionError | PermissionError | FileNotFoundError
    if getattr(error, "errno", None) is not None or isinstance(error, of_store):
        raise error


def _before_the_tear(path: str, start: int, stop: int | None, done: int) -> Iterator[bytes]:
    """The readable part of a zstd stream after the first `done` bytes, byte by byte.

    pyarrow drops an incomplete block.
    """
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
    """The first `size` bytes of the content, as returned by `open_bytes`; b"" if it cannot be decompressed."""
    with open_bytes(path, encoding=encoding) as file:
        return file.read(size)


def is_text(start: bytes) -> bool:
    r"""Whether the first bytes of a file look like text.

    They must have no signature of another format, at most 25 % NUL bytes and at most 3 % other control characters.

    >>> is_text(b"plain\x00 text"), is_text("plain text".encode("utf-16-le")), is_text(b"\x7fELF\x01\x02")
    (True, False, False)
    """
    controls = sum(start.count(byte) for byte in _CONTROLS)
    other = start.startswith(_MARKS) or start[_TAR_MARK:].startswith(b"ustar")
    return not other and start.count(0) <= 0.25 * len(start) and controls <= 0.03 * len(start)
