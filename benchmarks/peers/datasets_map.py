"""Hugging Face datasets: load_dataset("json") -> map with the default batch size; its Arrow file has the IDs."""

from functools import cache
from pathlib import Path

import datasets  # type: ignore[import-untyped]
import pyarrow.compute as pc
from task import Task, begin, end
from tokenizers import Tokenizer


@cache
def tokenizer(path: str) -> Tokenizer:
    return Tokenizer.from_file(path)


def encode(batch: dict[str, list[str]], path: str) -> dict[str, list[list[int]]]:
    encodings = tokenizer(path).encode_batch_fast(batch["text"], add_special_tokens=False)
    return {"ids": [encoding.ids for encoding in encodings]}


def work(task: Task) -> tuple[int, int]:
    datasets.disable_progress_bars()
    processes = task.cores if task.cores > 1 else None
    cache_dir = Path(task.out, "cache")
    files = [str(path) for path in task.files]
    text = datasets.load_dataset("json", data_files=files, split="train", cache_dir=str(cache_dir), num_proc=processes)
    made = text.map(
        encode,
        batched=True,
        num_proc=processes,
        remove_columns=text.column_names,
        features=datasets.Features({"ids": datasets.List(datasets.Value("uint16"))}),
        fn_kwargs={"path": str(task.tokenizer)},
    )
    return len(made), pc.sum(pc.list_value_length(made.data["ids"])).as_py()


if __name__ == "__main__":
    end(*work(begin()))
