"""Files that no reader reads: what they look like, and what to do about it."""

from typing import Final

from pipeline.readers.files import BYTE_ORDER_MARK, File, fault, open_bytes

_UNPACK: Final = "unpack it first, and give the folder"
_RENAME: Final = "give it the ending {} so that it is decompressed"
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
_LOOKED_AT: Final = 8192  # bytes


def looks(file: File) -> tuple[str, str]:
    """What a file that no reader recognises looks like, and what to do."""
    with open_bytes(file.path) as stream:
        inside, why = stream.read(_LOOKED_AT), fault(stream)
    if why and file.size and not inside:
        return "damaged, or not compressed as its name says", "compress it again"
    if not inside.removeprefix(BYTE_ORDER_MARK).strip():
        return "empty", "leave it out"
    return known(inside) or ("binary", "name text")


def known(start: bytes) -> tuple[str, str] | None:
    """What begins so, and what to do; None for what may be text.

    >>> known(b"%PDF-1.7"), known(b"Call me Ishmael.")
    (('PDF', 'turn it into text first, as with pdftotext'), None)
    """
    if start.startswith(b"PK\x03\x04"):
        return next(((name, todo) for mark, name, todo in _OFFICE if mark in start), ("a zip archive", _UNPACK))
    if start[_TAR_MARK:].startswith(b"ustar") or any(start.startswith(mark) for mark, _ in _ARCHIVES[:2]):
        name = next((name for mark, name in _ARCHIVES[:2] if start.startswith(mark)), _ARCHIVES[2][1])
        return name, _UNPACK
    return next(((what, todo) for mark, what, todo in _LOOKS if start.lstrip().startswith(mark)), None)
