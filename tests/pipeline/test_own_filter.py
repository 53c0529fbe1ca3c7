"""A filter of the user: its file, its errors, and its part in the identity of a text."""

import json
import pickle
from pathlib import Path

import pytest

from orchestration.config import load_corpus
from pipeline.own_filter import OwnFilter, read_own_filter
from pipeline.readers import Record
from pipeline.spec import Clean
from pipeline.steps.clean import Cleaner, CleaningTally, clean_records
from preprocessing.errors import BadInput
from preprocessing.manifest import Count

CODE = "def reject(text: str) -> bool:\n    return 'bad' in text\n"
GOOD, BAD = "A document that is long enough to be kept.", "A document that is bad and that is dropped."


def _write(folder: Path, code: str = CODE, name: str = "my_filter.py") -> str:
    (folder / name).write_text(code)
    return str(folder / name)


def _cleaner(*filters: str) -> Cleaner:
    own = {path: read_own_filter(path) for path in filters if path.endswith(".py")}
    return Cleaner(Clean(filters=filters), own_filters=own)


def test_dropped_documents_are_counted_by_the_name_of_the_filter(tmp_path: Path) -> None:
    tally = CleaningTally()
    records = [Record("a", len(text), text) for text in (GOOD, BAD)]
    kept = [document.text for document in clean_records(records, _cleaner(_write(tmp_path)), tally)]
    assert kept == [GOOD]
    assert tally.ledger.dropped["my_filter"] == Count(1, len(BAD))
    assert tally.ledger.is_balanced()


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        *(("None", ""), ("False", ""), ("''", ""), ("True", "my_filter"), ("'digits'", "my_filter_digits")),
        *(("__import__('numpy').float64(1) > 2", ""), ("__import__('numpy').float64(1) < 2", "my_filter")),
    ],
)
def test_the_result_is_a_truth_value_or_a_reason(result: str, reason: str, tmp_path: Path) -> None:
    assert read_own_filter(_write(tmp_path, f"def reject(text): return {result}\n")).find_reason(GOOD) == reason


def test_filters_apply_in_the_given_order(tmp_path: Path) -> None:
    path = _write(tmp_path)
    short = "bad " * 10
    for filters, reason in (((path, "gopher_quality"), "my_filter"), (("gopher_quality", path), "gopher_word_count")):
        assert _cleaner(*filters).document(Record("a", 40, short))[1] == reason


def test_the_code_goes_to_the_workers_which_need_no_file(tmp_path: Path) -> None:
    path = _write(
        tmp_path, "from dataclasses import dataclass\n\n\n@dataclass\nclass Rule:\n    word: str\n\n\n" + CODE
    )
    sent = pickle.dumps(_cleaner(path))
    Path(path).unlink()
    assert pickle.loads(sent).document(Record("a", len(BAD), BAD))[1] == "my_filter"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def reject(text:\n", r"my_filter\.py, line 1: cannot load the filter \(SyntaxError: "),
        (
            "x = 1\ny = 1 / 0\n",
            r"my_filter\.py, line 2: cannot load the filter \(ZeroDivisionError: division by zero\)",
        ),
        ("import sys\nsys.exit(0)\n", r"my_filter\.py, line 2: cannot load the filter \(SystemExit: 0\)"),
        ("import no_such_package\n", r"line 1: cannot load the filter \(ModuleNotFoundError: No module named 'no_such"),
        (
            "def keep(text): return True\n",
            r"missing function reject, expected `def reject\(text: str\) -> bool`; define",
        ),
        ("reject = 3\n", "missing function reject"),
    ],
)
def test_a_file_that_is_no_filter_is_refused_in_one_line(code: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        read_own_filter(_write(tmp_path, code))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def reject(text):\n    return text.size\n",
            r"line 2: reject failed for a text of 42 characters \(AttributeErr",
        ),
        ("def reject(text):\n    raise SystemExit\n", r"line 2: reject failed .* \(SystemExit: \)"),
        ("def reject(text):\n    return 3\n", r"invalid result of reject: got 3, expected True, False, or a reason of"),
        ("def reject(text):\n    return 'has blanks'\n", r"invalid result of reject: got 'has blanks'"),
        ("def reject(text):\n    return len(text) / 0\n", r"line 2: reject failed .* \(ZeroDivisionError: "),
    ],
)
def test_a_filter_that_fails_stops_the_job_in_one_line(code: str, message: str, tmp_path: Path) -> None:
    cleaner = _cleaner(_write(tmp_path, code))
    with pytest.raises(BadInput, match=message) as caught:
        list(clean_records([Record("a", len(GOOD), GOOD)], cleaner, CleaningTally()))
    assert "\n" not in str(caught.value)


