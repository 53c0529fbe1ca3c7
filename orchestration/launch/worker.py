"""The code that Ray runs in its processes: one worker of a pretraining group, and one fine-tuning.

Functions import torch themselves, so that the driver starts without it. DeepSpeed and OpenMP read DS_ACCELERATOR and
OMP_NUM_THREADS once, so placement.py sets both before a process starts.
"""

import contextlib
import logging
import math
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from orchestration.figures import plot_training
from orchestration.full_disk import explain_full_disk
from orchestration.launch.compute_timer import ComputeTimer
from orchestration.launch.heartbeat import MEETING, STEP, Heartbeat
from orchestration.launch.out_of_memory import MemoryUse, explain_out_of_memory
from orchestration.launch.processes import ProcessIdentity
from orchestration.launch.stacks import Stacks
from orchestration.launch.step_reports import StepReporter
from orchestration.trackers import TrackerMirror, select_trackers
from orchestration.tracking import METRICS_FILE, MetricLog, TrackedRun, hardware, history, log_tags
from preprocessing.errors import BadInput
from preprocessing.files import sums_of, to_checked_json, write_atomic
from preprocessing.imports import import_all, without_collection
from preprocessing.lock import register_process
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.run import DOWNSTREAM, Run

if TYPE_CHECKING:
    from training.engines import Engine
    from training.evaluation import Budget, FinetuneResult
    from training.evaluation.tasks import Start
    from training.model import Model
    from training.state import TrainingResult

# In the run directory:
WEIGHTS, EXPORT = "weights", "export"  # weights under the names that Sesame uses; a transformers model directory
EXPORTED = "export.json"  # the hash of each file of EXPORT
EXPORTING = "exporting weights"  # the first stage after the last step
COMPILED = "compiled"  # in the output directory: compiled code of all runs
PROFILE = "profile"  # directory with the profile of some steps
SAMPLES = "samples"  # directory with generated text, one file for each step

BETWEEN = "\n\n---\n\n"  # separates two samples in a file
OURS = ("orchestration", "preprocessing", "training")  # loggers whose warnings reach the driver
COUNT_EVERY_S = 0.3

LogMessage = tuple[str, int, str]
"""A message of one of our loggers: logger name, level and text."""


def find_meeting_place() -> tuple[str, int]:
    """The address of this machine and a port that is free now."""
    from ray.util import get_node_ip_address

    with socket.socket() as probe:
        probe.bind(("", 0))
        return get_node_ip_address(), probe.getsockname()[1]


@dataclass(frozen=True)
class StartedWorker:
    """Process ID and rendezvous address of a started worker."""

    process: ProcessIdentity
    meeting: tuple[str, int]  # address and port for torch's rendezvous, used if this is the first worker
    node: str  # Ray's id of its node


@dataclass(frozen=True)
class WorkerStatus:
    """Status of a polled worker."""

    step: int  # last logged step
    heartbeat: Heartbeat
    events: Sequence[Mapping[str, Any]]  # newest event of each stage since the last poll
    warnings: Sequence[LogMessage]  # warnings since the last poll
    memory: MemoryUse


