import bz2
import gzip
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import zstandard

from pipeline.readers.files import (
    InputFile,
    describe_fault,
    find,
    head,
    is_text,
    open_bytes,
    raise_if_ours,
    read_stored_head,
)
from preprocessing.errors import BadInput

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.fixture
def store() -> Iterator[fsspec.AbstractFileSystem]:
    """An empty store in memory."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


@pytest.mark.parametrize("start", [b"\x89PNG\r\n", b"\x1f\x8b\x08", "text".encode("utf-16"), b"\x00\x01\x02\x03"])
def test_other_formats_are_not_text(start: bytes) -> None:
    assert not is_text(start)


@pytest.mark.parametrize(
    "start", [b"", b"caf\xe9 in Latin 1", "漢字".encode(), b"\xef\xbb\xbfmark", b"a\x00NUL or two"]
)
def test_repairable_bytes_are_text(start: bytes) -> None:
    assert is_text(start)


def test_a_directory_gives_its_visible_files_recursively_and_sorted(tmp_path: Path) -> None:
    for name in ("b/two.txt", "a.txt", "b/one.txt", ".hidden", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.label for file in find(str(tmp_path))] == ["a.txt", "b/one.txt", "b/two.txt"]


def test_labels_of_a_glob_are_relative_to_its_fixed_part(tmp_path: Path) -> None:
    for name in ("x/1.txt", "y/2.txt", "y/3.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.label for file in find(f"{tmp_path}/*/*.txt")] == ["x/1.txt", "y/2.txt"]


@pytest.mark.parametrize("path", ["missing.txt", "missing/*.txt", "empty"])
def test_a_path_without_files_is_a_one_line_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"^\S*(missing|empty)[^\n]*; [^\n]+$"):
        find(f"{tmp_path}/{path}")


@pytest.mark.parametrize("given", ["gone.txt", "*.txt"])
def test_a_broken_link_is_an_error_that_names_it(tmp_path: Path, given: str) -> None:
    (tmp_path / "gone.txt").symlink_to("elsewhere.txt")
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(BadInput, match=r"gone\.txt: broken link to elsewhere\.txt"):
        find(str(tmp_path / given))


def test_a_file_url_equals_its_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert find(f"file://{tmp_path}/a.txt") == find(f"{tmp_path}/a.txt")


@pytest.mark.parametrize(
    ("path", "labels"),
    [
        ("memory://in", ["a.txt", "b/one.txt", "b/two.txt"]),
        ("memory://in/b/two.txt", ["two.txt"]),
        ("memory://in/*/t*.txt", ["b/two.txt"]),
    ],
)
def test_urls_may_be_files_directories_and_globs(
    store: fsspec.AbstractFileSystem, path: str, labels: list[str]
) -> None:
    for name in ("b/two.txt", "a.txt", "b/one.txt", ".hidden"):
        store.pipe(f"/in/{name}", name.encode())
    files = find(path)
    assert [file.label for file in files] == labels
    assert [head(file.path) for file in files] == [
        f"{Path(file.path).relative_to('memory:/in')}".encode() for file in files
    ]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://missing", "no such file or directory"),
        ("memory://missing/*.txt", "no file matches"),
        ("nothing://a", "one of the protocols"),
        ("s3://bucket/a", "the package s3fs is missing; run `pip install s3fs`, or copy the files to a local disk"),
    ],
)
def test_an_unreadable_url_is_a_one_line_error(url: str, why: str) -> None:
    with pytest.raises(BadInput, match=rf"^{url.replace('*', '.')}[^\n]*{why}[^\n]*$"):
        find(url)


def test_a_url_of_unknown_size_is_a_one_line_error(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.pipe("/a.txt", b"one")
    monkeypatch.setattr(type(store), "info", lambda self, path: {"name": path, "size": None, "type": "file"})
    with pytest.raises(BadInput, match=r"^memory:///a.txt: [^\n]+; copy the file to a local disk$"):
        find("memory://a.txt")


def test_a_rewritten_remote_file_counts_as_changed(store: fsspec.AbstractFileSystem) -> None:
    store.pipe("/a.txt", b"one")
    before = [find("memory://a.txt") for _ in range(2)]
    store.pipe("/a.txt", b"two")
    assert before[0] == before[1] != find("memory://a.txt")


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_compressed_url_is_decompressed(store: fsspec.AbstractFileSystem, ending: str) -> None:
    store.pipe(f"/a{ending}", COMPRESS[ending](b"one\n") + COMPRESS[ending](b"two\n"))
    assert head(f"memory://a{ending}") == b"one\ntwo\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("ending", ["", *COMPRESS])
def test_utf16_with_a_byte_order_mark_becomes_utf8(tmp_path: Path, encoding: str, ending: str) -> None:
    path = tmp_path / f"file{ending}"
    content = "\ufeff\u0415\u0434\u043d\u043e\n\u6f22\u5b57\U0001f600\n" * 5000
    path.write_bytes(COMPRESS.get(ending, bytes)(content.encode(encoding)))
    with open_bytes(str(path)) as file:
        assert file.read().decode() == content


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_decompression_bomb_is_stopped_in_little_memory(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.readers.files._HARMLESS", 1 << 20)
    path = tmp_path / f"file{ending}"
    path.write_bytes(COMPRESS[ending](b"x" * (1 << 25)))
    tracemalloc.start()
    try:
        with open_bytes(str(path)) as file:
            size = sum(map(len, iter(lambda: file.read(1 << 16), b"")))
            why = describe_fault(file)
        assert tracemalloc.get_traced_memory()[1] < 1 << 21
    finally:
        tracemalloc.stop()
    assert why == "bomb"
    assert size < 1 << 24


def test_a_zstd_window_above_128_mb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00")  # a frame with a window of 2 GB
    with open_bytes(str(path)) as file:
        assert (file.read(), describe_fault(file)) == (b"", "truncated")


def test_the_extension_of_a_compressed_file_is_the_part_before_the_compression(tmp_path: Path) -> None:
    for name in ("a.jsonl.bz2", "b.txt.gz", "c.jsonl"):
        (tmp_path / name).touch()
    assert [file.label for file in find(str(tmp_path), (".jsonl",))] == ["a.jsonl.bz2", "c.jsonl"]
    assert InputFile("", "a.jsonl.bz2", 0, 0).compression == "bz2"


def test_stored_file_that_may_be_listed_but_not_read_is_refused_in_one_line(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s3fs raises a PermissionError without `errno`. It ended in a traceback, or counted as a damaged archive."""
    store.pipe("in/a.txt", b"text")
    denied = PermissionError("Access Denied")

    def refuse(*args: object, **more: object) -> None:
        raise denied

    monkeypatch.setattr(store, "open", refuse)
    (file,) = find("memory://in/a.txt")
    expected = (
        r"^memory:///?in/a\.txt: cannot read the file \(Access Denied\); check its permissions and your credentials$"
    )
    with pytest.raises(BadInput, match=expected):
        read_stored_head(file.path)
    with pytest.raises(PermissionError):
        raise_if_ours(denied)
