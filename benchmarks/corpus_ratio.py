"""CPU time of `sesame corpus`, of all its processes, and of `tokenizers` for training and encoding of the same text.

    python benchmarks/corpus.py --ratio          # see there

Long documents are articles of Wikipedia. Short ones are runs of their sentences, of about 500 bytes. The job is the
command as a user calls it: read, clean, deduplicate, train 8,000 WordPiece tokens, encode, write, and track the run in
MLflow. Rounds alternate, and a ratio is that of one round.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PEERS: Final = ROOT / "benchmarks" / "peers"
VOCAB_SIZE: Final = 8_000
TOKENIZER: Final = f"{{kind: wordpiece, vocab_size: {VOCAB_SIZE}}}"
SHORT_CHARS: Final = 460  # a short document ends with the sentence that reaches this length
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s")
DEDUP: Final = "dedup: {minhash: true, line_min_chars: 20}\n"
ONE_THREAD: Final = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def write_documents(texts: Iterable[str], path: Path, mb: float) -> None:
    """Write the first `mb` MB of texts as JSON Lines, unless the file exists."""
    if path.exists():
        return
    part, size = path.with_suffix(".part"), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with part.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            size += len(text.encode())
            if size >= mb * 1e6:
                break
    part.rename(path)


def cut_short(texts: Iterable[str]) -> Iterator[str]:
    """Documents of about 500 bytes: runs of sentences of the texts."""
    for text in texts:
        run = ""
        for sentence in _SENTENCE_END.split(text):
            run = f"{run} {sentence}" if run else sentence
            if len(run) >= SHORT_CHARS:
                yield run
                run = ""


@dataclass(frozen=True)
class Ratio:
    """A measurement on the documents in `text`; `scratch` is a directory for the output of the job."""

    text: Path
    scratch: Path

    def measure(self, rounds: int) -> dict[str, Any]:
        """Medians over the rounds: CPU seconds of the library and of the job, without and with deduplication."""
        found = dict[str, list[float]]()
        for _ in range(rounds):
            library = json.loads(self._run([str(PEERS / "library_alone.py"), str(self.text), str(VOCAB_SIZE)])[0])
            train_and_encode = library["train"] + library["encode"]
            row = {"library_train": library["train"], "library_encode": library["encode"]}
            for name, more in (("job", ""), ("job_near_lines", DEDUP)):
                row[name] = self._job_seconds(more)
                row[f"{name}_ratio"] = row[name] / train_and_encode
            for name, seconds in row.items():
                found.setdefault(name, []).append(seconds)
        return {name: median(values) for name, values in found.items()}

    def stages(self, *options: str) -> dict[str, float]:
        """CPU seconds of each stage of the job's functions, in one process."""
        out = self.scratch / "stages"
        shutil.rmtree(out, ignore_errors=True)
        arguments = {"input": self.text, "tokenizer": "-", "out": out, "cores": 1, "train": VOCAB_SIZE}
        words = [f"--{name}={value}" for name, value in arguments.items()]
        printed, _ = self._run([str(PEERS / "sesame_by_stage.py"), *words, *options])
        shutil.rmtree(out)
        return json.loads(printed.splitlines()[-1])["stages"]

    def _job_seconds(self, more: str) -> float:
        out, corpus = self.scratch / "work", self.scratch / "bench.yaml"
        shutil.rmtree(out, ignore_errors=True)
        source = f"{{kind: jsonl, path: {self.text.absolute()}}}"
        corpus.write_text(f"name: bench\nsources: [{source}]\nvalidation_ratio: 0.01\ntest_ratio: 0.01\n{more}")
        command = [str(ROOT / "sesame.py"), "corpus", str(corpus), "--tokenizer", TOKENIZER]
        _, seconds = self._run([*command, "--output-dir", str(out), "--progress", "none"])
        shutil.rmtree(out)
        return seconds

    def _run(self, arguments: list[str]) -> tuple[str, float]:
        """The output and the CPU seconds of a Python script, with all its processes."""
        before = _children_seconds()
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        with suppress(ChildProcessError):  # those that this process has adopted
            while os.wait():
                pass
        return done.stdout, _children_seconds() - before


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def print_ratios(name: str, row: dict[str, Any]) -> None:
    """Print the result of `measure`."""
    print(f"\n{name}: CPU seconds, medians of rounds")
    library = row["library_train"] + row["library_encode"]
    print(f"{'tokenizers: train':44} {row['library_train']:>8.2f}")
    print(f"{'tokenizers: encode':44} {row['library_encode']:>8.2f}")
    for key, what in (("job", "sesame corpus"), ("job_near_lines", "sesame corpus, near and line dedup")):
        print(f"{what:44} {row[key]:>8.2f}   ratio {row[f'{key}_ratio']:.3f} (of {library:.2f})")
