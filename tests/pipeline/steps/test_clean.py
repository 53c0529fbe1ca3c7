import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pipeline.readers import JsonlReader, Record, TextReader, plan_splits
from pipeline.readers.record import BETWEEN
from pipeline.spec import Clean, Corpus, UrlLists
from pipeline.steps import clean as clean_step
from pipeline.steps import read_seal
from pipeline.steps.clean import Cleaner, CleaningTally, clean_records, clean_split
from pipeline.steps.documents import batches
from preprocessing.errors import BadInput
from preprocessing.manifest import Count
from preprocessing.text import apply_rules, text_key

GOOD = "A document that is long enough to be kept."


def _clean(records: Iterable[Record], **clean: Any) -> tuple[list[str], CleaningTally]:
    tally = CleaningTally()
    return [document.text for document in clean_records(records, Cleaner(Clean(**clean)), tally)], tally


@pytest.mark.parametrize(
    ("text", "reason"), [("", "empty"), (" \n\x00\t", "empty"), ("Short.", "too_short"), ("x" * 101, "too_long")]
)
def test_a_too_short_or_too_long_document_is_dropped_with_a_reason(text: str, reason: str) -> None:
    kept, tally = _clean([Record("a", len(text), text), Record("a", len(GOOD), GOOD)], max_chars=100)
    assert kept == [GOOD]
    assert tally.ledger.dropped[reason] == Count(1, len(text))


def test_a_faulty_record_is_dropped_and_rejected_with_its_fault() -> None:
    _, tally = _clean([Record("a", 7, fault="bad_json", start=40, snippet=b'{"te\xff\n')])
    assert tally.ledger.dropped == {"bad_json": Count(1, 7)}
    assert tally.rejected == {"bad_json": 1}
    assert tally.shown == [
        {"source": "a", "start": 40, "bytes": 7, "reason": "bad_json", "snippet": '{"te\\xff\n'},
    ]


def test_bytes_between_documents_are_counted_but_not_rejected() -> None:
    _, tally = _clean([Record("a", 9, fault=BETWEEN)])
    assert (tally.ledger.seen, tally.ledger.dropped) == (Count(0, 9), {BETWEEN: Count(0, 9)})
    assert not tally.rejected


def test_a_document_that_causes_an_exception_costs_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = apply_rules

    def failing_rules(text: str, rules: Any) -> tuple[str, str]:
        if "bad" in text:
            raise ValueError("cannot")
        return sound(text, rules)

    monkeypatch.setattr(clean_step, "apply_rules", failing_rules)
    kept, tally = _clean([Record("a", 60, f"bad {GOOD}"), Record("a", 50, GOOD)])
    assert kept == [GOOD]
    assert tally.rejected == {"broke_ValueError": 1}
    assert tally.shown[0]["snippet"].startswith("bad A document")
    assert tally.ledger.is_balanced()


def test_at_most_1000_rejects_per_reason_are_stored_and_all_are_counted() -> None:
    _, tally = _clean(Record("a", 1, fault="bad_json") for _ in range(1500))
    assert (len(tally.shown), tally.rejected["bad_json"]) == (1000, 1500)


def test_removed_nul_bytes_and_carriage_returns_are_counted() -> None:
    raw = f"\x00{GOOD}\r\n\r\n{GOOD}\x00\r\n"
    kept, tally = _clean([Record("a", len(raw), raw)])
    assert kept == [f"{GOOD}\n\n{GOOD}"]
    assert tally.ledger.dropped == {"trimmed": Count(0, len(raw) - len(kept[0]))}
    assert tally.ledger.is_balanced()


def test_added_bytes_of_a_repair_have_their_own_entry() -> None:
    text = GOOD + "\ufffd" * 10
    grown, shrunk = Record("a", len(GOOD) + 10, text, repaired=10), Record("b", len(GOOD) + 3, GOOD + "   ")
    _, tally = _clean([grown, shrunk], max_replacement_char_ratio=1)
    assert tally.ledger.dropped == {"added": Count(0, -20), "trimmed": Count(0, 3)}
    assert tally.ledger.is_balanced()


