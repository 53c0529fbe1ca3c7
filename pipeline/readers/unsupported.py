"""Files that no reader reads, or that are not what they are called: what they look like, and what to do about it."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from pipeline.readers import zip_archive
from pipeline.readers.files import (
    BYTE_ORDER_MARK,
    InputFile,
    compression_of,
    describe_fault,
    head,
    is_text,
    is_url,
    open_bytes,
    plain_suffix,
    stored_head,
)
from preprocessing.errors import BadInput
from preprocessing.stand_ins import LOOKED_AT, PAGE, StandIn, is_page, stands_in

_UNPACK: Final = "unpack it first, and give the folder"
_RENAME: Final = "give it the ending {} so that it is decompressed"
_CALL: Final = "give it the ending {}"
_CONVERT: Final = "turn it into text first, as with {}"
_ARCHIVES: Final = ((b"7z\xbc\xaf\x27\x1c", "a 7z archive"), (b"Rar!", "a RAR archive"), (b"ustar", "a tar archive"))
_LOOKS: Final = (  # how a file begins, what it is, what to do
    (b"%PDF", "PDF", _CONVERT.format("pdftotext")),
    (b"%!PS", "PostScript", _CONVERT.format("ps2ascii")),
    (b"{\\rtf", "RTF", _CONVERT.format("pandoc")),
    (b"\xd0\xcf\x11\xe0", "a document of Microsoft Office before 2007", _CONVERT.format("LibreOffice")),
    (b"\x1f\x8b", "gzip", _RENAME.format(".gz")),
    (b"BZh", "bzip2", _RENAME.format(".bz2")),
    (b"\xfd7zXZ", "xz", _RENAME.format(".xz")),
    (b"\x28\xb5\x2f\xfd", "zstd", _RENAME.format(".zst")),
    (b"\x89PNG", "a picture", "leave it out"),
    (b"\xff\xd8\xff", "a picture", "leave it out"),
    (b"GIF8", "a picture", "leave it out"),
    (b"\x7fELF", "a program", "leave it out"),
    (b"filedesc://", "an ARC archive, of before WARC", "turn it into WARC first, as with `warcio recompress`"),
    (b"SQLite format 3", "a SQLite database", "export its text as CSV"),
    (b"\x93NUMPY", "a NumPy array", "Sesame wants text, and makes the tokens itself"),
    (b"\x89HDF", "HDF5", "export its text as Parquet"),
    (b"\x80\x04", "a Python pickle", "save it as JSON lines: a pickle may run any code when it is opened"),
)
_OFFICE: Final = (  # what a zip archive names that is a document
    (b"word/", "DOCX", _CONVERT.format("pandoc")),
    (b"ppt/", "PPTX", _CONVERT.format("LibreOffice")),
    (b"xl/", "XLSX", "export its text as CSV"),
    (b"application/epub+zip", "EPUB", _CONVERT.format("pandoc")),
    (b"opendocument.text", "ODT", _CONVERT.format("pandoc")),
)
_TAR_MARK: Final = 257
_LEAST: Final = 9  # bytes: of fewer nobody can say what they are, so that they are the beginning of a torn file
_TABLES: Final = (b"PAR1", "Parquet", _CALL.format(".parquet")), (b"ARROW1", "an Arrow file", _CALL.format(".arrow"))
_PROMISED: Final = {  # by the ending of a name, how such a file begins as it is stored
    ".gz": re.compile(rb"\x1f\x8b"),
    ".bz2": re.compile(rb"BZh"),
    ".xz": re.compile(rb"\xfd7zXZ"),
    ".zst": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    **dict.fromkeys((".parquet", ".arrow", ".arrows", ".feather", ".ipc"), re.compile(rb"PAR[1E]|ARROW1|\xff{4}")),
}
_OF_LINES: Final = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".tab", ".warc", ".wet")  # names of formats of text
_TEXT: Final = {
    ending: StandIn(f"text that is not compressed as its ending {ending} says", f"rename it without {ending}")
    for ending in (".gz", ".bz2", ".xz", ".zst")
}
_NO_TABLE: Final = StandIn("text, not the table that its ending says", "download it again, or rename it")
_ARCHIVED: Final = (".warc", ".wet")
_RECORD: Final = b"WARC/"
_NO_ARCHIVE: Final = StandIn("text, not the web archive that its ending says", "download it again, or rename it")
_LOOKS_LIKE_XML: Final = re.compile(rb"\s*<\?xml\b")
_LOOKED_AT: Final = 8192  # bytes


def describe_format(file: InputFile) -> tuple[str, str]:
    """What a file that no reader recognises looks like, and what to do."""
    with open_bytes(file.path) as stream:
        inside, why = stream.read(_LOOKED_AT), describe_fault(stream)
    if match_signature(stored_head(file.path)) and file.path.lower().endswith((".tgz", ".tbz2", ".txz", ".tzst")):
        return "a compressed tar archive", _UNPACK
    if why and file.size and not inside:
        return "damaged, or not compressed as its name says", "compress it again"
    if not inside.removeprefix(BYTE_ORDER_MARK).strip():
        return "empty", "leave it out"
    return match_signature(inside) or ("binary", "name text")


def match_signature(start: bytes) -> tuple[str, str] | None:
    """What begins so, and what to do; None for what may be text.

    >>> match_signature(b"%PDF-1.7"), match_signature(b"Call me Ishmael.")
    (('PDF', 'turn it into text first, as with pdftotext'), None)
    """
    if start.startswith(b"PK\x03\x04"):
        return next(((name, todo) for mark, name, todo in _OFFICE if mark in start), ("a zip archive", _UNPACK))
    if start[_TAR_MARK:].startswith(b"ustar") or any(start.startswith(mark) for mark, _ in _ARCHIVES[:2]):
        name = next((name for mark, name in _ARCHIVES[:2] if start.startswith(mark)), _ARCHIVES[2][1])
        return name, _UNPACK
    return next(((what, todo) for mark, what, todo in _LOOKS if start.lstrip().startswith(mark)), None)


def require_as_called(files: Iterable[InputFile]) -> list[InputFile]:
    """The files that begin as pages of HTML; BadInput where files are pointers or a store's answers, or hold something
    else than their names promise.

    Of a damaged file nothing is said, nor of one that is far away and too large for a pointer: reading it tells.
    """
    seen = [(file, *_looked_at(file)) for file in files]
    found = [(file, why) for file, why, _ in seen if why is not None]
    if found:
        (file, why), more = found[0], len(found) - 1
        others = f", {more:,} more like it" if more else ""
        raise BadInput(f"{file.path}: is {why.what}{others}; {why.todo}")
    return [file for file, _, begins_as_page in seen if begins_as_page]


@lru_cache(maxsize=1 << 17)  # a job plans several times
def _looked_at(file: InputFile) -> tuple[StandIn | None, bool]:
    """What a file is instead of what its name says, and whether it begins as a page of HTML."""
    if not file.size or (is_url(file.path) and file.size > LOOKED_AT):
        return None, False
    stored = stored_head(file.path)[:_LOOKED_AT]  # empty: a damaged member of an archive
    return (_stands_in(file, stored), is_page(stored)) if stored else (None, False)


def _stands_in(file: InputFile, stored: bytes) -> StandIn | None:
    if (found := stands_in(stored)) is not None:
        return found
    ending = (
        plain_suffix(file.path) if compression_of(file.path) is None else f".{file.path.rpartition('.')[2].lower()}"
    )
    mark = _PROMISED.get(ending)
    if mark is not None and len(stored) >= _LEAST and not mark.match(stored):
        return _other(stored, ending) or (_TEXT.get(ending, _NO_TABLE) if is_text(stored) else None)
    if compression_of(file.path) or zip_archive.is_member(file.path):
        stored = head(file.path, _LOOKED_AT)
        if (found := stands_in(stored)) is not None:
            return found
    ending = plain_suffix(file.path)
    if ending in _ARCHIVED and _RECORD not in stored and stored.strip() and is_text(stored):
        return _other(stored, ending) or _NO_ARCHIVE
    return _other(stored, ending) if ending in _OF_LINES else None


def _other(start: bytes, ending: str) -> StandIn | None:
    """What a file begins as whose name promises something else; None where it is nothing known, or text."""
    if is_page(start):
        return PAGE
    if _LOOKS_LIKE_XML.match(start.removeprefix(BYTE_ORDER_MARK)):
        return StandIn(f"XML, not what its ending {ending} says", "download it again, or give it the ending .xml")
    looks_like = next(((what, todo) for mark, what, todo in _TABLES if start.startswith(mark)), match_signature(start))
    return looks_like and StandIn(f"{looks_like[0]}, not what its ending {ending} says", looks_like[1])
