"""Unsupported files: each error names the file, its likely type and a remedy, in one line."""

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.readers import TextReader, list_unread_files, plan_splits, recognise, sniff
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
    "a.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "Microsoft Office", "LibreOffice"),
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
    "gzip.txt": (gzip.compress(WORDS), "gzip", "rename it to .gz"),
    "bzip2.txt": (bz2.compress(WORDS), "bzip2", "rename it to .bz2"),
    "xz.txt": (lzma.compress(WORDS), "xz", "rename it to .xz"),
    "zstd.txt": (b"\x28\xb5\x2f\xfd" + b"\0" * 20, "zstd", "rename it to .zst"),
    "zip.txt": (_zip("a.txt"), "zip archive", "unpack"),
    "a.png": (b"\x89PNG\r\n\x1a\n" + b"\0" * 20, "picture", "exclude it"),
    "a.jpg": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "picture", "exclude it"),
    "a.bin": (b"\x7fELF\x02\x01" + b"\0" * 60, "program", "exclude it"),
    "a.arc": (b"filedesc://a.arc 0.0.0.0 20200101000000 text/plain 76\n1 0 Alexa Internet\n", "ARC", "warcio"),
    "a.arc.gz": (gzip.compress(b"filedesc://a.arc 0.0.0.0 20200101000000 text/plain 76\n"), "ARC", "warcio"),
    "a.db": (b"SQLite format 3\x00" + b"\0" * 60, "SQLite", "CSV"),
    "a.npy": (_npy(), "NumPy", "text"),
    "a.h5": (b"\x89HDF\r\n\x1a\n", "HDF5", "Parquet"),
    "a.pkl": (pickle.dumps(["words"], protocol=4), "pickle", "JSON Lines"),
    "empty.txt": (b"", "empty", "exclude it"),
    "torn.txt.gz": (b"\x1f\x8b, and no gzip behind it", "not compressed as its name indicates", "compress it again"),
    "unknown": (bytes(range(256)), "binary", "pass text"),
}


@pytest.mark.parametrize("name", FILES)
class TestUnsupportedFile:
    def test_alone_it_is_refused_with_its_type_and_a_remedy(self, tmp_path: Path, name: str) -> None:
        content, looks, todo = FILES[name]
        path = write(tmp_path, content, name)
        with pytest.raises(BadInput) as raised:
            sniff(path)
        message = str(raised.value)
        assert message.startswith(f"{path}: no readable text: ")
        assert looks in message.partition("or say KIND:PATH")[0]
        assert todo in message.partition("or say KIND:PATH")[0]
        assert "\n" not in message

    def test_beside_text_it_is_skipped_and_reported(self, tmp_path: Path, name: str) -> None:
        content, looks, todo = FILES[name]
        write(tmp_path, content, f"b/{name}")
        write(tmp_path, "Words of a document.\n", "a.txt")
        found = recognise(str(tmp_path))
        if ".txt" in name:
            assert texts(*found)[0] == "Words of a document."
            return
        assert texts(*found) == ["Words of a document."]
        (line,) = list_unread_files(found)
        assert line.startswith(f"{tmp_path}: files not read: b/{name} (")
        assert looks in line
        assert todo in line


def test_a_directory_without_text_names_one_of_its_files(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, PDF, f"{number}.pdf")
    with pytest.raises(BadInput, match=r"^[^\n]+: no readable text: 0\.pdf is PDF and 4 more; [^\n]+pdftotext[^\n]+$"):
        sniff(str(tmp_path))


def test_text_is_also_found_after_unreadable_first_files(tmp_path: Path) -> None:
    write(tmp_path, PDF, "a.txt")
    write(tmp_path, b"", "b.txt")
    write(tmp_path, "Words.", "c.txt")
    assert recognise(str(tmp_path)) == [TextReader(path=str(tmp_path))]


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
def test_an_empty_file_is_reported_as_empty(tmp_path: Path, name: str, content: bytes) -> None:
    path = write(tmp_path, content, name)
    with pytest.raises(BadInput, match=r"^[^\n]+: no readable text: empty; exclude it[^\n]+$"):
        recognise(path)


def test_skipped_files_of_a_directory_url_are_reported(tmp_path: Path) -> None:
    write(tmp_path, b"%PDF-1.4", "a.pdf")
    write(tmp_path, "Words.", "b.txt")
    url = f"file://{tmp_path}"
    (line,) = list_unread_files(recognise(url))
    assert line.startswith(f"{url}: files not read: a.pdf (PDF;")


def test_a_pattern_that_matches_json_lines_and_prose_is_refused(tmp_path: Path) -> None:
    write(tmp_path, '{"text": "Words."}\n', "a.jsonl")
    write(tmp_path, "Words.", "b.txt")
    with pytest.raises(BadInput, match=r"pattern matches several formats: jsonl and text; pass one pattern per format"):
        recognise(str(tmp_path / "*"))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"
PAGE = b"<!DOCTYPE html>\n<html><body>403 Forbidden</body></html>"
TEXT = b'{"text": "Words of a document."}\n'


def _parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"text": ["Words of a table."]}), out)
    return out.getvalue()


