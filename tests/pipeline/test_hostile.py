"""Damaged or malicious input is counted exactly, and does not change any good document."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from orchestration.cli import main
from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader, Source, TableReader, TextReader, WarcReader, WikiDumpReader
from pipeline.spec import Clean, Corpus
from pipeline.steps import TextDirectory, read_text
from preprocessing.errors import DataError
from preprocessing.tokenization import WordPiece
from tests.pipeline.conftest import story
from tests.pipeline.faults import HERE, content
from tests.pipeline.formats import dump, html, json_lines, page, web_record, write_arrow, write_parquet

SOUND = 40  # documents
LONGEST = 100_000  # characters
zst = zstandard.ZstdCompressor().compress


def file_of(write: object, path: Path) -> bytes:
    """Return the file content of a function that writes tables."""
    write(path, [story(number) for number in range(50)], 50)  # type: ignore[operator]
    return path.read_bytes()


class Kind(NamedTuple):
    """A file with one kind of malformed input, and the expected reasons of its dropped documents."""

    file: str  # the directory name selects the source
    content: bytes
    expected: dict[str, int]


def kinds(scratch: Path) -> dict[str, Kind]:
    """Return all kinds of malformed input, each in its own file; no document of them is kept."""
    text = story(1, sentences=2000).encode()
    cut_gz, cut_zst = gzip.compress(text)[: len(text) // 8], zst(text)[: len(text) // 8]
    cut_warc = gzip.compress(web_record("response", html(text)))[: len(text) // 8]
    cut_parquet, cut_arrow = (file_of(write, scratch)[:-900] for write in (write_parquet, write_arrow))
    return {
        "invalid UTF-8": Kind("line/latin.txt", b"caf\xe9 \xff\xfe\n", {"bad_encoding": 1}),
        "half a character": Kind("jsonl/half.jsonl", b'{"text": "\\ud800 \\udc00"}\n', {"bad_encoding": 1}),
        "UTF-16": Kind("line/utf16.txt", "one\ntwo\n".encode("utf-16"), {"too_short": 2}),
        "UTF-16 without a mark": Kind("line/unmarked.txt", "one\ntwo\n".encode("utf-16-le"), {"too_short": 2}),
        "a byte order mark": Kind("document/mark.txt", b"\xef\xbb\xbf", {"empty": 1}),
        "gzip in .txt": Kind("line/gzip.txt", gzip.compress(b"text\n" * 99), {"not_text": 1}),
        "a picture": Kind("document/picture.txt", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, {"not_text": 1}),
        "an endless line": Kind("line/endless.txt", b"x" * 3_000_000, {"too_long": 1}),
        "an endless line in a file": Kind("jsonl/endless.jsonl", b'{"text": "' + b"x" * 3_000_000, {"too_long": 1}),
        "NULs": Kind("line/nul.txt", b"NUL and\x00NUL again\x00\n\x00\n", {"too_short": 1, "empty": 1}),
        "control characters": Kind("line/control.txt", bytes(range(1, 9)) * 50, {"not_text": 1}),
        "other line ends": Kind("line/ends.txt", "one\u2028two\u0085three".encode(), {"too_short": 1}),
        "CRLF": Kind("line/crlf.txt", b"one\r\n\r\ntwo\r\n", {"too_short": 2, "empty": 1}),
        "no final line end": Kind("line/final.txt", b"one\ntwo", {"too_short": 2}),
        "blank only": Kind("document/blank.txt", b" \n\t\r\n \n", {"empty": 1}),
        "nothing": Kind("document/nothing.txt", b"", {"empty": 1}),
        "no JSON": Kind("jsonl/no.jsonl", b'{"text": "cut\n{\nnull}\n', {"bad_json": 3}),
        "no field": Kind("jsonl/field.jsonl", json_lines([{"body": "x"}, ["text"], "text", 3]), {"no_field": 4}),
        "no string": Kind("jsonl/string.jsonl", json_lines([{"text": 3}, {"text": None}]), {"not_a_string": 2}),
        "a key twice": Kind("jsonl/twice.jsonl", b'{"text": "a", "text": "b"}\n', {"duplicate_key": 1}),
        "deep JSON": Kind("jsonl/deep.jsonl", b'{"text": ' + b"[" * 99_999 + b"]" * 99_999 + b"}\n", {"bad_json": 1}),
        "a huge number": Kind("jsonl/huge.jsonl", b'{"text": "a", "n": ' + b"9" * 9_999 + b"}\n", {"too_short": 1}),
        "a cut .gz": Kind("line/cut.txt.gz", cut_gz, {"truncated": 1}),
        "a cut .zst": Kind("line/cut.txt.zst", cut_zst, {"truncated": 1}),
        "a cut .parquet": Kind("table/cut.parquet", cut_parquet, {"truncated": 1}),
        "a cut .arrow": Kind("table/cut.arrow", cut_arrow[: len(cut_arrow) // 2], {"truncated": 1}),
        "a cut .warc": Kind("warc/cut.warc.gz", cut_warc, {"truncated": 1}),
        "a bomb": Kind("line/bomb.txt.zst", zst(b"x" * (64 << 20)), {"bomb": 1}),
        "deep markup": Kind("wiki/deep.xml", dump(page("A", "{{" * 10_000)), {"timeout": 1}),
        "deep tables": Kind("wiki/table.xml", dump(page("B", "{|\n|" * 10_000)), {"timeout": 1}),
        "deep HTML": Kind("warc/deep.warc", web_record("response", html(b"<div>" * 20_000)), {"timeout": 1}),
    }


WIDE = ("line/utf16.txt", "line/unmarked.txt")
PLAIN = ("empty", "too_short")  # reasons that are not a fault of the input
SOURCES: dict[str, type[Source]] = {
    "jsonl": JsonlReader,
    "table": TableReader,
    "warc": WarcReader,
    "wiki": WikiDumpReader,
}


def corpus_of(folder: Path, hostile: bool, max_unreadable_ratio: float = 1.0) -> Corpus:
    """Return a corpus of the sound documents, with or without all malformed files."""
    sources: list[Source] = [JsonlReader(path=str(folder / "sound"))]
    if hostile:
        sources += [kind(path=str(folder / name)) for name, kind in SOURCES.items()]
        sources += [TextReader(path=str(folder / unit), document_unit=unit) for unit in ("line", "document")]
    clean = Clean(max_chars=LONGEST, max_unreadable_ratio=max_unreadable_ratio)
    return Corpus(name="hostile", sources=tuple(sources), clean=clean, validation_ratio=0.1, test_ratio=0.1)


class Read(NamedTuple):
    folder: Path
    kinds: dict[str, Kind]
    clean: TextDirectory
    hostile: TextDirectory

    def rejects(self) -> list[dict[str, object]]:
        """Return the content of the rejects files."""
        found = sorted((self.folder / "hostile" / "rejects").glob("*.jsonl"))
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    """The text of the sound documents, once alone and once with all malformed files."""
    folder = tmp_path_factory.mktemp("hostile")
    found = kinds(folder / "scratch")
    for file, body, _ in found.values():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(body)
    (folder / "sound").mkdir()
    sound = json_lines([{"text": story(number)} for number in range(100, 100 + SOUND)])
    (folder / "sound" / "stories.jsonl").write_bytes(sound)
    with pytest.MonkeyPatch.context() as patch:
        # bytes below which nothing counts as a decompression bomb
        patch.setattr("pipeline.readers.files._HARMLESS", 1 << 20)
        texts = [read_text(corpus_of(folder, name == "hostile"), folder / name, HERE) for name in ("clean", "hostile")]
    return Read(folder, found, *texts)


def test_every_kind_of_malformed_input_is_counted_exactly(read: Read) -> None:
    expected = Counter[str]()
    for kind in read.kinds.values():
        expected.update(kind.expected)
    dropped = {reason: count.documents for reason, count in read.hostile.ledger.dropped.items() if count.documents}
    assert dropped == expected
    assert read.hostile.ledger.kept == read.clean.ledger.kept
    assert read.hostile.ledger.kept.documents == SOUND


def test_each_reject_has_its_file_and_reason(read: Read) -> None:
    expected = Counter[tuple[str, str]]()
    for kind in read.kinds.values():
        name = Path(kind.file).name
        expected.update({(name, reason): count for reason, count in kind.expected.items() if reason not in PLAIN})
    assert Counter((reject["source"], reject["reason"]) for reject in read.rejects()) == expected
    assert all(len(str(reject["snippet"])) <= 200 * len(r"\x00") for reject in read.rejects())


def test_the_ledger_balances_to_the_byte_and_agrees_with_the_rejects(read: Read) -> None:
    ledger = read.hostile.ledger
    assert ledger.is_balanced()
    shown = Counter[str]()
    for reject in read.rejects():
        shown[str(reject["reason"])] += int(str(reject["bytes"]))
    assert shown == {reason: count.bytes for reason, count in ledger.dropped.items() if reason in shown}
    stored = [kind for kind in read.kinds.values() if kind.file.split("/")[0] not in ("table", "warc")]
    stored = [kind for kind in stored if not kind.file.endswith((".gz", ".zst")) and kind.file not in WIDE]
    other = {Path(kind.file).name for kind in read.kinds.values() if kind not in stored}
    unseen = sum(int(str(reject["bytes"])) for reject in read.rejects() if reject["source"] in other)
    utf16 = len("\ufeffone\ntwo\n".encode()) + len(b"one\ntwo\n")  # as counted in the ledger, in UTF-8
    sizes = sum(len(kind.content) for kind in stored) + (read.folder / "sound" / "stories.jsonl").stat().st_size
    assert ledger.seen.bytes == sizes + unseen + utf16


def test_sound_documents_give_the_same_shards_beside_malformed_input(read: Read) -> None:
    train_vocab(read.folder / "clean", WordPiece(vocab_size=200), read.folder / "vocab")
    made = dict[str, dict[str, bytes]]()
    for name in ("clean", "hostile"):
        out = read.folder / f"{name}-corpus"
        encode_corpus(read.folder / name, read.folder / "vocab", corpus_of(read.folder, name == "hostile"), out, HERE)
        made[name] = {file: body for file, body in content(out).items() if "-of-" in file and file.endswith(".arrow")}
    assert len(made["clean"]) == 3
    assert made["clean"] == made["hostile"]


def test_too_many_rejects_stop_the_job_with_the_top_reasons_and_no_result(read: Read, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"^corpus hostile: \d+ of \d+ documents are unreadable \(truncated 5, bad_json"
    ) as reported:
        read_text(corpus_of(read.folder, hostile=True, max_unreadable_ratio=0.2), tmp_path, HERE)
    assert "\n" not in str(reported.value)
    assert f"{tmp_path / 'rejects'}" in str(reported.value)
    assert not (tmp_path / "text.json").exists()


@pytest.mark.slow
def test_the_command_exits_with_3_if_too_much_is_unreadable(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_bytes(
        json_lines([{"text": story(number)} for number in range(9)]) + read.kinds["no JSON"].content
    )
    words = [
        "corpus",
        "bert_base",
        "--scale",
        "tiny",
        "--data",
        str(tmp_path / "in.jsonl"),
        "--output-dir",
        str(tmp_path),
    ]
    assert main([*words, "--progress", "none"]) == 3
    actual = capsys.readouterr().err.splitlines()[-1]
    assert "3 of 12 documents are unreadable (bad_json 3), at most 0.05 is allowed; see " in actual
    assert not list(tmp_path.rglob("text.json"))


PEAK = (
    "import resource, sys; from pathlib import Path\n"
    "from pipeline.steps import read_text; from pipeline.readers import TextReader; from pipeline.spec import Corpus, "
    "Clean\n"
    "corpus = Corpus(name='a', sources=(TextReader(path=sys.argv[1], document_unit='line'),), "
    "clean=Clean(max_unreadable_ratio=1))\n"
    "print(read_text(corpus, sys.argv[2], ['--direct_running_mode=in_memory']).ledger.dropped.keys())\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)\n"
)


@pytest.mark.slow
def test_an_endless_line_and_a_decompression_bomb_take_little_memory(tmp_path: Path) -> None:
    peaks = dict[str, int]()
    for name in ("clean", "hostile"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "sound.txt").write_text("".join(f"{story(number)}\n" for number in range(1000)))
        if name == "hostile":
            (folder / "endless.txt").write_bytes(b"endless " * (8 << 20) + b"\n")
            with zstandard.open(folder / "bomb.txt.zst", "wb") as bomb:
                for _ in range(256):
                    bomb.write(b"x" * (16 << 20))
        command = [sys.executable, "-c", PEAK, str(folder), str(tmp_path / f"{name}-out")]
        actual, peak = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
        peaks[name] = int(peak)
        assert ("bomb" in actual, "too_long" in actual) == (name == "hostile",) * 2
    # a line of 40 MB is in memory three times: as read, joined, and decoded
    assert peaks["hostile"] <= peaks["clean"] + 160, peaks
