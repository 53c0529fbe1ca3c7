"""The work that all systems share: a folder of .jsonl.zst -> ids of a WordPiece tokenizer.json -> files of tokens.

Each peer runs in an environment of its own, as a process that says on its output when it begins what ("stage NAME"),
and on its last line, in JSON, how many documents and tokens it wrote. Only zstandard is needed in here.
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
    """What a peer is given; `out` is a new folder, `cores` as many as the process may run on."""

    input: Path
    tokenizer: Path
    out: Path
    cores: int

    @property
    def files(self) -> list[Path]:
        return sorted(self.input.glob("*.jsonl.zst"))

    def lines(self) -> Iterator[bytes]:
        """The lines of all files: JSON objects with the document at `text`."""
        for path in self.files:
            with path.open("rb") as stored, zstandard.ZstdDecompressor().stream_reader(stored) as plain:
                yield from io.BufferedReader(plain, 1 << 20)


def begin() -> Task:
    """The task of this process, whose libraries are imported by now."""
    parser = argparse.ArgumentParser()
    for name in ("--input", "--tokenizer", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--cores", type=int, required=True)
    task = Task(**vars(parser.parse_args()))
    task.out.mkdir(parents=True)
    stage("work")
    return task


def stage(name: str) -> None:
    print("stage", name, flush=True)


def end(documents: int, tokens: int, **more: Any) -> None:
    print(json.dumps({"documents": documents, "tokens": tokens, **more}), flush=True)
