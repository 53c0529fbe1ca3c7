"""Zip and xz archives: members are files of a directory; damaged, encrypted and bomb-like archives are reported."""

import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.readers import (
    CsvReader,
    HtmlReader,
    JsonlReader,
    TableReader,
    TextReader,
    list_unread_files,
    recognise,
    sniff,
)
from pipeline.readers.files import find
from preprocessing.errors import BadInput
from tests.pipeline.readers.reading import counted, read, texts, write


def _zip(members: dict[str, bytes | str], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


class TestArchives:
    @pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_members_are_files_of_a_directory(self, tmp_path: Path, how: int) -> None:
        path = write(tmp_path, _zip({"b/two.txt": "Two.", "one.txt": "One.\n\nMore."}, how), "a.zip")
        assert recognise(path) == [TextReader(path=path)]
        assert [(record.source, record.text) for record in read(sniff(path))] == [
            ("a.zip/b/two.txt", "Two."),
            ("a.zip/one.txt", "One.\n\nMore."),
        ]

    def test_a_single_member_is_a_single_file(self, tmp_path: Path) -> None:
        path = write(tmp_path, _zip({"docs.csv": "id,text\n1,One.\n2,Two.\n"}), "docs.ZIP")
        assert recognise(path) == [CsvReader(path=path)]
        assert counted(sniff(path), 22) == ["One.", "Two."]

    def test_each_format_of_an_archive_is_read(self, tmp_path: Path) -> None:
        table = io.BytesIO()
        pq.write_table(pa.table({"text": ["From a table."]}), table)
        members: dict[str, bytes | str] = {
            "a.csv": "text,n\nFrom CSV.,1\n",
            "b.html": "<html><body><p>From a page, which has enough words.</p></body></html>",
            "c.jsonl": '{"text": "From JSON lines."}\n',
            "d.parquet": table.getvalue(),
            "e.jsonl.gz": gzip.compress(b'{"text": "Compressed."}\n'),
        }
        path = write(tmp_path, _zip(members), "a.zip")
        found = recognise(path)
        assert {type(source) for source in found} == {CsvReader, HtmlReader, JsonlReader, TableReader}
        assert sorted(texts(*found)) == [
            "Compressed.",
            "From CSV.",
            "From JSON lines.",
            "From a page, which has enough words.",
            "From a table.",
        ]

    def test_an_archive_in_a_directory_is_a_subdirectory(self, tmp_path: Path) -> None:
        write(tmp_path, _zip({"in.txt": "Inside."}), "a.zip")
        write(tmp_path, "Beside.", "b.txt")
        assert [file.label for file in find(str(tmp_path))] == ["a.zip/in.txt", "b.txt"]
        assert texts(sniff(str(tmp_path))) == ["Inside.", "Beside."]

    def test_files_added_by_operating_systems_are_ignored(self, tmp_path: Path) -> None:
        members: dict[str, bytes | str] = {
            "__MACOSX/._a.txt": "x",
            ".DS_Store": "x",
            "a/.hidden/b.txt": "x",
            "a/c.txt": "C.",
        }
        assert texts(sniff(write(tmp_path, _zip(members), "a.zip"))) == ["C."]

    def test_of_duplicate_names_only_the_last_member_is_read(self, tmp_path: Path) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("a.txt", "First.")
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("a.txt", "Last.")
        assert texts(sniff(write(tmp_path, out.getvalue(), "a.zip"))) == ["Last."]

    def test_member_names_with_parent_directories_write_no_file(self, tmp_path: Path) -> None:
        assert texts(sniff(write(tmp_path, _zip({"x/../../up.txt": "Text."}), "a.zip"))) == ["Text."]
        assert not (tmp_path.parent / "up.txt").exists()

    def test_a_changed_archive_has_other_files(self, tmp_path: Path) -> None:
        path = write(tmp_path, _zip({"a.txt": "Before."}), "a.zip")
        before = find(path)
        assert texts(sniff(path)) == ["Before."]
        write(tmp_path, _zip({"a.txt": "Since then."}), "a.zip")
        assert find(path) != before
        assert texts(sniff(path)) == ["Since then."]


class TestRefused:
    def _message(self, path: str) -> str:
        with pytest.raises(BadInput) as raised:
            recognise(path)
        assert "\n" not in str(raised.value)
        assert str(raised.value).startswith(path)
        return str(raised.value)

    def test_an_encrypted_member_is_named(self, tmp_path: Path) -> None:
        whole = bytearray(_zip({"a.txt": "Words."}, zipfile.ZIP_STORED))
        whole[6] |= 1  # in the local header of the member
        whole[whole.rindex(b"PK\x01\x02") + 8] |= 1  # in the central directory
        message = self._message(write(tmp_path, bytes(whole), "a.zip"))
        assert "a.txt is encrypted; unpack it" in message

    def test_a_member_with_an_unknown_compression_is_named(self, tmp_path: Path) -> None:
        whole = bytearray(_zip({"a.txt": "Words."}, zipfile.ZIP_STORED))
        whole[8] = whole[whole.rindex(b"PK\x01\x02") + 10] = 93  # zstd
        assert "a.txt has an unsupported compression" in self._message(write(tmp_path, bytes(whole), "a.zip"))

    @pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04" + b"\0" * 100])
    def test_a_file_that_is_no_archive_is_refused(self, tmp_path: Path, content: bytes) -> None:
        assert "not a valid zip archive" in self._message(write(tmp_path, content, "a.zip"))

    def test_a_truncated_archive_is_refused(self, tmp_path: Path) -> None:
        whole = _zip({f"{number}.txt": f"Text {number}." for number in range(20)})
        assert "not a valid zip archive" in self._message(write(tmp_path, whole[: len(whole) // 2], "a.zip"))

    def test_an_inconsistent_archive_is_refused(self, tmp_path: Path) -> None:
        whole = bytearray(_zip({"a.txt": "Words."}))
        del whole[10:20]
        assert "not a valid zip archive" in self._message(write(tmp_path, bytes(whole), "a.zip"))

    def test_a_member_with_too_high_compression_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pipeline.readers.zip_archive._HARMLESS", 1 << 16)
        path = write(tmp_path, _zip({"a.txt": b"\0" * (8 << 20)}), "a.zip")
        assert "is too high for text, at most 200 is allowed" in self._message(path)

    def test_members_with_too_high_total_compression_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pipeline.readers.zip_archive._HARMLESS", 1 << 20)
        path = write(tmp_path, _zip({f"{n}.txt": b"\0" * (1 << 20) for n in range(40)}), "a.zip")
        assert "is too high for text" in self._message(path)

    def test_a_nested_archive_must_be_unpacked(self, tmp_path: Path) -> None:
        inner = _zip({"a.txt": "Words."}, zipfile.ZIP_STORED)
        assert "a zip archive; unpack it" in self._message(write(tmp_path, _zip({"in.zip": inner}), "a.zip"))
        path = write(tmp_path, _zip({"in.zip": inner, "b.txt": "B."}), "b.zip")
        found = recognise(path)
        assert texts(*found) == ["B."]
        assert list_unread_files(found) == [
            f"{path}: files not read: b.zip/in.zip (a zip archive; unpack it and pass the directory)"
        ]

    def test_an_archive_without_files_is_refused(self, tmp_path: Path) -> None:
        assert "no files in this directory" in self._message(write(tmp_path, _zip({"folder/": b""}), "a.zip"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.json", "a.xml", "a.html", "a.jsonl", "a.txt.gz", "a.txt.xz"])
def test_a_damaged_member_is_rejected(tmp_path: Path, how: int, name: str) -> None:
    content = "\n".join(["text,n", *(json.dumps({"text": f"Number {n}"}) + f" {n * n}" for n in range(9000))]).encode()
    content = (
        gzip.compress(content) if name.endswith(".gz") else lzma.compress(content) if name.endswith("z") else content
    )
    whole = bytearray(_zip({name: content}, how))
    size = zipfile.ZipFile(io.BytesIO(whole)).getinfo(name).compress_size
    for at in (size // 2, size // 2 + 100, size // 2 + 2000):
        whole[30 + len(name) + at] ^= 0xFF
    path = write(tmp_path, bytes(whole), "a.zip")
    for kind in ("line", "csv", "json", "xml", "html", "jsonl"):
        source = sniff(f"{kind}:{path}")
        if "extensions" in source.__dataclass_fields__:
            source = type(source)(path=path, extensions=(".txt", f".{name.split('.')[1]}"))  # type: ignore[call-arg]
        assert "truncated" in {record.fault for record in read(source)}


def test_a_member_with_a_damaged_header_is_truncated(tmp_path: Path) -> None:
    whole = bytearray(_zip({"a.txt": "Words.", "b.txt": "Sound."}))
    whole[30:35] = b"other"
    path = write(tmp_path, bytes(whole), "a.zip")
    assert [(record.text, record.fault) for record in read(TextReader(path=path))] == [
        ("", "truncated"),
        ("Sound.", ""),
    ]
    assert [(record.text, record.fault) for record in read(*recognise(path))] == [("", "truncated"), ("Sound.", "")]


def test_a_damaged_table_in_an_archive_is_truncated(tmp_path: Path) -> None:
    table = io.BytesIO()
    pq.write_table(pa.table({"text": [f"Number {n * n}" for n in range(9000)]}), table)
    whole = bytearray(_zip({"a.parquet": table.getvalue()}, zipfile.ZIP_STORED))
    whole[2000] ^= 0xFF
    found = read(TableReader(path=write(tmp_path, bytes(whole), "a.zip")))
    assert found[-1].fault == "truncated"


class TestXz:
    LINES = "".join(f"Line {number} of many, {number * number}.\n" for number in range(5_000)).encode()

    @pytest.mark.parametrize("name", ["a.txt.xz", "A.TXT.XZ"])
    def test_its_lines_are_read(self, tmp_path: Path, name: str) -> None:
        path = write(tmp_path, lzma.compress(self.LINES), name)
        assert counted(sniff(path), len(self.LINES))[0] == "Line 0 of many, 0."
        assert len(read(sniff(path))) == 5_000

    @pytest.mark.parametrize("between", [b"", b"\0" * 4, b"\0" * 20_000])
    def test_concatenated_streams_are_read(self, tmp_path: Path, between: bytes) -> None:
        content = lzma.compress(self.LINES) + between + lzma.compress(self.LINES) + between
        path = write(tmp_path, content, "a.txt.xz")
        counted(TextReader(path=path, document_unit="line"), 2 * len(self.LINES))
        assert len(texts(TextReader(path=path, document_unit="line"))) == 10_000

    def test_a_truncated_file_is_read_up_to_the_truncation(self, tmp_path: Path) -> None:
        whole = lzma.compress(self.LINES)
        found = read(TextReader(path=write(tmp_path, whole[: len(whole) // 2], "a.txt.xz"), document_unit="line"))
        assert found[-1].fault == "truncated"
        assert len(found) > 1000
        assert [record.text for record in found[:-1]] == self.LINES.decode().splitlines(keepends=True)[: len(found) - 1]

    def test_a_damaged_file_is_read_up_to_the_damage(self, tmp_path: Path) -> None:
        whole = bytearray(lzma.compress(self.LINES))
        whole[len(whole) // 2] ^= 0xFF
        assert (
            read(TextReader(path=write(tmp_path, bytes(whole), "a.txt.xz"), document_unit="line"))[-1].fault
            == "truncated"
        )

    def test_uncompressed_text_named_xz_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(
            BadInput, match=r"^[^\n]+unexpected content: uncompressed text despite the extension \.xz; rename it[^\n]+$"
        ):
            sniff(write(tmp_path, b"plain words\n", "a.txt.xz"))

    def test_a_decompression_bomb_is_a_fault(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.readers.files._HARMLESS", 1 << 16)
        path = write(tmp_path, lzma.compress(b"word " * 4_000_000), "a.txt.xz")
        assert read(TextReader(path=path))[-1].fault == "bomb"

    def test_a_file_that_needs_too_much_memory_is_truncated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pipeline.readers.files._XZ_MEMORY", 1 << 20)
        path = write(tmp_path, lzma.compress(self.LINES, preset=6), "a.txt.xz")
        assert [record.fault for record in read(TextReader(path=path))] == ["truncated"]
