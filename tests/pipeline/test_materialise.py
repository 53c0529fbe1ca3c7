from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline import materialise as materialise_module
from pipeline.materialise import Static, materialise
from preprocessing.choose import Nothing, Tokens
from preprocessing.errors import BadInput
from preprocessing.rewrite import Cloze, Shift
from preprocessing.rows import Rows
from preprocessing.segment import Packed, Pair
from preprocessing.shards import Store
from preprocessing.vocab import Vocab

from .conftest import story
from .test_jobs import build, content, corpus_of

BERT: dict[str, Any] = {"segment": Pair(negative="random"), "choose": Tokens(), "rewrite": Cloze(), "duplicates": 3}
GPT: dict[str, Any] = {"segment": Packed(fill="tokens"), "choose": Nothing(), "rewrite": Shift(), "duplicates": 1}


@pytest.fixture
def corpus(write_jsonl: Callable[..., Path], tmp_path: Path) -> Path:
    build(corpus_of(write_jsonl([story(number) for number in range(60)])), tmp_path)
    return tmp_path / "corpus"


def _static(corpus: Path, parts: dict[str, Any]) -> Static:
    return Static(corpus=str(corpus), split="train", length=48, seed=3, **parts)


@pytest.mark.parametrize("parts", [BERT, GPT], ids=["bert", "gpt"])
def test_row_i_on_disk_is_row_i_of_the_loader(
    corpus: Path, tmp_path: Path, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(materialise_module, "_AT_ONCE", 7)
    monkeypatch.setattr(materialise_module, "_ROWS_BYTES", 10_000)
    said = materialise(_static(corpus, parts), tmp_path / "rows")
    store = Store.open(corpus, "train")
    loader = Rows(store, Vocab.load(store.vocab_dir), length=48, seed=3, **parts)
    tables = [pa.ipc.open_file(tmp_path / "rows" / file["name"]).read_all() for file in said["files"]]
    found = pa.concat_tables(tables)
    wanted = [loader.row(copy, sample) for copy in range(loader.duplicates) for sample in range(loader.count(copy))]
    assert len(tables) > 1
    assert found.num_rows == len(wanted) == sum(said["rows"])
    for name in found.column_names:
        for column, row in zip(found[name].to_pylist(), wanted, strict=True):
            np.testing.assert_array_equal(column, row[name], err_msg=name)
    assert {"ids", "labels"} <= set(found.column_names)
    assert ("pair_label" in found.column_names) == (parts is BERT)


def test_rows_are_the_same_bytes_from_run_to_run(corpus: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        materialise(_static(corpus, BERT), tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_rows_that_are_done_are_not_made_again(corpus: Path, tmp_path: Path) -> None:
    materialise(_static(corpus, BERT), tmp_path / "rows")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").glob("*.arrow")}
    materialise(_static(corpus, BERT), tmp_path / "rows")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").glob("*.arrow")}


def test_another_seed_gives_other_rows_in_the_same_folder(corpus: Path, tmp_path: Path) -> None:
    materialise(_static(corpus, BERT), tmp_path / "rows")
    first = content(tmp_path / "rows")
    materialise(Static(corpus=str(corpus), split="train", length=48, seed=4, **BERT), tmp_path / "rows")
    assert content(tmp_path / "rows") != first


def test_fresh_masks_cannot_be_written_down(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^objective.duplicates is 0, [^\n]+$"):
        materialise(_static(corpus, BERT | {"duplicates": 0}), tmp_path / "rows")
