"""Archives that unpack to too much data, or outside of their directory."""

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from preprocessing.errors import BadInput
from training.evaluation.files import archives
from training.evaluation.files.archives import contents

ZEROS = bytes(1 << 20)
LARGE = 3 << 20  # bytes that compress to a few kB


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FEW_BYTES", 2 << 20)
    monkeypatch.setattr(archives, "MOST_BYTES", 8 << 20)
    monkeypatch.setattr(archives, "MOST_MEMBERS", 50)


def a_zip(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def a_tar(path: Path, *members: tuple[str, bytes], how: str = "w:gz") -> Path:
    with tarfile.open(path, how) as archive:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def a_header_of_zeros(path: Path) -> Path:
    """A tar with a huge extended header, which tarfile reads into memory."""
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {"comment": "0" * LARGE}
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b""))
    return path


def a_hole(path: Path) -> Path:
    """A tar of a sparse file (GNU 1.0): 20 GB, of which a few bytes are stored."""
    content = b"1\n%d\n1\n" % (20 << 30)
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "a.txt",
        "GNU.sparse.realsize": str((20 << 30) + 1),
    }
    content = content.ljust(512, b"\0") + b"x"
    info.size = len(content)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(content))
    return path


def overlapping(path: Path) -> Path:
    """A zip whose files share their bytes: each is small, but their sum is large."""
    a_zip(path, **{"a.txt": ZEROS})
    content = path.read_bytes()
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entry, number = content[start:end], 5
    tail = bytearray(content[end:])
    for at in (8, 10):
        tail[at : at + 2] = number.to_bytes(2, "little")
    tail[12:16] = (number * len(entry)).to_bytes(4, "little")
    path.write_bytes(content[:start] + entry * number + bytes(tail))
    return path


BOMBS: dict[str, Callable[[Path], Path]] = {
    "a.gz": lambda path: path.write_bytes(gzip.compress(bytes(LARGE))) and path,
    "a.bz2": lambda path: path.write_bytes(bz2.compress(bytes(LARGE))) and path,
    "a.xz": lambda path: path.write_bytes(lzma.compress(bytes(LARGE))) and path,
    "one.zip": lambda path: a_zip(path, **{"a.txt": bytes(LARGE)}),
    "several.zip": lambda path: a_zip(path, **{f"{number}.txt": ZEROS for number in range(3)}),
    "overlapping.zip": overlapping,
    "one.tar.gz": lambda path: a_tar(path, ("a.txt", bytes(LARGE))),
    "one.tar.bz2": lambda path: a_tar(path, ("a.txt", bytes(LARGE)), how="w:bz2"),
    "one.tar.xz": lambda path: a_tar(path, ("a.txt", bytes(LARGE)), how="w:xz"),
    "several.tgz": lambda path: a_tar(path, *((f"{number}.txt", ZEROS) for number in range(3))),
    "beside.tar.gz": lambda path: a_tar(path, ("other", bytes(LARGE)), ("a.txt", b"few")),
    "header.tar.gz": a_header_of_zeros,
    "sparse.tar": a_hole,
}


@pytest.mark.parametrize("name", BOMBS)
def test_archives_that_expand_too_much_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    """An archive of 2.5 MB expanded to 2.6 GB."""
    BOMBS[name](tmp_path / name)
    member = "" if name.startswith("a.") else "*.txt"
    with pytest.raises(BadInput, match=rf"{name}: too large: .* more than 2 MB, .* unpack it by hand") as found:
        list(contents(tmp_path, name, member))
    assert "\n" not in str(found.value)


def test_a_large_archive_also_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_TIMES", 1_000_000)
    a_zip(tmp_path / "a.zip", **{f"{number}.txt": ZEROS for number in range(9)})
    with pytest.raises(BadInput, match="more than 8 MB"):
        list(contents(tmp_path, "a.zip", "*.txt"))
    assert len(list(contents(tmp_path, "a.zip", "[1-8].txt"))) == 8


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])
def test_an_archive_of_too_many_files_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    many = [(f"{number}.txt", b"x") for number in range(60)]
    if name == "a.zip":
        a_zip(tmp_path / name, **dict(many))
    else:
        a_tar(tmp_path / name, *many, how="w:gz" if name.endswith("gz") else "w")
    with pytest.raises(BadInput, match="too many members: expected at most 50; if the file is trusted"):
        list(contents(tmp_path, name, "1.txt"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_in_an_archive_is_refused(tmp_path: Path, kind: bytes) -> None:
    """It used to be skipped silently."""
    info = tarfile.TarInfo("b.txt")
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(info)
    with pytest.raises(BadInput, match=r"member .*b\.txt is a link, not a file"):
        list(contents(tmp_path, "a.tar", "*.txt"))
    link = zipfile.ZipInfo("b.txt")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(BadInput, match=r"member .*b\.txt is a link, not a file"):
        list(contents(tmp_path, "a.zip", "*.txt"))


@pytest.mark.parametrize("inside", ["../b.txt", "a/../../b.txt"])
def test_a_path_outside_of_the_archive_is_refused(tmp_path: Path, inside: str) -> None:
    a_zip(tmp_path / "a.zip", **{inside: b"x"})
    a_tar(tmp_path / "a.tar", (inside, b"x"), how="w")
    for name in ("a.zip", "a.tar"):
        with pytest.raises(BadInput, match="has a path outside the archive"):
            list(contents(tmp_path, name, "*.txt"))


def test_a_zip_with_a_damaged_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    """zipfile raises many exceptions for it, among them UnicodeDecodeError and IndexError."""
    content = a_zip(tmp_path / "a.zip", **{"é.txt": b"x" * 99}).read_bytes()
    damaged = [content.replace("é".encode(), b"\xff\xff")]
    for at in range(len(content)):
        damaged += [content[:at] + bytes([value]) + content[at + 1 :] for value in (0, 0x80, 0xFF)]
    for each in damaged:
        (tmp_path / "a.zip").write_bytes(each)
        with suppress(BadInput):
            list(contents(tmp_path, "a.zip", "*"))


@pytest.mark.parametrize("how", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_of_any_compression_is_read_under_any_name(tmp_path: Path, how: str) -> None:
    a_tar(tmp_path / "a.archive", ("d/b.txt", b"two"), ("d/a.txt", b"one"), ("c", b"no"), how=how)
    found = list(contents(tmp_path, "a.archive", "*.txt"))
    assert found == [("a.archive/d/a.txt", b"one"), ("a.archive/d/b.txt", b"two")]


def test_highly_compressible_text_is_read(tmp_path: Path) -> None:
    """A log of repeated lines, which compresses to a fiftieth of its size."""
    text = b"".join(b"%d the same line again and again, and again\n" % (number % 97) for number in range(40_000))
    (tmp_path / "a.gz").write_bytes(packed := gzip.compress(text))
    assert len(text) > 40 * len(packed)
    assert list(contents(tmp_path, "a.gz")) == [("a.gz", text)]


@pytest.mark.parametrize(("name", "pack"), [("a.gz", gzip.compress), ("a.bz2", bz2.compress), ("a.xz", lzma.compress)])
def test_a_small_file_does_not_allocate_the_maximum_size(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 GB were allocated at once for a .gz file of 20 MB, which raised MemoryError on a small machine."""
    monkeypatch.setattr(archives, "FEW_BYTES", 256 << 20)
    monkeypatch.setattr(archives, "MOST_BYTES", 256 << 20)
    (tmp_path / name).write_bytes(pack(ZEROS))
    tracemalloc.start()
    try:
        assert list(contents(tmp_path, name)) == [(name, ZEROS)]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