@pytest.mark.parametrize(("lost", "kept"), [(1, True), (2, False)])
def test_a_document_with_too_many_lost_characters_is_rejected(lost: int, kept: bool) -> None:
    text = "word " * 200 + "\ufffd" * lost
    found, tally = _clean([Record("a", 1000 + lost, text, repaired=lost), Record("b", len(GOOD), GOOD)])
    assert (text in found) == kept
    assert tally.rejected == ({} if kept else {"bad_encoding": 1})
    assert tally.ledger.is_balanced()
    assert len(_clean([Record("a", 1002, text)], max_replacement_char_ratio=0.01)[0]) == 1


def test_files_in_other_encodings_are_listed_by_encoding() -> None:
    _, tally = _clean(
        [Record(name, 50, GOOD, encoding=code) for name, code in [("a", "cp1251"), ("b", ""), ("c", "cp1251")]]
    )
    assert tally.encodings == {"cp1251": {"a", "c"}}


def test_repaired_documents_and_sequences_are_counted() -> None:
    _, tally = _clean([Record("a", 50, GOOD, repaired=3), Record("a", 50, GOOD), Record("a", 50, GOOD, repaired=1)])
    assert tally.repaired == [2, 4]


def test_mojibake_is_repaired_unless_disabled() -> None:
    broken = GOOD.replace("kept", "k\u00c3\u00a9pt")
    assert _clean([Record("a", 50, broken)])[0] == [GOOD.replace("kept", "k\u00e9pt")]
    assert _clean([Record("a", 50, broken)], fix_text=False)[0] == [broken]


def test_private_data_is_masked_and_counted() -> None:
    kept, tally = _clean([Record("a", 80, f"{GOOD} Write to ann@sesame.org today.")], mask_pii=("email",))
    assert "ann@" not in kept[0]
    assert tally.masked == 1


def test_a_document_in_another_language_is_dropped() -> None:
    german = "Dies ist ein ganz gew\u00f6hnlicher Satz in deutscher Sprache, und es folgt noch ein zweiter."
    english = "This is a perfectly ordinary sentence in the English language, and another one follows it."
    kept, tally = _clean([Record("a", 100, german), Record("a", 100, english)], languages=("en",))
    assert kept == [english]
    assert tally.ledger.dropped["language"].documents == 1


def test_phrases_of_a_source_are_relocated_in_the_cleaned_text() -> None:
    raw = f"  \x00{GOOD} New  York is large."
    record = Record("a", len(raw), raw, spans=((raw.index("New"), raw.index(" is large")),))
    (document,) = clean_records([record], Cleaner(Clean(), with_spans=True), CleaningTally())
    start, stop = document.spans
    assert document.text[start:stop] == "New York"


