"""One cell of a grid: a net is fine-tuned on a task of labelled files, and answers its other splits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.vocab import INSERTS, with_inserts
from training.engines import LocalEngine
from training.evaluation.outcome import Evaluated, Net
from training.finetuning import OnStep, TaskModel, Tuning, groups, nobody, outputs, tune
from training.specs import Machine
from training.tasks import Item, LabelledTask

Keep = Callable[[Mapping[str, Tensor]], None]
"""Takes the fine-tuned weights by their names."""


def forget(weights: Mapping[str, Tensor]) -> None:
    """The `keep` of a fine-tuning that nothing begins with."""


def finetuned(
    net: Net,
    task: LabelledTask,
    items: Mapping[str, Sequence[Item]],
    tuning: Tuning,
    *,
    length: int,
    machine: Machine | None = None,
    on_step: OnStep = nobody,
    begins: str = "",
    keep: Keep = forget,
) -> Evaluated:
    """Fine-tune on the items of `train`, and answer those of all other splits, in rows of at most `length` tokens, or
    of as many as the tuning says.

    `begins`: the task that the weights of `net` were fine-tuned on, as `keep` got them there. In float32, as one
    process; the global generator is as it was before. Raises Diverged where a loss is not finite, and BadInput where
    the tuning begins with another task, or asks for what this task or this net has not.
    """
    machine = machine or Machine()
    task, trunk = task.tuned_as(tuning), tuning.trunk(net.spec.trunk)
    if tuning.start != begins:
        had = f"weights that were fine-tuned on {begins}" if begins else "pretrained weights"
        raise BadInput(f"tuning.start is {tuning.start!r}, this net has {had}; fine-tune on that task first")
    length = min(tuning.length or length, trunk.longest)
    inserts = len(INSERTS) if tuning.form == "gpt1" else 0
    rows, vocab = net.spec.vocab_size, net.vocab
    vocab = with_inserts(vocab, rows) if inserts else vocab
    train = task.encoded(items["train"], vocab, length, training=True)
    losses, notes = list[float](), [f"train: {note}" for note in train.notes]

    def step(done: int, loss: float) -> None:
        losses.append(loss)
        on_step(done, loss)

    with torch.random.fork_rng(devices=[]):
        model = TaskModel(
            trunk,
            tuning.targets(task.targets()),
            rows + inserts,
            tuning.seed,
            features=tuning.features,
            new_rows=inserts,
        )
        if net.weights is not None:
            model.take_over(net.weights)
        optim = tuning.optim(tuning.num_steps(len(train.examples)))
        engine = LocalEngine(model, optim, machine, groups(model, tuning))
        tune(engine, train.examples, tuning, machine.micro_tokens, step)
    keep(engine.full_state())
    scores, predictions = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]]()
    for split in items:
        if split != "train":
            encoded = task.encoded(items[split], vocab, length, training=False)
            notes += [f"{split}: {note}" for note in encoded.notes]
            found = outputs(model, encoded.examples, torch.device(machine.device), machine.micro_tokens)
            predictions[split] = task.predictions(items[split], encoded, found)
            if any(item.gold is not None for item in items[split]):
                scores[split] = task.scores(items[split], predictions[split])
    return Evaluated(scores, predictions, losses, tuple(notes))
