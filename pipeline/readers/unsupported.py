"""Files that no reader reads, or whose content does not match their name: a description and a remedy."""

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
    read_stored_head,
)
from preprocessing.errors import BadInput
from preprocessing.stand_ins import LOOKED_AT, PAGE, StandIn, is_page, stands_in

_UNPACK: Final = "unpack it and pass the directory"
_RENAME: Final = "rename it to {}, so that it is decompressed"
_RENAME_TO: Final = "rename it to {}"
_CONVERT: Final = "convert it to text, e.g. with {}"
_ARCHIVES: Final = ((b"7z\xbc\xaf\x27\x1c", "a 7z archive"), (b"Rar!", "a RAR archive"), (b"ustar", "a tar archive"))
_SIGNATURES: Final = (  # first bytes, description, remedy
    (b"%PDF", "PDF", _CONVERT.format("pdftotext")),
    (b"%!PS", "PostScript", _CONVERT.format("ps2ascii")),
    (b"{\\rtf", "RTF", _CONVERT.format("pandoc")),
    (b"\xd0\xcf\x11\xe0", "a Microsoft Office document in a format before 2007", _CONVERT.format("LibreOffice")),
    (b"\x1f\x8b", "gzip", _RENAME.format(".gz")),
    (b"BZh", "bzip2", _RENAME.format(".bz2")),
    (b"\xfd7zXZ", "xz", _RENAME.format(".xz")),
    (b"\x28\xb5\x2f\xfd", "zstd", _RENAME.format(".zst")),
    (b"\x89PNG", "a picture", "exclude it"),
    (b"\xff\xd8\xff", "a picture", "exclude it"),
    (b"GIF8", "a picture", "exclude it"),
    (b"\x7fELF", "a program", "exclude it"),
    (b"filedesc://", "an ARC archive, the predecessor of WARC", "convert it to WARC, e.g. with `warcio recompress`"),
    (b"SQLite format 3", "a SQLite database", "export its text as CSV"),
    (b"\x93NUMPY", "a NumPy array", "pass the text, because Sesame tokenizes it"),
    (b"\x89HDF", "HDF5", "export its text as Parquet"),
    (b"\x80\x04", "a Python pickle", "save it as JSON Lines: opening a pickle can run any code"),
)
_OFFICE: Final = (  # member names in zip archives that are documents
    (b"word/", "DOCX", _CONVERT.format("pandoc")),
    (b"ppt/", "PPTX", _CONVERT.format("LibreOffice")),
    (b"xl/", "XLSX", "export its text as CSV"),
    (b"application/epub+zip", "EPUB", _CONVERT.format("pandoc")),
    (b"opendocument.text", "ODT", _CONVERT.format("pandoc")),
)
_TAR_MARK: Final = 257
_MIN_SIZE: Final = 9  # bytes; a shorter file is probably truncated, so its beginning is not checked
_TABLES: Final = (
    (b"PAR1", "Parquet", _RENAME_TO.format(".parquet")),
    (b"ARROW1", "an Arrow file", _RENAME_TO.format(".arrow")),
)
_EXPECTED_START: Final = {  # expected first stored bytes by file extension
    ".gz": re.compile(rb"\x1f\x8b"),
    ".bz2": re.compile(rb"BZh"),
    ".xz": re.compile(rb"\xfd7zXZ"),
    ".zst": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    **dict.fromkeys((".parquet", ".arrow", ".arrows", ".feather", ".ipc"), re.compile(rb"PAR[1E]|ARROW1|\xff{4}")),
}
# file extensions of text formats
_OF_LINES: Final = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".tab", ".warc", ".wet")
_TEXT: Final = {
    ending: StandIn(f"uncompressed text despite the extension {ending}", f"rename it without {ending}")
    for ending in (".gz", ".bz2", ".xz", ".zst")
}
_NO_TABLE: Final = StandIn("text, not a table as its extension indicates", "download it again or rename it")
_ARCHIVED: Final = (".warc", ".wet")
_RECORD: Final = b"WARC/"
_NO_ARCHIVE: Final = StandIn("text, not a web archive as its extension indicates", "download it again or rename it")
_LOOKS_LIKE_XML: Final = re.compile(rb"\s*<\?xml\b")
_LOOKED_AT: Final = 8192  # bytes


