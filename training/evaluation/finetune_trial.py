"""One cell of a grid: a net is fine-tuned on a task of labelled files, and answers its other splits."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.tokenization import INSERTS, Vocab, with_inserts
from training.engines import DeepSpeedEngine, Engine, LocalEngine
from training.evaluation.by_unit import constant, of_constant, units_of
from training.evaluation.eval_result import EvalResult, EvaluatedModel
from training.finetuning import OnStep, TaskModel, Tuning, groups, ignore_activity, outputs, train_head
from training.likelihood import unknown_of
from training.optimizers import Optimizer
from training.specs import EngineSettings
from training.tasks import (
    EncodedItems,
    FittedTask,
    GenerationTask,
    LabeledTask,
    TaskItem,
    never_in_train,
    never_learned,
    sign_of_metric,
)

Keep = Callable[[Mapping[str, Tensor]], None]
"""Takes the fine-tuned weights by their names."""


def finetune_task(
    net: EvaluatedModel,
    task: LabeledTask,
    items: Mapping[str, Sequence[TaskItem]],
    tuning: Tuning,
    *,
    length: int,
    machine: EngineSettings | None = None,
    on_step: OnStep = ignore_activity,
    begins: str = "",
    keep: Keep | None = None,
) -> EvalResult:
    """Fine-tune on the items of `train`, and answer those of all other splits, in rows of at most `length` tokens, or
    of as many as the tuning says.

    `begins`: the task that the weights of `net` were fine-tuned on, as `keep` got them there. In float32 as one
    process, or, once `connect` was called, in the precision of the machine with the others of the group; the global
    generator is as it was before.
    Raises Diverged where a loss is not finite, and BadInput where the tuning begins with another task, or asks for what
    this task or this net has not, or is to be evaluated on a dev split that has no labels.
    """
    machine = machine or EngineSettings()
    task, trunk = task.tuned_as(tuning), tuning.trunk(net.spec.model)
    if tuning.init_task != begins:
        had = f"weights that were fine-tuned on {begins}" if begins else "pretrained weights"
        raise BadInput(f"tuning.init_task is {tuning.init_task!r}, this net has {had}; fine-tune on that task first")
    wanted = tuning.max_seq_length or length
    length = min(wanted, trunk.longest)
    inserts = len(INSERTS) if tuning.input_format == "gpt1" else 0
    rows = net.spec.vocab_size
    vocab = with_inserts(net.vocab, rows) if inserts else net.vocab
    train = _encoded(task, items["train"], vocab, length, training=True)
    others = {split: _encoded(task, items[split], vocab, length) for split in items if split != "train"}
    steps, losses = tuning.num_steps(len(train.examples)), list[float]()
    dev = dev_of(items)

    def score(model: TaskModel) -> float:
        said = outputs(model, others[dev].examples, torch.device(machine.device), machine.micro_batch_tokens)
        answers = task.predictions(items[dev], others[dev], said)
        fitted = task.fitted(dev, items[dev], answers)[0] if isinstance(task, FittedTask) else task
        return sign_of_metric(task.metrics[0]) * fitted.scores(items[dev], answers)[task.metrics[0]]

    best = BestCheckpoint.at(tuning, steps, dev, machine, score)

    def step(done: int, loss: float) -> None:
        losses.append(loss)
        on_step(done, loss)
        if best:
            best.evaluate(done, model)

    with torch.random.fork_rng(devices=[]):
        targets = tuning.targets(task.targets())
        more: dict[str, Any] = {"features": tuning.frozen_features, "new_rows": inserts}
        model = TaskModel(trunk, targets, rows + inserts, tuning.seed, **more)
        random = [] if net.weights is None else model.take_over(net.weights)
        engine = engine_of(model, tuning.optim(steps), machine, groups(model, tuning))
        train_head(engine, train.examples, tuning, machine.micro_batch_tokens, step)
    taken = best.take(model) if best else None
    if keep is not None:
        keep(taken or whole_state(engine))
    notes = [f"rows have up to {length} tokens, not {wanted}: the net reads no more"] if length < wanted else []
    notes += of_random(name for name in random if ".pooler." in name)
    notes += of_workers(engine.data_world)
    notes += [f"train: {note}" for note in (*train.notes, *never_learned(task, items["train"]))]
    notes += [*([best.said()] if best else [])]
    found = EvalResult({}, {}, losses, notes)
    return _answered(found, model, task, items, others, machine)


def with_majority(
    task: LabeledTask | GenerationTask, items: Sequence[TaskItem], predictions: Sequence[Any]
) -> dict[str, float]:
    """The scores, and beside them what the most frequent right answer alone gets by the first metric, where there is
    one."""
    guess = task.majority(items)
    return task.scores(items, predictions) | ({"majority": task.scores(items, guess)[task.metrics[0]]} if guess else {})


def _encoded(
    task: LabeledTask, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool = False
) -> EncodedItems:
    """The items in rows, and beside what could not be used a note of what the vocabulary does not know."""
    found = task.encoded(items, vocab, length, training=training)
    unknown = [sum(unknown_of(vocab, row["input_ids"].tolist()) for row in example) for example in found.examples]
    return replace(found, notes=[*found.notes, *of_unknown(unknown, "examples")])


@dataclass
class BestCheckpoint:
    """The weights that scored best on dev so far, of equal ones the first."""

    after: frozenset[int]  # updates after which dev is answered
    score: Callable[[TaskModel], float]  # on dev; more is better
    found: float = -math.inf
    weights: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def at(
        cls, tuning: Tuning, steps: int, dev: str, machine: EngineSettings, score: Callable[[TaskModel], float]
    ) -> Self | None:
        """What answers the split `dev` as often as a tuning of so many steps says; None where its last weights count.
        BadInput where there is no such split, "", or no worker has the whole net."""
        if not (number := tuning.num_evaluations):
            return None
        if not dev or (machine.zero_stage == 3 and not is_alone(machine)):
            why = "with engine.zero_stage 3 no worker has the whole net" if dev else "no labelled dev split is at hand"
            raise BadInput(f"tuning.num_evaluations is {number}: {why}; use another grid")
        return cls(frozenset(max(1, round(steps * (n + 1) / number)) for n in range(number)), score)

    def evaluate(self, done: int, model: TaskModel) -> None:
        """Answer dev, if it is time for that."""
        if done not in self.after:
            return
        if (score := self.score(model)) > self.found:
            self.found = score
            self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        model.train()

    def take(self, model: TaskModel) -> dict[str, Tensor]:
        """Give the model its best weights; they, by name."""
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(self.weights[name])
        return {name: weight.float().cpu() for name, weight in self.weights.items()}

    def said(self) -> str:
        return f"the best of {len(self.after)} evaluations on dev counts"


def dev_of(items: Mapping[str, Sequence[TaskItem]]) -> str:
    """The first dev split with a label, "" where there is none."""
    splits = (name for name in items if name.startswith("dev"))
    return next((name for name in splits if any(item.gold is not None for item in items[name])), "")


def of_random(names: Iterable[str]) -> list[str]:
    """A note that weights of a net with these names begin with random numbers, where there are any."""
    parts = dict.fromkeys(name.rpartition(".")[0] for name in names)
    return [f"begins with random numbers, as the net has no weights of it: {', '.join(parts)}"] if parts else []


def of_unknown(unknown: Sequence[int], what: str) -> list[str]:
    """A note of how many of these have tokens that stand for what the vocabulary does not have, where there are any.

    >>> of_unknown([0, 2, 1], "questions")
    ['2 of 3 questions have words or characters that the vocabulary does not know: to the net they are all alike']
    >>> of_unknown([0, 0], "questions")
    []
    """
    having, known = sum(map(bool, unknown)), "words or characters that the vocabulary does not know"
    return [f"{having:,} of {len(unknown):,} {what} have {known}: to the net they are all alike"] if having else []


def of_repeated(train: Sequence[TaskItem], items: Sequence[TaskItem]) -> list[str]:
    """A note of how many of these questions are in train too, all their texts but for blanks around them, where some
    are; their answers may differ.

    >>> dev = [TaskItem("b:1", ("so ", "it is")), TaskItem("b:2", ("so", "what"))]
    >>> of_repeated([TaskItem("a:1", ("so", "it is"))], dev)
    ['1 of 2 questions are also in train']
    """
    learned = {_stripped(item.texts) for item in train}
    count = sum(_stripped(item.texts) in learned for item in items)
    return [f"{count:,} of {len(items):,} questions are also in train"] if count else []


def _stripped(value: Any) -> Any:
    """The texts of an item without blanks around them, in a form that can be hashed."""
    if isinstance(value, str):
        return value.strip()
    parts = [getattr(value, each.name) for each in fields(value)] if is_dataclass(value) else value
    return tuple(map(_stripped, parts))


def engine_of(
    model: TaskModel, optim: Optimizer, machine: EngineSettings, groups: list[dict[str, Any]]
) -> Engine[TaskModel]:
    """A process of its own in float32; else DeepSpeed in the group that `connect` has joined: it keeps float32 masters,
    and divides batches and the optimiser among the workers."""
    if is_alone(machine):
        return LocalEngine(model, optim, machine, groups)
    return DeepSpeedEngine(model, optim, machine, groups)


def is_alone(machine: EngineSettings) -> bool:
    """Whether a fine-tuning is this process' own, without DeepSpeed."""
    return machine.precision == "fp32" and num_workers() == 1