def test_a_split_is_written_with_text_source_and_key(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(GOOD)
    (split,) = plan_splits([TextReader(path=str(tmp_path / "in.txt"))])
    clean_split(split, tmp_path / "part.arrow", Cleaner(Clean()))
    (batch,) = batches(tmp_path / "part.arrow")
    (found,) = batch.select(["text", "source", "key", "spans"]).to_pylist()
    assert found == {"text": GOOD, "source": "in.txt", "key": text_key(GOOD), "spans": []}


def test_rejects_are_written_with_position_reason_and_escaped_snippet(tmp_path: Path) -> None:
    lines = [json.dumps({"text": GOOD}), '{"text": broken \x01', json.dumps({"title": "no text"})]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    (split,) = plan_splits([JsonlReader(path=str(tmp_path / "in.jsonl"))])
    clean_split(split, tmp_path / "text-0.arrow", Cleaner(Clean()))
    shown = [json.loads(line) for line in (tmp_path / "rejects" / "text-0.jsonl").read_text().splitlines()]
    assert [(reject["reason"], reject["start"]) for reject in shown] == [
        ("bad_json", len(lines[0]) + 1),
        ("no_field", len(lines[0]) + len(lines[1]) + 2),
    ]
    assert shown[0]["snippet"].startswith('{"text": broken')
    assert shown[0]["source"] == "in.jsonl"


def test_a_complete_split_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(GOOD)
    (split,) = plan_splits([TextReader(path=str(tmp_path / "in.txt"))])
    clean_split(split, tmp_path / "part.arrow", Cleaner(Clean()))
    (tmp_path / "in.txt").unlink()
    clean_split(split, tmp_path / "part.arrow", Cleaner(Clean()))
    assert read_seal(tmp_path / "part.arrow") is not None


def test_a_damaged_split_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(GOOD)
    (split,) = plan_splits([TextReader(path=str(tmp_path / "in.txt"))])
    part = tmp_path / "part.arrow"
    clean_split(split, part, Cleaner(Clean()))
    content = part.read_bytes()
    part.write_bytes(content.replace(b"document", b"dokument"))
    clean_split(split, part, Cleaner(Clean()))
    assert part.read_bytes() == content


def test_a_url_on_a_list_drops_the_document_before_its_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "domains.txt").write_text("# bad ones\nbad.example\n")
    urls = UrlLists(domains=str(tmp_path / "domains.txt"))
    records = [Record("a", 50, GOOD, url=url) for url in ("http://www.bad.example/x", "http://fine.example", "")]
    kept, tally = _clean(records, urls=urls)
    assert kept == [GOOD, GOOD]
    assert tally.ledger.dropped["url_domain"] == Count(1, 50)


def test_the_content_of_a_list_is_part_of_the_identity(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("bad.example\n")
    clean = Clean(urls=UrlLists(domains=str(tmp_path / "a.txt")))
    before = clean.causes["urls"]
    assert str(tmp_path) not in json.dumps(before)
    (tmp_path / "a.txt").write_text("other.example\n")
    assert clean.causes["urls"] != before
    with pytest.raises(
        BadInput, match=r"^clean\.urls: [^\n]+: cannot read the file \(No such file[^\n]+; correct the path$"
    ):
        _ = Clean(urls=UrlLists(urls=str(tmp_path / "none.txt"))).causes
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"bad.example\n"))
    with pytest.raises(BadInput, match=r"^clean\.urls: [^\n]+: invalid list: got no text, [^\n]+; decompress it$"):
        _ = clean.causes


def test_a_process_reads_a_list_again_that_has_changed(tmp_path: Path) -> None:
    source = JsonlReader(path=str(tmp_path / "in.jsonl"), url_key="url")
    clean = Clean(urls=UrlLists(domains=str(tmp_path / "a.txt")))
    record = Record("a", 50, GOOD, url="http://bad.example")
    reasons = []
    for host in ("\ufeffbad.example", "other.example", "bad.example"):
        (tmp_path / "a.txt").write_text(f"{host}\n")
        reasons.append(Cleaner.of_corpus(Corpus(name="a", sources=(source,), clean=clean)).document(record)[1])
    assert reasons == ["url_domain", "", "url_domain"]


def test_a_language_below_the_minimum_score_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_step, "language", lambda text: ("de" if "nicht" in text else "en", 0.6))
    other = "Das ist nicht in der gesuchten Sprache."
    records = [Record("a", 50, text) for text in (GOOD, other)]
    for least, languages, reasons in (
        (0.65, ("en",), {"language": 1, "language_score": 1}),
        (0.6, ("en",), {"language": 1}),
        (0.65, (), {"language_score": 2}),
        (0.0, (), {}),
    ):
        _, tally = _clean(records, min_language_score=least, languages=languages)
        found = {name: count.documents for name, count in tally.ledger.dropped.items() if count.documents}
        assert found == reasons
