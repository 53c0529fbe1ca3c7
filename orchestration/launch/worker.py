"""What runs in Ray's processes: one worker of a pretraining group, and one fine-tuning. Torch is imported only there.

DS_ACCELERATOR and OMP_NUM_THREADS are set by group.py before a process starts: DeepSpeed and OpenMP read them once.
"""

import contextlib
import logging
import math
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from orchestration.full_disk import explain_full_disk
from orchestration.launch.compute_timer import ComputeTimer
from orchestration.launch.heartbeat import MEETING, STEP, Heartbeat
from orchestration.launch.out_of_memory import MemoryUse, explain_out_of_memory
from orchestration.launch.processes import ProcessIdentity
from orchestration.launch.stacks import Stacks
from orchestration.launch.step_reports import StepReporter
from orchestration.tracking import STATE, MetricLog, TrackedRun, hardware, log_tags
from preprocessing.errors import BadInput
from preprocessing.files import checked_json, sums_of, write_atomic
from preprocessing.lock import register_process
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.run import Run

if TYPE_CHECKING:
    from training.engines import Engine
    from training.evaluation import Budget, FinetuneResult
    from training.loop import TrainingResult
    from training.model import Model
    from training.tasks import Start

WEIGHTS, EXPORT = "weights", "export"  # in the run folder: by our own names, and as transformers loads them
EXPORTED = "export.json"  # beside it: a hash of each of its files
PROFILE = "profile"  # a folder there: where the time of a step goes
BETWEEN = "\n\n---\n\n"  # two samples in a file
SAMPLES = "samples"  # a folder there: what the net wrote, a file a step
OURS = ("orchestration", "preprocessing", "training")

Said = tuple[str, int, str]
"""A message of one of our loggers: its name, level and text."""
COUNT_EVERY_S = 0.3


def meeting_place() -> tuple[str, int]:
    """The address of this machine, and a port that is free now."""
    from ray.util import get_node_ip_address

    with socket.socket() as probe:
        probe.bind(("", 0))
        return get_node_ip_address(), probe.getsockname()[1]


@dataclass(frozen=True)
class StartedWorker:
    """A worker that is there: which process it is, and where the others could meet it."""

    process: ProcessIdentity
    meeting: tuple[str, int]
    node: str  # Ray's id of it


@dataclass(frozen=True)
class WorkerStatus:
    """What a worker says when it is polled."""

    step: int  # the last one that was logged
    sign: Heartbeat
    events: Sequence[Mapping[str, Any]]  # since the last poll, the last one of each stage
    said: Sequence[Said]  # warnings since the last poll
    used: MemoryUse  # memory


