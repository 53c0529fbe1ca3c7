"""One cell of a grid: a net is fine-tuned on a task of labelled files, and answers its other splits."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from training.engines import LocalEngine
from training.evaluation.outcome import Evaluated, Net
from training.finetuning import OnStep, TaskModel, Tuning, nobody, outputs, tune
from training.specs import Machine
from training.tasks import Item, LabelledTask


def finetuned(
    net: Net,
    task: LabelledTask,
    items: Mapping[str, Sequence[Item]],
    tuning: Tuning,
    *,
    length: int,
    machine: Machine | None = None,
    on_step: OnStep = nobody,
) -> Evaluated:
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
            if any(item.gold is not None for item in items[split]):
                scores[split] = task.scores(items[split], predictions[split])
    return Evaluated(scores, predictions, losses, tuple(notes))
