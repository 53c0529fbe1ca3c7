import bz2
import gzip
import random
from pathlib import Path

import pytest

from pipeline.readers.file_ranges import MemberSignature, at_members, by_bytes
from pipeline.readers.warc import GZIP_WARC, PLAIN_WARC
from pipeline.readers.wiki_dump import BZ2_PAGES
from tests.pipeline.formats import dump, html, multistream, page, web_archive, web_record

PAGES = dump(*(page(f"Page {number}", f"Text {number}.") for number in range(40)))
TEXTS = [f"Text {number}." for number in range(40)]


def _cuts(folder: Path, content: bytes, step: int, members: MemberSignature) -> list[int]:
    path = folder / "file"
    path.write_bytes(content)
    return at_members(str(path), len(content), step, members)


@pytest.mark.parametrize(("size", "cuts"), [(0, []), (14, []), (16, [10]), (24, [10]), (26, [10, 20])])
def test_the_last_range_has_half_a_step_to_one_and_a_half(size: int, cuts: list[int]) -> None:
    assert by_bytes(size, 10) == cuts


@pytest.mark.parametrize("step", [10, 200, 1000])
def test_a_dump_is_split_at_the_start_of_bz2_streams_with_pages(tmp_path: Path, step: int) -> None:
    content = multistream(PAGES, pages=4)
    cuts = _cuts(tmp_path, content, step, BZ2_PAGES)
    assert cuts
    for cut in cuts:
        assert bz2.decompress(content[cut:]).startswith(b"  <page>")


def test_streams_that_start_inside_a_page_are_no_split_points(tmp_path: Path) -> None:
    pieces = [PAGES[at : at + 999] for at in range(0, len(PAGES), 999)]  # as pbzip2 does
    assert _cuts(tmp_path, b"".join(map(bz2.compress, pieces)), 100, BZ2_PAGES) == []


@pytest.mark.parametrize(("compressed", "members"), [(True, GZIP_WARC), (False, PLAIN_WARC)])
def test_an_archive_is_split_at_the_start_of_records(
    tmp_path: Path, compressed: bool, members: MemberSignature
) -> None:
    content = web_archive(TEXTS, compressed)
    cuts = _cuts(tmp_path, content, 500, members)
    assert len(cuts) > 5
    for cut in cuts:
        assert (gzip.decompress(content[cut:]) if compressed else content[cut:]).startswith(b"WARC/1.0\r\n")


def test_accidental_signatures_are_no_split_points(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(500) + b"\x1f\x8b\x08" + bytes(500) + gzip.compress(b"no record")
    first, second = (gzip.compress(web_record("response", html(body)), 0) for body in (noise, b"<p>One."))
    assert noise in first
    assert _cuts(tmp_path, first + second, 300, GZIP_WARC) == [len(first)]


def test_a_signature_at_a_window_border_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = web_archive(TEXTS, compressed=False)
    expected = _cuts(tmp_path, content, 500, PLAIN_WARC)
    for window in range(300, 310):
        monkeypatch.setattr("pipeline.readers.file_ranges._WINDOW", window)
        assert _cuts(tmp_path, content, 500, PLAIN_WARC) == expected