SOUND = {"jsonl": TEXT, "jsonl.gz": gzip.compress(TEXT), "csv": b"text,id\nWords,1\n", "parquet": _parquet()}
OTHERS = {
    "a pointer": (LFS, tuple(SOUND), "Git LFS pointer", "git lfs pull"),
    "a page": (PAGE, tuple(SOUND), "HTML page", "download it again"),
    "XML": (b"<?xml version='1.0'?><a/>", ("jsonl", "csv", "parquet"), "XML", "rename it to .xml"),
    "a PDF": (PDF, tuple(SOUND), "PDF", "pdftotext"),
    "a zip": (_zip("a.txt"), tuple(SOUND), "zip archive", "unpack"),
    "an xlsx": (_zip("xl/workbook.xml"), tuple(SOUND), "XLSX", "CSV"),
    "gzip": (gzip.compress(TEXT), ("jsonl", "csv", "parquet"), "gzip", "rename it to .gz"),
    "text": (WORDS, ("jsonl.gz", "parquet"), "text", "rename"),
    "Parquet": (_parquet(), ("jsonl", "jsonl.gz", "csv"), "Parquet", "rename it to .parquet"),
    "Parquet in gzip": (gzip.compress(_parquet()), ("jsonl.gz",), "Parquet", "rename it to .parquet"),
    "a page in gzip": (gzip.compress(PAGE), ("jsonl.gz",), "HTML page", "download it again"),
}


@pytest.mark.parametrize(("kind", "ending"), [(kind, ending) for kind in OTHERS for ending in OTHERS[kind][1]])
class TestWrongExtension:
    """200 pointers named .parquet used to become 200 documents."""

    def test_it_is_refused_alone_and_in_directories_and_patterns(self, tmp_path: Path, kind: str, ending: str) -> None:
        content, _, looks, todo = OTHERS[kind]
        pattern = rf"^{tmp_path}/\S+: unexpected content: [^\n]*{looks}[^\n]*; [^\n]*{todo}[^\n]*$"
        path = write(tmp_path, content, f"alone.{ending}")
        for given in (path, str(tmp_path), str(tmp_path / f"*.{ending}")):
            with pytest.raises(BadInput, match=pattern):
                recognise(given)
        for number in range(30):  # more files than are sampled
            write(tmp_path, SOUND[ending], f"a{number:02}.{ending}")
        write(tmp_path, content, f"beside.{ending}")
        Path(path).unlink()
        with pytest.raises(BadInput, match=pattern):
            plan_splits(recognise(str(tmp_path)))
        named = {"csv": "csv", "parquet": "table"}.get(ending, "jsonl")
        with pytest.raises(BadInput, match=pattern):
            plan_splits(recognise(f"{named}:{tmp_path}"))

    def test_it_is_refused_in_an_archive(self, tmp_path: Path, kind: str, ending: str) -> None:
        content, _, looks, _ = OTHERS[kind]
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(f"a.{ending}", SOUND[ending])
            archive.writestr(f"b.{ending}", content)
        with pytest.raises(BadInput, match=rf"^{tmp_path}/a\.zip!/b\.\S+: unexpected content: [^\n]*{looks}[^\n]*$"):
            plan_splits(recognise(str(tmp_path / "a.zip")))


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a", "a.html", "a.xml", "a.zip", "a.tar"])
def test_a_git_lfs_pointer_is_refused_under_any_name(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, LFS, name)
    with pytest.raises(BadInput, match=r"a Git LFS pointer[^\n]+`git lfs pull`$"):
        recognise(path)


def test_many_pointers_are_counted(tmp_path: Path) -> None:
    for number in range(15):
        write(tmp_path, LFS, f"{number:02}.parquet")
    with pytest.raises(BadInput, match=r"00\.parquet: unexpected content: [^\n]+, 14 more like it; fetch"):
        recognise(str(tmp_path))


def test_text_read_as_a_table_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT, "a.jsonl")
    with pytest.raises(BadInput, match="invalid table: got text, expected Parquet or Arrow"):
        plan_splits(recognise(f"table:{path}"))


def test_a_broken_git_annex_link_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("../.git/annex/objects/Fx/8j/SHA256E-s1--0/SHA256E-s1--0")
    for given in (tmp_path, tmp_path / "a.jsonl"):
        with pytest.raises(BadInput, match="`git annex get`"):
            recognise(str(given))


def test_html_pages_among_text_files_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last of 26 files was a 404 page, and it used to become a document without a warning."""
    for number in range(25):
        write(tmp_path, WORDS, f"{number:02}.txt")
    write(tmp_path, b"\n<!DOCTYPE html><html><body>404 Not Found</body></html>", "99.txt")
    plan_splits(recognise(str(tmp_path)))
    assert any("HTML pages are read as text, including tags: 99.txt; remove" in message for message in caplog.messages)


def test_html_pages_read_explicitly_as_text_are_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        write(tmp_path, b"<!DOCTYPE html><html><body>Words.</body></html>", f"{number}.html")
    plan_splits(recognise(f"text:{tmp_path}"))
    assert not caplog.messages


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.wet"])
@pytest.mark.parametrize("forced", ["", "warc:"])
def test_text_named_as_a_web_archive_is_refused(tmp_path: Path, name: str, forced: str) -> None:
    """Such a file used to be read as text."""
    path = write(tmp_path, gzip.compress(WORDS) if name.endswith(".gz") else WORDS, name)
    with pytest.raises(
        BadInput, match=r"unexpected content: text, not a web archive as its extension indicates; download it again"
    ):
        plan_splits(recognise(forced + path))