def describe_format(file: InputFile) -> tuple[str, str]:
    """What a file that no reader recognizes looks like, and a remedy."""
    with open_bytes(file.path) as stream:
        inside, why = stream.read(_LOOKED_AT), describe_fault(stream)
    if match_signature(read_stored_head(file.path)) and file.path.lower().endswith((".tgz", ".tbz2", ".txz", ".tzst")):
        return "a compressed tar archive", _UNPACK
    if why and file.size and not inside:
        return "damaged, or not compressed as its name indicates", "compress it again"
    if not inside.removeprefix(BYTE_ORDER_MARK).strip():
        return "empty", "exclude it"
    return match_signature(inside) or ("binary", "pass text files")


def match_signature(start: bytes) -> tuple[str, str] | None:
    """The format that these first bytes indicate and a remedy; None if they may be text.

    >>> match_signature(b"%PDF-1.7"), match_signature(b"Call me Ishmael.")
    (('PDF', 'convert it to text, e.g. with pdftotext'), None)
    """
    if start.startswith(b"PK\x03\x04"):
        return next(((name, todo) for mark, name, todo in _OFFICE if mark in start), ("a zip archive", _UNPACK))
    if start[_TAR_MARK:].startswith(b"ustar") or any(start.startswith(mark) for mark, _ in _ARCHIVES[:2]):
        name = next((name for mark, name in _ARCHIVES[:2] if start.startswith(mark)), _ARCHIVES[2][1])
        return name, _UNPACK
    return next(((what, todo) for mark, what, todo in _SIGNATURES if start.lstrip().startswith(mark)), None)


def require_as_called(files: Iterable[InputFile]) -> list[InputFile]:
    """Check the content of files against their names. Returns the files that begin like an HTML page.

    Raises BadInput if a file is a pointer (Git LFS) or an error message of a store, or if its name indicates another
    format. Damaged files are accepted here, and remote files too large to be a pointer: reading them shows the
    fault.
    """
    seen = [(file, *_check_content(file)) for file in files]
    found = [(file, why) for file, why, _ in seen if why is not None]
    if found:
        (file, why), more = found[0], len(found) - 1
        others = f", {more:,} more like it" if more else ""
        raise BadInput(f"{file.path}: unexpected content: {why.what}{others}; {why.todo}")
    return [file for file, _, begins_as_page in seen if begins_as_page]


@lru_cache(maxsize=1 << 17)  # a job plans several times
def _check_content(file: InputFile) -> tuple[StandIn | None, bool]:
    """The actual format of a file if it contradicts its name, and whether it begins like an HTML page."""
    if not file.size or (is_url(file.path) and file.size > LOOKED_AT):
        return None, False
    stored = read_stored_head(file.path)[:_LOOKED_AT]  # empty: a damaged zip member
    return (_stands_in(file, stored), is_page(stored)) if stored else (None, False)


def _stands_in(file: InputFile, stored: bytes) -> StandIn | None:
    if (found := stands_in(stored)) is not None:
        return found
    ending = (
        plain_suffix(file.path) if compression_of(file.path) is None else f".{file.path.rpartition('.')[2].lower()}"
    )
    mark = _EXPECTED_START.get(ending)
    if mark is not None and len(stored) >= _MIN_SIZE and not mark.match(stored):
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
    """The format of a file whose name indicates another one; None if the format is unknown or text."""
    if is_page(start):
        return PAGE
    if _LOOKS_LIKE_XML.match(start.removeprefix(BYTE_ORDER_MARK)):
        return StandIn(f"XML despite the extension {ending}", "download it again or rename it to .xml")
    looks_like = next(((what, todo) for mark, what, todo in _TABLES if start.startswith(mark)), match_signature(start))
    return looks_like and StandIn(f"{looks_like[0]} despite the extension {ending}", looks_like[1])
