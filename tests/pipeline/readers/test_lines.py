import bz2
import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from pipeline.readers.lines import TextLine, blocks, lines, lines_of_range

BIG = 1 << 30


def _whole_line(number: int) -> bytes:
    return b"line %d\n" % number


def _line_starts(_: TextLine) -> bool:
    return True


def _doc_starts(line: TextLine) -> bool:
    return line.content.startswith(b"<doc")


@pytest.mark.parametrize("begins", [_line_starts, _doc_starts])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 50])
def test_adjacent_ranges_contain_each_line_once(tmp_path: Path, step: int, begins: Callable[[TextLine], bool]) -> None:
    path = tmp_path / "file"
    content = b"before\n<doc 1>\na\n\nbb\n</doc>\n<doc 2>\r\nccc\n</doc>\n<doc 3>\nlast"
    path.write_bytes(content)
    cuts = [*range(0, len(content), step), len(content)]
    found = [
        line.content
        for start, stop in pairwise(cuts)
        for line in lines_of_range(lines(str(path), start, stop, BIG), stop, begins)
    ]
    assert found == content.splitlines(keepends=True)


def test_an_overlong_line_has_its_first_bytes_and_its_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short\n" + b"x" * 5_000_000 + b"\nend\n")
    found = list(lines(str(path), 0, None, limit=1000))
    assert found == [
        TextLine(0, 6, b"short\n"),
        TextLine(6, 5_000_001, b"x" * 200, "too_long"),
        TextLine(5_000_007, 4, b"end\n"),
    ]


def test_a_range_inside_a_long_line_is_skipped_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a sparse file of 1 TB, which would take hours to read
    assert list(lines(str(path), 1 << 20, 2 << 20, BIG)) == []


@pytest.mark.parametrize(
    ("ending", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstandard.ZstdCompressor().compress)],
)
class TestCompressed:
    def test_concatenated_members_are_read_as_one_file(
        self, tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
    ) -> None:
        path = tmp_path / f"file{ending}"
        path.write_bytes(compress(b"one\ntw") + compress(b"o\n"))
        assert [line.content for line in lines(str(path), 0, None, BIG)] == [b"one\n", b"two\n"]

    def test_a_truncated_file_gives_its_complete_lines_and_a_fault(
        self, tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
    ) -> None:
        path = tmp_path / f"file{ending}"
        whole = compress(b"".join(b"line %d\n" % number for number in range(150_000)))
        path.write_bytes(whole[: len(whole) * 3 // 4])
        *found, last = lines(str(path), 0, None, BIG)
        assert found
        assert [line.content for line in found] == [b"line %d\n" % number for number in range(len(found))]
        assert (last.fault, last.size) == ("truncated", len(last.content))
        assert _whole_line(len(found)).startswith(last.content)

    def test_an_uncompressed_file_with_a_compressed_name_is_truncated(
        self, tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
    ) -> None:
        path = tmp_path / f"file{ending}"
        path.write_bytes(b"no archive\n")
        assert [line.fault for line in lines(str(path), 0, None, BIG)] == ["truncated"]


def test_a_block_with_a_faulty_line_has_its_first_bytes() -> None:
    found = [TextLine(0, 4, b"one\n"), TextLine(4, 900, b"x" * 200, "too_long"), TextLine(904, 4, b"two\n")]
    assert list(blocks(iter(found), lambda line: False, BIG)) == [TextLine(0, 908, b"one\n" + b"x" * 196, "too_long")]


def test_an_overlong_block_has_only_its_first_bytes() -> None:
    found = [TextLine(at * 100, 100, b"x" * 99 + b"\n") for at in range(20)]
    (block,) = blocks(iter(found), lambda line: False, limit=1000)
    assert (block.size, len(block.content), block.fault) == (2000, 200, "too_long")
