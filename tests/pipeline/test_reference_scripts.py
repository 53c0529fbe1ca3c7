"""A token store has the documents that the reference BERT script reads from its sample text."""

import json
from pathlib import Path

import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import TextReader
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import read_text
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab, WordPiece
from tests.golden import reference
from tests.preprocessing import reference_scripts

HERE = ("--direct_running_mode=in_memory",)


@pytest.mark.shared
def test_the_store_has_the_documents_of_the_reference_bert(shared: Path, tmp_path: Path) -> None:
    corpus = Corpus(
        name="sample",
        sources=(
            TextReader(path=str(shared / "downstream/fixtures/bert/sample_text.txt"), document_unit="paragraphs"),
        ),
        clean=Clean(min_chars=1, fix_text=False),
        dedup=Dedup(exact=False),
        document_order="input",
        sentence_boundaries="lines",
        validation_ratio=0,
        test_ratio=0,
    )
    read_text(corpus, tmp_path / "text", HERE)
    vocab = WordPiece(path=str(shared / "tokenizers/bert-uncased/vocab.txt"))
    train_vocab(tmp_path / "text", vocab, tmp_path / "vocab", HERE)
    encode_corpus(tmp_path / "text", tmp_path / "vocab", corpus, tmp_path / "corpus", HERE)
    documents = reference_scripts.documents_of(TokenStore.open(tmp_path / "corpus", "train").shards)
    wanted = dict(json.loads(reference.FILE.read_text())["bert sample"]["runs"][0])
    flags = {"max_seq_length": 128, "random_seed": 12345, "dupe_factor": 10, "do_whole_word_mask": False}
    assert wanted.pop("flags") == flags
    assert reference.facts(reference_scripts.bert(documents, Vocab.load(tmp_path / "vocab"))) == wanted
