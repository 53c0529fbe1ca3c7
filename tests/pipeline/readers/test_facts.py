"""Every reader has every fact, and a reader defined here works everywhere like those of the union."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import ClassVar, Literal, Self, get_args

import pytest

from orchestration.config import load_corpus
from orchestration.jobs import JobFlags, open_job
from orchestration.reports.data_card.facts import _settings
from pipeline import readers as door
from pipeline.readers import (
    READERS,
    ParallelReader,
    Reader,
    Record,
    Source,
    TextReader,
    absolute,
    plan_splits,
    portable,
    records,
    sniff,
)
from pipeline.readers import splits as sources
from pipeline.readers.file_ranges import FileRange, pieces_at, text_cuts
from pipeline.readers.files import Sides
from pipeline.readers.lines import TextLine, drop_record
from pipeline.readers.plain import always, line_records
from pipeline.readers.reader import FileProbe, FileReader
from pipeline.readers.record import BETWEEN
from pipeline.spec import Corpus
from pipeline.steps import read_text
from preprocessing.errors import BadInput
from preprocessing.spec import spec
from tests.facts import assert_covers, assert_described, assert_every_fact

NAMED = [(reader, name) for reader in READERS for name in reader.names]
SOURCES = [reader.from_name(name, "a,b") for reader, name in NAMED]


@pytest.mark.parametrize("source", SOURCES)
def test_every_reader_has_every_fact(source: Reader) -> None:
    assert_every_fact(source, Reader)
    assert all(callable(getattr(type(source), name)) for name in ("from_name", "looks_like"))


@pytest.mark.parametrize("reader", READERS)
def test_every_path_reader_has_extensions_or_usual_endings(reader: type[Reader]) -> None:
    keys = reader.__dataclass_fields__
    assert "path" not in keys or "extensions" in keys or reader.usual


def test_every_reader_of_the_union_is_tested_here() -> None:
    assert_covers(SOURCES, Source)
    assert set(READERS) == set(get_args(Source))


def test_every_source_is_described_in_one_line() -> None:
    assert_described(SOURCES)


def test_reader_names_are_unique() -> None:
    names = [name for _, name in NAMED]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("reader", "name"), NAMED)
class TestNamed:
    def test_the_kind_of_a_reader_is_one_of_its_names(self, reader: type[Reader], name: str) -> None:
        assert reader.from_name(name, "a,b").kind in reader.names

    def test_a_kind_before_a_path_selects_the_reader(self, reader: type[Reader], name: str) -> None:
        source = sniff(f"{name}:a,b")
        assert (type(source), source.place) == (reader, "a,b")

    def test_keys_listed_as_paths_are_keys_of_the_reader(self, reader: type[Reader], name: str) -> None:
        assert set(reader.located) <= {key.name for key in fields(reader.from_name(name, "a,b"))}

    def test_anchoring_makes_paths_absolute_and_keeps_other_keys(self, reader: type[Reader], name: str) -> None:
        source = reader.from_name(name, "a,b")
        moved = source.resolve_paths(Path("/eval"))
        assert portable(moved) == portable(source)
        assert moved.resolve_paths(Path("/elsewhere")) == moved
        assert all("/eval/a" in str(asdict(moved)[key]) for key in reader.located)

    def test_a_corpus_file_may_use_any_kind(self, reader: type[Reader], name: str, tmp_path: Path) -> None:
        source = reader.from_name(name, "a,b")
        (tmp_path / "mine.yaml").write_text(json.dumps({"name": "mine", "sources": [asdict(source)]}))
        assert load_corpus(str(tmp_path / "mine.yaml")).sources == (source.resolve_paths(tmp_path),)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a.txt", "/eval/a.txt"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("line:a.txt", "line:/eval/a.txt"),
        ("jsonl:s3://bucket/a", "jsonl:s3://bucket/a"),
        ("parallel:a.en,a.fr", "parallel:/eval/a.en,/eval/a.fr"),
        ("python_docs:numpy", "python_docs:numpy"),
        ("no_kind:a", "/eval/no_kind:a"),
    ],
)
def test_a_path_after_a_kind_becomes_absolute(given: str, expected: str) -> None:
    assert absolute(given, Path("/eval")) == expected


def test_an_invalid_path_for_a_reader_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match=r"^parallel:a\.en: invalid parallel\.paths: got [^\n]+ at least two paths$"):
        sniff("parallel:a.en")


def test_describing_a_corpus_imports_no_format_library() -> None:
    heavy = [
        "apache_beam",
        "fastwarc",
        "fsspec",
        "mwparserfromhell",
        "pyarrow.compute",
        "pyarrow.parquet",
        "resiliparse",
    ]
    code = f"import sys, pipeline.spec; print(set({heavy}) & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"


def test_paths_are_not_portable_keys() -> None:
    assert portable(TextReader(path="/home/me", document_unit="line")) == {
        "kind": "text",
        "document_unit": "line",
        "extensions": (),
        "encoding": "",
    }
    assert portable(ParallelReader(paths=("a", "b"))) == {"kind": "parallel", "encoding": ""}


# A reader that is defined outside the pipeline.


@spec
class Tsv(FileReader):
    """Tab-separated columns; the first column is the text, and the first line has the column names."""

    names: ClassVar[tuple[str, ...]] = ("tsv",)
    leads: ClassVar[tuple[str, ...]] = (".tsv",)
    usual: ClassVar[tuple[str, ...]] = leads

    kind: Literal["tsv"] = "tsv"
    path: str

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        return cls(path=sample.path) if sample.start.startswith(b"text\t") else None

    def describe(self) -> str:
        return f"{self.path}: read as tsv"

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        return pieces_at(sides[0], text_cuts(sides[0], step))

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        return line_records(piece, always, row, limit)


def row(label: str, line: TextLine) -> Record:
    if not line.start:
        return drop_record(label, line, BETWEEN)
    return Record(label, line.size, line.content.split(b"\t")[0].decode(), start=line.start)


TEXTS = [f"Row {number} of a table with tabs between its columns." for number in range(200)]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tab-separated table beside a README, with Tsv in the union."""
    monkeypatch.setattr(door, "READERS", (Tsv, *READERS))
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "README").write_text("About this table.\n")
    lines = ["text\tnumber", *(f"{text}\t{number}" for number, text in enumerate(TEXTS))]
    (folder / "rows.tsv").write_text("\n".join(lines) + "\n")
    return folder


