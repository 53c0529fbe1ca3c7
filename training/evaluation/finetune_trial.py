"""One trial of a grid: fine-tune a model on the train split of a task, and predict on its other splits."""

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
"""Receives the fine-tuned weights by name."""


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
    """Fine-tune on the items of `train`, and predict on all other splits.

    Sequences have at most `length` tokens, or `tuning.max_seq_length` if it is set. `begins` names the task on which
    the weights of `net` were fine-tuned before ("": none). `keep` receives the fine-tuned weights.

    Without a process group, training runs in float32 in one process. After `connect`, it runs in the precision of
    the engine, together with the other workers of the group. The global random generator is restored afterwards.

    Raises Diverged if a loss is not finite. Raises BadInput if `tuning.init_task` is not `begins`, or the tuning does
    not fit the task or the model. Raises BadInput also if it evaluates on a dev split without labels.
    """
    machine = machine or EngineSettings()
    task, trunk = task.with_tuning(tuning), tuning.trunk(net.spec.model)
    if tuning.init_task != begins:
        had = f"weights that were fine-tuned on {begins}" if begins else "pretrained weights"
        raise BadInput(
            f"invalid tuning.init_task: got {tuning.init_task!r}, but the model has {had}; fine-tune on that task first"
        )
    requested = tuning.max_seq_length or length
    length = min(requested, trunk.longest)
    inserts = len(INSERTS) if tuning.input_format == "gpt1" else 0
    rows = net.spec.vocab_size
    vocab = with_inserts(net.vocab, rows) if inserts else net.vocab
    train = _encode_items(task, items["train"], vocab, length, training=True)
    others = {split: _encode_items(task, items[split], vocab, length) for split in items if split != "train"}
    steps, losses = tuning.num_steps(len(train.examples)), list[float]()
    dev = dev_of(items)

    def score(model: TaskModel) -> float:
        model_outputs = outputs(model, others[dev].examples, torch.device(machine.device), machine.micro_batch_tokens)
        answers = task.predictions(items[dev], others[dev], model_outputs)
        fitted = task.fit_threshold(dev, items[dev], answers)[0] if isinstance(task, FittedTask) else task
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
    notes = (
        [f"sequences have at most {length} tokens, not {requested}: the limit of the model"]
        if length < requested
        else []
    )
    notes += of_random(name for name in random if ".pooler." in name)
    notes += of_workers(engine.data_world)
    notes += [f"train: {note}" for note in (*train.notes, *never_learned(task, items["train"]))]
    notes += [best.note()] if best else []
    result = EvalResult({}, {}, losses, notes)
    return _with_predictions(result, model, task, items, others, machine)


def with_majority(
    task: LabeledTask | GenerationTask, items: Sequence[TaskItem], predictions: Sequence[Any]
) -> dict[str, float]:
    """The scores, plus `majority`: the first metric of a constant prediction, the most frequent gold answer. It is
    left out if the task has no such answer."""
    guess = task.majority(items)
    return task.scores(items, predictions) | ({"majority": task.scores(items, guess)[task.metrics[0]]} if guess else {})


def _encode_items(
    task: LabeledTask, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool = False
) -> EncodedItems:
    """Encode the items as sequences; add a note on tokens that the vocabulary lacks."""
    encoded = task.encode(items, vocab, length, training=training)
    unknown = [sum(unknown_of(vocab, row["input_ids"].tolist()) for row in example) for example in encoded.examples]
    return replace(encoded, notes=[*encoded.notes, *of_unknown(unknown, "examples")])


@dataclass
class BestCheckpoint:
    """The weights with the best dev score so far; of equal scores, the earliest."""

    after: frozenset[int]  # steps after which dev is evaluated
    score: Callable[[TaskModel], float]  # the dev score; higher is better
    found: float = -math.inf
    weights: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def at(
        cls, tuning: Tuning, steps: int, dev: str, machine: EngineSettings, score: Callable[[TaskModel], float]
    ) -> Self | None:
        """Evaluate `dev` `tuning.num_evaluations` times over `steps` updates; None if the last weights are used.

        Raises BadInput if no dev split has labels (`dev` is ""), or if no worker has all weights.
        """
        if not (number := tuning.num_evaluations):
            return None
        if not dev or (machine.zero_stage == 3 and not is_alone(machine)):
            why = "with engine.zero_stage 3 no worker has all weights" if dev else "no dev split has labels"
            raise BadInput(f"invalid tuning.num_evaluations: got {number}, but {why}; use another grid")
        return cls(frozenset(max(1, round(steps * (n + 1) / number)) for n in range(number)), score)

    def evaluate(self, done: int, model: TaskModel) -> None:
        """Evaluate dev if it is due after step `done`; remember the weights if they are the best."""
        if done not in self.after:
            return
        if (score := self.score(model)) > self.found:
            self.found = score
            self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        model.train()

    def take(self, model: TaskModel) -> dict[str, Tensor]:
        """Copy the best weights into the model; return them by name."""
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(self.weights[name])
        return {name: weight.float().cpu() for name, weight in self.weights.items()}

    def note(self) -> str:
        """How the checkpoint was selected, as a note of the result."""
        return f"used the checkpoint with the best dev score of {len(self.after)} evaluations"


def dev_of(items: Mapping[str, Sequence[TaskItem]]) -> str:
    """The first dev split that has a label, or "" if none has."""
    splits = (name for name in items if name.startswith("dev"))
    return next((name for name in splits if any(item.gold is not None for item in items[name])), "")


