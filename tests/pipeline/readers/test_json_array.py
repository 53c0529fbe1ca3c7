# ruff: noqa: RUF001
"""JSON arrays: each element is a document, and a damaged element costs no others."""

import gzip
import json
from pathlib import Path

import pytest

from pipeline.readers import JsonArrayReader, JsonlReader, recognise, sniff
from preprocessing.errors import BadInput
from tests.pipeline.readers.reading import counted, read, texts, write

TEXTS = [f'Text {number} of them,\nwith [brackets], {{braces}}, "marks" and a \\ é 字.' for number in range(300)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_an_element_is_a_document(tmp_path: Path, indent: int | None, ascii_only: bool) -> None:
    content = json.dumps([{"id": 1, "text": text} for text in TEXTS], indent=indent, ensure_ascii=ascii_only) + "\n"
    path = write(tmp_path, content, "docs.json")
    assert recognise(path) == [JsonArrayReader(path=path)]
    assert counted(sniff(path), len(content.encode())) == TEXTS


def test_an_array_of_strings_has_one_document_per_string(tmp_path: Path) -> None:
    content = json.dumps(TEXTS)
    assert counted(sniff(write(tmp_path, content, "a.json")), len(content)) == TEXTS


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a", "A.JSON", "a.jsonl", "a.json.gz"])
def test_an_array_is_recognized_by_its_beginning(tmp_path: Path, name: str) -> None:
    content = b'\n [\n {"text": "One."}, {"text": "Two."}]'
    path = write(tmp_path, gzip.compress(content) if name.endswith(".gz") else content, name)
    assert sniff(path) == JsonArrayReader(path=path)
    assert counted(sniff(path), len(content)) == ["One.", "Two."]


def test_elements_are_independent_of_the_read_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[object] = [{"text": text, "n": 12345678} for text in TEXTS[:20]]
    values += [123456789, True, None, [], "words", 1.5e10]
    content = json.dumps(values, ensure_ascii=False, indent=1)
    path = write(tmp_path, content, "a.json")
    expected = read(JsonArrayReader(path=path))
    assert len(expected) == 27
    for size in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr("pipeline.readers.json_array._READ", size)
        assert read(JsonArrayReader(path=path)) == expected
        assert counted(JsonArrayReader(path=path), len(content.encode())) == [
            *TEXTS[:20],
            *["<no_field>"] * 4,
            "words",
            "<no_field>",
        ]


class TestTextKeys:
    def test_a_text_key_may_have_dots(self, tmp_path: Path) -> None:
        path = write(tmp_path, '[{"a": {"body": "One."}, "id": 1}, {"a.body": "Two."}, {"a": 1}]', "a.json")
        assert sniff(f"{path}#a.body") == JsonArrayReader(path=path, text_key="a.body")
        assert counted(sniff(f"json:{path}#a.body"), Path(path).stat().st_size) == ["One.", "Two.", "<no_field>"]

    def test_a_missing_text_key_is_an_error_with_the_existing_keys(self, tmp_path: Path) -> None:
        path = write(tmp_path, '[{"id": 1, "body": "One."}]', "a.json")
        with pytest.raises(
            BadInput,
            match=r"^[^\n]+ missing key 'text', expected one of 'body', 'id'; select a key with --data[^\n]+$",
        ):
            sniff(path)

    def test_spans_are_read(self, tmp_path: Path) -> None:
        path = write(tmp_path, '[{"text": "one two", "names": [[0, 3]]}, {"text": "x", "names": [[0, 9]]}]', "a.json")
        found = read(JsonArrayReader(path=path, spans_key="names"))
        assert [(record.spans, record.fault) for record in found[:2]] == [(((0, 3),), ""), ((), "bad_spans")]

    @pytest.mark.parametrize("name", ["a.json", "a.txt", "a.ipynb"])
    def test_an_object_over_several_lines_is_refused_with_a_remedy(self, tmp_path: Path, name: str) -> None:
        path = write(tmp_path, '{\n  "data": [\n    {"text": "One."}\n  ]\n}\n', name)
        with pytest.raises(BadInput, match=r"^[^\n]+one object spans several lines[^\n]+JSON array[^\n]+$"):
            sniff(path)


class TestDamage:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ('["a", "b"', ["a", "b", "<truncated>"]),
            ('["a", "b", ', ["a", "b", "<truncated>"]),
            ('["a", "b', ["a", "<truncated>"]),
            ('[{"text": "a"}, {"text": "b"', ["a", "<truncated>"]),
            ('[{"text": "a"}, {"text": nul', ["a", "<truncated>"]),
            ('[{"text": "a"}, {"text": "\\u12', ["a", "<truncated>"]),
            ('[{"text": "a"}, {"text" "b"}, {"text": "c"}, {"text": "d"}]', ["a", "<bad_json>", "c", "d"]),
            ('[{"text": "a"}, {"text": "un"quoted"}, {"text": "c"}, {"text": "d"}]', ["a", "<bad_json>", "c", "d"]),
            ('[{"text": "line\nend"}, {"text": "c"}]', ["<bad_json>", "c"]),
            ('["a", "line\nend", "c"]', ["a", "<bad_json>", "c"]),
            ('["a", oops, {"text": "c"}]', ["a", "<bad_json>", "c"]),
            ("[{'text': 'a'}, {'text': 'b'}]", ["<bad_json>"]),
            ('[{"text": x, "l": [{"n": 1}, {"n": 2}]}, {"text": "c"}]', ["<bad_json>", "c"]),
            ('[{"text": "a"}] and more', ["a", "<bad_json>"]),
            ('["a", "b"]\n["c", "d"]\n["e", "f"]\n', ["a", "b", *["<no_field>"] * 4]),
            ('[{"text": "a"}]\n[{"text": "b"}]\n[]\n', ["a", "b"]),
            ("[]", []),
            ("[ ]\n", []),
            ('{"text": "a"}\n{"text": "b"}\n', ["<bad_json>"]),
            ("[", ["<truncated>"]),
            ("\n", ["<truncated>"]),
            ("[,,]", ["<bad_json>"]),
            ('["a",]', ["a"]),
            ('[{"text": "a", "text": "b"}]', ["<duplicate_key>"]),
            (
                '[{"text": "a"}, 5, null, [1], {"text": 5}, {}]',
                ["a", *["<no_field>"] * 3, "<not_a_string>", "<no_field>"],
            ),
            ('["a", "' + "\\ud800" + '"]', ["a", "\ufffd"]),
        ],
    )
    def test_only_the_damaged_part_is_rejected(self, tmp_path: Path, content: str, expected: list[str]) -> None:
        path = write(tmp_path, content, "a.json")
        assert counted(JsonArrayReader(path=path), len(content.encode())) == expected

    def test_an_error_is_reported_at_its_position(self, tmp_path: Path) -> None:
        content = '[{"text": "a"}, {"text" "b"}, {"text": "c"}]'
        (bad,) = [
            record
            for record in read(JsonArrayReader(path=write(tmp_path, content, "a.json")))
            if record.fault == "bad_json"
        ]
        assert content[bad.start :].startswith(', {"text" "b"}')
        assert bad.snippet.startswith(b'{"text" "b"}')

    def test_an_error_after_many_elements_costs_one_element(self, tmp_path: Path) -> None:
        elements = [json.dumps({"text": text}) for text in TEXTS * 20]
        elements[3000] = '{"text": broken}'
        content = f"[{', '.join(elements)}]"
        found = counted(JsonArrayReader(path=write(tmp_path, content, "a.json")), len(content))
        assert (len(found), found.count("<bad_json>"), found[3000]) == (6000, 1, "<bad_json>")

    @pytest.mark.parametrize(
        "long",
        [
            json.dumps({"text": 'x"}]\\' * 20_000}),
            json.dumps({"text": "x", "more": [{"a": "]}"}] * 20_000}),
            json.dumps("x\\" * 50_000),
        ],
    )
    @pytest.mark.parametrize("size", [1 << 18, 1001])
    def test_a_too_long_element_costs_no_others(
        self, tmp_path: Path, long: str, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pipeline.readers.json_array._READ", size)
        content = f'["before", {long}, {{"text": "after"}}, "last"]'
        path = write(tmp_path, content, "a.json")
        found = counted(JsonArrayReader(path=path), len(content), max_chars=1000)
        assert found == ["before", "<too_long>", "after", "last"]

    def test_endless_brackets_are_rejected(self, tmp_path: Path) -> None:
        content = "[" * 1_000_000
        assert counted(JsonArrayReader(path=write(tmp_path, content, "a.json")), len(content))[0] == "<too_long>"
        content = '[{"text": ' + "[" * 99_999 + "]" * 99_999 + '}, {"text": "after"}]'
        assert counted(JsonArrayReader(path=write(tmp_path, content, "a.json")), len(content)) == [
            "<bad_json>",
            "after",
        ]

    def test_a_truncated_compressed_array_is_reported(self, tmp_path: Path) -> None:
        whole = gzip.compress(json.dumps([f"{n} {n * n} words" for n in range(5000)]).encode())
        found = read(JsonArrayReader(path=write(tmp_path, whole[: len(whole) // 2], "a.json.gz")))
        assert [record.fault for record in found[-2:]] == ["truncated", "truncated"]
        assert len(found) > 1000


class TestEncodings:
    WORDS = "Старый город стоит на берегу реки, и летом туда приезжают люди."

    @pytest.mark.parametrize("indent", [0, None])
    @pytest.mark.parametrize(
        "encoding", ["cp1251", "koi8-r", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"]
    )
    def test_an_array_in_any_encoding_is_read(self, tmp_path: Path, encoding: str, indent: int | None) -> None:
        content = json.dumps([{"text": self.WORDS}] * 5, ensure_ascii=False, indent=indent).encode(encoding)
        source = sniff(write(tmp_path, content, "a.json"))
        assert isinstance(source, JsonArrayReader)
        assert texts(source) == [self.WORDS] * 5
        actual = {record.encoding for record in read(source)}
        assert actual == {""} if encoding == "utf-8-sig" else all(name.startswith(encoding[:6]) for name in actual)

    def test_invalid_utf8_is_counted(self, tmp_path: Path) -> None:
        content = json.dumps([self.WORDS] * 9, ensure_ascii=False).encode()[:-1] + b',\n"caf\xe9"]'
        path = write(tmp_path, content, "a.json")
        last = [record for record in read(JsonArrayReader(path=path)) if not record.fault][-1]
        assert (last.text, last.repaired) == ("caf\ufffd", 1)
        assert counted(JsonArrayReader(path=path), len(content))[-1] == "caf\ufffd"

    def test_a_given_encoding_is_used(self, tmp_path: Path) -> None:
        path = write(tmp_path, '["да"]'.encode("cp866"), "a.json")
        assert texts(JsonArrayReader(path=path, encoding="cp866")) == ["да"]


def test_arrays_and_json_lines_in_a_directory_are_each_read_once(tmp_path: Path) -> None:
    write(tmp_path, '[{"text": "One."}]', "a.json")
    write(tmp_path, '{"text": "Two."}\n', "b.jsonl")
    found = recognise(str(tmp_path))
    assert {(type(source), source.extensions) for source in found} == {
        (JsonArrayReader, (".json",)),
        (JsonlReader, (".jsonl",)),
    }  # type: ignore[union-attr]
    assert sorted(texts(*found)) == ["One.", "Two."]
