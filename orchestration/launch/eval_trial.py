"""One cell of a grid of evaluations: what it is, what it needs of a machine, and how a process does it."""

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from orchestration.launch.worker import WEIGHTS, load_held_out_task, step_counter
from preprocessing.errors import BadInput
from preprocessing.rng import key
from training.specs import EngineSettings
from training.tasks import GenerationTask, LabeledTask, ScoredTask, Start, TaskFile, TaskItem

if TYPE_CHECKING:  # torch is for the workers
    from torch import Tensor

    from training.evaluation import EvalResult, EvaluatedModel
    from training.finetuning import Tuning

BEGUN: Final = "scores/initializations"  # folder in that of a run: weights that cells begin with
RETRIES: Final = 1  # of a cell whose process died, or that ended in an error that is not about what it was given


@dataclass(frozen=True)
class EvalTrial:
    """One evaluation of a net, as it travels to a process of Ray.

    `task` is a task of files below `data`, or the name of one that is made of the documents that `corpus` holds out.
    `splits` are answered, with `train` as what is learned from, `labels` rows of it, 0 for all.
    """

    name: str  # for people
    folder: Path  # of the run, or of a net of transformers
    weights: str  # folder inside of it
    task: TaskFile | str
    start: Start
    tuning: "Tuning | None"  # None: nothing is trained
    updates: int = 1  # about how many it does, to say how far it is; 1 where nothing is trained
    splits: tuple[str, ...] = ()
    labels: int = 0
    length: int = 0  # most tokens of a row
    data: Path | None = None
    corpus: Path | None = None
    digests: Mapping[str, str] = field(default_factory=dict, compare=False)  # of the items of each split, as planned
    begin: "tuple[TaskFile, Tuning] | None" = None  # what it is fine-tuned on before (RoBERTa's RTE: MNLI)
    machine: EngineSettings = field(default_factory=EngineSettings)

    @property
    def how(self) -> dict[str, Any]:
        """Its hyper-parameters, as plain values; {}: nothing is trained. What it begins with has its seed too."""
        before = asdict(self.begin[1]) if self.begin else {}
        begin = {"begin": {name: value for name, value in before.items() if name != "seed"}} if before else {}
        return asdict(self.tuning) | {"length": self.length} | begin if self.tuning else {}


