import gzip
from pathlib import Path

import pytest

from pipeline.readers import ParallelReader, Record, plan_splits, records
from pipeline.readers.files import InputFile
from pipeline.readers.parallel import align_cuts, find_sides, pairs
from pipeline.readers.record import BETWEEN
from preprocessing.errors import BadInput


def _read(folder: Path, *contents: bytes, limit: int = 1000) -> list[Record]:
    sides = []
    for number, content in enumerate(contents):
        path = folder / str(number)
        path.write_bytes(content)
        sides.append((InputFile(path.name, str(path), len(content), path.stat().st_mtime_ns), 0, None))
    return list(pairs("a", sides, limit))


def test_the_sides_of_a_line_are_one_document_with_spans(tmp_path: Path) -> None:
    found = _read(tmp_path, b"A dog.\r\nTwo\n", "Un chien.\nDeux \u00e9t\u00e9s".encode(), b"Ein Hund.\nZwei\n")
    assert found[0] == Record("a", 28, "A dog.\n\nUn chien.\n\nEin Hund.", spans=((0, 6), (8, 17), (19, 28)))
    assert [found[1].text[start:stop] for start, stop in found[1].spans] == ["Two", "Deux \u00e9t\u00e9s", "Zwei"]


def test_a_line_with_one_empty_side_is_dropped_and_an_empty_line_is_no_document(tmp_path: Path) -> None:
    found = _read(tmp_path, b"One\nTwo\n \n", b"Un\n\n\n")
    assert [(record.fault, record.size, record.start) for record in found] == [
        ("", 7, 0),
        ("one_sided", 5, 4),
        (BETWEEN, 3, 8),
    ]


def test_a_line_with_a_too_long_side_is_dropped(tmp_path: Path) -> None:
    (found,) = _read(tmp_path, b"One\n", b"x" * 2000 + b"\n")
    assert (found.fault, found.size) == ("too_long", 2005)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_unequal_numbers_of_lines_are_refused_with_both_numbers(tmp_path: Path, ending: str) -> None:
    for name, content in (("a.en", b"One\nTwo\nThree"), ("a.fr", b"Un\nDeux\n")):
        (tmp_path / f"{name}{ending}").write_bytes(gzip.compress(content) if ending else content)
    source = ParallelReader(paths=(f"{tmp_path}/a.en{ending}", f"{tmp_path}/a.fr{ending}"))
    with pytest.raises(BadInput, match=r"^[^\n]+a\.en[.gz]* has 3, [^\n]+a\.fr[.gz]* has 2; [^\n]+$"):
        plan_splits([source])


def test_unequal_numbers_of_files_are_refused_with_both_numbers(tmp_path: Path) -> None:
    for name in ("en/a", "en/b", "fr/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(BadInput, match=r"^[^\n]+/en has 2, [^\n]+/fr has 1; [^\n]+$"):
        find_sides([f"{tmp_path}/en", f"{tmp_path}/fr"])


@pytest.mark.parametrize("block", [1, 3, 7, 1000])
def test_split_points_are_at_the_same_line_of_each_side(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.readers.parallel._BLOCK", block)
    (tmp_path / "a.en").write_text("".join(f"{number}\n" for number in range(50)))
    (tmp_path / "a.fr").write_text("".join(f"number {number}\n" for number in range(50)))
    ((english, french),) = find_sides([f"{tmp_path}/a.en", f"{tmp_path}/a.fr"])
    places = align_cuts((english, french), 10)
    assert len(places[0]) == len(places[1]) == (0 if block == 1000 else pytest.approx(13, abs=4))
    for first, second in zip(*places, strict=True):
        before = (tmp_path / "a.en").read_bytes()[:first].count(b"\n")
        assert (tmp_path / "a.fr").read_bytes()[:second].count(b"\n") == before
        assert (tmp_path / "a.fr").read_bytes()[second - 1 : second] == b"\n"


@pytest.mark.shared
def test_multi30k_is_read_as_aligned_lines(shared: Path) -> None:
    paths = tuple(str(shared / "text" / "parallel" / f"val.{language}.gz") for language in ("en", "de", "fr", "cs"))
    found = [r for split in plan_splits([ParallelReader(paths=paths)]) for r in records(split, 10_000)]
    assert len(found) == 1014
    assert {len(record.spans) for record in found} == {4}
