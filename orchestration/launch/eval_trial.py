"""One trial of a grid of evaluations: its definition, the resources it needs, and its execution in a process."""

import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from orchestration.launch.worker import WEIGHTS, load_held_out_task, step_counter
from preprocessing.errors import BadInput
from preprocessing.files import whole_folder, write_atomic
from preprocessing.rng import key
from training.evaluation.tasks import GenerationTask, Kinds, LabeledTask, ScoredTask, Start, TaskFile, TaskItem
from training.specs import EngineSettings

if TYPE_CHECKING:  # only the workers import torch
    from torch import Tensor

    from training.evaluation import EvalResult, EvaluatedModel, FinetunedModel
    from training.finetuning import Tuning

BEGUN: Final = "scores/initializations"  # below the run directory: initial weights that several trials share
CARD: Final = "README.md"  # the model card in that directory
SAVED: Final = "sesame.json"  # file in the directory of a fine-tuned model, with its task and scores
LARGEST_ERROR: Final = 1e-4  # largest difference of a score that rounding may cause
RETRIES: Final = 1  # retries of a trial whose process died, or that raised an error other than a SesameError


@dataclass(frozen=True)
class EvalTrial:
    """One evaluation of a model, in the form in which it is sent to a process of Ray.

    `task` is a task with files below `data`, or the name of a task made of the held-out documents of `corpus`. The
    model is scored on all `splits` except `train`, which it learns from.
    """

    name: str  # name of the trial in log messages
    folder: Path  # directory of the run or of a transformers model
    weights: str  # directory of the weights, inside `folder`
    task: TaskFile | str
    start: Start
    tuning: "Tuning | None"  # None: evaluate without training
    updates: int = 1  # approximate number of updates, to report progress; 1 without training
    splits: tuple[str, ...] = ()
    labels: int = 0  # number of training examples; 0: all
    length: int = 0  # maximum sequence length in tokens
    data: Path | None = None
    corpus: Path | None = None
    # digest of the examples of each split, at the time when the trial was planned
    digests: Mapping[str, str] = field(default_factory=dict, compare=False)
    save_to: Path | None = field(default=None, compare=False)  # new directory for the fine-tuned model
    is_finetuned: bool = False  # whether `weights` is the directory of a fine-tuned model, which is scored
    begin: "tuple[TaskFile, Tuning] | None" = None  # earlier fine-tuning that it starts from (RoBERTa: MNLI before RTE)
    machine: EngineSettings = field(default_factory=EngineSettings)

    @property
    def how(self) -> dict[str, Any]:
        """The hyperparameters as plain values; {} without training.

        The hyperparameters of an earlier fine-tuning are included, except its seed, which is the same.
        """
        before = self.begin[1].values() if self.begin else {}
        begin = {"begin": {name: value for name, value in before.items() if name != "seed"}} if before else {}
        return self.tuning.values() | {"length": self.length} | begin if self.tuning else {}