def of_random(names: Iterable[str]) -> list[str]:
    """A note that the weights with these names were randomly initialized; empty if there are none."""
    parts = dict.fromkeys(name.rpartition(".")[0] for name in names)
    return [f"randomly initialized, because the model has no such weights: {', '.join(parts)}"] if parts else []


def of_unknown(unknown: Sequence[int], what: str) -> list[str]:
    """A note on how many of these texts have unknown tokens; empty if none has. `unknown` counts them per text.

    >>> of_unknown([0, 2, 1], "questions")
    ['2 of 3 questions have words or characters that are not in the vocabulary: all map to the unknown token']
    >>> of_unknown([0, 0], "questions")
    []
    """
    count = sum(map(bool, unknown))
    message = "words or characters that are not in the vocabulary: all map to the unknown token"
    return [f"{count:,} of {len(unknown):,} {what} have {message}"] if count else []


def of_repeated(train: Sequence[TaskItem], items: Sequence[TaskItem]) -> list[str]:
    """A note on how many of these questions are also in train; empty if none is.

    All texts of a question must be equal, except leading and trailing blanks; the answers may differ.

    >>> dev = [TaskItem("b:1", ("so ", "it is")), TaskItem("b:2", ("so", "what"))]
    >>> of_repeated([TaskItem("a:1", ("so", "it is"))], dev)
    ['1 of 2 questions are also in train']
    """
    learned = {_strip(item.texts) for item in train}
    count = sum(_strip(item.texts) in learned for item in items)
    return [f"{count:,} of {len(items):,} questions are also in train"] if count else []


def _strip(value: Any) -> Any:
    """The texts of an item without leading and trailing blanks, as hashable tuples."""
    if isinstance(value, str):
        return value.strip()
    parts = [getattr(value, each.name) for each in fields(value)] if is_dataclass(value) else value
    return tuple(map(_strip, parts))


def engine_of(
    model: TaskModel, optim: Optimizer, machine: EngineSettings, groups: list[dict[str, Any]]
) -> Engine[TaskModel]:
    """A local engine in float32 without a process group; otherwise DeepSpeed in the group that `connect` joined.

    DeepSpeed keeps float32 master weights, and divides batches and the optimizer state among the workers.
    """
    if is_alone(machine):
        return LocalEngine(model, optim, machine, groups)
    return DeepSpeedEngine(model, optim, machine, groups)


def is_alone(machine: EngineSettings) -> bool:
    """Whether this process fine-tunes alone, without DeepSpeed."""
    return machine.precision == "fp32" and num_workers() == 1


def num_workers() -> int:
    """The number of processes in this process group; 1 without a group."""
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def of_workers(world: int) -> list[str]:
    """A note if several workers fine-tuned the model; empty for one worker.

    >>> of_workers(1), of_workers(2)
    ([], ['fine-tuned by 2 workers, each with its own dropout; scores vary as they do between seeds'])
    """
    message = f"fine-tuned by {world} workers, each with its own dropout; scores vary as they do between seeds"
    return [message] if world > 1 else []


def whole_state(engine: Engine[Any]) -> dict[str, Tensor]:
    """All weights by name, on each worker. Every worker must call this function, since it communicates."""
    state = engine.full_state()
    if engine.world == 1:
        return state
    shapes = [{name: weight.shape for name, weight in state.items()}]  # only the first worker has the state
    torch.distributed.broadcast_object_list(shapes, src=0)
    device, whole = next(engine.model.parameters()).device, dict[str, Tensor]()
    for name, shape in shapes[0].items():
        weight = state[name].to(device) if name in state else torch.empty(shape, device=device)
        torch.distributed.broadcast(weight, src=0)
        whole[name] = weight.cpu()
    return whole


def _with_predictions(
    result: EvalResult,
    model: TaskModel,
    task: LabeledTask,
    items: Mapping[str, Sequence[TaskItem]],
    encoded: Mapping[str, EncodedItems],
    machine: EngineSettings,
) -> EvalResult:
    """Add the predictions on these splits, and their scores, to the result of the training."""
    scores, predictions, notes = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]](), list(result.notes)
    units, constants = dict[str, Sequence[float]](), dict[str, str]()
    outputs_by_split = {
        split: list(outputs(model, encoded_items.examples, torch.device(machine.device), machine.micro_batch_tokens))
        for split, encoded_items in encoded.items()
    }
    if isinstance(task, FittedTask):
        dev = dev_of(items)
        answers = task.predictions(items[dev], encoded[dev], outputs_by_split[dev]) if dev else []
        task, note = task.fit_threshold(dev, items.get(dev, ()), answers)
        notes += [note] if note else []
    for split, encoded_items in encoded.items():
        notes += [f"{split}: {note}" for note in encoded_items.notes]
        predictions[split] = task.predictions(items[split], encoded_items, outputs_by_split[split])
        if any(item.gold is not None for item in items[split]):
            scores[split] = with_majority(task, items[split], predictions[split])
            units[split] = units_of(task, items[split], predictions[split])
            constants[split] = constant(predictions[split])
            notes += of_constant(split, constants[split], len(items[split]), task.metrics[0], scores[split])
            of_train = of_repeated(items["train"], items[split]) + never_in_train(task, items["train"], items[split])
            notes += [f"{split}: {note}" for note in (*task.notes(items[split], predictions[split]), *of_train)]
    more: dict[str, Any] = {"by_unit": units, "constant": constants}
    return replace(result, scores=scores, predictions=predictions, notes=tuple(notes), **more)
