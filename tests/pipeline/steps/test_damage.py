"""Damage is measured by stored bytes and by the number of damaged files; messages name the files."""

import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.readers import Source, recognise
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import TextDirectory, ingest, read_text
from pipeline.steps.clean import Cleaner
from preprocessing.errors import BadInput, DataError
from tests.pipeline.conftest import story
from tests.pipeline.faults import HERE
from tests.pipeline.formats import html, json_lines, web_record, write_arrow, write_parquet


def _texts(start: int, count: int = 60) -> list[str]:
    return [story(number) for number in range(start, start + count)]


def _lines(start: int) -> bytes:
    return json_lines([{"text": text} for text in _texts(start)])


def _table(write_table: Callable[[Path, list[str], int], None], folder: Path, start: int) -> bytes:
    write_table(folder / ".scratch", _texts(start), 60)
    return (folder / ".scratch").read_bytes()


def _archive(start: int) -> bytes:
    pages = (f"<html><body><p>{text}</p></body></html>".encode() for text in _texts(start))
    return b"".join(gzip.compress(web_record("response", html(page))) for page in pages)


MAKE: dict[str, Callable[[Path, int], bytes]] = {
    "jsonl.gz": lambda folder, start: gzip.compress(_lines(start)),
    "jsonl.bz2": lambda folder, start: __import__("bz2").compress(_lines(start)),
    "jsonl.xz": lambda folder, start: __import__("lzma").compress(_lines(start)),
    "jsonl.zst": lambda folder, start: pa.Codec("zstd").compress(_lines(start), asbytes=True),
    "parquet": lambda folder, start: _table(write_parquet, folder, start),
    "arrow": lambda folder, start: _table(write_arrow, folder, start),
    "json": lambda folder, start: json.dumps([{"text": text} for text in _texts(start)]).encode(),
    "warc.gz": lambda folder, start: _archive(start),
}


def _read(path: Path, max_unreadable_ratio: float = 0.05) -> TextDirectory:
    sources: list[Source] = recognise(str(path))
    corpus = Corpus(
        name="c",
        sources=tuple(sources),
        clean=Clean(max_unreadable_ratio=max_unreadable_ratio),
        validation_ratio=0,
        test_ratio=0,
    )
    return read_text(corpus, path.parent / "out", HERE)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("ending", "part"), [*((ending, 6) for ending in MAKE), ("jsonl.gz", 9999), ("parquet", 9999)])
