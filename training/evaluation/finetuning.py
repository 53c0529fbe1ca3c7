"""Fine-tuning on a task of a corpus' own held-out documents (training/tasks), with the loop of all tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from preprocessing.schema import Row
from preprocessing.spec import key, require, spec
from training.evaluation.by_unit import constant
from training.evaluation.finetune_trial import engine_of, of_random
from training.finetuning import Example, RowLabel, TaskModel, Tuning, groups, outputs, train_head
from training.model import ModelSpec
from training.specs import EngineSettings
from training.tasks import LABELS, LabeledExamples, Start, Task


@spec
class Budget:
    """Budget of one fine-tuning on held-out documents."""

    labels: int = key(default=LABELS, doc="Number of labeled sequences.")
    steps: int = key(default=200, doc="Number of steps.")
    batch: int = key(default=16, doc="Batch size in sequences.")
    # Linear warmup over a tenth of the steps, then linear decay to 0.
    peak: float = key(default=1e-3, doc="Peak learning rate.")

    def __post_init__(self) -> None:
        for name in ("labels", "steps", "batch"):
            require(getattr(self, name) >= 1, f"budget.{name}", getattr(self, name), "a whole number from 1 up")

    def tuning(self, seed: int) -> Tuning:
        """The fine-tuning of this budget, with a seed for rows, their order, the head and dropout."""
        return Tuning(learning_rate=self.peak, batch_size=self.batch, max_steps=self.steps, seed=seed)


@dataclass(frozen=True)
class FinetuneResult:
    """The score of one fine-tuning on the test rows of its task."""

    task: str
    chance: float  # what a guess gets
    start: Start
    seed: int
    accuracy: float
    loss: float  # nats per row
    notes: tuple[str, ...] = ()
    right: tuple[float, ...] = ()  # of each test row, 1 where its class is right
    constant: str = ""  # the class that all rows get, in words


def ignore_activity(done: int) -> None:
    """The `on_step` of a fine-tuning that nobody looks at."""


def finetune(
    spec: ModelSpec,
    weights: Mapping[str, Tensor] | None,
    task: Task,
    budget: Budget,
    *,
    seed: int,
    on_step: Callable[[int], None] = ignore_activity,
    machine: EngineSettings | None = None,
) -> FinetuneResult:
    """Train a classifier from `weights` (as save_weights names them; None: random) and score it on the test rows.

    Both starts have the same labelled rows in the same order, the same steps, rates, dropout and classifier; they
    differ in the pretrained weights alone. `on_step` is told how many steps are done, after each.
    Raises DataError where the task has fewer labelled rows than the budget asks for.
    """
    train, tuning, machine = (
        examples_of(task.labelled(budget.labels, seed)),
        budget.tuning(seed),
        machine or EngineSettings(),
    )
    targets = (RowLabel(classes=len(task.classes)),)
    with torch.random.fork_rng(devices=[]):
        model = TaskModel(spec.model, targets, spec.vocab_size, seed)
        random = [] if weights is None else model.take_over(weights)
        engine = engine_of(model, tuning.optim(tuning.max_steps), machine, groups(model, tuning))
        train_head(engine, train, tuning, machine.micro_batch_tokens, lambda done, _: on_step(done))
    log_p = np.empty((len(task.test), len(task.classes)), np.float32)
    for numbers, heads in outputs(model, examples_of(task.test), torch.device(machine.device)):
        log_p[list(numbers)] = heads["row_label"].log_softmax(-1).numpy()
    label_N = task.test.label_N
    class_N = log_p.argmax(-1)
    right_N = class_N == label_N
    return FinetuneResult(
        task=task.name,
        chance=task.chance,
        start="random" if weights is None else "pretrained",
        seed=seed,
        accuracy=float(right_N.mean()),
        loss=float(-log_p[np.arange(len(label_N)), label_N].mean()),
        notes=tuple(of_random(name for name in random if ".pooler." in name)),
        right=tuple(right_N.astype(float).tolist()),
        constant=constant([task.classes[number] for number in class_N.tolist()]),
    )


def examples_of(examples: LabeledExamples) -> Sequence[Example]:
    """Rows with their labels, as the loop of fine-tuning takes them."""
    pairs = zip(examples.rows, examples.label_N, strict=True)
    return [[_labelled(row, int(label))] for row, label in pairs]


def _labelled(row: Row, label: int) -> Row:
    return {**row, "label": np.asarray(label, np.int64)}