def num_workers() -> int:
    """Processes of the group that this one has joined; 1 where it has joined none."""
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def of_workers(world: int) -> list[str]:
    """What is to be said of a fine-tuning by several workers.

    >>> of_workers(1), of_workers(2)
    ([], ['fine-tuned by 2 workers, each with its own dropout: scores differ from those of one as by seed'])
    """
    said = f"fine-tuned by {world} workers, each with its own dropout: scores differ from those of one as by seed"
    return [said] if world > 1 else []


def whole_state(engine: Engine[Any]) -> dict[str, Tensor]:
    """All weights by name, on each worker; called by all of them."""
    state = engine.full_state()
    if engine.world == 1:
        return state
    shapes = [{name: weight.shape for name, weight in state.items()}]  # the first one alone has them
    torch.distributed.broadcast_object_list(shapes, src=0)
    device, whole = next(engine.model.parameters()).device, dict[str, Tensor]()
    for name, shape in shapes[0].items():
        weight = state[name].to(device) if name in state else torch.empty(shape, device=device)
        torch.distributed.broadcast(weight, src=0)
        whole[name] = weight.cpu()
    return whole


def _answered(
    found: EvalResult,
    model: TaskModel,
    task: LabeledTask,
    items: Mapping[str, Sequence[TaskItem]],
    encoded: Mapping[str, EncodedItems],
    machine: EngineSettings,
) -> EvalResult:
    """What was found in training, with the answers to these splits and their scores."""
    scores, predictions, notes = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]](), list(found.notes)
    units, alike = dict[str, Sequence[float]](), dict[str, str]()
    said = {
        split: list(outputs(model, given.examples, torch.device(machine.device), machine.micro_batch_tokens))
        for split, given in encoded.items()
    }
    if isinstance(task, FittedTask):
        dev = dev_of(items)
        answers = task.predictions(items[dev], encoded[dev], said[dev]) if dev else []
        task, note = task.fitted(dev, items.get(dev, ()), answers)
        notes += [note] if note else []
    for split, given in encoded.items():
        notes += [f"{split}: {note}" for note in given.notes]
        predictions[split] = task.predictions(items[split], given, said[split])
        if any(item.gold is not None for item in items[split]):
            scores[split] = with_majority(task, items[split], predictions[split])
            units[split] = units_of(task, items[split], predictions[split])
            alike[split] = constant(predictions[split])
            notes += of_constant(split, alike[split], len(items[split]), task.metrics[0], scores[split])
            of_train = of_repeated(items["train"], items[split]) + never_in_train(task, items["train"], items[split])
            notes += [f"{split}: {note}" for note in (*task.notes(items[split], predictions[split]), *of_train)]
    more: dict[str, Any] = {"by_unit": units, "constant": alike}
    return replace(found, scores=scores, predictions=predictions, notes=tuple(notes), **more)
