from collections.abc import Iterable
from pathlib import Path

import pytest

from pipeline.clean import clean_split, cleaned, open_texts
from pipeline.record import BETWEEN, Record
from pipeline.sources import plan_splits
from pipeline.spec import Clean, Text
from pipeline.stage import sealed
from preprocessing.manifest import Count, Ledger
from preprocessing.text import text_key

GOOD = "A document that is long enough to be kept."


def _clean(records: Iterable[Record], **clean: int) -> tuple[list[str], Ledger]:
    ledger = Ledger()
    return [document.text for document in cleaned(records, Clean(**clean), ledger, [0, 0])], ledger


@pytest.mark.parametrize(
    ("text", "reason"), [("", "empty"), (" \n\x00\t", "empty"), ("Short.", "too_short"), ("x" * 101, "too_long")]
)
def test_a_document_of_unfit_length_is_dropped_with_a_reason(text: str, reason: str) -> None:
    kept, ledger = _clean([Record("a", len(text), text), Record("a", len(GOOD), GOOD)], max_chars=100)
    assert kept == [GOOD]
    assert ledger.dropped[reason] == Count(1, len(text))


def test_a_faulty_record_is_dropped_with_its_fault() -> None:
    _, ledger = _clean([Record("a", 7, fault="bad_json")])
    assert ledger.dropped == {"bad_json": Count(1, 7)}


def test_bytes_between_documents_are_seen_but_are_no_document() -> None:
    _, ledger = _clean([Record("a", 9, fault=BETWEEN)])
    assert (ledger.seen, ledger.dropped) == (Count(0, 9), {BETWEEN: Count(0, 9)})


def test_nul_bytes_and_carriage_returns_go_and_are_accounted_for() -> None:
    raw = f"\x00{GOOD}\r\n\r\n{GOOD}\x00\r\n"
    kept, ledger = _clean([Record("a", len(raw), raw)])
    assert kept == [f"{GOOD}\n\n{GOOD}"]
    assert ledger.dropped == {"trimmed": Count(0, len(raw) - len(kept[0]))}
    assert ledger.balanced()


def test_a_repair_that_lengthens_the_text_leaves_the_ledger_balanced() -> None:
    text = GOOD + "\ufffd" * 10
    _, ledger = _clean([Record("a", len(GOOD) + 10, text, repaired=10)])  # ten bad bytes became thirty
    assert ledger.kept.bytes == len(GOOD) + 30
    assert ledger.balanced()


def test_repaired_documents_and_sequences_are_counted() -> None:
    repaired = [0, 0]
    records = [Record("a", 50, GOOD, repaired=3), Record("a", 50, GOOD), Record("a", 50, GOOD, repaired=1)]
    list(cleaned(records, Clean(), Ledger(), repaired))
    assert repaired == [2, 4]


def test_a_split_is_written_with_text_source_and_key(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(GOOD)
    (split,) = plan_splits([Text(path=str(tmp_path / "in.txt"))], Clean())
    clean_split(split, str(tmp_path), Clean())
    assert open_texts(tmp_path / split.name).to_pylist() == [{"text": GOOD, "source": "in.txt", "key": text_key(GOOD)}]


def test_a_split_that_is_there_and_whole_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text(GOOD)
    (split,) = plan_splits([Text(path=str(path))], Clean())
    clean_split(split, str(tmp_path), Clean())
    path.unlink()
    clean_split(split, str(tmp_path), Clean())
    assert sealed(tmp_path / split.name) is not None


def test_a_split_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(GOOD)
    (split,) = plan_splits([Text(path=str(tmp_path / "in.txt"))], Clean())
    clean_split(split, str(tmp_path), Clean())
    content = (tmp_path / split.name).read_bytes()
    (tmp_path / split.name).write_bytes(content.replace(b"document", b"dokument"))
    clean_split(split, str(tmp_path), Clean())
    assert (tmp_path / split.name).read_bytes() == content
