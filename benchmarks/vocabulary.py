"""Time to train a tokenizer by the compiled kernels, and by `tokenizers` alone, on one core.

    python -m benchmarks.vocabulary [FILE ...] [--mb 20] [--rounds 3] [--kinds uncased,cased,byte_bpe] [--write]

FILE: UTF-8 text, a document a file, [English novels of ../shared/data]. Rounds alternate. `kernels`: in a process that
has compiled or loaded them before; `cold`: in a new process, with the import and start of numba, its cache filled. The
ratios are those of the library's median to the others. Both results must have the same bytes. `--write` writes the
table to benchmarks/results.
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
from typing import Final

os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # before `tokenizers` is imported

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


def measure(kind: str, texts: Sequence[str], given: argparse.Namespace) -> list[float]:
    """Medians of CPU seconds: of the library, of the kernels, and of the kernels in a new process."""
    command = [sys.executable, "-m", "benchmarks.vocabulary", *map(str, given.files)]
    command += ["--mb", str(given.mb), "--kinds", kind, "--cold"]
    _, expected = train(kind, texts, by_kernels=True)
    seconds: tuple[list[float], ...] = ([], [], [])
    for _ in range(given.rounds):
        for by_kernels, times in ((False, seconds[0]), (True, seconds[1])):
            spent, files = train(kind, texts, by_kernels)
            times.append(spent)
            if files != expected:
                sys.exit(f"{kind}: the results differ")
        seconds[2].append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
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
    lines = ["| kind | `tokenizers` | kernels | cold | ratio | ratio, cold |", "|---|---|---|---|---|---|"]
    for kind in kinds:
        library, kernels, cold = measure(kind, texts, given)
        figures = f"{library:.2f} | {kernels:.2f} | {cold:.2f} | {library / kernels:.1f} | {library / cold:.1f}"
        lines.append(f"| {kind} | {figures} |")
        print(lines[-1], flush=True)
    options = f"--mb {given.mb:g} --rounds {given.rounds}" + (" FILE ..." if given.files else "")
    text = (
        f"# Training a tokenizer\n\n{now()}, {before}. `python -m benchmarks.vocabulary {options}`\n\n"
        "CPU seconds on one core, medians. Cold: a new process, with the import and start of numba, whose cache is "
        "filled. Both results have the same bytes.\n\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if given.write:
        (RESULTS / f"vocabulary-{now()[:10]}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