@dataclass(frozen=True)
class TrialResources:
    """The number of workers of a trial, and the resources of each worker."""

    cpus: int = 1
    gpus: int = 0
    workers: int = 1
    # environment variables of each worker, passed in a call
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """Options of a Ray task with one worker."""
        environment = {"OMP_NUM_THREADS": str(self.cpus), "DS_ACCELERATOR": "cuda" if self.gpus else "cpu"}
        return {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "max_retries": RETRIES,
            "runtime_env": {"env_vars": environment},
        }

    def fits(self, machines: Sequence[Mapping[str, float]]) -> int:
        """How many of these trials fit on machines with these resources; no worker spans two machines.

        >>> TrialResources(cpus=2, gpus=1, workers=2).fits([{"CPU": 9.0, "GPU": 4.0}, {"CPU": 3.0, "GPU": 4.0}])
        2
        """
        needs = [(name, number) for name, number in (("CPU", self.cpus), ("GPU", self.gpus)) if number]
        workers = sum(int(min(free.get(name, 0.0) // number for name, number in needs)) for free in machines)
        return workers // self.workers


# Code that runs in a process of Ray


def evaluate_cell(trial: EvalTrial, count: Path | None = None) -> "EvalResult":
    """Run one trial and return its result. It writes the number of finished steps to the file `count`."""
    import torch

    torch.set_num_threads(trial.machine.cpu_threads)
    if trial.machine.precision != "fp32" and not torch.distributed.is_initialized():
        _join_alone(trial.machine)
    if isinstance(trial.task, str):
        return _evaluate_held_out(trial, trial.task, count)
    return _evaluate_files(trial, trial.task, count)


def _join_alone(machine: EngineSettings) -> None:
    """Initialize torch.distributed with this process alone, because DeepSpeed needs a process group."""
    from training.engines import connect

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    connect(machine)


def _evaluate_held_out(trial: EvalTrial, task: str, count: Path | None) -> "EvalResult":
    from training.evaluation import Budget, EvalResult, fill_in, finetune, of_constant

    assert trial.corpus is not None
    net, tuning = _initial_model(trial), trial.tuning
    examples = load_held_out_task(task, trial.corpus, min(trial.length, net.spec.model.longest), trial.folder)
    if tuning is None:
        return fill_in(net, examples, trial.machine)
    budget = Budget(labels=trial.labels, steps=tuning.max_steps, batch=tuning.batch_size, peak=tuning.learning_rate)
    how: dict[str, Any] = {"on_step": step_counter(count), "machine": trial.machine}
    result = finetune(net.spec, net.weights, examples, budget, seed=tuning.seed, **how)
    scores = {"accuracy": result.accuracy, "loss": result.loss, "chance": result.chance}
    constant = of_constant("test", result.constant, len(result.right), "accuracy", scores)
    notes = (*examples.notes, *result.notes, *constant)
    questions = [
        {"place": f"example {n}", "texts": [net.vocab.decode(row["input_ids"])], "gold": examples.classes[label]}
        for n, (row, label) in enumerate(zip(examples.test.rows, examples.test.label_N.tolist(), strict=True), 1)
    ]
    return EvalResult(
        {"test": scores},
        {"test": result.predicted},
        notes=notes,
        by_unit={"test": result.right},
        constant={"test": result.constant},
        questions={"test": questions},
    )


def _evaluate_files(trial: EvalTrial, task: TaskFile, count: Path | None) -> "EvalResult":
    from training import evaluation

    assert trial.data is not None
    planned = {split: trial.digests.get(split, "") for split in trial.splits}
    items = {
        split: _items(_Keyed(f"{task!r} {split} {trial.data} {digest}", (task, split, trial.data)))
        for split, digest in planned.items()
    }
    for split, digest in planned.items():
        if digest and digest_of(items[split]) != digest:
            raise BadInput(
                f"task {task.name}: its {split} split below {trial.data} has changed since the command started; repeat "
                "the command to evaluate the new data"
            )
    if trial.labels and trial.tuning and "train" in items:
        items["train"] = draw_items(items["train"], trial.labels, trial.tuning.seed)
    if trial.is_finetuned:
        model = evaluation.FinetunedModel.load(trial.folder / trial.weights)
        kind = cast(LabeledTask, task.task)
        return evaluation.score_finetuned(model, kind, items, length=trial.length, machine=trial.machine)
    tell, net = step_counter(count), _initial_model(trial)
    how: dict[str, Any] = {"machine": trial.machine, "on_step": lambda done, _: tell(done)}
    match task.task.way:
        case "tuned":
            assert trial.tuning is not None
            kind = cast(LabeledTask, task.task)
            begins = trial.begin[0].name if trial.begin else ""
            net = (
                _load_finetuned(
                    _Keyed(f"{trial.folder} {trial.weights} {trial.start} {trial.begin!r} {trial.data}", trial)
                )
                if begins
                else net
            )
            how |= {"save": partial(_save_model, trial, items)} if trial.save_to else {}
            return evaluation.finetune_task(net, kind, items, trial.tuning, length=trial.length, begins=begins, **how)
        case "scored":
            return evaluation.evaluate_likelihoods(net, cast(ScoredTask, task.task), items, **how)
        case "written":
            return evaluation.evaluate_generation(net, cast(GenerationTask, task.task), items, trial.tuning, **how)


def _save_model(
    trial: EvalTrial,
    items: Mapping[str, Sequence[TaskItem]],
    model: "FinetunedModel",
    task: LabeledTask,
    result: "EvalResult",
) -> None:
    """Write the directory of a fine-tuned model, with the scores of the model that is loaded from it.

    Raises BadInput if its predictions differ from those of the trial, beyond the rounding of another precision.
    """
    from training.evaluation import FinetunedModel, score_finetuned

    if (group := _process_group()) and group.get_rank():
        return
    assert trial.save_to is not None
    assert trial.tuning is not None
    assert isinstance(trial.task, TaskFile)
    if trial.save_to.is_dir():
        shutil.rmtree(trial.save_to)
    length = trial.tuning.max_seq_length or trial.length
    with whole_folder(trial.save_to) as unfinished:
        architecture = model.save(unfinished, length)
        again = score_finetuned(FinetunedModel.load(unfinished), task, items, length=length, machine=trial.machine)
        _check_scores(trial, result.scores, again.scores)
        fitted = replace(trial.task, task=cast(Kinds, task), grids={})  # with the threshold that was fitted on dev
        about = {
            "class": architecture,
            "task": asdict(fitted),
            "data": str(trial.data),
            "max_seq_length": length,
            "splits": {split: digest_of(each) for split, each in items.items()},
            "train_examples": len(items["train"]),
            "scores": again.scores,
            "tuning": trial.tuning.values(),
            "notes": list(result.notes),
        }
        write_atomic(unfinished / SAVED, json.dumps(about, indent=1).encode())


def _check_scores(trial: EvalTrial, found: Mapping[str, Any], again: Mapping[str, Any]) -> None:
    """Raise BadInput if the scores of the saved model differ from those of the trial; in other precisions they may."""
    for split, metrics in found.items() if trial.machine.precision == "fp32" else ():
        for name, value in metrics.items():
            if abs(value - again[split][name]) > LARGEST_ERROR:
                raise BadInput(
                    f"{trial.name}: the saved model has {name} {again[split][name]:.6g} on {split}, the fine-tuned one "
                    f"{value:.6g}; this is an error in Sesame: report it, and leave --save out"
                )


def digest_of(items: Sequence[TaskItem]) -> str:
    """Digest of the texts and the gold answers. It does not depend on the file format of the data."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(json.dumps([_plain(item.texts), _plain(item.gold)], default=str).encode())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def draw_items(items: Sequence[TaskItem], count: int, seed: int) -> list[TaskItem]:
    """A random sample of `count` items, determined by the seed; all items if there are fewer."""
    order_N = key(seed, "task").at(epoch=0, sample=0).permutation(len(items))
    return [items[i] for i in order_N[:count]]


@dataclass(frozen=True)
class _Keyed:
    """A value that `lru_cache` looks up by its name only."""

    name: str
    value: Any

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and other.name == self.name


@lru_cache(maxsize=8)
def _items(keyed: _Keyed) -> Sequence[TaskItem]:
    """The examples of a split, read once per process."""
    task, split, data = keyed.value
    return task.items(split, data)[0]


def _initial_model(trial: EvalTrial) -> "EvaluatedModel":
    """The initial model of a trial; its weights are None if the trial starts from random weights."""
    net = _load_pretrained(trial.folder, trial.weights)
    return net if trial.start == "pretrained" else replace(net, weights=None)


@lru_cache(maxsize=1)
def _load_finetuned(keyed: _Keyed) -> "EvaluatedModel":
    """The model after the earlier fine-tuning of a trial, without the classifier of that task.

    The first trial of a run that needs this model trains and saves it. The other trials wait for the lock of the first
    one, and load the model.
    """
    from training.formats import save_weights

    trial: EvalTrial = keyed.value
    assert trial.begin is not None
    assert trial.data is not None
    task, net = trial.begin[0], _initial_model(trial)
    items = task.items("train", trial.data)[0]
    place = trial.folder / BEGUN / f"{task.name}-{_identity(trial, net, items)[:12]}"
    group = _process_group()
    is_first = group is None or group.get_rank() == 0
    with _lock(place.with_name(f"{place.name}.lock"), waits=group is None) if is_first else nullcontext():
        is_there = [is_first and _load_if_complete(place) is not None]
        if group:
            group.broadcast_object_list(is_there, src=0)  # either all workers train, or none
        weights = _load_if_complete(place) if is_there[0] else None
        if weights is None:
            weights = _train_before(trial, net, items)
            if is_first:
                save_weights(weights, net.spec, place)
    return replace(net, weights=weights)


def _identity(trial: EvalTrial, net: "EvaluatedModel", items: Sequence[TaskItem]) -> str:
    """Digest of everything that the weights of the earlier fine-tuning depend on."""
    assert trial.begin is not None
    task, tuning = trial.begin
    settings = [asdict(net.spec), net.vocab.hash, asdict(task.task), tuning.values(), task.max_seq_length]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, weight in sorted((net.weights or {}).items()):
        digest.update(name.encode())
        digest.update(weight.float().flatten().numpy().data)
    for item in items:
        digest.update(json.dumps([item.texts, item.gold]).encode())
    return digest.hexdigest()


def _load_if_complete(place: Path) -> "Mapping[str, Tensor] | None":
    """The weights in a directory; None if they are missing or damaged."""
    from training.formats import load_weights

    try:
        return load_weights(place)[1]
    except BadInput:
        return None


def _train_before(trial: EvalTrial, net: "EvaluatedModel", items: Sequence[TaskItem]) -> "dict[str, Tensor]":
    from training.evaluation import finetune_task

    assert trial.begin is not None
    (task, tuning), weights = trial.begin, dict[str, "Tensor"]()
    kind = cast(LabeledTask, task.task)
    finetune_task(
        net, kind, {"train": items}, tuning, length=task.max_seq_length, machine=trial.machine, keep=weights.update
    )
    return {name: weight for name, weight in weights.items() if name.startswith("trunk.") or ".pooler." in name}


def _process_group() -> Any:
    """torch.distributed, if several workers share this trial; else None."""
    from torch import distributed

    return distributed if distributed.is_initialized() and distributed.get_world_size() > 1 else None


@contextmanager
def _lock(path: Path, *, waits: bool) -> Iterator[None]:
    """Hold the lock of a file; the kernel releases it when the process ends in any way.

    With `waits=False` (a group of workers) the block runs even if the lock is taken. If the first worker waited for the
    lock, the others would wait in a collective call, which fails after its timeout.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        yield


@lru_cache(maxsize=2)
def _load_pretrained(folder: Path, weights: str) -> "EvaluatedModel":
    """The model of a run, of one of its steps, or of a transformers directory, read once per process."""
    from training import checkpoint
    from training.evaluation import EvaluatedModel, net_of
    from training.formats import load_weights

    place = folder / weights
    if (place / checkpoint.MANIFEST).is_file():
        net, saved = net_of(folder), checkpoint.weights_of(place)
        return replace(net, weights={name: saved[name] for name in net.weights or {}})
    if weights == WEIGHTS or not (place / "spec.json").is_file():
        return net_of(folder if weights == WEIGHTS else place)
    spec, tensors = load_weights(place)
    return EvaluatedModel(spec, tensors, net_of(folder).vocab)
