import dataclasses
import json
from pathlib import Path

import pytest

from pipeline.readers import EXPECTED, JsonArrayReader, JsonlReader, Record, plan_splits, recognise
from pipeline.readers.jsonl import parse_line
from pipeline.readers.lines import TextLine
from preprocessing.errors import BadInput
from tests.pipeline.readers.reading import read, texts, write


def _read(line: bytes, field: str = "text", spans: str = "") -> Record:
    return parse_line("a", TextLine(5, len(line), line), field, spans)


def test_a_dotted_key_is_a_nested_key() -> None:
    assert _read(b'{"a": {"b": {"c": "x"}}}', "a.b.c").text == "x"
    assert _read(b'{"a.b": "x"}', "a.b").text == "x"
    assert _read(b'{"a": "x"}', "a.b").fault == "no_field"


def test_single_surrogates_are_replaced_and_surrogate_pairs_stay() -> None:
    found = _read(b'{"text": "a\\ud800b \\ud83d\\ude00 \\uDC00"}')
    assert (found.text, found.repaired) == ("a\ufffdb \U0001f600 \ufffd", 2)
    found.text.encode()


@pytest.mark.parametrize("line", [b'{"text": "a", "text": "b"}', b'{"text": "a", "more": {"text": "b", "text": "c"}}'])
def test_a_duplicate_key_is_a_fault(line: bytes) -> None:
    assert _read(line).fault == "duplicate_key"


def test_the_text_key_may_occur_elsewhere() -> None:
    assert _read(b'{"text": "a", "more": {"text": "b"}, "kind": "text"}').text == "a"


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([[4, 7], [0, 3]], ((0, 3), (4, 7))),
        ([], ()),
        (None, ()),
        ([[0, 8]], "bad_spans"),
        ([[3, 3]], "bad_spans"),
        ([[-1, 3]], "bad_spans"),
        ([[0, 1.5]], "bad_spans"),
        ([[0, True]], "bad_spans"),
        ([[0, 1, 2]], "bad_spans"),
        ("0-3", "bad_spans"),
        (7, "bad_spans"),
    ],
)
def test_spans_are_valid_character_ranges_or_a_fault(spans: object, expected: object) -> None:
    found = _read(json.dumps({"text": "one two", "names": spans}).encode(), spans="names")
    assert (found.fault or found.spans) == expected


def test_a_faulty_line_has_its_position_and_its_beginning() -> None:
    line = b'{"text": "' + b"x" * 500
    assert _read(line + b"\n") == Record("a", 511, fault="bad_json", start=5, snippet=line[:200])


def test_a_file_that_ends_inside_an_object_is_cut_off() -> None:
    whole = json.dumps(
        {"id": 12, "ok": True, "n": None, "f": -1.5e300, "text": 'W\u00e9 "q" \\ w', "l": [1, {"a": "b"}]}
    )
    assert {_read(whole[:stop].encode()).fault for stop in range(1, len(whole))} == {"cut_off"}
    assert {_read(whole[:stop].encode() + b"\n").fault for stop in range(1, len(whole))} == {"bad_json"}


HUGE = "9" * 5_000


@pytest.mark.parametrize("number", [HUGE, f"-{HUGE}", f"[{HUGE}]", "NaN", "-Infinity", "1e999999", f"{HUGE}.5"])
def test_a_number_of_any_length_is_accepted_beside_the_text(tmp_path: Path, number: str) -> None:
    """Python parses no number of more than 4,300 digits, so every such line used to be rejected as invalid JSON."""
    objects = [f'{{"n": {number}, "text": "Words {count}."}}' for count in range(3)]
    lines = write(tmp_path, "".join(f"{each}\n" for each in objects), "a.jsonl")
    array = write(tmp_path, f"[{', '.join(objects)}]", "a.json")
    for path in (lines, array):
        assert texts(*recognise(path)) == [f"Words {count}." for count in range(3)]


@pytest.mark.parametrize("is_escaped", [True, False])
@pytest.mark.parametrize("field", ["text", "текст"])
@pytest.mark.parametrize("before", [1, 900])
def test_the_first_lines_may_lack_the_text_key(tmp_path: Path, before: int, field: str, is_escaped: bool) -> None:
    """A key missing in the first line used to be reported as missing in all lines."""
    heads, tails = [{"meta": "data " * 20}] * before, [{field: "Words."}] * 3
    rows = [json.dumps(each, ensure_ascii=is_escaped) for each in (*heads, *tails)]
    lines = write(tmp_path, "".join(f"{row}\n" for row in rows), "a.jsonl")
    array = write(tmp_path, f"[{', '.join(rows)}]", "a.json")
    for path in (lines, array):
        (source,) = recognise(f"{path}#{field}")
        assert [record.fault for record in read(source) if record.fault not in EXPECTED] == ["no_field"] * before + [
            ""
        ] * 3


@pytest.mark.parametrize("line", [{"data": {"text": "Words."}}, {"data": [{"text": "Words."}]}, {"data": 'a "text" b'}])
def test_a_nested_key_is_not_the_text_key(tmp_path: Path, line: object) -> None:
    """All 60 such lines used to be read, although none has the key."""
    path = write(tmp_path, f"{json.dumps(line)}\n" * 60, "a.jsonl")
    with pytest.raises(BadInput, match=r"missing key 'text', expected one of 'data'; select"):
        recognise(path)
    if isinstance(inside := line["data"], dict):  # type: ignore[index]
        assert texts(*recognise(f"{path}#data.text")) == [inside["text"]] * 60


def test_a_key_missing_in_all_lines_is_refused_with_all_existing_keys(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a": 1}\n{"b": 2}\n', "a.jsonl")
    with pytest.raises(BadInput, match=r"missing key 'text', expected one of 'a', 'b'; select"):
        recognise(path)


@pytest.mark.parametrize("words", [3, 30_000])
@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_a_misspelled_text_key_of_a_source_is_refused_before_the_work(tmp_path: Path, kind: str, words: int) -> None:
    """The first object may be longer than the beginning that is read to recognize a file."""
    values = [{"text": "word " * words, "url": "http://a.org", "meta": {"id": 1}}] * 3
    content = json.dumps(values) if kind == "json" else "".join(f"{json.dumps(each)}\n" for each in values)
    path = write(tmp_path, content, f"a.{kind}")
    source = (JsonArrayReader if kind == "json" else JsonlReader)(path=path, text_key="txet")
    with pytest.raises(BadInput, match=r"^[^\n]+: missing key 'txet', expected one of 'meta', 'text', 'url'; select"):
        plan_splits([source])
    with pytest.raises(BadInput, match=r"missing field 'meta\.idd', expected one of 'text', 'url', 'meta', 'meta.id';"):
        plan_splits([dataclasses.replace(source, text_key="text", keep=("meta.idd",))])
    assert plan_splits([dataclasses.replace(source, text_key="text", keep=("meta.id",))])


def test_a_text_key_that_some_later_line_has_is_accepted(tmp_path: Path) -> None:
    lines = [json.dumps({"id": number, "fill": "x" * 90}) for number in range(2000)]
    path = write(tmp_path, "\n".join([*lines, json.dumps({"text": "Words."})]) + "\n", "a.jsonl")
    assert plan_splits([JsonlReader(path=path)])
