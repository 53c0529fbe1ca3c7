"""One cell of a grid: a net, a task, how it is tuned -> scores and answers on each split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from preprocessing.vocab import Vocab
from training.engines import LocalEngine
from training.finetuning import OnStep, TaskModel, Tuning, nobody, outputs, tune
from training.model import ModelSpec
from training.specs import Machine
from training.tasks import Item, LabelledTask


@dataclass(frozen=True)
class Net:
    """What is fine-tuned: a spec, its weights by name (None: random ones of the tuning's seed), its vocabulary."""

    spec: ModelSpec
    weights: Mapping[str, Tensor] | None
    vocab: Vocab


@dataclass(frozen=True)
class Tuned:
    """What became of a cell."""

    scores: Mapping[str, Mapping[str, float]]  # by split
    predictions: Mapping[str, Sequence[Any]]  # by split, an answer for each item
    losses: Sequence[float]  # of each update, in nats or squared units a target
    notes: Sequence[str] = field(default_factory=tuple)  # what of the items could not be used


def finetuned(
    net: Net,
    task: LabelledTask,
    items: Mapping[str, Sequence[Item]],
    tuning: Tuning,
    *,
    length: int,
    machine: Machine | None = None,
    on_step: OnStep = nobody,
) -> Tuned:
    """Fine-tune on the items of `train`, and answer those of all other splits, in rows of at most `length` tokens.

    In float32, as one process; the global generator is as it was before. Raises Diverged where a loss is not finite.
    """
    machine = machine or Machine()
    length = min(length, net.spec.trunk.longest)
    train = task.encoded(items["train"], net.vocab, length, training=True)
    losses, notes = list[float](), [f"train: {note}" for note in train.notes]

    def step(done: int, loss: float) -> None:
        losses.append(loss)
        on_step(done, loss)

    with torch.random.fork_rng(devices=[]):
        model = TaskModel(net.spec.trunk, task.targets(), net.spec.vocab_size, tuning.seed)
        if net.weights is not None:
            model.take_over(net.weights)
        engine = LocalEngine(model, tuning.optim(tuning.num_steps(len(train.examples))), machine)
        tune(engine, train.examples, tuning, machine.micro_tokens, step)
    scores, predictions = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]]()
    for split in items:
        if split != "train":
            encoded = task.encoded(items[split], net.vocab, length, training=False)
            notes += [f"{split}: {note}" for note in encoded.notes]
            found = outputs(model, encoded.examples, torch.device(machine.device), machine.micro_tokens)
            predictions[split] = task.predictions(items[split], encoded, found)
            scores[split] = task.scores(items[split], predictions[split])
    return Tuned(scores, predictions, losses, tuple(notes))