def _texts(source: Reader) -> list[str]:
    found = [record for split in plan_splits([source]) for record in records(split, 1000)]
    return [record.text for record in found if not record.fault]


class TestReaderOfOneFile:
    def test_it_recognizes_its_files_in_a_directory(self, table: Path) -> None:
        assert _texts(sniff(str(table))) == TEXTS

    def test_its_name_selects_it(self, table: Path) -> None:
        assert _texts(sniff(f"tsv:{table / 'rows.tsv'}")) == TEXTS
        assert absolute("tsv:rows.tsv", table) == f"tsv:{table / 'rows.tsv'}"

    def test_its_name_is_listed_in_messages(self, table: Path) -> None:
        (table / "empty").mkdir()
        (table / "empty" / "a.txt").write_bytes(b"")
        with pytest.raises(BadInput, match=r"KIND is one of [^\n]*\btsv\b"):
            sniff(str(table / "empty"))

    def test_a_large_file_is_split_without_changing_its_text(
        self, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "SPLIT_BYTES", 1000)
        source = Tsv(path=str(table))
        assert len(plan_splits([source])) > 3
        assert _texts(source) == TEXTS

    def test_a_command_reports_how_it_reads_it(self, table: Path, tmp_path: Path) -> None:
        job = open_job(JobFlags(recipe="bert_base", scale="tiny", data=(f"tsv:{table}",), output_dir=tmp_path))
        assert job.source_notes[:-1] == [
            f"{table}: read as tsv",
            f"{table}: files not read: README (text; to read it, pass --data text:FILE)",
        ]

    def test_the_data_card_names_its_kind(self, table: Path) -> None:
        corpus = Corpus(name="rows", sources=(Tsv(path=str(table)),))  # type: ignore[arg-type]
        assert _settings(corpus)["sources"] == "tsv"

    def test_the_corpus_job_keeps_its_documents(self, table: Path, tmp_path: Path) -> None:
        corpus = Corpus(name="rows", sources=(Tsv(path=str(table)),))  # type: ignore[arg-type]
        texts = read_text(corpus, tmp_path / "text", ["--direct_running_mode=in_memory"])
        assert texts.ledger.kept.documents == len(TEXTS)
