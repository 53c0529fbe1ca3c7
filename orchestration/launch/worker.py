"""What runs in Ray's processes: one worker of a pretraining group, and one fine-tuning. Torch is imported only there.

DS_ACCELERATOR and OMP_NUM_THREADS are set by launch.py before a process starts: DeepSpeed and OpenMP read them once.
"""

import logging
import os
import socket
import threading
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.tracking import STATE, MetricLog, Tracked, hardware, log_and_suppress, tag
from preprocessing.errors import BadInput
from preprocessing.shards import Store
from preprocessing.vocab import Vocab
from training.run import Run

if TYPE_CHECKING:
    from training.engines import Engine
    from training.evaluation import Budget, Outcome, Start
    from training.loop import Result
    from training.tasks import Task

WEIGHTS, EXPORT = "weights", "export"  # in the run folder: by our own names, and as transformers loads them
OURS = ("orchestration", "preprocessing", "training")

Said = tuple[str, int, str]
"""A message of one of our loggers: its name, level and text."""


class Worker:
    """One process of the group. Ray runs `train` in one thread, `poll` and `stop` in another."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.stopping = threading.Event()
        self.said: deque[Said] = deque()
        self.latest: tuple[int, dict[str, float]] = (0, {})
        for name in OURS:
            logging.getLogger(name).addHandler(_Deque(self.said))

    def address(self) -> tuple[str, int]:
        """Where the workers can meet: this machine, and a port that is free now."""
        from ray.util import get_node_ip_address

        with socket.socket() as probe:
            probe.bind(("", 0))
            return get_node_ip_address(), probe.getsockname()[1]

    def poll(self) -> tuple[int, dict[str, float], list[Said]]:
        """The last step that was logged, its metrics, and the warnings since the last call."""
        return *self.latest, [self.said.popleft() for _ in range(len(self.said))]

    def stop(self) -> None:
        """Ask the loop to end with a checkpoint."""
        self.stopping.set()

    def train(self, run_json: str, meeting: tuple[str, int], tracked: Tracked) -> "Result":
        """Pretrain as rank `rank` of the group; the first worker keeps the metrics and exports the weights."""
        os.environ |= {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_RANK": "0",  # Ray shows each worker its own GPUs only
            "MASTER_ADDR": meeting[0],
            "MASTER_PORT": str(meeting[1]),
        }
        from training.engines import DeepSpeedEngine, connect
        from training.formats import build_model
        from training.loop import pretrain

        run = Run.from_json(run_json)
        connect(run.machine)
        engine = DeepSpeedEngine(build_model(run), run.optim, run.machine)
        tags = hardware() | _gpus(run, self.world)
        metrics = MetricLog(Path(run.folder), tracked, tags=tags) if self.rank == 0 else None

        def sink(step: int, values: dict[str, float]) -> None:
            self.latest = (step, {**self.latest[1], **values})
            if metrics:
                metrics(step, values)

        try:
            result = pretrain(run, engine, sink, self.stopping.is_set)
        finally:
            if metrics:
                metrics.close()
        if result.finished and (lacks := export_weights(run, engine)):
            logging.getLogger(__name__).warning("no export to transformers, so no MLflow model: %s", lacks)
            with log_and_suppress("why the run has no model"):
                tag(tracked, **{STATE: f"none: {lacks}"})
        return result


class _Deque(logging.Handler):
    """Keeps warnings for the driver, which is the one that a person looks at."""

    def __init__(self, said: deque[Said]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.name, record.levelno, record.getMessage()))


def _gpus(run: Run, world: int) -> dict[str, str]:
    """A tag with the number of GPUs and what they are; none on a machine without."""
    import torch

    if run.machine.device != "cuda":
        return {}
    return {"hardware.gpus": f"{world} x {torch.cuda.get_device_name()}"}


def export_weights(run: Run, engine: "Engine") -> str:
    """Write the run's `weights`, and its `export` where transformers has such a net. Every worker calls it.

    The first one is told why there is no export; "" where there is one.
    """
    from training.formats import save_weights, to_transformers

    state = engine.full_state()
    if engine.rank != 0:
        return ""
    spec, folder = engine.model.spec, Path(run.folder)
    save_weights(state, spec, folder / WEIGHTS)
    try:
        to_transformers(state, spec, Path(run.corpus) / "vocab", folder / EXPORT)
    except BadInput as error:
        return str(error)
    return ""


def finetune_one(folder: Path, corpus: Path, task: str, start: "Start", seed: int, budget: "Budget") -> "Outcome":
    """One cell of the grid: fine-tune the weights of the run in `folder`, or random ones of the same shape."""
    import torch

    from training.evaluation import finetune
    from training.formats import load_weights
    from training.tasks import LENGTH

    torch.set_num_threads(1)
    spec, weights = load_weights(folder / WEIGHTS)
    given = weights if start == "pretrained" else None
    return finetune(spec, given, made(task, corpus, min(LENGTH, spec.trunk.longest)), budget, seed=seed)


@lru_cache
def made(task: str, corpus: Path, length: int) -> "Task":
    """A task from the corpus' test split, with rows of at most `length` tokens; made once per process."""
    from training.tasks import TASKS

    store = Store.open(corpus, "test")
    return TASKS[task].make(store, Vocab.load(store.vocab_dir, store.manifest.vocab["hash"]), length)
