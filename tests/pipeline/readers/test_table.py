import json
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.readers import Record, TableReader, list_unread_files, plan_splits, recognise, records, sniff
from pipeline.readers.files import InputFile, find
from pipeline.readers.table import documents, part_sizes
from preprocessing.errors import BadInput
from tests.pipeline.formats import write_arrow, write_parquet
from tests.pipeline.readers.reading import texts

SOURCE = TableReader(path="")
TEXTS = [f"Text number {number}." for number in range(10)]


def _read(path: Path | str, spans: str = "", limit: int = 1000) -> list[Record]:
    source = TableReader(path=str(path), spans_key=spans)
    return [record for (file,) in source.files() for record in documents(file, 0, None, source, limit)]


def _write(path: Path, kind: str) -> None:
    if kind == "parquet":
        write_parquet(path, TEXTS, 3)
    else:
        write_arrow(path, TEXTS, 3, stream=kind == "arrows")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows"])
class TestKinds:
    def test_each_row_is_a_document_with_its_number_and_size(self, tmp_path: Path, kind: str) -> None:
        _write(tmp_path / f"a.{kind}", kind)
        expected = [Record(f"a.{kind}", len(text), text, start=row) for row, text in enumerate(TEXTS)]
        assert _read(tmp_path) == expected

    def test_parts_contain_each_row_once(self, tmp_path: Path, kind: str) -> None:
        _write(tmp_path / f"a.{kind}", kind)
        (file,) = find(str(tmp_path))
        number = len(part_sizes(file, SOURCE))
        assert number == 4
        found = [(r.start, r.text) for part in range(number) for r in documents(file, part, part + 1, SOURCE, 99)]
        assert found == list(enumerate(TEXTS))

    def test_a_missing_column_is_an_error_with_the_existing_columns(self, tmp_path: Path, kind: str) -> None:
        _write(tmp_path / f"a.{kind}", kind)
        with pytest.raises(
            BadInput, match=r"^[^\n]+ missing column 'body', expected one of [^\n]*'text'[^\n]*; set `text_key`[^\n]+$"
        ):
            part_sizes(find(str(tmp_path))[0], TableReader(path="", text_key="body"))

    def test_a_truncated_file_ends_after_its_complete_batches(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / f"a.{kind}"
        _write(path, kind)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2 if kind == "parquet" else whole.index(b"number 7")])
        *found, last = _read(tmp_path)
        assert [record.text for record in found] == ([] if kind == "parquet" else TEXTS[:6])
        assert (last.fault, last.size) == ("truncated", 0)

    def test_a_url_is_read_like_a_file(self, tmp_path: Path, kind: str) -> None:
        _write(tmp_path / f"a.{kind}", kind)
        fsspec.filesystem("memory").pipe(f"/tables/a.{kind}", (tmp_path / f"a.{kind}").read_bytes())
        assert _read(f"memory://tables/a.{kind}") == _read(tmp_path / f"a.{kind}")


@pytest.mark.parametrize("split", [True, False])
def test_a_datasets_directory_is_read_by_its_index_without_caches(tmp_path: Path, split: bool) -> None:
    import datasets  # slow to import

    saved = datasets.Dataset.from_dict({"text": TEXTS})
    whole = datasets.DatasetDict({"train": saved, "test": saved.select(range(2))}) if split else saved
    whole.save_to_disk(str(tmp_path))
    write_arrow(next(tmp_path.rglob("state.json")).with_name("cache-1.arrow"), ["cached"], 1)
    assert sorted(record.text for record in _read(tmp_path)) == sorted(TEXTS)
    prefix = "train/" if split else ""
    assert f"{prefix}data-00000-of-00001.arrow" in {record.source for record in _read(tmp_path)}
    if split:
        files = TableReader(path=str(tmp_path), split="test").files()
        assert [file.label for (file,) in files] == ["test/data-00000-of-00001.arrow"]
        assert "split 'train'; not read: test (" in sniff(str(tmp_path)).describe()
        with pytest.raises(
            BadInput, match=r"^[^\n]+ invalid split: got 'validation', expected one of train, test; set[^\n]+$"
        ):
            TableReader(path=str(tmp_path), split="validation").files()


def _save_with_caches(folder: Path) -> list[str]:
    """Save a dataset with `datasets`, let `map` and `shuffle` write their caches beside it; returns its texts."""
    import datasets  # slow to import

    texts = [f"document {number}" for number in range(6)]
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(str(folder))
    mapped = datasets.load_from_disk(str(folder)).map(lambda row: {"text": row["text"] + "!"})
    mapped.map(lambda row: {"size": len(row["text"])}).shuffle(seed=1)
    return texts


