"""Novelty compared with counting in plain Python, and passages that were inserted into documents."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from preprocessing.manifest import Count, Ledger, Manifest
from preprocessing.shards import TokenStore, shard_name, write_shard
from training.evaluation.generation import find, novelties
from training.evaluation.generation.novelty import Novelty

VOCAB = 30
SIZES = (1, 2, 3, 5, 8)


def store_of(folder: Path, shards: Sequence[Sequence[np.ndarray]]) -> TokenStore:
    """A corpus of these documents, with a list for each shard."""
    infos = []
    for number, documents in enumerate(shards):
        starts = [np.arange(len(ids)) == 0 for ids in documents]
        keys = [bytes([number] * 15 + [document]) for document in range(len(documents))]
        path = folder / shard_name("train", number, len(shards))
        sources = [f"source {document}" for document in range(len(documents))]
        infos.append(write_shard(path, documents, starts, starts, sources, keys, vocab_size=VOCAB))
    total = Count(sum(info.rows for info in infos), 0, sum(info.tokens for info in infos))
    Manifest("toy", "", "", {}, {}, tuple(infos), Ledger(total, total)).save(folder)
    return TokenStore.open(folder, "train")


def ngrams(ids: np.ndarray, size: int) -> list[tuple[int, ...]]:
    return [tuple(ids[at : at + size].tolist()) for at in range(len(ids) - size + 1)]


@pytest.mark.parametrize("at_once", [7, 1 << 20])
def test_fractions_equal_those_counted_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr("training.evaluation.generation.novelty.TOKENS_AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    shards = [[rng.integers(VOCAB, size=size) for size in (40, 3, 25)], [rng.integers(VOCAB, size=60)]]
    texts = [rng.integers(VOCAB, size=30), shards[0][2][5:20], np.array([1, 2])]
    found = novelties(store_of(tmp_path, shards), texts, SIZES)
    for size, result in zip(SIZES, found, strict=True):
        has = {ngram for shard in shards for document in shard for ngram in ngrams(document, size)}
        written = [ngram for text in texts for ngram in ngrams(text, size)]
        assert result == Novelty(size, len(written), sum(ngram in has for ngram in written))
    assert found[-1].share == found[-1].found / found[-1].written > 0


def test_an_ngram_across_two_documents_is_new(tmp_path: Path) -> None:
    store = store_of(tmp_path, [[np.array([1, 2]), np.array([3, 4])]])
    assert [result.found for result in novelties(store, [np.array([2, 3])], (1, 2))] == [2, 0]
    assert find(store, np.array([1, 2, 3, 4]), least=3) == []


def test_a_text_that_is_too_short_has_fraction_zero(tmp_path: Path) -> None:
    (result,) = novelties(store_of(tmp_path, [[np.array([1, 2])]]), [np.array([1])], (4,))
    assert (result, result.share) == (Novelty(4, 0, 0), 0.0)


@pytest.mark.parametrize("at_once", [11, 1 << 20])
def test_a_passage_is_found_in_each_of_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("training.evaluation.generation.novelty.TOKENS_AT_ONCE", at_once)
    passage, other = np.arange(10), np.arange(20, 26)
    first = [np.full(9, 15), np.r_[[17, 17], passage, 17]]
    second = [np.r_[passage[:7], 16, other], np.r_[18, passage]]
    store = store_of(tmp_path, [first, second])
    text = np.r_[[11, 12], passage, 13, other]
    found = find(store, text, least=5)
    assert [(one.start, one.stop, one.document, one.at, one.shard[6:11]) for one in found] == [
        (2, 12, 1, 2, "00000"),
        (2, 12, 1, 1, "00001"),
        (2, 9, 0, 0, "00001"),
        (13, 19, 0, 8, "00001"),
    ]
    assert [one.tokens for one in found] == [10, 10, 7, 6]
    assert (found[0].source, found[0].key) == ("source 1", bytes([0] * 15 + [1]))
    assert find(store, text, least=5, most=1) == found[:1]


def test_a_passage_that_is_twice_in_the_text_is_found_twice(tmp_path: Path) -> None:
    store = store_of(tmp_path, [[np.arange(8)]])
    found = find(store, np.r_[np.arange(8), 20, np.arange(8)], least=6)
    assert [(one.start, one.stop) for one in found] == [(0, 8), (9, 17)]
