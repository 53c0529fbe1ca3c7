"""Paths for usual documents give the result of the general ones."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.readers import jsonl
from pipeline.steps.dedup import ADDRESS, ELSEWHERE, _group_by_key, in_order, occurs_again
from pipeline.steps.documents import Document, batches, documents, documents_at, write_documents
from pipeline.steps.plan import _take
from preprocessing.errors import BadInput
from preprocessing.text import decode, normalize, repair, sentence_ends, text_key, tidy

CHARACTERS = [*"ab .&\n\t\r\x0b\x0c\x1b\x1c\x85", "\x00", "\xa0", "\u3000", "e\u0301", "\xe9", "\u200b", "\u2028", "  "]


def make_texts(number: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(CHARACTERS, rng.integers(0, 12))) for _ in range(number)]


def test_a_tidy_line_is_what_normalization_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*make_texts(1_500), "plain words.", " lead", "trail ", "two  blanks"]
    fast = [[normalize(text, how) for text in texts] for how in ("collapse", "keep")]
    monkeypatch.setattr(tidy, "_is_tidy_line", lambda text: False)
    assert fast == [[normalize(text, how) for text in texts] for how in ("collapse", "keep")]


def test_damage_of_ascii_text_begins_with_two_characters() -> None:
    texts = [*make_texts(1_500), "AT&T", "&amp;", "&#65;", "\x1b[0m"]
    assert all(repair.is_damaged(text) == (repair._DAMAGE.search(text) is not None) for text in texts if text.isascii())


def test_odd_characters_are_found_in_lines_as_in_the_whole_text() -> None:
    assert not any(repair._ODD.fullmatch(char) for char in map(chr, range(128)))
    rng = np.random.default_rng(0)
    characters = [*"ab \n\n", "\xc2", "\xc3", "\xa9", "\xb0", "\u0153", "\u0152", "\u20ac", "\u2019", "\u4e00"]
    for _ in range(2_000):
        text = "".join(rng.choice(characters, rng.integers(0, 12)))
        found = [match.span() for match in repair._find_odd(text)]
        assert found == [match.span() for match in repair._ODD.finditer(text)]


def test_layout_is_found_by_any_of_its_marks() -> None:
    marks = ("  ", "\t", "\n ", " \n", "\n\n\n", "\x0b", "\x0c", "\xa0", "\u3000")
    for text in make_texts(1_500):
        assert sentence_ends._has_layout(text) == (any(mark in text for mark in marks) or text[:1].isspace())


def test_a_language_is_guessed_as_from_the_set_of_all_words() -> None:
    def guess_slowly(text: str) -> str:
        words = {*text[:1000].lower().split()}
        found = {code: len(words & common) for code, common in sentence_ends._COMMON.items()}
        most = max(found, key=found.__getitem__)
        if found["en"] > 6:
            return "en"
        return most if found[most] >= 3 else ""

    rng = np.random.default_rng(0)
    words = [word for code in ("en", "en", "de", "fr") for word in sorted(sentence_ends._COMMON[code])]
    for length in rng.integers(0, 120, 300).tolist():
        text = " ".join(rng.choice([*words, *["Other"] * len(words), "y" * 70], length))
        assert sentence_ends.guess_language(text) == guess_slowly(text)


@pytest.mark.parametrize(
    "line", ['{"a": 1}', '{"a": 1}\n', '{"a": 1} \n', '{"a": 1}x', '{"a": 1', "{", "[1]", '{"a": NaN}']
)
def test_objects_are_read_as_by_json(line: str) -> None:
    def read(load: object) -> str:
        try:
            return repr(load(line))  # type: ignore[operator]
        except json.JSONDecodeError as error:
            return f"{error.msg} {error.pos}"

    assert read(jsonl.loads) == read(json.loads)
    assert jsonl.loads(f'{{"a": {"1" * 5000}}}') == {"a": float("inf")}


def test_a_byte_order_mark_is_removed_once() -> None:
    mark = "\ufeff".encode()
    for data in (b"", b"a", mark, mark + b"a", mark + mark, b"a" + mark, b"caf\xe9", mark + b"\xff"):
        assert decode(data)[0] == data.decode("utf-8-sig", errors="replace")


def test_addresses_with_equal_first_halves_are_ordered_by_the_other_fields() -> None:
    rng = np.random.default_rng(0)
    for high in (3, 1 << 62):
        address_N = np.zeros(3_000, ADDRESS)
        for name in ADDRESS.names or ():
            address_N[name] = rng.integers(0, 3, len(address_N))
        address_N["high"] = rng.integers(0, high, len(address_N))
        address_N["part"] += np.where(rng.random(len(address_N)) < 0.2, ELSEWHERE, 0).astype(np.uint32)
        place = [address_N[name] for name in ("row", "part", "source", "group")]
        order_N = np.lexsort([*place, address_N["part"] < ELSEWHERE, address_N["low"], address_N["high"]])
        assert np.array_equal(in_order(address_N), address_N[order_N])
    assert len(in_order(address_N[:0])) == 0


def test_hashes_that_occur_again_are_found() -> None:
    rng = np.random.default_rng(0)
    for most in (10, 1 << 63):
        hash_N = rng.integers(0, most, 200, np.uint64)
        assert occurs_again(hash_N).tolist() == [hash_N.tolist().count(hash) > 1 for hash in hash_N.tolist()]
    assert occurs_again(hash_N[:0]).tolist() == []


def test_groups_of_keys_have_their_records_in_order() -> None:
    address_N = np.zeros(500, ADDRESS)
    address_N["high"] = np.random.default_rng(0).integers(0, 1 << 63, 500)
    address_N["row"] = np.arange(500)
    found = dict(_group_by_key(address_N))
    group_N = address_N["high"].astype(np.uint64) >> np.uint64(58)
    assert found == {group: address_N[group_N == group].tobytes() for group in np.unique(group_N).tolist()}


def test_documents_are_taken_in_the_order_of_the_plan(tmp_path: Path) -> None:
    written = [Document(text, "a", text_key(text), (0, 1), {"id": text[:1]}) for text in ("one", "two", "three")]
    write_documents(tmp_path / "text.arrow", written, ["id"])
    (batch,) = batches(tmp_path / "text.arrow")
    taken = _take([(tmp_path, batch), (tmp_path, batch)], np.array([1, 0, 1, 0]), np.array([2, 0, 0, 2]))
    assert taken == [written[2], written[0], written[0], written[2]]
    assert list(documents(batch)) == written
    for name, value in (("key", bytes(16)), ("check", 5), ("text", "other")):
        column = [value, *batch.column(name).to_pylist()[1:]]
        index = batch.schema.get_field_index(name)
        damaged = batch.set_column(index, batch.schema.field(index), pa.array(column, batch.schema.field(index).type))
        assert documents_at(damaged, np.array([1, 2]), tmp_path / "text.arrow") == written[1:]
        with pytest.raises(BadInput, match="damaged"):
            documents_at(damaged, np.array([1, 0]), tmp_path / "text.arrow")
