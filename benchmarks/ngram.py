"""Scores of a 5-gram model of a corpus on BLiMP and other likelihood tasks, to compare with pretrained models.

    python benchmarks/ngram.py CORPUS --data-dir ../shared/data/downstream [--tasks blimp] [--order 5] [--json]

CORPUS is a directory that `sesame corpus` wrote. The model counts the tokens of its training split. Scores are computed
as by `sesame eval`.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from orchestration.config import tasks_of
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.evaluation.likelihood import NGramLikelihood, NGrams, fit
from training.evaluation.tasks import LoglikelihoodChoice


def counted(store: TokenStore, vocab: Vocab, order: int) -> NGrams:
    """The n-grams of all sentences of a split."""
    ids_T = np.concatenate([shard.ids_T for shard in store.shards])
    starts_T = np.concatenate([shard.sentence_starts(0, shard.num_tokens) for shard in store.shards])
    documents = np.concatenate([[0], np.cumsum(np.concatenate([shard.num_tokens_N for shard in store.shards]))[:-1]])
    starts_T = starts_T.copy()
    starts_T[documents] = True
    return fit(ids_T, starts_T, vocab.size, order)


def scores(reader: NGramLikelihood, name: str, data_dir: Path) -> dict[str, Any]:
    """The scores of a likelihood task on its last split."""
    (task,) = tasks_of(name)
    assert isinstance(task.task, LoglikelihoodChoice), f"{name} is not a likelihood task"
    split = list(task.files)[-1]
    items, _ = task.items(split, data_dir)
    train = task.items("train", data_dir)[0] if task.task.num_fewshot else []
    found = task.task.scores(items, task.task.answers(items, train, reader))
    return {name: value for name, value in found.items() if not name.startswith("accuracy_of_")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--tasks", default="blimp", help="likelihood tasks, separated by commas")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    store = TokenStore.open(given.corpus, "train")
    vocab, begun = Vocab.load(store.vocab_dir), time.perf_counter()
    ngrams = counted(store, vocab, given.order)
    found: dict[str, Any] = {
        "tokens": store.num_tokens,
        "ngrams": [len(order.key_N) for order in ngrams.orders],
        "fit_s": round(time.perf_counter() - begun, 1),
    }
    for name in given.tasks.split(","):
        begun = time.perf_counter()
        found[name] = scores(NGramLikelihood(ngrams, vocab), name, given.data_dir)
        found[f"{name}_s"] = round(time.perf_counter() - begun, 1)
    found["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    print(json.dumps(found) if given.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
