import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from preprocessing.errors import DataError
from preprocessing.manifest import Manifest
from preprocessing.shards import TokenStore, shard_name, write_shard
from preprocessing.tokenization import Vocab
from tests.training.held_out import with_test_split
from training.evaluation.tasks import LENGTH, TASKS, Task
from training.evaluation.tasks.held_out import MOST_TESTS


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_test_split(tmp_path_factory.mktemp("corpus") / "mini")


def made(name: str, corpus: Path) -> Task:
    store = TokenStore.open(corpus, "test")
    task = TASKS[name].make(store, Vocab.load(store.vocab_dir))
    assert isinstance(task, Task)
    return task


CLASSIFIED = sorted(name for name, kind in TASKS.items() if kind.way == "tuned")


@pytest.fixture(params=CLASSIFIED)
def task(request: pytest.FixtureRequest, corpus: Path) -> Task:
    return made(request.param, corpus)


def test_classes_are_balanced(task: Task) -> None:
    for examples in (task.pool, task.test):
        assert len(set(np.bincount(examples.label_N, minlength=len(task.classes)))) == 1
        assert 0 < len(examples) <= MOST_TESTS


def test_no_test_sequence_is_in_the_training_pool(task: Task) -> None:
    trained = {row["input_ids"].tobytes() for row in task.pool.rows}
    assert not [row for row in task.test.rows if row["input_ids"].tobytes() in trained]


def test_sequences_have_the_special_tokens_and_fit_the_model(task: Task, corpus: Path) -> None:
    vocab = Vocab.load(corpus / "vocab")
    for row in task.pool.rows:
        assert row["input_ids"][0] == vocab.cls
        assert row["input_ids"][-1] == vocab.sep
        assert len(row["input_ids"]) == len(row["token_type_ids"]) <= LENGTH


def test_a_task_is_deterministic(task: Task, corpus: Path) -> None:
    again = made(task.name, corpus)
    assert [row["input_ids"].tolist() for row in again.pool.rows] == [
        row["input_ids"].tolist() for row in task.pool.rows
    ]
    assert again.test.label_N.tolist() == task.test.label_N.tolist()


def test_labeled_sequences_depend_only_on_the_seed_and_are_balanced(task: Task) -> None:
    rows = [[row["input_ids"].tolist() for row in task.draw_labeled(20, seed).rows] for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]
    counts = np.bincount(task.draw_labeled(20, seed=1).label_N)
    assert counts.max() - counts.min() <= 1


def test_too_few_labels_are_refused_with_a_remedy(task: Task) -> None:
    with pytest.raises(DataError, match=r"too few labeled examples: got \d+ .* expected 10000; use fewer"):
        task.draw_labeled(10_000, seed=0)


def test_truncated_sequences_are_noted(corpus: Path) -> None:
    store = TokenStore.open(corpus, "test")
    (shard,) = store.shards
    room = int(np.median(shard.num_tokens_N))
    long = int((shard.num_tokens_N > room).sum())
    assert 0 < long < len(shard)
    assert TASKS["source_classification"].make(store, Vocab.load(store.vocab_dir), room + 2).notes == (
        f"{long} of {len(shard)} documents are longer than {room} tokens and truncated",
    )
    assert made("next_sentence", corpus).notes == ()
    (note,) = TASKS["next_sentence"].make(store, Vocab.load(store.vocab_dir), 14).notes
    assert note.endswith(" pairs have a sentence of more than 5 tokens, truncated to those next to the other sentence")


def test_classes_of_source_classification_are_the_sources(corpus: Path) -> None:
    task = made("source_classification", corpus)
    assert set(task.classes) == {"topic0", "topic1", "topic2", "topic3"}
    assert task.chance == 0.25


def test_a_pair_has_adjacent_sentences_or_sentences_of_two_sources(corpus: Path) -> None:
    task, vocab = made("next_sentence", corpus), Vocab.load(corpus / "vocab")
    store = TokenStore.open(corpus, "test")
    (shard,) = store.shards
    text = [shard.document(i)["ids"].tolist() for i in range(len(shard))]
    for row, label in list(zip(task.pool.rows, task.pool.label_N, strict=True))[:20]:
        seam = int(np.flatnonzero(row["token_type_ids"])[0])
        first, second = row["input_ids"][1 : seam - 1].tolist(), row["input_ids"][seam:-1].tolist()
        assert row["input_ids"][seam - 1] == vocab.sep
        joined = first + second
        adjacent = any(joined == ids[at : at + len(joined)] for ids in text for at in range(len(ids)))
        assert adjacent == (label == 0)


def test_the_second_sentence_alone_does_not_reveal_the_label(corpus: Path) -> None:
    """Second sentences of negative pairs are also second sentences of positive pairs."""
    task = made("next_sentence", corpus)
    seconds: dict[int, set[bytes]] = {0: set(), 1: set()}
    for row, label in zip(task.pool.rows + task.test.rows, np.r_[task.pool.label_N, task.test.label_N], strict=True):
        seconds[int(label)].add(row["input_ids"][row["token_type_ids"] == 1].tobytes())
    assert len(seconds[0] & seconds[1]) > len(seconds[1]) / 4


def test_a_corpus_of_one_source_has_no_source_classification(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"one source, expected at least two; remove the task"):
        made("source_classification", with_test_split(tmp_path / "mini", topics=1))


def test_a_small_source_does_not_reduce_the_examples_of_the_others(tmp_path: Path) -> None:
    """Sources of 60, 50 and 2 documents: two classes give 100 examples, three would give 6."""
    columns = ([np.arange(10)] * 112, [np.ones(10, bool)] * 112, [np.ones(10, bool)] * 112)
    names = ["many"] * 60 + ["some"] * 50 + ["few"] * 2
    keys = [bytes([i, *bytes(14), i % 2]) for i in range(112)]
    shard = write_shard(tmp_path / shard_name("test", 0, 1), *columns, names, keys, vocab_size=50)
    corpus = with_test_split(tmp_path / "mini", num_documents=100)
    shutil.copy(tmp_path / shard.name, corpus / shard.name)
    manifest = Manifest.load(corpus)
    replace(manifest, shards=(*manifest.shards[:-1], shard)).save(corpus)
    task = made("source_classification", corpus)
    assert task.classes == ("many", "some")
    assert len(task.pool) + len(task.test) == 100


def test_a_corpus_of_one_source_still_has_pairs(tmp_path: Path) -> None:
    assert len(made("next_sentence", with_test_split(tmp_path / "mini", topics=1)).test) > 50
