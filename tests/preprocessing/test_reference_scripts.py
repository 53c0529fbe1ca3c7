"""The oracle equals the real scripts; tests/golden/reference.py wrote their output to reference_scripts.json."""

import inspect
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.tokenization import Unigram, Vocab, WordPiece, train
from tests.golden import reference
from tests.preprocessing import reference_scripts
from tests.preprocessing.toy import shard

NAMES = {  # flags of the reference and the matching parameters of the oracle
    "max_seq_length": "length",
    "random_seed": "seed",
    "dupe_factor": "duplicates",
    "short_seq_prob": "short",
    "masked_lm_prob": "rate",
    "max_predictions_per_seq": "most",
    "do_whole_word_mask": "whole_word",
    "ngram": "longest",
    "favor_shorter_ngram": "favor_short",
}
BERT, ALBERT = reference_scripts.bert, reference_scripts.albert


@cache
def golden() -> dict[str, Any]:
    return json.loads(reference.FILE.read_text())


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    file = tmp_path_factory.mktemp("made_up") / "vocab.txt"
    file.write_text("\n".join(reference.PIECES) + "\n")
    return train(WordPiece(vocab_size=len(reference.PIECES), path=str(file)), [])


def encode_documents(text: str, vocab: Vocab) -> list[list[list[int]]]:
    """One sentence per line, a blank line between documents; lines without a token are left out."""
    documents = [[vocab.encode(line) for line in document.split("\n")] for document in text.split("\n\n")]
    return [[ids for ids in document if ids] for document in documents]


def run_oracle(flags: dict[str, Any], documents: list, vocab: Vocab) -> dict[str, Any]:
    """Return the facts of a run of the oracle with these flags of the reference."""
    keys = {NAMES[name]: value for name, value in flags.items() if name in NAMES}
    if "numpy_seed" not in flags:
        return reference.facts(BERT(documents, vocab, **keys))
    keys["ngram_rng"] = np.random.RandomState(flags["numpy_seed"])
    keys["negative"] = "random" if flags.get("random_next_sentence") else "swap"
    return reference.facts(ALBERT(documents, vocab, **keys))


def check(corpus: str, documents: list, vocab: Vocab, run: int) -> None:
    expected = dict(golden()[corpus]["runs"][run])
    assert run_oracle(expected.pop("flags"), documents, vocab) == expected


@pytest.mark.parametrize("run", range(len(reference.BERT_RUNS)))
def test_the_oracle_equals_reference_bert_on_a_made_up_text(made_up: Vocab, run: int) -> None:
    check("bert made up", encode_documents(reference.made_up_text(), made_up), made_up, run)


@pytest.mark.parametrize("run", range(len(reference.ALBERT_RUNS)))
def test_the_oracle_equals_reference_albert_on_a_made_up_text(made_up: Vocab, run: int) -> None:
    check("albert made up", encode_documents(reference.made_up_text(), made_up), made_up, run)


@pytest.fixture(scope="module")
def uncased(shared: Path) -> Vocab:
    return train(WordPiece(path=str(shared / "tokenizers" / "bert-uncased" / "vocab.txt")), [])


@pytest.fixture(scope="module")
def sample(shared: Path, uncased: Vocab) -> list[list[list[int]]]:
    text = (shared / "downstream" / "fixtures" / "bert" / "sample_text.txt").read_text(encoding="utf-8")
    return encode_documents(text, uncased)


@pytest.mark.shared
def test_token_ids_of_the_sample_text_equal_the_reference(sample: list) -> None:
    assert sample == golden()["bert sample"]["documents"]


@pytest.mark.shared
@pytest.mark.parametrize("run", range(len(reference.BERT_RUNS)))
def test_the_oracle_equals_reference_bert_on_the_sample_text(uncased: Vocab, sample: list, run: int) -> None:
    check("bert sample", sample, uncased, run)


@pytest.mark.shared
@pytest.mark.parametrize("run", range(len(reference.ALBERT_RUNS)))
def test_the_oracle_equals_reference_albert_on_the_sample_text(uncased: Vocab, sample: list, run: int) -> None:
    check("albert sample", sample, uncased, run)


@pytest.mark.one_in(3)
@pytest.mark.shared
@pytest.mark.parametrize("run", range(len(reference.ALBERT_RUNS)))
def test_the_oracle_equals_reference_albert_on_published_tokens(shared: Path, run: int) -> None:
    # The documents come from ALBERT's own tokenizer, which separates digits from commas after SentencePiece.
    pieces = train(Unigram(vocab_size=30000, path=str(shared / "tokenizers" / "albert" / "spiece.model")), [])
    check("albert sample pieces", golden()["albert sample pieces"]["documents"], pieces, run)


@pytest.mark.parametrize("make", [BERT, ALBERT])
def test_another_seed_gives_other_instances(made_up: Vocab, make: Callable) -> None:
    documents = encode_documents(reference.made_up_text(), made_up)
    one, same, other = (make(documents, made_up, length=64, duplicates=2, seed=seed) for seed in (3, 3, 4))
    assert one == same
    assert one != other


def test_the_oracle_has_the_defaults_of_the_references() -> None:
    def defaults(make: Callable) -> dict[str, Any]:
        return {name: key.default for name, key in inspect.signature(make).parameters.items() if key.kind == 3}

    common = {"seed": 12345, "short": 0.1, "rate": 0.15, "most": 20}
    assert defaults(BERT) == common | {"length": 128, "duplicates": 10, "whole_word": False}
    albert = {"length": 512, "duplicates": 40, "whole_word": True, "longest": 3, "favor_short": True}
    assert defaults(ALBERT) == common | albert | {"negative": "swap", "ngram_rng": None}


def test_empty_sentences_and_documents_are_skipped(made_up: Vocab) -> None:
    full = [[[5, 6], [7]], [[8, 9]]]
    assert BERT(full, made_up) == BERT([[], [[5, 6], [], [7]], [[]], [[8, 9]]], made_up)


def test_documents_of_a_store_are_its_sentences_in_order() -> None:
    shards = (shard([[2, 1], [3]]), shard([]), shard([[1]]))
    assert reference_scripts.documents_of(shards) == [[[10, 11], [12]], [[13, 14, 15]], [[10]]]