def test_truncated_files_count_as_whole_files_and_are_named(
    tmp_path: Path, ending: str, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten of twenty files truncated to a sixth used to count as ten dropped documents of 670."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        content = MAKE[ending](tmp_path, 60 * number)
        torn = content[: len(content) // part] if number == 1 else content
        (tmp_path / "in" / f"{number}.{ending}").write_bytes(torn)
    with pytest.raises(DataError, match=rf"\b1\.{ending} \(") as raised:
        _read(tmp_path / "in")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out" / "text.json").exists()
    kept = _read(tmp_path / "in", max_unreadable_ratio=1)
    assert kept.ledger.is_balanced()
    assert 180 <= kept.ledger.kept.documents < 240
    assert any(f"1.{ending} (" in message for message in caplog.messages)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ending", ["jsonl.gz", "jsonl.zst", "parquet", "arrow", "json"])
def test_nearly_empty_files_count_with_the_median_size(tmp_path: Path, ending: str) -> None:
    """Ten of twenty files truncated to a hundredth used to count as 1% of the stored bytes."""
    (tmp_path / "in").mkdir()
    for number in range(6):
        content = MAKE[ending](tmp_path, 60 * number)
        torn = content[: len(content) // 60] if number in (2, 4) else content
        (tmp_path / "in" / f"{number}.{ending}").write_bytes(torn)
    with pytest.raises(
        DataError, match=r"^corpus c: 33\.[34]% of .*, counting a short truncated file with the median size \(2 files: "
    ):
        _read(tmp_path / "in", max_unreadable_ratio=0.25)


def _rows(start: int) -> bytes:
    return "".join(f'{number},"{text}",x\n' for number, text in enumerate(_texts(start))).encode()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv"])
@pytest.mark.parametrize("tear", ["in a text", "behind a key"])
def test_files_that_end_inside_a_line_are_counted_and_named(
    tmp_path: Path, ending: str, tear: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten of twenty JSON lines files truncated to a sixth used to count as ten dropped documents, "bad_json"."""
    make = _lines if ending == "jsonl" else lambda start: b"id,text,more\n" + _rows(start)
    (tmp_path / "in").mkdir()
    for number in range(6):
        content = make(60 * number)
        content = content.replace(b",", b"\t").replace(b'"', b"") if ending == "tsv" else content
        middle = content.index(b"\n", len(content) // 6)
        torn = content[: middle + (2 if tear == "behind a key" else 40)]
        (tmp_path / "in" / f"{number}.{ending}").write_bytes(torn if number < 3 else content)
    with pytest.raises(DataError, match=rf"^corpus c: 4\d\.\d% of .* \(3 files: .\.{ending} \(cut_off\)"):
        _read(tmp_path / "in")
    kept = _read(tmp_path / "in", max_unreadable_ratio=1)
    assert kept.ledger.is_balanced()
    assert kept.ledger.dropped["cut_off"].documents == 3
    assert any("are read up to the damage: 3 files" in message for message in caplog.messages)


def test_an_incomplete_last_line_of_a_single_file_costs_one_document(tmp_path: Path) -> None:
    """The program that wrote the file may have been stopped there."""
    (tmp_path / "a.jsonl").write_bytes(_lines(0)[:-9])
    ledger = _read(tmp_path / "a.jsonl").ledger
    assert (ledger.kept.documents, ledger.dropped["cut_off"].documents) == (59, 1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "line", ['{"text": "Words"} and', '{"text": Words', '{"text": "Words" "more": 1}', "Words", "}"]
)
def test_a_last_line_that_cannot_start_an_object_is_bad_json(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(_lines(0) + line.encode())
    assert _read(tmp_path / "a.jsonl").ledger.dropped["bad_json"].documents == 1


def test_minor_damage_is_a_warning_that_names_the_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    for number in range(40):
        content = gzip.compress(_lines(10 * number))
        (tmp_path / "in" / f"{number:02}.jsonl.gz").write_bytes(content[:-9] if number == 7 else content)
    _read(tmp_path / "in")
    (line,) = [message for message in caplog.messages if "damaged" in message]
    assert line.startswith(
        "text of c: damaged files, 2.5% of the stored bytes, are read up to the damage: 1 file: 07.jsonl.gz (truncated)"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [(b'{"error": "not found", "text": 3}\n', "not_a_string"), (b"not found\n", "bad_json"), (b"[1]\n", "no_field")],
)
def test_files_without_a_readable_document_count_as_files(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "in").mkdir()
    for number in range(10):
        made = content if number == 3 else _lines(60 * number)
        (tmp_path / "in" / f"{number}.jsonl").write_bytes(made)
    with pytest.raises(DataError, match=rf"no readable document in 1 file: 3\.jsonl \({why}\), out of 10 files"):
        _read(tmp_path / "in")


@pytest.mark.parametrize(
    "behind", [b"\0", b"\0" * 512, b"\0" * 100_000, gzip.compress(b""), b"\0" * 9 + gzip.compress(b"")]
)
def test_padding_after_gzip_is_no_damage(tmp_path: Path, behind: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(_lines(0)) + behind)
    ledger = _read(tmp_path / "a.jsonl.gz").ledger
    assert (ledger.kept.documents, {*ledger.dropped} - {"trimmed"}) == (60, set())
    assert not any("a.jsonl.gz" in message for message in caplog.messages)


@pytest.mark.parametrize("unit", ["line", "document"])
def test_other_bytes_after_gzip_cost_no_document_and_are_reported(
    tmp_path: Path, unit: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "".join(f"{text}\n" for text in _texts(0)).encode()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text) + b"garbage")
    corpus = Corpus(
        name="c", sources=tuple(recognise(f"{unit.replace('document', 'text')}:{tmp_path / 'a.txt.gz'}")),
        clean=Clean(max_unreadable_ratio=1),
    )  # fmt: skip
    ledger = read_text(corpus, tmp_path / "out", HERE).ledger
    assert ledger.kept.documents == (60 if unit == "line" else 1)
    assert (ledger.dropped["trailing_data"].bytes, ledger.is_balanced()) == (7, True)
    assert any("a.txt.gz (trailing_data)" in message for message in caplog.messages)


def test_unreadable_parts_of_reference_corpora_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "old.jsonl.gz").write_bytes(gzip.compress(_lines(0))[:-200])
    (tmp_path / "new.jsonl").write_bytes(_lines(0))
    known = Dedup(reference_corpora=(str(tmp_path / "old.jsonl.gz"),))
    corpus = Corpus(
        name="c", sources=tuple(recognise(str(tmp_path / "new.jsonl"))), dedup=known, validation_ratio=0, test_ratio=0
    )
    ledger = read_text(corpus, tmp_path / "out", HERE).ledger
    assert 0 < ledger.kept.documents == 60 - ledger.dropped["known"].documents
    message = "dedup.reference_corpora: unreadable parts are ignored in 1 file: old.jsonl.gz (truncated)"
    assert message in caplog.messages


def test_a_truncated_side_is_damage_of_both_files(tmp_path: Path) -> None:
    """All lines are present, but the end of gzip is missing; only the undamaged first side used to be named."""
    text = "".join(f"{text}\n" for text in _texts(0)).encode()
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.eo.gz").write_bytes(gzip.compress(text)[:-8])
    source = tuple(recognise(f"parallel:{tmp_path / 'a.en.gz'},{tmp_path / 'a.eo.gz'}"))
    with pytest.raises(DataError, match=r"\(1 file: a\.en\.gz and a\.eo\.gz \(truncated\)\)"):
        read_text(Corpus(name="c", sources=source, validation_ratio=0, test_ratio=0), tmp_path / "out", HERE)


def test_empty_files_are_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"{number}.jsonl").write_bytes(b"" if number % 2 else _lines(60 * number))
    ledger = _read(tmp_path / "in").ledger
    assert (ledger.kept.documents, ledger.dropped["empty"].documents) == (180, 3)
    message = "text of c: empty: 3 files: 1.jsonl, 3.jsonl, 5.jsonl; if this is unexpected, replace them"
    assert message in caplog.messages


def test_skipped_records_do_not_lower_the_damage_ratio(tmp_path: Path) -> None:
    page = f"<html><body><p>{story(1)}</p></body></html>".encode()
    pages = [web_record("response", html(page))] * 2
    lost = [web_record("response", html(b"\x1f\x8b damaged"))]
    missing = [web_record("response", html(page, status=b"404 Not Found"))] * 100
    (tmp_path / "a.warc").write_bytes(b"".join(pages + lost + missing))
    with pytest.raises(DataError, match=r"1 of 3 documents are unreadable \(bad_http 1\)"):
        _read(tmp_path / "a.warc")
    ledger = _read(tmp_path / "a.warc", max_unreadable_ratio=1).ledger
    assert (ledger.dropped["http_error"].documents, ledger.is_balanced()) == (100, True)


def _replace(path: Path) -> None:
    other, facts = path.with_name(".other"), path.stat()
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.rename(path)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(_lines(900))


def _copy(path: Path) -> None:
    path.with_name(f"new-{path.name}").write_bytes(path.read_bytes())


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "appended": (_append, "has [0-9,]+ bytes, had"),
    "truncated": (lambda path: os.truncate(path, 100), "has 100 bytes, had"),
    "emptied": (lambda path: os.truncate(path, 0), "has 0 bytes, had"),
    "deleted": (lambda path: path.unlink(), "is gone"),
    "replaced": (_replace, "was written again"),
    "written": (lambda path: os.utime(path, ns=(1, 1)), "was written again"),
    "joined": (_copy, "is new"),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("change", "ending"), [*((change, "jsonl") for change in CHANGES), ("truncated", "parquet")])
def test_input_that_changes_while_it_is_read_is_refused_and_named(
    tmp_path: Path, change: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    path, (does, named), clean, due = tmp_path / "in" / f"b.{ending}", CHANGES[change], ingest._clean, [1]
    if ending == "jsonl":
        path.write_bytes(_lines(0))
    else:
        pq.write_table(pa.table({"text": _texts(0)}), path)

    def clean_after_change(part: ingest.TextPart, out: str, cleaner: Cleaner) -> ingest.TextPart:
        if due:
            due.clear()
            does(path)
        return clean(part, out, cleaner)

    monkeypatch.setattr(ingest, "_clean", clean_after_change)
    with pytest.raises(
        BadInput, match=rf"^input changed while it was read: [^\n]*b\.{ending} {named}[^\n]+repeat the command$"
    ):
        _read(tmp_path / "in")
    assert not (tmp_path / "out" / "text.json").exists()
    if change != "joined":
        assert not list((tmp_path / "out").glob("text-*"))


def test_streams_are_refused_because_they_cannot_be_read_twice(tmp_path: Path) -> None:
    """A FIFO without a writer used to hang forever, and `<(cat x)` was empty."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("../pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        read, write = os.pipe()
        try:
            given = [tmp_path / "pipe", tmp_path / "link", tmp_path / "in", tmp_path / "pip*", tmp_path / "socket"]
            for each in (*given, f"/dev/fd/{read}", f"/proc/self/fd/{read}", "/dev/null", "/dev/stdin"):
                with pytest.raises(BadInput, match=r"cannot be read twice; write its text to a file and pass the file"):
                    recognise(f"jsonl:{each}")[0].files()
        finally:
            os.close(read)
            os.close(write)
    with pytest.raises(BadInput, match=r"^-: standard input cannot be read twice"):
        recognise("-")


@pytest.mark.parametrize("linked", [False, True])
def test_an_output_directory_inside_the_input_directory_is_refused(tmp_path: Path, linked: bool) -> None:
    """Files written there used to be read as text, or reported as new in it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(_lines(0))
    if linked:
        (tmp_path / "link").symlink_to(tmp_path / "in")
    corpus = Corpus(name="c", sources=tuple(recognise(str(tmp_path / ("link" if linked else "in")))))
    with pytest.raises(
        BadInput, match=r"/in/runs/text: output directory is inside of the source .* and would be read as text"
    ):
        read_text(corpus, tmp_path / "in" / "runs" / "text", HERE)
    assert read_text(corpus, tmp_path / "in" / ".runs" / "text", HERE).ledger.kept.documents == 60
