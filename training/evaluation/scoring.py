"""Scores of a model with a task head: encoded items, predictions, scores, and notes on them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch

from preprocessing.tokenization import Vocab
from training.evaluation.by_unit import constant, of_constant, units_of
from training.evaluation.eval_result import EvalResult
from training.evaluation.likelihood import unknown_of
from training.evaluation.tasks import EncodedItems, FittedTask, GenerationTask, LabeledTask, TaskItem, never_in_train
from training.finetuning import TaskModel, outputs
from training.specs import EngineSettings

T = TypeVar("T", bound=LabeledTask)


def add_predictions(
    result: EvalResult,
    model: TaskModel,
    task: T,
    items: Mapping[str, Sequence[TaskItem]],
    encoded: Mapping[str, EncodedItems],
    machine: EngineSettings,
) -> tuple[EvalResult, T]:
    """Add the predictions on these splits, and their scores, to a result; return it and the task with its threshold."""
    scores, predictions, notes = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]](), list(result.notes)
    train = items.get("train", ())
    units, constants = dict[str, Sequence[float]](), dict[str, str]()
    outputs_by_split = {
        split: list(outputs(model, encoded_items.examples, torch.device(machine.device), machine.micro_tokens))
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
            of_train = of_repeated(train, items[split]) + never_in_train(task, train, items[split])
            notes += [f"{split}: {note}" for note in (*task.notes(items[split], predictions[split]), *of_train)]
    more: dict[str, Any] = {"by_unit": units, "constant": constants}
    return replace(result, scores=scores, predictions=predictions, notes=tuple(notes), **more), task


def with_majority(
    task: LabeledTask | GenerationTask, items: Sequence[TaskItem], predictions: Sequence[Any]
) -> dict[str, float]:
    """The scores, plus `majority`: the first metric of a constant prediction, the most frequent gold answer. It is
    left out if the task has no such answer."""
    guess = task.majority(items)
    return task.scores(items, predictions) | ({"majority": task.scores(items, guess)[task.metrics[0]]} if guess else {})


def encode_items(
    task: LabeledTask, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool = False
) -> EncodedItems:
    """Encode the items as sequences; add a note on tokens that the vocabulary lacks."""
    encoded = task.encode(items, vocab, length, training=training)
    unknown = [sum(unknown_of(vocab, row["input_ids"].tolist()) for row in example) for example in encoded.examples]
    return replace(encoded, notes=[*encoded.notes, *of_unknown(unknown, "examples")])


def dev_of(items: Mapping[str, Sequence[TaskItem]]) -> str:
    """The first dev split that has a label, or "" if none has."""
    splits = (name for name in items if name.startswith("dev"))
    return next((name for name in splits if any(item.gold is not None for item in items[name])), "")


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