class Worker:
    """One process of the group. Ray runs `train` in one thread, the other methods in others."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.stopping = threading.Event()
        self.said: deque[Said] = deque()
        self.step = 0  # the last one that was logged
        self.beats, self.done, self.doing = 0, -1, "start"
        self.first = -1  # updates that were done when this process began its first one
        self.own = ComputeTimer()
        self.notes: dict[str, float] = {}  # of the driver's, to be logged with the next metrics
        self.events: deque[Mapping[str, Any]] = deque(maxlen=1000)
        for name in OURS:
            logging.getLogger(name).addHandler(_Deque(self.said))

    def begin(self, folder: str, env: Mapping[str, str]) -> StartedWorker:
        """Take the variables of the cluster file, before torch is imported, and say who this is; from now on it is at
        work in the run's folder, and a signal writes the stacks of all threads into a file there."""
        from ray import get_runtime_context

        os.environ |= env
        register_process(Path(folder))
        self.stacks = Stacks(Path(folder), self.rank)
        return StartedWorker(ProcessIdentity.me(), meeting_place(), get_runtime_context().get_node_id())

    def poll(self) -> WorkerStatus:
        """The last step that was logged, how far it is, and since the last call, events and warnings."""
        newest = dict[str, Mapping[str, Any]]()
        for event in (self.events.popleft() for _ in range(len(self.events))):
            newest[event["stage"]] = event
        sign = Heartbeat(self.beats, self.done, self.doing, self.own.total_s, self.own.updates)
        said = [self.said.popleft() for _ in range(len(self.said))]
        return WorkerStatus(self.step, sign, list(newest.values()), said, MemoryUse.now())

    def stop(self) -> None:
        """Ask the loop to end with a checkpoint."""
        self.stopping.set()

    def note(self, metrics: dict[str, float]) -> None:
        """Log these with the next metrics."""
        self.notes |= metrics

    def finish_checkpoint(self) -> None:
        """Finish the checkpoint that is being written: training does not go on, as a worker has failed or is gone."""
        if "training.saver" in sys.modules:
            from training.saver import finish_all

            finish_all()

    def dump_stacks(self) -> None:
        """Write what every thread is doing into the file of this worker."""
        self.stacks.dump(f"after {self.done} updates, in {self.doing}")

    def train(self, run_json: str, meeting: tuple[str, int], tracked: TrackedRun) -> "TrainingResult":
        """Pretrain as rank `rank` of the group; the first worker keeps the metrics and exports the weights.

        BadInput where the disk of the run's folder is full, OutOfMemory where there is no memory, in words.
        """
        os.environ |= {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_RANK": "0",  # Ray shows each worker its own GPUs only
            "MASTER_ADDR": meeting[0],
            "MASTER_PORT": str(meeting[1]),
        }
        run = Run.from_json(run_json)
        with explain_full_disk(Path(run.folder), self._where), explain_out_of_memory(run, self.rank, self._where):
            return self._trained(run, tracked)

    def _where(self) -> str:
        return f"{self.doing} {self.done + 1}" if self.doing == STEP else self.doing

    def _trained(self, run: Run, tracked: TrackedRun) -> "TrainingResult":
        self._report("importing DeepSpeed")
        from training.engines import DeepSpeedEngine, connect, mesh_of
        from training.formats import describe_model
        from training.loop import pretrain

        steps = StepReporter(run, self.events.append)
        self._report(MEETING)
        connect(run.engine)
        self._report("building the net")
        mesh = mesh_of(run.engine)
        model = describe_model(run, mesh.share, mesh.line.stage)
        engine = DeepSpeedEngine(model, run.optimizer, run.engine)
        self.own.of(engine.model, run.engine.device)
        tags = hardware() | _gpus(run, self.world)
        metrics = MetricLog(Path(run.folder), tracked, tags=tags) if self.rank == 0 else None

        def sink(step: int, values: dict[str, float]) -> None:
            self.step = step
            steps.log(values)
            if metrics:
                noted, self.notes = self.notes, {}
                metrics(step, values | noted)

        def at(done: int, doing: str) -> None:
            if self.doing == PROFILE and metrics:  # it has just been written
                for file in (Path(run.folder) / PROFILE).glob("*"):
                    metrics.mirror(file, PROFILE)
            self.at(done, doing)
            steps.at(done, doing)

        def should_stop() -> bool:
            self.own.has_rows()
            return self.stopping.is_set()

        self._report("opening corpus and checkpoint")
        try:
            looks = sample_writer(run, engine, metrics), keeper(run, engine, self.beat)
            with explain_full_disk(Path(run.folder), self._where), explain_out_of_memory(run, self.rank, self._where):
                result = pretrain(run, engine, sink, should_stop, at, *looks)
        finally:
            if metrics:
                self._report("mirroring metrics")
                metrics.close(self.events.append)
        if metrics and result.state.skip_steps:
            log_tags(tracked, Path(run.folder), skip_steps=list(result.state.skip_steps))
        if result.finished:
            self._report("exporting weights")
            if lacks := export_weights(run, engine, self.beat):
                logging.getLogger(__name__).warning("no export to transformers, so no MLflow model: %s", lacks)
                log_tags(tracked, Path(run.folder), **{STATE: f"none: {lacks}"})
        return result

    def at(self, done: int, doing: str) -> None:
        """`done` updates are done, and this comes now; "": the next one."""
        self.first = done if self.first < 0 else self.first
        self.done, self.doing = done, doing or ("first step" if done <= self.first else STEP)
        self.beat()
        self.own.waits_for_rows()

    def beat(self) -> None:
        """This worker gets on."""
        self.beats += 1

    def _report(self, stage: str) -> None:
        self.doing = stage
        self.beat()
        self.events.append({"stage": stage})


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

    if run.engine.device != "cuda":
        return {}
    return {"hardware.gpus": f"{world} x {torch.cuda.get_device_name()}"}


def ignore_heartbeat() -> None:
    """The `beat` of a worker that nobody watches."""


