"""Files that no reader reads: each is named with what it looks like and what to do, in one line."""

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pipeline.readers import Text, left_out, recognise, sniff
from preprocessing.errors import BadInput
from tests.pipeline.readers.reading import texts, write

PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n"
TYPES = {"mimetype": "application/epub+zip", "mimetype ": "application/vnd.oasis.opendocument.text"}
WORDS = b"Words enough to be compressed, and words again.\n" * 20


def _zip(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, TYPES.get(name, "<x/>" * 20))
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(WORDS)
        archive.addfile(member, io.BytesIO(WORDS))
    return out.getvalue()


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(300))
    return out.getvalue()


FILES = {
    "a.pdf": (PDF, "PDF", "pdftotext"),
    "later.pdf": (b"\n\n" + PDF, "PDF", "pdftotext"),
    "a.ps": (b"%!PS-Adobe-3.0\nshowpage\n", "PostScript", "ps2ascii"),
    "a.rtf": (b"{\\rtf1\\ansi Words.}", "RTF", "pandoc"),
    "a.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "Microsoft Office before 2007", "LibreOffice"),
    "a.docx": (_zip("[Content_Types].xml", "word/document.xml"), "DOCX", "pandoc"),
    "a.pptx": (_zip("[Content_Types].xml", "ppt/a.xml"), "PPTX", "LibreOffice"),
    "a.xlsx": (_zip("[Content_Types].xml", "xl/workbook.xml"), "XLSX", "CSV"),
    "a.odt": (_zip("mimetype ", "content.xml"), "ODT", "pandoc"),
    "a.idml": (_zip("content.xml"), "zip archive", "unpack"),
    "a.epub": (_zip("mimetype", "OEBPS/a.xhtml"), "EPUB", "pandoc"),
    "a.7z": (b"7z\xbc\xaf\x27\x1c\x00\x04" + b"\0" * 20, "7z archive", "unpack"),
    "a.rar": (b"Rar!\x1a\x07\x01\x00" + b"\0" * 20, "RAR archive", "unpack"),
    "a.tar": (_tar(), "tar archive", "unpack"),
    "a.tar.gz": (gzip.compress(_tar()), "tar archive", "unpack"),
    "a.tar.xz": (lzma.compress(_tar()), "tar archive", "unpack"),
    "gzip.txt": (gzip.compress(WORDS), "gzip", "ending .gz"),
    "bzip2.txt": (bz2.compress(WORDS), "bzip2", "ending .bz2"),
    "xz.txt": (lzma.compress(WORDS), "xz", "ending .xz"),
    "zstd.txt": (b"\x28\xb5\x2f\xfd" + b"\0" * 20, "zstd", "ending .zst"),
    "zip.txt": (_zip("a.txt"), "zip archive", "unpack"),
    "a.png": (b"\x89PNG\r\n\x1a\n" + b"\0" * 20, "picture", "leave it out"),
    "a.jpg": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "picture", "leave it out"),
    "a.bin": (b"\x7fELF\x02\x01" + b"\0" * 60, "program", "leave it out"),
    "a.db": (b"SQLite format 3\x00" + b"\0" * 60, "SQLite", "CSV"),
    "a.npy": (_npy(), "NumPy", "text"),
    "a.h5": (b"\x89HDF\r\n\x1a\n", "HDF5", "Parquet"),
    "a.pkl": (pickle.dumps(["words"], protocol=4), "pickle", "JSON lines"),
    "empty.txt": (b"", "empty", "leave it out"),
    "torn.txt.gz": (b"\x1f\x8b, and no gzip behind it", "not compressed as its name says", "compress it again"),
    "unknown": (bytes(range(256)), "binary", "name text"),
}


@pytest.mark.parametrize("name", FILES)
class TestAlone:
    def test_it_is_refused_with_what_it_looks_like_and_what_to_do(self, tmp_path: Path, name: str) -> None:
        content, looks, todo = FILES[name]
        path = write(tmp_path, content, name)
        with pytest.raises(BadInput) as raised:
            sniff(path)
        message = str(raised.value)
        assert message.startswith(f"{path}: holds no text: ")
        assert looks in message.partition("or say KIND:PATH")[0]
        assert todo in message.partition("or say KIND:PATH")[0]
        assert "\n" not in message

    def test_beside_text_it_is_left_out_and_said(self, tmp_path: Path, name: str) -> None:
        content, looks, todo = FILES[name]
        write(tmp_path, content, f"b/{name}")
        write(tmp_path, "Words of a document.\n", "a.txt")
        found = recognise(str(tmp_path))
        if ".txt" in name:
            assert texts(*found)[0] == "Words of a document."
            return
        assert texts(*found) == ["Words of a document."]
        (line,) = left_out(found)
        assert line.startswith(f"{tmp_path}: left out: b/{name} (")
        assert looks in line
        assert todo in line


def test_a_folder_without_text_names_one_of_its_files(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, PDF, f"{number}.pdf")
    with pytest.raises(BadInput, match=r"^[^\n]+: holds no text: 0\.pdf is PDF and 4 more; [^\n]+pdftotext[^\n]+$"):
        sniff(str(tmp_path))


def test_text_that_is_not_there_is_not_looked_for_in_the_first_file_alone(tmp_path: Path) -> None:
    write(tmp_path, PDF, "a.txt")
    write(tmp_path, b"", "b.txt")
    write(tmp_path, "Words.", "c.txt")
    assert recognise(str(tmp_path)) == [Text(path=str(tmp_path))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b""),
        ("a.txt", b"\xef\xbb\xbf"),
        ("a.txt", b"\n \n"),
        ("a.txt.gz", gzip.compress(b"")),
        ("a.txt.xz", b""),
    ],
)
def test_an_empty_file_is_called_empty(tmp_path: Path, name: str, content: bytes) -> None:
    path = write(tmp_path, content, name)
    with pytest.raises(BadInput, match=r"^[^\n]+: holds no text: empty; leave it out[^\n]+$"):
        recognise(path)


def test_what_is_left_out_of_a_folder_that_is_a_url_is_said(tmp_path: Path) -> None:
    write(tmp_path, b"%PDF-1.4", "a.pdf")
    write(tmp_path, "Words.", "b.txt")
    url = f"file://{tmp_path}"
    (line,) = left_out(recognise(url))
    assert line.startswith(f"{url}: left out: a.pdf (PDF;")


def test_a_pattern_that_matches_json_lines_and_prose_is_refused(tmp_path: Path) -> None:
    write(tmp_path, '{"text": "Words."}\n', "a.jsonl")
    write(tmp_path, "Words.", "b.txt")
    with pytest.raises(BadInput, match=r"matches jsonl and text; give each a pattern of its own"):
        recognise(str(tmp_path / "*"))
