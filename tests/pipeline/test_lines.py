import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from pipeline.lines import Line, find, is_text, lines, owned
from preprocessing.errors import BadInput

BIG = 1 << 30


def _line_starts(_: Line) -> bool:
    return True


def _doc_starts(line: Line) -> bool:
    return line.content.startswith(b"<doc")


@pytest.mark.parametrize("begins", [_line_starts, _doc_starts])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 50])
def test_ranges_that_touch_share_no_line_and_miss_none(
    tmp_path: Path, step: int, begins: Callable[[Line], bool]
) -> None:
    path = tmp_path / "file"
    content = b"before\n<doc 1>\na\n\nbb\n</doc>\n<doc 2>\r\nccc\n</doc>\n<doc 3>\nlast"
    path.write_bytes(content)
    cuts = [*range(0, len(content), step), len(content)]
    found = [
        line.content
        for start, stop in pairwise(cuts)
        for line in owned(lines(str(path), start, stop, BIG), stop, begins)
    ]
    assert found == content.splitlines(keepends=True)


def test_a_line_longer_than_the_limit_comes_without_content_and_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short\n" + b"x" * 5_000_000 + b"\nend\n")
    found = list(lines(str(path), 0, None, limit=1000))
    assert found == [Line(0, 6, b"short\n"), Line(6, 5_000_001, b"", "too_long"), Line(5_000_007, 4, b"end\n")]


def test_a_range_inside_of_a_long_line_is_left_without_reading_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a terabyte of NULs, on disk nothing: reading it would take hours
    assert list(lines(str(path), 1 << 20, 2 << 20, BIG)) == []


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)]
)
class TestCompressed:
    def test_members_end_to_end_are_read_as_one_file(
        self, tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
    ) -> None:
        path = tmp_path / f"file{ending}"
        path.write_bytes(compress(b"one\ntw") + compress(b"o\n"))
        assert [line.content for line in lines(str(path), 0, None, BIG)] == [b"one\n", b"two\n"]

    def test_a_torn_file_gives_its_whole_lines_and_then_says_truncated(
        self, tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
    ) -> None:
        path = tmp_path / f"file{ending}"
        whole = compress(b"".join(b"line %d\n" % number for number in range(100_000)))
        path.write_bytes(whole[: len(whole) // 2])
        *found, last = lines(str(path), 0, None, BIG)
        assert len(found) > 1000
        assert found[1000].content == b"line 1000\n"
        assert last.fault == "truncated"

    def test_what_is_not_compressed_at_all_is_truncated_from_the_start(
        self, tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
    ) -> None:
        path = tmp_path / f"file{ending}"
        path.write_bytes(b"no archive\n")
        assert [line.fault for line in lines(str(path), 0, None, BIG)] == ["truncated"]


@pytest.mark.parametrize("head", [b"\x89PNG\r\n", b"\x1f\x8b\x08", "text".encode("utf-16"), b"\x00\x01\x02\x03"])
def test_other_formats_are_not_text(head: bytes) -> None:
    assert not is_text(head)


@pytest.mark.parametrize("head", [b"", b"caf\xe9 in Latin 1", "漢字".encode(), b"\xef\xbb\xbfmark", b"a\x00NUL or two"])
def test_what_can_be_repaired_is_text(head: bytes) -> None:
    assert is_text(head)


def test_a_folder_gives_its_files_in_depth_in_order_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b/two.txt", "a.txt", "b/one.txt", ".hidden", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.label for file in find(str(tmp_path))] == ["a.txt", "b/one.txt", "b/two.txt"]


def test_a_glob_gives_names_below_its_fixed_part(tmp_path: Path) -> None:
    for name in ("x/1.txt", "y/2.txt", "y/3.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.label for file in find(f"{tmp_path}/*/*.txt")] == ["x/1.txt", "y/2.txt"]


@pytest.mark.parametrize("path", ["missing.txt", "missing/*.txt", "empty"])
def test_a_path_that_names_nothing_is_told_in_one_line(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"^\S*(missing|empty)[^\n]*; [^\n]+$"):
        find(f"{tmp_path}/{path}")
