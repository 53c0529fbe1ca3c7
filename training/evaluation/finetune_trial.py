"""One trial of a grid: fine-tune a model on the train split of a task, and predict on its other splits."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.tokenization import INSERTS, with_inserts
from training.engines import DeepSpeedEngine, Engine, LocalEngine
from training.evaluation.eval_result import EvalResult, EvaluatedModel
from training.evaluation.finetuned_model import FinetunedModel, names_of_labels
from training.evaluation.scoring import add_predictions, dev_of, encode_items
from training.evaluation.tasks import FittedTask, LabeledTask, TaskItem, never_learned, sign_of_metric
from training.finetuning import OnStep, TaskModel, Tuning, groups, ignore_activity, never, outputs, train_head
from training.formats import TaskWeights
from training.optimizers import Optimizer
from training.specs import EngineSettings

Keep = Callable[[Mapping[str, Tensor]], None]
"""Receives the fine-tuned weights by name."""
Save = Callable[[FinetunedModel, LabeledTask, EvalResult], None]
"""Receives the fine-tuned model, the task with the parameters that were fitted on dev, and the result."""


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
    save: Save | None = None,
) -> EvalResult:
    """Fine-tune on the items of `train`, and predict on all other splits.

    Sequences have at most `length` tokens, or `tuning.max_seq_length` if it is set. `begins` names the task on which
    the weights of `net` were fine-tuned before ("": none). `keep` receives the fine-tuned weights, and
    `save` the model, on every worker.

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
    train = encode_items(task, items["train"], vocab, length, training=True)
    others = {split: encode_items(task, items[split], vocab, length) for split in items if split != "train"}
    steps, losses = tuning.num_steps(len(train.examples)), list[float]()
    dev = dev_of(items)

    def score(model: TaskModel) -> float:
        model_outputs = outputs(model, others[dev].examples, torch.device(machine.device), machine.micro_tokens)
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
        train_head(engine, train.examples, tuning, machine.micro_tokens, step, best.is_over if best else never)
    taken = best.take(model) if best else None
    weights = taken or (whole_state(engine) if keep or save else {})
    if keep:
        keep(weights)
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
    result, task = add_predictions(result, model, task, items, others, machine)
    if save:
        spec = replace(net.spec, model=trunk, vocab_size=rows + inserts)
        head = TaskWeights(task.targets()[0].kind, spec, weights, names_of_labels(task))
        save(FinetunedModel(head, vocab), task, result)
    return result


@dataclass
class BestCheckpoint:
    """The weights with the best dev score so far; of equal scores, the earliest."""

    after: frozenset[int]  # steps after which dev is evaluated
    score: Callable[[TaskModel], float]  # the dev score; higher is better
    patience: int = 0  # evaluations without a better score after which training stops; 0: never
    found: float = -math.inf
    evaluated: int = 0  # evaluations so far
    in_vain: int = 0  # evaluations since the best one
    done: int = 0  # steps at the last evaluation
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
        after = frozenset(max(1, round(steps * (n + 1) / number)) for n in range(number))
        return cls(after, score, tuning.early_stopping_patience)

    def evaluate(self, done: int, model: TaskModel) -> None:
        """Evaluate dev if it is due after step `done`; remember the weights if they are the best."""
        if done not in self.after:
            return
        self.evaluated, self.in_vain, self.done = self.evaluated + 1, self.in_vain + 1, done
        if (score := self.score(model)) > self.found:
            self.found, self.in_vain = score, 0
            self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        model.train()

    def is_over(self) -> bool:
        """Whether the last `patience` evaluations found no better score."""
        return 0 < self.patience <= self.in_vain

    def take(self, model: TaskModel) -> dict[str, Tensor]:
        """Copy the best weights into the model; return them by name."""
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(self.weights[name])
        return {name: weight.float().cpu() for name, weight in self.weights.items()}

    def note(self) -> str:
        """How the checkpoint was selected, as a note of the result."""
        count = len(self.after)
        if self.is_over() and self.done < max(self.after):
            return (
                f"stopped after step {self.done:,} of {max(self.after):,}: {self.in_vain} "
                f"evaluation{'s' * (self.in_vain != 1)} without a better dev score; used the checkpoint with the best "
                f"of {self.evaluated} evaluations"
            )
        return f"used the checkpoint with the best dev score of {count} evaluation{'s' * (count != 1)}"


def of_random(names: Iterable[str]) -> list[str]:
    """A note that the weights with these names were randomly initialized; empty if there are none."""
    parts = dict.fromkeys(name.rpartition(".")[0] for name in names)
    return [f"randomly initialized, because the model has no such weights: {', '.join(parts)}"] if parts else []


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