class Worker:
    """One process of the group. Ray runs `train` in one thread, the other methods in other threads."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.stopping = threading.Event()
        self.warnings: deque[LogMessage] = deque()
        self.events: deque[Mapping[str, Any]] = deque(maxlen=1000)
        self.step = 0  # last logged step
        self.beats, self.done, self.activity = 0, -1, "start"
        self.first_done = -1  # updates that were done when this process began its first update
        self.timer = ComputeTimer()
        self.driver_metrics: dict[str, float] = {}  # metrics of the driver, logged with the next metrics
        for name in OURS:
            logging.getLogger(name).addHandler(_DequeHandler(self.warnings))

    def start(self, folder: str, env: Mapping[str, str]) -> StartedWorker:
        """Set the variables of the cluster file and return the identity of this process.

        The variables are set before torch is imported. From now on this process counts as working in the run
        directory, and SIGUSR2 writes the stacks of all threads into a file there.
        """
        from ray import get_runtime_context

        os.environ |= env
        keep_compiled_code(Path(folder))
        register_process(Path(folder))
        self.stacks = Stacks(Path(folder), self.rank)
        return StartedWorker(ProcessIdentity.me(), find_meeting_place(), get_runtime_context().get_node_id())

    def import_training(self, env: Mapping[str, str]) -> None:
        """Set the variables of the cluster file, then import the modules of the training, while there is no other work.
        A failed import fails again in `train`, which explains it."""
        os.environ |= env
        with contextlib.suppress(ImportError), without_collection():
            import training.formats
            import training.loop
            from training.engines import load_deepspeed

            import_all(training.formats)
            if self.world > 1:  # a single worker rarely needs it
                load_deepspeed()

    def poll(self) -> WorkerStatus:
        """The last logged step, the heartbeat, and the events and warnings since the last call."""
        newest = dict[str, Mapping[str, Any]]()
        for event in (self.events.popleft() for _ in range(len(self.events))):
            newest[event["stage"]] = event
        heartbeat = Heartbeat(self.beats, self.done, self.activity, self.timer.total_s, self.timer.updates)
        warnings = [self.warnings.popleft() for _ in range(len(self.warnings))]
        return WorkerStatus(self.step, heartbeat, list(newest.values()), warnings, MemoryUse.now())

    def stop(self) -> None:
        """Request that the training loop ends with a checkpoint."""
        self.stopping.set()

    def log_metrics(self, metrics: dict[str, float]) -> None:
        """Log these metrics of the driver together with the next metrics of the training loop."""
        self.driver_metrics |= metrics

    def finish_checkpoint(self) -> None:
        """Finish the checkpoint that is being written. The driver calls it when the group must end after a failure."""
        if "training.saver" in sys.modules:
            from training.saver import finish_all

            finish_all()

    def dump_stacks(self) -> None:
        """Write the stacks of all threads into the file of this worker."""
        self.stacks.dump(f"after {self.done} updates, in {self.activity}")

    def train(self, run_json: str, meeting: tuple[str, int], tracked: TrackedRun) -> "TrainingResult":
        """Pretrain as one rank of the group. The first worker also logs the metrics and exports the weights.

        Raises BadInput if the disk of the run directory is full, OutOfMemory if memory is exhausted. Both messages
        name the activity of the worker.
        """
        os.environ |= {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_RANK": "0",  # Ray shows each worker its own GPUs only
            "MASTER_ADDR": meeting[0],
            "MASTER_PORT": str(meeting[1]),
        }
        run = Run.from_json(run_json)
        with self._explain_errors(run):
            return self._train(run, tracked)

    @contextlib.contextmanager
    def _explain_errors(self, run: Run) -> Iterator[None]:
        """Inside the block, a full disk and exhausted memory raise errors of one line."""
        describe = self._describe_activity
        with explain_full_disk(Path(run.folder), describe), explain_out_of_memory(run, self.rank, describe):
            yield

    def _describe_activity(self) -> str:
        return f"{self.activity} {self.done + 1}" if self.activity == STEP else self.activity

    def _train(self, run: Run, tracked: TrackedRun) -> "TrainingResult":
        is_alone = run.engine.is_alone(self.world)
        self._report_stage("importing torch" if is_alone else "importing DeepSpeed")
        from training.engines import load_deepspeed, open_engine
        from training.formats import describe_model
        from training.loop import Callbacks, pretrain

        if not is_alone:
            load_deepspeed()
        steps = StepReporter(run, self.events.append)
        self._report_stage(MEETING)
        engine = open_engine(
            partial(describe_model, run), run.optimizer, run.engine, self.world, report=self._report_stage
        )
        self.timer.attach(engine.model, run.engine.device)
        tags = hardware() | _gpus(run, self.world)
        metrics = MetricLog(Path(run.folder), tracked, tags=tags) if self.rank == 0 else None
        others = mirror_to_trackers(Path(run.folder)) if metrics else None

        def log(step: int, values: dict[str, float]) -> None:
            self.step = step
            steps.log(values)
            if metrics:
                of_driver, self.driver_metrics = self.driver_metrics, {}
                metrics(step, values | of_driver)

        def report_activity(done: int, activity: str) -> None:
            if self.activity == PROFILE and metrics:  # the profile is complete now
                for file in (Path(run.folder) / PROFILE).glob("*"):
                    metrics.mirror(file, PROFILE)
            self.set_activity(done, activity)
            steps.update(done, activity)

        self._report_stage("opening corpus and checkpoint")
        has_result = False
        try:
            callbacks = Callbacks(
                should_stop=self.stopping.is_set,
                report_activity=report_activity,
                write_samples=sample_writer(run, engine, metrics),
                save_weights=keeper(run, engine, self.beat),
                score_downstream=downstream_scorer(run, engine, self.beat),
                on_batch=self.timer.end_data_wait,
            )
            # explained here, too, because the next stage replaces the activity that the errors name
            with self._explain_errors(run):
                result = pretrain(run, engine, log, callbacks)
            has_result = True
        finally:
            if metrics:
                if not (has_result and metrics.can_defer):  # otherwise the driver mirrors them
                    self._report_stage("mirroring metrics")
                metrics.close(self.events.append, may_defer=has_result)
            if others:
                others.close()
        if metrics and result.state.skip_steps:
            log_tags(tracked, Path(run.folder), skip_steps=list(result.state.skip_steps))
        if best := result.state.best:
            if "step" in best:  # else no validation loss was finite
                log_tags(tracked, Path(run.folder), best_step=best["step"], best_eval_loss=best["loss"])
            if result.finished and result.state.step < run.steps:
                log_tags(tracked, Path(run.folder), stopped_early_at=result.state.step)
        if result.finished:
            self._report_stage(EXPORTING)
            if reason := export_weights(run, engine, self.beat):
                from orchestration.tracking import STATE

                logging.getLogger(__name__).warning("no export to transformers, so no MLflow model: %s", reason)
                log_tags(tracked, Path(run.folder), **{STATE: f"none: {reason}"})
        return result

    def set_activity(self, done: int, activity: str) -> None:
        """Record that `done` updates are done and that `activity` begins; "" means the next update."""
        self.first_done = done if self.first_done < 0 else self.first_done
        self.done, self.activity = done, activity or ("first step" if done <= self.first_done else STEP)
        self.beat()
        self.timer.begin_data_wait()

    def beat(self) -> None:
        """Count one sign of progress."""
        self.beats += 1

    def _report_stage(self, stage: str) -> None:
        self.activity = stage
        self.beat()
        self.events.append({"stage": stage})


def keep_compiled_code(folder: Path) -> None:
    """Let torch's compilers keep their code in the output directory of a run, so that the next start is faster.

    They read these variables when they compile. Variables of the user stay as they are.
    """
    for name, part in {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}.items():
        os.environ.setdefault(name, str(folder.absolute().parents[1] / COMPILED / part))


class _DequeHandler(logging.Handler):
    """Collects warnings, which the driver then shows on the terminal of the user."""

    def __init__(self, messages: deque[LogMessage]) -> None:
        super().__init__(logging.WARNING)
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append((record.name, record.levelno, record.getMessage()))


def _gpus(run: Run, world: int) -> dict[str, str]:
    """A tag with the number and the name of the GPUs; empty without GPUs."""
    import torch

    if run.engine.device != "cuda":
        return {}
    return {"hardware.gpus": f"{world} x {torch.cuda.get_device_name()}"}


def ignore_heartbeat() -> None:
    """A `beat` callback that does nothing."""


def mirror_to_trackers(folder: Path) -> TrackerMirror | None:
    """Start to send the metrics of the run in `folder` to its trackers beside MLflow."""
    try:
        return TrackerMirror(folder, folder / METRICS_FILE, select_trackers, lambda: plot_training(history(folder)))
    except BadInput as error:
        logging.getLogger(__name__).warning("%s; its trackers other than MLflow get nothing", error)
        return None


def keeper(run: Run, engine: "Engine[Model]", beat: Callable[[], None] = ignore_heartbeat) -> Callable[[int], None]:
    """A function that saves the weights of a step as `weights-STEP`. Every worker must call it."""
    from training.formats import save_weights, with_heartbeat

    def keep(step: int) -> None:
        weights = engine.weights()
        if engine.rank == 0:
            save_weights(weights, engine.model.spec, Path(run.folder) / f"{WEIGHTS}-{step}", beat=beat)
        else:
            deque(with_heartbeat(weights, beat), maxlen=0)  # takes part in the collective calls that gather them

    return keep


def sample_writer(run: Run, engine: "Engine[Model]", metrics: MetricLog | None) -> Callable[[int], None]:
    """A function that generates text, writes it into one file per step in the run directory, and mirrors it to MLflow.

    If the model cannot generate text, it logs a warning and the run continues.
    """
    if not run.sample_prompts or metrics is None:
        return lambda step: None
    from training.evaluation.generation import generate_samples

    vocab = run.sampling.adapt_tokenizer(Vocab.load(Path(run.corpus) / "vocab"))

    def write_samples(step: int) -> None:
        try:
            samples = generate_samples(engine.model, vocab, run.sample_prompts, seed=run.seed)
        except BadInput as error:
            logging.getLogger(__name__).warning("no samples at step %d: %s", step, error)
            return
        file = Path(run.folder) / SAMPLES / f"step-{step}.txt"
        write_atomic(file, BETWEEN.join(samples).encode() + b"\n")
        metrics.mirror(file, SAMPLES)

    return write_samples


def downstream_scorer(
    run: Run, engine: "Engine[Model]", beat: Callable[[], None] = ignore_heartbeat
) -> Callable[[int], Mapping[str, float]]:
    """A function that scores the downstream tasks of a run. Every worker must call it; the first one evaluates.

    The workers gather the weights in float32 and the first worker evaluates a copy of the model. So the result is the
    same for any number of workers, ZeRO stage and parallel layout, and equal to that of the saved weights.
    """
    if not run.downstream_tasks:
        return lambda step: {}
    from training.evaluation import EvaluatedModel, read_samples, score_samples
    from training.evaluation.tasks import ClozeItems
    from training.formats import with_heartbeat

    tasks, blanks, vocab = [], None, None
    if engine.rank == 0:
        tasks = read_samples(Path(run.folder) / DOWNSTREAM)
        vocab = run.sampling.adapt_tokenizer(Vocab.load(Path(run.corpus) / "vocab"))
        if "cloze" in run.downstream_tasks:
            blanks = load_held_out_task("cloze", Path(run.corpus), _cloze_length(run), Path(run.folder))
            step = -(-len(blanks.blanks) // run.downstream_examples)
            blanks = ClozeItems(blanks.blanks[::step])

    def score_downstream(step: int) -> Mapping[str, float]:
        weights = engine.weights()
        if engine.rank != 0 or vocab is None:
            deque(with_heartbeat(weights, beat), maxlen=0)  # takes part in the collective calls that gather them
            return {}
        net = EvaluatedModel(engine.model.spec, dict(with_heartbeat(weights, beat)), vocab)
        metrics, problems = score_samples(net, tasks, blanks, run.engine, lambda *_: beat())
        for problem in problems:
            logging.getLogger(__name__).warning("no downstream score at step %d: %s", step, problem)
        return metrics

    return score_downstream


def _cloze_length(run: Run) -> int:
    """Maximum tokens of a sequence of the task cloze, as in an evaluation."""
    from training.evaluation.tasks import LENGTH

    return min(LENGTH, run.model.longest)


def export_weights(run: Run, engine: "Engine[Model]", beat: Callable[[], None] = ignore_heartbeat) -> str:
    """Write `weights`, and `export` if transformers has such a model. Every worker must call it.

    Returns on the first worker the reason why there is no export, else "". `beat` is called for each tensor and file.
    """
    from training.formats import load_weights, save_weights, to_transformers, with_heartbeat

    weights = engine.weights()
    if engine.rank != 0:
        deque(with_heartbeat(weights, beat), maxlen=0)  # takes part in the collective calls that gather them
        return ""
    spec, folder = engine.model.spec, Path(run.folder)
    save_weights(weights, spec, folder / WEIGHTS, beat=beat)
    try:
        stored = load_weights(folder / WEIGHTS, beat=beat)[1]
        to_transformers(stored, spec, Path(run.corpus) / "vocab", folder / EXPORT, rows=run.sampling, beat=beat)
        beat()
        write_atomic(folder / EXPORTED, to_checked_json(sums_of(folder / EXPORT)))
    except BadInput as error:
        return str(error)
    return ""


def finetune_one(
    folder: Path, corpus: Path, task: str, start: "Start", seed: int, budget: "Budget", count: Path | None = None
) -> "FinetuneResult":
    """Fine-tune the weights of the run in `folder`, or random weights of the same shape: one trial of the grid.

    It writes the number of finished steps to the file `count`, which the driver reads to report progress.
    """
    import torch

    from training.evaluation import finetune
    from training.evaluation.tasks import LENGTH
    from training.formats import load_weights

    torch.set_num_threads(1)
    spec, weights = load_weights(folder / WEIGHTS)
    initial = weights if start == "pretrained" else None
    examples = load_held_out_task(task, corpus, min(LENGTH, spec.model.longest), folder)
    return finetune(spec, initial, examples, budget, seed=seed, on_step=step_counter(count))


def step_counter(file: Path | None) -> Callable[[int], None]:
    """A function that writes the number of finished steps to `file`, at most every COUNT_EVERY_S seconds."""
    written_s = -math.inf

    def count(done: int) -> None:
        nonlocal written_s
        if file and monotonic() - written_s > COUNT_EVERY_S:
            written_s = monotonic()
            with contextlib.suppress(OSError):  # then the driver reports less progress; the fine-tuning continues
                whole = file.with_name(f"{file.name}.new")  # renamed below, so that a reader never sees an empty file
                whole.write_text(str(done))
                os.replace(whole, file)

    return count


@lru_cache
def load_held_out_task(task: str, corpus: Path, length: int, folder: Path) -> Any:
    """A task made of the test split of the corpus, with sequences of at most `length` tokens. Cached per process.

    The sequences have the special tokens that the run in `folder` was trained with.
    """
    from training.evaluation import reads
    from training.evaluation.tasks import TASKS

    store = TokenStore.open(corpus, "test")
    vocab = reads(folder, Vocab.load(store.vocab_dir, store.manifest.vocab["hash"]))
    return TASKS[task].make(store, vocab, length)
