"""A test split for the mini-world's corpus. The source of a document is its topic, so that `source` can be learned."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from preprocessing.manifest import Count, Ledger, Manifest
from preprocessing.schema import Ints
from preprocessing.shards import shard_name, write_shard
from tests.mini_world import AT, VOCAB_SIZE, world
from tests.training.corpora import mini_corpus


def with_test_split(folder: Path, num_documents: int = 300, topics: int = 4) -> Path:
    """The corpus of `mini_corpus`, with a held-out shard of documents of the first `topics` topics."""
    mini_corpus(folder)
    text = world(seed=2, num_documents=num_documents)
    cuts = np.cumsum(text.num_tokens_N)[:-1]
    ids, words, sentences = (
        np.split(column, cuts) for column in (text.ids_T, text.word_starts_T, text.sentence_starts_T)
    )
    sources = [f"topic{_topic(ids_S) % topics}" for ids_S in ids]
    keys = [hashlib.md5(ids_S.tobytes()).digest() for ids_S in ids]
    path = folder / shard_name("test", 0, 1)
    shard = write_shard(path, ids, words, sentences, sources, keys, vocab_size=VOCAB_SIZE)
    manifest = Manifest.load(folder)
    total = manifest.ledger.kept + Count(shard.rows, 0, shard.tokens)
    replace(manifest, shards=(*manifest.shards, shard), ledger=Ledger(total, total)).save(folder)
    return folder


def _topic(ids_S: Ints) -> int:
    nouns = ids_S[(ids_S >= AT["noun"]) & (ids_S < AT["noun"] + 4 * 24)]
    return int(np.bincount((nouns - AT["noun"]) // 24, minlength=4).argmax())
