"""Fine-tuning on tasks made of a corpus's held-out documents (tasks/), with the shared fine-tuning loop."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from preprocessing.schema import Row
from training.evaluation.budget import Budget, FinetuneResult
from training.evaluation.by_unit import constant
from training.evaluation.finetune_trial import engine_of, of_random
from training.evaluation.tasks import LabeledExamples, Task
from training.finetuning import Example, RowLabel, TaskModel, groups, outputs, train_head
from training.model_spec import ModelSpec
from training.specs import EngineSettings


def ignore_activity(done: int) -> None:
    """Default `on_step`: do nothing."""


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
    """Train a classifier from `weights` (named as by save_weights; None: random) and score it on the test examples.

    Runs from pretrained and from random weights use the same labeled examples in the same order. Steps, learning
    rates, dropout and the classifier are also the same, so the runs differ in the initial weights only. `on_step`
    receives the number of completed steps after each step.

    Raises DataError if the task has fewer labeled examples than the budget requires.
    """
    train, tuning, machine = (
        examples_of(task.draw_labeled(budget.labels, seed)),
        budget.make_tuning(seed),
        machine or EngineSettings(),
    )
    targets = (RowLabel(classes=len(task.classes)),)
    with torch.random.fork_rng(devices=[]):
        model = TaskModel(spec.model, targets, spec.vocab_size, seed)
        random = [] if weights is None else model.take_over(weights)
        engine = engine_of(model, tuning.optim(tuning.max_steps), machine, groups(model, tuning))
        train_head(engine, train, tuning, machine.micro_tokens, lambda done, _: on_step(done))
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
        predicted=tuple(task.classes[number] for number in class_N.tolist()),
    )


def examples_of(examples: LabeledExamples) -> Sequence[Example]:
    """Labeled examples in the form of the fine-tuning loop."""
    pairs = zip(examples.rows, examples.label_N, strict=True)
    return [[_label_row(row, int(label))] for row, label in pairs]


def _label_row(row: Row, label: int) -> Row:
    return {**row, "label": np.asarray(label, np.int64)}
