"""Speed of the data loader on one core: tokens per second of batches made by numpy and by compiled kernels.

    python -m benchmarks.loader [--rounds 7] [--only bert_base] [--write]

Each case is a recipe and a sequence length, on four shards of made-up documents (gpu_corpus.py). Both loaders make the
same steps of ROWS sequences, in turn; a result is the median over the rounds, in CPU time of this process, from the
order of the data to unpadded micro-batches. Tokens of sources and targets count. `--write` writes a table to
benchmarks/results.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.gpu_corpus import write_documents
from orchestration.config import load
from preprocessing.compiled import explain_gap
from preprocessing.rows import ExampleDataset
from preprocessing.schema import Batch
from preprocessing.shards import Shard, shard_name
from training.data import Loader
from training.specs import EngineSettings, Phase

ROWS: Final = 256
SHARDS: Final = 4
SHARD_TOKENS: Final = 2_000_000
DOCUMENT_TOKENS: Final = 700.0
CASES: Final = (
    ("bert_base", 128),
    ("bert_base", 512),
    ("roberta_base", 128),
    ("roberta_base", 512),
    ("albert_base", 512),
    ("bert_wwm", 512),
    ("spanbert_base", 512),
    ("t5_base", 512),
    ("xlnet_base", 512),
    ("bart_base", 512),
    ("gpt2", 1024),
)
RESULTS: Final = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Tokens:
    """Replaces preprocessing.tokenization.Vocab: a size and special tokens."""

    size: int
    sentinels: int
    pad: int = 0
    unk: int = 1
    cls: int = 2
    sep: int = 3
    mask: int = 4

    @property
    def sentinel(self) -> int | None:
        return self.size - 1 if self.sentinels else None

    @property
    def special_ids(self) -> tuple[int, ...]:
        return (0, 1, 2, 3, 4, *range(self.size - self.sentinels, self.size))


@dataclass(frozen=True)
class Text:
    """Replaces preprocessing.shards.TokenStore."""

    shards: tuple[Shard, ...]
    folder: Path
    split: str = "train"
    manifest: dict[str, Any] = field(default_factory=dict)
    groups: tuple[()] = ()
    is_remote: bool = False


@dataclass(frozen=True)
class Result:
    """Million tokens per second of both loaders, in each round."""

    recipe: str
    length: int
    numpy: list[float]
    compiled: list[float]

    @property
    def ratio(self) -> float:
        """The median ratio within a round."""
        return statistics.median(new / old for new, old in zip(self.compiled, self.numpy, strict=True))

    def describe(self) -> str:
        """A line of the table."""
        numpy, compiled = statistics.median(self.numpy), statistics.median(self.compiled)
        return f"| {self.recipe} | {self.length:,} | {numpy:.2f} | {compiled:.1f} | {self.ratio:.1f} |"


def make_loaders(name: str, length: int, folder: Path) -> tuple[Loader, Loader]:
    """The loader with numpy and the one with compiled kernels."""
    recipe = load(name)
    tokenizer = recipe.data.tokenizer
    vocab: Any = Tokens(getattr(tokenizer, "vocab_size"), getattr(tokenizer, "extra_ids", 0))  # noqa: B009
    text: Any = Text(tuple(write_text(folder, vocab)), folder)
    if gap := explain_gap(recipe.sampling):
        raise SystemExit(f"{name}: {gap}")
    phase = Phase(seq_length=length, global_batch_size=ROWS, steps=10**6)
    compiled = ExampleDataset(text, vocab, recipe.sampling, length)
    loader = Loader({length: compiled}, [phase], EngineSettings(), pad=0, rank=0, world=1)
    compiled.load_kernels()
    plain = ExampleDataset(text, vocab, recipe.sampling, length)
    return replace(loader, rows_by_length={length: plain}), loader


def write_text(folder: Path, vocab: Tokens) -> Iterator[Shard]:
    """Write the shards of the text and open them."""
    ordinary_V = np.setdiff1d(np.arange(vocab.size), vocab.special_ids).astype(np.uint16)
    for number in range(SHARDS):
        path = folder / shard_name("train", number, SHARDS)
        write_documents(path, ordinary_V, vocab.size, SHARD_TOKENS, DOCUMENT_TOKENS, number)
        yield Shard(path)


def measure(name: str, length: int, rounds: int, folder: Path) -> Result:
    """Time both loaders in turn; raises ValueError if their batches differ."""
    plain, compiled = make_loaders(name, length, folder)
    for step in range(2):  # packing plans, tables, compilation, and the comparison of the first batches
        require_equal(plain.at(step), compiled.at(step))
    result = Result(name, length, [], [])
    for number in range(rounds):
        steps = range(2 + 8 * number, 10 + 8 * number)
        result.numpy.append(time_steps(plain, steps[:2]))
        result.compiled.append(time_steps(compiled, steps))
    return result


def require_equal(wanted: Sequence[Batch], found: Sequence[Batch]) -> None:
    """Compare every column of two lists of batches."""
    for one, other in zip(wanted, found, strict=True):
        if one.keys() != other.keys() or not all(np.array_equal(one[key], other[key]) for key in one):
            raise ValueError("compiled batches differ from those of numpy")


def time_steps(loader: Loader, steps: range) -> float:
    """Million tokens per second."""
    tokens = 0
    gc.collect()
    start = time.process_time()
    for step in steps:
        for batch in loader.at(step):
            tokens += batch["input_ids"].size + (batch["source_input_ids"].size if "source_input_ids" in batch else 0)
    return tokens / (time.process_time() - start) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="names of recipes, separated by commas")
    parser.add_argument("--write", action="store_true", help="write the table to benchmarks/results")
    options = parser.parse_args()
    lines = ["| recipe | length | numpy, M tokens/s | compiled, M tokens/s | ratio |", "|---|---|---|---|---|"]
    print(*lines, sep="\n", flush=True)
    for name, length in CASES:
        if options.only and name not in options.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as folder:
            lines.append(measure(name, length, options.rounds, Path(folder)).describe())
        print(lines[-1], flush=True)
    if options.write:
        about = (__doc__ or "").split("\n\n")[2].partition(" `--write`")[0]
        about = f"`python -m benchmarks.loader --rounds {options.rounds}`. {about}"
        path = RESULTS / f"loader-{date.today()}.md"
        path.write_text(f"# Data loader, {date.today()}\n\n{about}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
