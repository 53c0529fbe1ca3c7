"""The text, corpus and command that all points share, and the results of a run."""

import hashlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestration.tracking import runs
from orchestration.tracking.metrics import METRICS_FILE
from tests.chaos.command import ROOT, Command, new_mark, sesame
from training.run import CHECKPOINTS

STEPS: Final = 40
SAVE_EVERY: Final = 8
RECIPE: Final = (  # two narrow layers with a large intermediate size, so that checkpoints are slow and steps are fast
    *(
        "bert_base",
        "--scale",
        "tiny",
        "data.tokenizer.vocab_size=400",
        "model.intermediate_size=8192",
        "optimizer.warmup_steps=4",
    ),
    f"phases=[{{seq_length: 32, global_batch_size: 8, steps: {STEPS}}}]",
)
CLUSTER: Final = (
    *("cluster.num_workers=2", f"cluster.save_every={SAVE_EVERY}", "cluster.log_every=2", "cluster.eval_every=16"),
    *("--progress", "plain"),
)
ENVIRONMENT: Final = {
    "PYTHONPATH": str(ROOT),
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_TRACKING_URI": "",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
}
START_S: Final = 900.0  # time limit of a start; an idle machine needs 15 s, a busy one minutes
LEARNED: Final = ("train/", "eval/")  # metrics that do not depend on the clock
WEIGHTS: Final = frozenset({"weights/weights.safetensors", "export/model.safetensors"})  # files of a finished run

History = Mapping[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class Ended:
    """The results of a finished run: hashes of its weights, the metrics of LEARNED, and the names of its files."""

    weights: dict[str, str]
    metrics: History
    files: frozenset[str]


@dataclass(frozen=True)
class Ground:
    """A directory for all points, with a corpus that is made once."""

    root: Path

    def words(self, verb: str, out: Path, *more: str) -> list[str]:
        """The words of a command on the text of all points."""
        words = [verb, *RECIPE, "--data", str(self.root / "text.txt"), "--output-dir", str(out), *more]
        return sesame(*words)

    def prepare(self) -> None:
        """Write the text, make its corpus, and create an MLflow store without runs."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "text.txt").write_text(text(random.Random(0)))
        command = Command(
            self.words("corpus", self.root / "made", "--progress", "none"),
            ENVIRONMENT,
            self.root / "corpus.log",
            new_mark(),
        )
        if command.wait(START_S):
            raise RuntimeError(f"cannot make the corpus: {command.last_line}")
        (self.root / "made" / "mlflow.db").unlink()
        runs.client_of(runs.tracking_store(self.root / "made").uri).search_experiments()

    def copy(self, out: Path, finished: bool = False) -> None:
        """Copy the corpus to a new output directory; with `finished`, copy the undisturbed run too."""
        shutil.copytree(self.root / ("whole" if finished else "made"), out, dirs_exist_ok=True)


def text(rng: random.Random) -> str:
    """300 documents of six sentences, one document per line."""
    words = ["".join(rng.choice("aeioubcdfglmnprst") for _ in range(rng.randint(2, 6))) for _ in range(300)]
    sentences = [[" ".join(rng.choices(words, k=8)).capitalize() + "." for _ in range(6)] for _ in range(300)]
    return "".join(" ".join(document) + "\n" for document in sentences)


def results_of(run: Path) -> Ended:
    """The results of the run in a directory."""
    weights = {
        path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in ("weights", "export")
        for path in sorted((run / name).glob("*.safetensors"))
    }
    files = frozenset(_plain(run, path) for path in run.rglob("*") if path.is_file())
    return Ended(weights, recorded(run), files)


def faults_of(undisturbed: Ended) -> list[str]:
    """The missing results of an undisturbed run, with which all other runs are compared."""
    faults = []
    if set(undisturbed.weights) != WEIGHTS:
        faults.append(f"invalid weights: got {sorted(undisturbed.weights)}, expected {sorted(WEIGHTS)}")
    if empty := [name for name, found in undisturbed.weights.items() if found == hashlib.sha256().hexdigest()]:
        faults.append(f"empty weights: {', '.join(empty)}")
    if not undisturbed.metrics.get("train/loss") or not any(name.startswith("eval/") for name in undisturbed.metrics):
        faults.append(f"invalid metrics: got {sorted(undisturbed.metrics)}, expected train/loss and one of eval/")
    return faults


def _plain(run: Path, path: Path) -> str:
    """The name of a file, with checkpoints numbered from the newest, because a stopped run saves at other steps."""
    name = path.relative_to(run).as_posix()
    for place, folder in enumerate(sorted((run / CHECKPOINTS).glob("step-*"), reverse=True)):
        name = name.replace(f"{CHECKPOINTS}/{folder.name}/", f"{CHECKPOINTS}/{'newest' if not place else -place}/")
    return name


def recorded(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The points of the metrics of LEARNED in metrics.jsonl, including repeated ones."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in (run / METRICS_FILE).read_text().splitlines():
        point = json.loads(line)
        for name, value in point["metrics"].items():
            if name.startswith(LEARNED):
                found.setdefault(name, []).append((point["step"], value))
    return found


class Store:
    """Read a store of MLflow directly from its database, because MLflow takes seconds to import and locks the store."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def _query(self, query: str, *values: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=3)) as opened:
            return opened.execute(query, values).fetchall()

    def status(self, run_id: str) -> str:
        """The status of a run; "" if there is no such run or the store is locked."""
        try:
            found = self._query("SELECT status FROM runs WHERE run_uuid = ?", run_id)
        except sqlite3.OperationalError:
            return ""
        return str(found[0][0]) if found else ""

    def running(self) -> list[str]:
        """The IDs of the runs with status RUNNING."""
        return [str(row[0]) for row in self._query("SELECT run_uuid FROM runs WHERE status = 'RUNNING'")]

    def runs(self) -> int:
        """The number of runs."""
        return len(self._query("SELECT run_uuid FROM runs"))

    def metrics(self, run_id: str) -> dict[str, list[tuple[int, float]]]:
        """The history of each metric of LEARNED, ordered by step."""
        found: dict[str, list[tuple[int, float]]] = {}
        rows = self._query("SELECT key, step, value FROM metrics WHERE run_uuid = ? ORDER BY step", run_id)
        for key, step, value in rows:
            if str(key).startswith(LEARNED):
                found.setdefault(str(key), []).append((int(str(step)), float(str(value))))
        return found


def is_root() -> bool:
    """Whether this process may mount file systems and create namespaces."""
    return os.geteuid() == 0