@dataclass(frozen=True)
class TrialResources:
    """What a cell needs of a machine: so many workers, and what each of them needs."""

    cpus: int = 1
    gpus: int = 0
    workers: int = 1
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # of each worker, handed over in a call

    @property
    def options(self) -> dict[str, Any]:
        """As Ray takes them."""
        environment = {"OMP_NUM_THREADS": str(self.cpus), "DS_ACCELERATOR": "cuda" if self.gpus else "cpu"}
        return {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "max_retries": RETRIES,
            "runtime_env": {"env_vars": environment},
        }

    def fits(self, machines: Sequence[Mapping[str, float]]) -> int:
        """How often it has place on machines with these resources; a worker is on one of them.

        >>> TrialResources(cpus=2, gpus=1, workers=2).fits([{"CPU": 9.0, "GPU": 4.0}, {"CPU": 3.0, "GPU": 4.0}])
        2
        """
        wants = [(name, number) for name, number in (("CPU", self.cpus), ("GPU", self.gpus)) if number]
        places = sum(int(min(has.get(name, 0.0) // number for name, number in wants)) for has in machines)
        return places // self.workers


# In a process of Ray's


def evaluate_cell(cell: EvalTrial, count: Path | None = None) -> "EvalResult":
    """The scores of one cell. The steps that are done are kept in the file `count` for who looks on."""
    import torch

    torch.set_num_threads(cell.machine.cpu_threads)
    if cell.machine.precision != "fp32" and not torch.distributed.is_initialized():
        _join_alone(cell.machine)
    if isinstance(cell.task, str):
        return _held_out(cell, cell.task, count)
    return _of_files(cell, cell.task, count)


def _join_alone(machine: EngineSettings) -> None:
    """Make a group of this process alone, which DeepSpeed wants."""
    from training.engines import connect

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    connect(machine)


def _held_out(cell: EvalTrial, task: str, count: Path | None) -> "EvalResult":
    from training.evaluation import Budget, EvalResult, fill_in, finetune, of_constant

    assert cell.corpus is not None
    net, tuning = _net(cell), cell.tuning
    examples = load_held_out_task(task, cell.corpus, min(cell.length, net.spec.model.longest), cell.folder)
    if tuning is None:
        return fill_in(net, examples, cell.machine)
    budget = Budget(labels=cell.labels, steps=tuning.max_steps, batch=tuning.batch_size, peak=tuning.learning_rate)
    how: dict[str, Any] = {"on_step": step_counter(count), "machine": cell.machine}
    found = finetune(net.spec, net.weights, examples, budget, seed=tuning.seed, **how)
    scores = {"accuracy": found.accuracy, "loss": found.loss, "chance": found.chance}
    alike = {"test": found.constant}
    notes = (*examples.notes, *found.notes, *of_constant("test", found.constant, len(found.right), "accuracy", scores))
    return EvalResult({"test": scores}, {}, notes=notes, by_unit={"test": found.right}, constant=alike)


def _of_files(cell: EvalTrial, task: TaskFile, count: Path | None) -> "EvalResult":
    from training import evaluation

    assert cell.data is not None
    tell, net = step_counter(count), _net(cell)
    planned = {split: cell.digests.get(split, "") for split in cell.splits}
    items = {
        split: _items(_Keyed(f"{task!r} {split} {cell.data} {digest}", (task, split, cell.data)))
        for split, digest in planned.items()
    }
    for split, digest in planned.items():
        if digest and digest_of(items[split]) != digest:
            raise BadInput(
                f"task {task.name}: its {split} split below {cell.data} has changed since the command began; repeat "
                "the command, which then answers what is there now"
            )
    if cell.labels and cell.tuning and "train" in items:
        items["train"] = draw_items(items["train"], cell.labels, cell.tuning.seed)
    how: dict[str, Any] = {"machine": cell.machine, "on_step": lambda done, _: tell(done)}
    match task.task.way:
        case "tuned":
            assert cell.tuning is not None
            kind = cast(LabeledTask, task.task)
            begins = cell.begin[0].name if cell.begin else ""
            net = (
                _begun(_Keyed(f"{cell.folder} {cell.weights} {cell.start} {cell.begin!r} {cell.data}", cell))
                if begins
                else net
            )
            return evaluation.finetune_task(net, kind, items, cell.tuning, length=cell.length, begins=begins, **how)
        case "scored":
            return evaluation.evaluate_likelihoods(net, cast(ScoredTask, task.task), items, **how)
        case "written":
            return evaluation.evaluate_generation(net, cast(GenerationTask, task.task), items, cell.tuning, **how)


def digest_of(items: Sequence[TaskItem]) -> str:
    """Of the questions and answers themselves: the same data in another format has the same."""
    found = hashlib.sha256()
    for item in items:
        found.update(json.dumps([_plain(item.texts), _plain(item.gold)], default=str).encode())
    return found.hexdigest()


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def draw_items(items: Sequence[TaskItem], count: int, seed: int) -> list[TaskItem]:
    """So many of the items, in an order that the seed decides; all where there are no more."""
    order_N = key(seed, "task").at(epoch=0, sample=0).permutation(len(items))
    return [items[i] for i in order_N[:count]]


@dataclass(frozen=True)
class _Keyed:
    """A value that is looked up by a name."""

    name: str
    value: Any

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and other.name == self.name


@lru_cache(maxsize=8)
def _items(keyed: _Keyed) -> Sequence[TaskItem]:
    """The items of a split, read once in a process."""
    task, split, data = keyed.value
    return task.items(split, data)[0]


def _net(cell: EvalTrial) -> "EvaluatedModel":
    """The net that a cell begins with; with weights None, where it is to begin with random ones."""
    net = _pretrained(cell.folder, cell.weights)
    return net if cell.start == "pretrained" else replace(net, weights=None)


@lru_cache(maxsize=1)
def _begun(keyed: _Keyed) -> "EvaluatedModel":
    """The net after the task that a cell begins with, without the classifier of that. It is made once for a run, by the
    cell that comes first: the others wait for its lock, and read it."""
    from training.formats import save_weights

    cell: EvalTrial = keyed.value
    assert cell.begin is not None
    assert cell.data is not None
    task, net = cell.begin[0], _net(cell)
    items = task.items("train", cell.data)[0]
    place = cell.folder / BEGUN / f"{task.name}-{_identity(cell, net, items)[:12]}"
    group = _group()
    is_first = group is None or group.get_rank() == 0
    with _lock(place.with_name(f"{place.name}.lock"), waits=group is None) if is_first else nullcontext():
        is_there = [is_first and _whole(place) is not None]
        if group:
            group.broadcast_object_list(is_there, src=0)  # all learn, or none does
        weights = _whole(place) if is_there[0] else None
        if weights is None:
            weights = _tuned_before(cell, net, items)
            if is_first:
                save_weights(weights, net.spec, place)
    return replace(net, weights=weights)


def _identity(cell: EvalTrial, net: "EvaluatedModel", items: Sequence[TaskItem]) -> str:
    """The digest of what the weights depend on that a cell begins with."""
    assert cell.begin is not None
    task, tuning = cell.begin
    asked = [asdict(net.spec), net.vocab.hash, asdict(task.task), asdict(tuning), task.max_seq_length]
    found = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for name, weight in sorted((net.weights or {}).items()):
        found.update(name.encode())
        found.update(weight.float().flatten().numpy().data)
    for item in items:
        found.update(json.dumps([item.texts, item.gold]).encode())
    return found.hexdigest()


def _whole(place: Path) -> "Mapping[str, Tensor] | None":
    """The weights in a folder; None where they are not there, or not whole."""
    from training.formats import load_weights

    try:
        return load_weights(place)[1]
    except BadInput:
        return None


def _tuned_before(cell: EvalTrial, net: "EvaluatedModel", items: Sequence[TaskItem]) -> "dict[str, Tensor]":
    from training.evaluation import finetune_task

    assert cell.begin is not None
    (task, tuning), found = cell.begin, dict[str, "Tensor"]()
    kind = cast(LabeledTask, task.task)
    finetune_task(
        net, kind, {"train": items}, tuning, length=task.max_seq_length, machine=cell.machine, keep=found.update
    )
    return {name: weight for name, weight in found.items() if name.startswith("trunk.") or ".pooler." in name}


def _group() -> Any:
    """Torch's collective calls, where several workers do this cell; None where it is alone."""
    from torch import distributed

    return distributed if distributed.is_initialized() and distributed.get_world_size() > 1 else None


@contextmanager
def _lock(path: Path, *, waits: bool) -> Iterator[None]:
    """Hold the lock of a file, which the kernel drops however the process ends. A group of workers goes on without it:
    the others would wait for the first one in a collective call, which ends in an error after a while."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        yield


@lru_cache(maxsize=2)
def _pretrained(folder: Path, weights: str) -> "EvaluatedModel":
    """The net of a run, of one of its steps or of a folder of transformers, read once in a process."""
    from training import checkpoint
    from training.evaluation import EvaluatedModel, net_of
    from training.formats import load_weights

    place = folder / weights
    if (place / checkpoint.MANIFEST).is_file():
        net, found = net_of(folder), checkpoint.weights_of(place)
        return replace(net, weights={name: found[name] for name in net.weights or {}})
    if weights == WEIGHTS or not (place / "spec.json").is_file():
        return net_of(folder if weights == WEIGHTS else place)
    spec, tensors = load_weights(place)
    return EvaluatedModel(spec, tensors, net_of(folder).vocab)
