"""megatron-core: IndexedDatasetBuilder, with a pool that parses and tokenizes, as in its preprocess_data."""

import json
import multiprocessing
from functools import cache
from pathlib import Path

from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder  # type: ignore[import-not-found]
from task import Task, begin, end
from tokenizers import Tokenizer

CHUNK = 32  # documents per task of the pool, as in preprocess_data


@cache
def tokenizer(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path))


def encode(work: tuple[Path, bytes]) -> list[int]:
    path, line = work
    return tokenizer(path).encode(json.loads(line)["text"], add_special_tokens=False).ids


def work(task: Task) -> tuple[int, int]:
    size = tokenizer(task.tokenizer).get_vocab_size()
    builder = IndexedDatasetBuilder(str(task.out / "tokens.bin"), dtype=DType.optimal_dtype(size))
    documents = tokens = 0
    with multiprocessing.Pool(task.cores) as pool:
        for ids in pool.imap(encode, ((task.tokenizer, line) for line in task.lines()), CHUNK):
            builder.add_document(ids, [len(ids)])
            documents, tokens = documents + 1, tokens + len(ids)
    builder.finalize(str(task.out / "tokens.idx"))
    return documents, tokens


if __name__ == "__main__":
    end(*work(begin()))
