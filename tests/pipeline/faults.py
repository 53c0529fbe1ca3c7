"""A job to disturb: it runs all three stages in its own process; helpers observe it from outside."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader
from pipeline.readers import splits as sources
from pipeline.spec import Corpus, Dedup
from pipeline.steps import read_seal, read_text
from preprocessing.errors import SesameError
from preprocessing.manifest import Manifest
from preprocessing.tokenization import WordPiece
from tests.pipeline.conftest import WORDS

HERE = ("--direct_running_mode=in_memory",)
TWO = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
FOLDERS = ("text", "vocab", "corpus")


def build(source: str, out: str, split_kb: str, *beam_args: str) -> Manifest:
    """Run all three stages with splits of `split_kb` kB; train the vocabulary, a single task, in this process."""
    dedup = Dedup(minhash=True, line_min_chars=50)  # these steps write files of their own
    corpus = Corpus(
        name="stories",
        sources=(JsonlReader(path=source),),
        dedup=dedup,
        validation_ratio=0.1,
        test_ratio=0.1,
        max_shard_mb=1,
    )
    folder = Path(out)
    with patch.object(sources, "SPLIT_BYTES", int(split_kb) << 10):
        read_text(corpus, folder / "text", beam_args)
    train_vocab(folder / "text", WordPiece(vocab_size=200), folder / "vocab", HERE)
    return encode_corpus(folder / "text", folder / "vocab", corpus, folder / "corpus", beam_args)


def start(source: Path, out: Path, split_kb: int, *beam_args: str) -> "subprocess.Popen[str]":
    """Start `build` as a process that leads a session, so that all its child processes can be found."""
    arguments = [str(source), str(out), str(split_kb), *beam_args]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.faults", *arguments],
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_stories(path: Path, kb: int) -> Path:
    """Write documents of 5 kB as JSON lines, `kb` kB in total."""
    rng = np.random.default_rng([11, kb])
    with path.open("w", encoding="utf-8") as file:
        for number in range(kb // 5):
            words = rng.choice(WORDS, size=(100, 10)).tolist()
            sentences = " ".join(f"{' '.join(line).capitalize()}." for line in words)
            file.write(json.dumps({"text": f"Story {number}. {sentences}"}) + "\n")
    return path


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def num_finished(out: Path) -> int:
    """Return the progress of a job: the number of JSON files, each of which marks a finished part."""
    return sum(1 for folder in FOLDERS for _ in (out / folder).rglob("*.json") if not _.name.startswith("."))


def parts(out: Path) -> dict[Path, bool]:
    """Return the files of cleaned documents and the existing shards, and whether each is sealed."""
    found = [*(out / "text").glob("near-*.npy"), *(out / "text").glob("*-*.arrow"), *(out / "corpus").glob("*.arrow")]
    return {path: read_seal(path) is not None for path in found}


def workers(out: Path) -> list[int]:
    """Return the process IDs of the Beam workers of the current stage."""
    return [int(pid) for file in out.rglob(".tmp-beam-*.pids") for pid in file.read_text().split() if _runs(int(pid))]


def session(leader: int) -> list[int]:
    """Return the processes of a session that are still running."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _session(path) == leader]


def _session(process: Path) -> int | None:
    try:
        state, _, _, number = (process / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state in "ZX" else int(number)


def _runs(pid: int) -> bool:
    return _session(Path("/proc", str(pid))) is not None


def wait_until(holds: Callable[[], object], seconds: float = 120) -> bool:
    """Return whether a condition becomes true before the timeout."""
    end = time.monotonic() + seconds
    while not (held := bool(holds())) and time.monotonic() < end:
        time.sleep(0.005)
    return held


if __name__ == "__main__":
    try:
        build(*sys.argv[1:])
    except SesameError as error:
        print(error, file=sys.stderr)
        os._exit(error.exit_code)