def test_a_filter_with_a_reason_for_each_document_is_refused(tmp_path: Path) -> None:
    cleaner = _cleaner(_write(tmp_path, "def reject(text):\n    return str(len(text))\n"))
    records = [Record("a", 100 + number, "x" * (100 + number)) for number in range(400)]
    with pytest.raises(
        BadInput, match=r"^clean\.filters: invalid reasons: got 300 and 'my_filter_400', expected a few;"
    ):
        list(clean_records(records, cleaner, CleaningTally()))


def test_a_missing_file_and_an_invalid_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^clean\.filters: [^\n]+: cannot read the file \(No such file or directory\)"):
        read_own_filter(str(tmp_path / "none.py"))
    with pytest.raises(BadInput, match=r"invalid file name: got 'my-filter', expected letters"):
        read_own_filter(_write(tmp_path, CODE, "my-filter.py"))
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n" + CODE.encode())
    with pytest.raises(BadInput, match=r"cannot read the file \(.*\); save it as UTF-8"):
        read_own_filter(str(tmp_path / "latin.py"))
    with pytest.raises(ValueError, match="filters with different names"):
        Clean(filters=("a/mine.py", "b/mine.py"))
    with pytest.raises(ValueError, match=r"got 'gopher', expected c4, fineweb_quality, .*, or a Python file"):
        Clean(filters=("gopher",))


def test_the_code_and_not_the_path_is_part_of_the_identity(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    first, second = Clean(filters=(_write(tmp_path),)), Clean(filters=(_write(tmp_path / "b"),))
    assert first.causes == second.causes
    before = first.causes
    _write(tmp_path, CODE + "# changed\n")
    assert first.causes != before
    assert Clean(filters=("c4",)).causes["filters"] == ("c4",)
    assert not {"urls", "min_language_score", "whitespace"} & Clean().causes.keys()


def test_paths_of_a_corpus_file_count_from_its_directory(tmp_path: Path) -> None:
    path = _write(tmp_path)
    (tmp_path / "domains.txt").write_text("bad.example\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": GOOD, "url": "http://bad.example"}) + "\n")
    source = "{kind: jsonl, path: a.jsonl, url_key: url}"
    settings = "{filters: [c4, my_filter.py], urls: {domains: domains.txt}}"
    (tmp_path / "c.yaml").write_text(f"name: c\nsources: [{source}]\nclean: {settings}\n")
    corpus = load_corpus(str(tmp_path / "c.yaml"))
    assert corpus.clean.filters == ("c4", path)
    assert corpus.clean.urls.files == {"domains": str(tmp_path / "domains.txt")}
    (tmp_path / "c.yaml").write_text((tmp_path / "c.yaml").read_text().replace(", url_key: url", ""))
    with pytest.raises(
        BadInput, match=r"^[^\n]+ invalid sources: got jsonl a\.jsonl, expected sources with URLs [^\n]+"
    ):
        load_corpus(str(tmp_path / "c.yaml"))


def test_the_modules_of_filters_hide_no_others(tmp_path: Path) -> None:
    found: OwnFilter = read_own_filter(_write(tmp_path, "import json\n" + CODE, "json_only.py"))
    assert found.find_reason(BAD) == "json_only"
    assert json.loads("1") == 1
