"""Time to train a tokenizer by the compiled kernels, and by `tokenizers` alone, on one core.

    python -m benchmarks.vocabulary [FILE ...] [--mb 20] [--rounds 3] [--kinds uncased,cased,byte_bpe] [--write]

FILE: UTF-8 text, a document a file, [English novels of ../shared/data]. Rounds alternate. `trainer`: the trainer of the
library alone. `without`: Sesame without the compiler, which also counts characters, removes long words and writes the
files. `kernels`: Sesame with it, in a process that has loaded the kernels. `cold`: in a new process, with the import
and start of numba, its cache filled. Ratios are those to the trainer. The results with and without must have the same
bytes. `--write` writes the table to benchmarks/results.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # before `tokenizers` is imported

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from benchmarks.workers import hardware, now
from preprocessing.tokenization import ByteLevelBPE, WordPiece, word_counts

NOVELS: Final = Path(__file__).resolve().parents[2] / "shared" / "data" / "text" / "novels100.tar.bz2"
RESULTS: Final = Path(__file__).parent / "results"
KINDS: Final[dict[str, WordPiece | ByteLevelBPE]] = {
    "uncased": WordPiece(vocab_size=30_000),
    "cased": WordPiece(vocab_size=30_000, lowercase=False),
    "by frequency": WordPiece(vocab_size=30_000, token_order="frequency"),
    "byte_bpe": ByteLevelBPE(vocab_size=32_000),
}


def read_texts(files: Sequence[Path], num_bytes: float) -> list[str]:
    """Documents of the files, or the novels if there are none, up to this number of bytes."""
    texts = [file.read_text(encoding="utf-8") for file in files]
    if not files:
        with tarfile.open(NOVELS) as novels:
            members = sorted((each for each in novels if each.isfile()), key=lambda each: each.name)
            texts = [novels.extractfile(each).read().decode(errors="replace") for each in members]  # type: ignore[union-attr]
    found = list[str]()
    for text in texts:
        part = text.encode()[: max(0, int(num_bytes))].decode(errors="ignore")
        num_bytes -= len(part.encode())
        found.append(part)
    return [text for text in found if text]


def train(kind: str, texts: Sequence[str], by_kernels: bool) -> tuple[float, dict[str, bytes]]:
    """CPU seconds and files of one training."""
    word_counts._LEAST_CHARS = 0 if by_kernels else sys.maxsize  # type: ignore[misc]
    start = time.process_time()
    files = KINDS[kind].make(texts).files
    return time.process_time() - start, files


def train_alone(kind: str, texts: Sequence[str]) -> float:
    """CPU seconds of the library's trainer, with the library's own alphabet."""
    spec = KINDS[kind]
    start = time.process_time()
    if isinstance(spec, WordPiece):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=spec.lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        make: type[Any] = trainers.WordPieceTrainer
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        make = trainers.BpeTrainer
    trainer = make(vocab_size=spec.vocab_size, min_frequency=2, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return time.process_time() - start


def measure(kind: str, texts: Sequence[str], given: argparse.Namespace) -> list[float]:
    """Medians of CPU seconds: of the trainer, without and with the kernels, and with them in a new process."""
    command = [sys.executable, "-m", "benchmarks.vocabulary", *map(str, given.files)]
    command += ["--mb", str(given.mb), "--kinds", kind, "--cold"]
    _, expected = train(kind, texts, by_kernels=True)
    seconds: tuple[list[float], ...] = ([], [], [], [])
    for _ in range(given.rounds):
        seconds[0].append(train_alone(kind, texts))
        for by_kernels, times in ((False, seconds[1]), (True, seconds[2])):
            spent, files = train(kind, texts, by_kernels)
            times.append(spent)
            if files != expected:
                sys.exit(f"{kind}: the results differ")
        seconds[3].append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return [statistics.median(times) for times in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)  # for a new process
    given = parser.parse_args()
    texts, kinds = read_texts(given.files, given.mb * 1e6), given.kinds.split(",")
    if given.cold:
        print(train(kinds[0], texts, by_kernels=True)[0])
        return
    before = hardware()
    lines = ["| kind | trainer | without | kernels | cold | ratio | ratio, cold |", "|---|---|---|---|---|---|---|"]
    for kind in kinds:
        trainer, without, kernels, cold = measure(kind, texts, given)
        figures = " | ".join(f"{each:.2f}" for each in (trainer, without, kernels, cold))
        lines.append(f"| {kind} | {figures} | {trainer / kernels:.1f} | {trainer / cold:.1f} |")
        print(lines[-1], flush=True)
    options = f"--mb {given.mb:g} --rounds {given.rounds}" + (" FILE ..." if given.files else "")
    text = (
        f"# Training a tokenizer\n\n{now()}, {before}. `python -m benchmarks.vocabulary {options}`\n\n"
        f"{len(texts)} texts. CPU seconds on one core, medians. Trainer: that of `tokenizers` {tokenizers.__version__} "
        "alone. Without: Sesame without the compiler. Kernels: Sesame with it. Cold: in a new process, with the import "
        "and start of numba, whose cache is filled. Ratios are those to the trainer. The results with and without have "
        "the same bytes.\n\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if given.write:
        (RESULTS / f"vocabulary-{now()[:10]}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
