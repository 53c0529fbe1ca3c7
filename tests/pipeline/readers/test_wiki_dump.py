from collections.abc import Iterable
from pathlib import Path

import pytest

from pipeline.readers import EXPECTED, Record, WikiDumpReader, plan_splits, records
from pipeline.readers.record import BETWEEN
from tests.pipeline.formats import dump, page


def _read(folder: Path, pages: Iterable[str], encoding: str = "utf-8") -> list[Record]:
    (folder / "dump.xml").write_bytes(dump(*pages).decode().encode(encoding))
    splits = plan_splits([WikiDumpReader(path=str(folder / "dump.xml"))])
    return [record for split in splits for record in records(split, 10_000_000)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_an_article_is_its_title_and_its_text(tmp_path: Path, encoding: str) -> None:
    head, found = _read(
        tmp_path, [page("Ada", "She '''wrote''' & [[count]]ed.<ref>No</ref>[[Datei:A.jpg|B]]")], encoding
    )
    assert found.text == "Ada\n\nShe wrote & counted."
    assert head.fault == BETWEEN
    assert found.start == head.size


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (page("Old", "#REDIRECT [[New]]", extra='    <redirect title="New" />\n'), "redirect"),
        (page("Talk:Old", "What?", ns=1), "not_article"),
        (page("Deep", "{{a|" * 10_000), "timeout"),
        (page("Long", "x" * (1 << 21) + "y"), "too_long"),
        (page("Torn", "x").replace("</title>", ""), "bad_xml"),
        (page("Control", "a\x01b"), "bad_xml"),
    ],
)
def test_pages_that_are_no_articles_are_dropped_and_cost_no_others(tmp_path: Path, content: str, fault: str) -> None:
    found = _read(tmp_path, [page("One", "First."), content, page("Two", "Second.")])
    assert [record.fault for record in found] == [BETWEEN, "", fault, ""]
    assert found[2].snippet == content.encode()[:200]
    assert (fault in EXPECTED) == (fault in ("redirect", "not_article"))


def test_an_article_of_only_templates_is_an_empty_document(tmp_path: Path) -> None:
    assert _read(tmp_path, [page("Empty", "{{stub}}")])[1].text == ""


def test_invalid_utf8_is_repaired_and_counted(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_bytes(dump(page("One", "caf? noir")).replace(b"caf?", b"caf\xe9"))
    (split,) = plan_splits([WikiDumpReader(path=str(tmp_path / "dump.xml"))])
    assert list(records(split, 1000))[1][2:4] == ("One\n\ncaf\ufffd noir", 1)


def test_the_length_limit_applies_to_the_text_without_markup(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_bytes(dump(page("One", "{{x|y}}" * 5_000 + "Text.")))
    (split,) = plan_splits([WikiDumpReader(path=str(tmp_path / "dump.xml"))])
    assert [record.text for record in records(split, max_chars=100)] == ["", "One\n\nText."]
