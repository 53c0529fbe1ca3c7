"""The task of all systems: read .jsonl.zst files, tokenize with a WordPiece tokenizer.json, and write token files.

Each script runs in its own environment. It prints "stage NAME" at the start of a stage, and on its last line JSON with
the number of documents and tokens that it wrote. This module needs only zstandard.
"""

import argparse
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard


@dataclass(frozen=True)
class Task:
    """The arguments of a script. `out` is a new directory, `cores` the number of cores that the process may use.

    Only Sesame's scripts have `train`, the number of tokens to train instead of `tokenizer`, and `near`, whether to
    remove near-duplicates and repeated lines.
    """

    input: Path
    tokenizer: Path
    out: Path
    cores: int
    train: int = 0
    near: bool = False

    @property
    def files(self) -> list[Path]:
        return sorted(self.input.glob("*.jsonl.zst"))

    def lines(self) -> Iterator[bytes]:
        """The lines of all files: JSON objects with a document in the key `text`."""
        for path in self.files:
            with path.open("rb") as stored, zstandard.ZstdDecompressor().stream_reader(stored) as plain:
                yield from io.BufferedReader(plain, 1 << 20)


def begin() -> Task:
    """Return the task of this process. Call it after all imports, because it starts the first stage."""
    parser = argparse.ArgumentParser()
    for name in ("--input", "--tokenizer", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--train", type=int, default=0)
    parser.add_argument("--near", action="store_true")
    task = Task(**vars(parser.parse_args()))
    task.out.mkdir(parents=True)
    stage("work")
    return task


def stage(name: str) -> None:
    """Print the start of a stage."""
    print("stage", name, flush=True)


def end(documents: int, tokens: int, **more: Any) -> None:
    """Print the final line."""
    print(json.dumps({"documents": documents, "tokens": tokens, **more}), flush=True)