def test_caches_of_datasets_are_neither_read_nor_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = _save_with_caches(tmp_path / "saved")
    for name in ("README.md", "LICENSE", ".gitattributes", ".cache/huggingface/a.lock"):
        (tmp_path / "saved" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "saved" / name).write_text("---\nlicense: mit\n---\n")
    assert len(list(tmp_path.rglob("cache-*.arrow"))) >= 3
    for path in (tmp_path / "saved", tmp_path, tmp_path / "saved" / "*.arrow"):
        found = recognise(str(path))
        assert sorted(record.text for split in plan_splits(found) for record in records(split, 99)) == sorted(texts)
        assert list_unread_files(found) == []
    assert caplog.text == ""


def test_a_cache_directory_of_load_dataset_is_read_once(tmp_path: Path) -> None:
    import datasets  # slow to import

    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset("json", data_files=str(tmp_path / "a.jsonl"), cache_dir=cache, split="train")
    loaded.map(lambda row: {"text": row["text"] + "!"})
    (source,) = recognise(cache)
    assert sorted(record.text for split in plan_splits([source]) for record in records(split, 99)) == sorted(TEXTS)
    assert list_unread_files([source]) == []


def test_a_cache_that_is_named_is_read(tmp_path: Path) -> None:
    write_arrow(path := tmp_path / "cache-1a18d719add2d3b2.arrow", ["cached"], 1)
    assert [record.text for record in _read(path)] == ["cached"]
    assert [file.label for (file,) in TableReader(path=f"{tmp_path}/cache-*.arrow").files()] == [path.name]
    with pytest.raises(BadInput, match=r"no \.parquet or [^\n]+ in this directory"):
        TableReader(path=str(tmp_path)).files()


def test_a_datasets_directory_is_recognized_by_its_index(tmp_path: Path) -> None:
    import datasets  # slow to import

    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(str(tmp_path))
    # this file sorts first, but the index does not list it
    pq.write_table(pa.table({"no_text": [1]}), tmp_path / "a.arrow")
    assert sniff(str(tmp_path)) == TableReader(path=str(tmp_path))
    (tmp_path / "state.json").write_text('{"_data_files": []}')
    with pytest.raises(BadInput, match=r"^[^\n]+: dataset without files[^\n]+$"):
        sniff(str(tmp_path))


def test_non_strings_and_too_long_strings_are_dropped(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["one", None, "x" * 2000]}), tmp_path / "a.parquet")
    assert _read(tmp_path) == [
        Record("a.parquet", 3, "one"),
        Record("a.parquet", 0, fault="not_a_string", start=1),
        Record("a.parquet", 2000, fault="too_long", start=2, snippet=b"x" * 200),
    ]
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "a.parquet")
    assert {record.fault for record in _read(tmp_path)} == {"not_a_string"}


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.binary()]
)
def test_all_string_types_are_text(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"text": pa.array(TEXTS).cast(kind)})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert [record.text for record in _read(tmp_path)] == TEXTS


def test_invalid_utf8_in_a_string_is_repaired_and_counted(tmp_path: Path) -> None:
    texts = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    assert _read(tmp_path) == [Record("a.parquet", 4, "caf\ufffd", 1)]


def test_spans_are_character_ranges(tmp_path: Path) -> None:
    spans = [[[0, 3], [4, 7]], None, [[5, 99]]]
    pq.write_table(pa.table({"text": ["one two"] * 3, "spans": spans}), tmp_path / "a.parquet")
    found = _read(tmp_path, spans="spans")
    assert [(record.spans, record.fault) for record in found] == [(((0, 3), (4, 7)), ""), ((), ""), ((), "bad_spans")]


def test_offsets_beyond_the_end_of_a_damaged_file_are_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_arrow(path, TEXTS, 100)
    content = bytearray(path.read_bytes())
    at = content.index(TEXTS[0].encode())
    ends = content.rindex(len(TEXTS[0]).to_bytes(4, "little"), 0, at)  # the second offset, just before the texts
    content[ends : ends + 4] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(content)
    assert [record.fault for record in documents(InputFile("", str(path), len(content), 0), 0, None, SOURCE, 99)] == [
        "truncated"
    ]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_duplicate_text_column_is_refused_and_other_duplicates_are_not(tmp_path: Path, kind: str) -> None:
    """This used to be a KeyError with a traceback."""
    for names, is_refused in ((["text", "text", "x"], True), (["text", "x", "x"], False)):
        table = pa.Table.from_arrays([pa.array(["Words."])] * 3, names=names)
        path = str(tmp_path / f"{is_refused}.{kind}")
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        if not is_refused:
            assert texts(*recognise(path)) == ["Words."]
            continue
        for given in (path, f"table:{path}"):
            with pytest.raises(BadInput, match=r"ambiguous column: 2 columns are named 'text'; rename"):
                plan_splits(recognise(given))