def keeper(run: Run, engine: "Engine[Model]", beat: Callable[[], None] = ignore_heartbeat) -> Callable[[int], None]:
    """What writes the weights of a step beside those of the end. Every worker calls it."""
    from training.formats import save_weights, with_heartbeat

    def keep(step: int) -> None:
        weights = engine.weights()
        if engine.rank == 0:
            save_weights(weights, engine.model.spec, Path(run.folder) / f"{WEIGHTS}-{step}", beat=beat)
        else:
            deque(with_heartbeat(weights, beat), maxlen=0)  # its part in gathering them

    return keep


def sample_writer(run: Run, engine: "Engine[Model]", metrics: MetricLog | None) -> Callable[[int], None]:
    """What writes samples of the net into the run's folder, a file for each step, and has them mirrored to MLflow.

    A net that writes none costs a warning, not the run.
    """
    if not run.sample_prompts or metrics is None:
        return lambda step: None
    from training.generation import generate_samples

    vocab = run.sampling.reading(Vocab.load(Path(run.corpus) / "vocab"))

    def show(step: int) -> None:
        try:
            found = generate_samples(engine.model, vocab, run.sample_prompts, seed=run.seed)
        except BadInput as error:
            logging.getLogger(__name__).warning("no samples at step %d: %s", step, error)
            return
        file = Path(run.folder) / SAMPLES / f"step-{step}.txt"
        write_atomic(file, BETWEEN.join(found).encode() + b"\n")
        metrics.mirror(file, SAMPLES)

    return show


def export_weights(run: Run, engine: "Engine[Model]", beat: Callable[[], None] = ignore_heartbeat) -> str:
    """Write the run's `weights`, and its `export` where transformers has such a net. Every worker calls it.

    The first one is told why there is no export; "" where there is one. `beat` is called at each tensor and file.
    """
    from training.formats import load_weights, save_weights, to_transformers, with_heartbeat

    weights = engine.weights()
    if engine.rank != 0:
        deque(with_heartbeat(weights, beat), maxlen=0)  # its part in gathering them
        return ""
    spec, folder = engine.model.spec, Path(run.folder)
    save_weights(weights, spec, folder / WEIGHTS, beat=beat)
    try:
        stored = load_weights(folder / WEIGHTS, beat=beat)[1]
        to_transformers(stored, spec, Path(run.corpus) / "vocab", folder / EXPORT, rows=run.sampling, beat=beat)
        beat()
        write_atomic(folder / EXPORTED, checked_json(sums_of(folder / EXPORT)))
    except BadInput as error:
        return str(error)
    return ""


def finetune_one(
    folder: Path, corpus: Path, task: str, start: "Start", seed: int, budget: "Budget", count: Path | None = None
) -> "FinetuneResult":
    """One cell of the grid: fine-tune the weights of the run in `folder`, or random ones of the same shape.

    The steps that are done are kept in the file `count` for who looks on.
    """
    import torch

    from training.evaluation import finetune
    from training.formats import load_weights
    from training.tasks import LENGTH

    torch.set_num_threads(1)
    spec, weights = load_weights(folder / WEIGHTS)
    given = weights if start == "pretrained" else None
    examples = load_held_out_task(task, corpus, min(LENGTH, spec.model.longest), folder)
    return finetune(spec, given, examples, budget, seed=seed, on_step=step_counter(count))


def step_counter(file: Path | None) -> Callable[[int], None]:
    """What writes the number of steps that are done to `file`, a few times a second."""
    written_s = -math.inf

    def count(done: int) -> None:
        nonlocal written_s
        if file and monotonic() - written_s > COUNT_EVERY_S:
            written_s = monotonic()
            with contextlib.suppress(OSError):  # who looks on then sees less; the fine-tuning goes on
                whole = file.with_name(f"{file.name}.new")  # renamed, so that nobody reads an empty file
                whole.write_text(str(done))
                os.replace(whole, file)

    return count


@lru_cache
def load_held_out_task(task: str, corpus: Path, length: int, folder: Path) -> Any:
    """A task from the corpus' test split, with rows of at most `length` tokens; made once per process.

    Special tokens are those that the rows of the run in `folder` have.
    """
    from training.evaluation import reads
    from training.tasks import TASKS

    store = TokenStore.open(corpus, "test")
    vocab = reads(folder, Vocab.load(store.vocab_dir, store.manifest.vocab["hash"]))
    return TASKS[task].make(store, vocab, length)
