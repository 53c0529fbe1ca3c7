"""`semantics: compat` from a file to rows on disk: what the reference BERT script makes of its own sample text."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.jobs import encode, train_vocab
from pipeline.readers import Text
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import Static, materialise, read_text
from preprocessing.choose import Tokens
from preprocessing.compat import Instance
from preprocessing.rewrite import Cloze
from preprocessing.sampling import Sampling
from preprocessing.schema import IGNORE
from preprocessing.segment import Pair
from preprocessing.vocab import WordPiece
from tests.golden import reference

HERE = ("--direct_running_mode=in_memory",)


@pytest.fixture
def rows(shared: Path, tmp_path: Path) -> list[Instance]:
    """The rows on disk, in order."""
    corpus = Corpus(
        name="sample",
        sources=(Text(path=str(shared / "downstream/fixtures/bert/sample_text.txt"), unit="paragraphs"),),
        clean=Clean(min_chars=1, repair=False),
        dedup=Dedup(exact=False),
        order="input",
        sentences="lines",
        validation=0,
        test=0,
    )
    read_text(corpus, tmp_path / "text", HERE)
    vocab = WordPiece(file=str(shared / "tokenizers/bert-uncased/vocab.txt"))
    train_vocab(tmp_path / "text", vocab, tmp_path / "vocab", HERE)
    encode(tmp_path / "text", tmp_path / "vocab", corpus, tmp_path / "corpus", HERE)
    static = Static(
        corpus=str(tmp_path / "corpus"),
        split="train",
        sampling=Sampling(
            segment=Pair(negative="random", short=0.1),
            choose=Tokens(rate=0.15, most=20),
            rewrite=Cloze(swap_from="vocabulary"),
            seed=12345,
            duplicates=10,
            semantics="compat",
        ),
        length=128,
    )
    said = materialise(static, tmp_path / "rows", HERE)
    found = list[Instance]()
    for file in said["files"]:
        with pa.memory_map(str(tmp_path / "rows" / file["name"])) as source:
            found += map(_instance, pa.ipc.open_file(source).read_all().to_pylist())
    return found


def _instance(row: dict) -> Instance:
    labels = np.array(row["labels"])
    at = np.flatnonzero(labels != IGNORE)
    return Instance(row["ids"], row["segments"], row["pair_label"], at.tolist(), labels[at].tolist())


@pytest.mark.shared
def test_the_rows_of_its_sample_text_are_those_of_the_reference_bert(rows: list[Instance]) -> None:
    wanted = dict(json.loads(reference.FILE.read_text())["bert sample"]["runs"][0])
    flags = {"max_seq_length": 128, "random_seed": 12345, "dupe_factor": 10, "do_whole_word_mask": False}
    assert wanted.pop("flags") == flags
    assert reference.facts(rows) == wanted
