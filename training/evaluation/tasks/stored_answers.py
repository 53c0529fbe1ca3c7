"""Questions and answers as JSON values, and back: what an evaluation stores, and what a comparison of models reads."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast, runtime_checkable

from preprocessing.spec import part
from training.evaluation.tasks.labeled_task import TaskItem


@runtime_checkable
class StoredAnswersTask(Protocol):
    """A kind whose answers, in the form for `scores`, differ from its stored predictions."""

    def restore_answer(self, prediction: Any) -> Any:
        """The answer from a stored prediction. Raises KeyError or TypeError if the prediction lacks a value."""


@runtime_checkable
class StoredTextsTask(Protocol):
    """A kind whose items have texts that are not strings."""

    def restore_texts(self, texts: Sequence[Any]) -> tuple[Any, ...]:
        """The texts of an item from their JSON values."""


@runtime_checkable
class StoredGoldTask(Protocol):
    """A kind whose stored question has another form of the gold answer than its items."""

    def restore_gold(self, question: Mapping[str, Any]) -> Any:
        """The gold answer of an item from the JSON values of its question."""


@dataclass(frozen=True)
class ShownAnswer:
    """A question and a model's answer to it, as texts and numbers for a reader."""

    question: str
    gold: str  # the correct answer; "" if the file has none
    answer: str
    correct: bool | None = None  # None: unknown, or the answer is neither right nor wrong
    choices: tuple[str, ...] = ()
    values: tuple[float, ...] = ()  # for each choice: the number by which choices are compared
    unit: str = ""  # of `values`
    right: int | None = None  # the number of the correct choice
    margin: float | None = None  # value of the correct choice minus that of the best wrong one; or its logarithm


@runtime_checkable
class ShownTask(Protocol):
    """A kind that compares choices, or whose correct answers are not equal to the gold answer as text."""

    def show_answer(self, item: TaskItem, answer: Any) -> ShownAnswer:
        """The question and the answer for a reader."""


def question_of(kind: Any, item: TaskItem) -> dict[str, Any]:
    """A question as JSON values: its place, its texts, and its gold answer in the form of a prediction.

    A label is stored by its name. The gold answer is None if the file has none.
    """
    texts = [dataclasses.asdict(cast(Any, text)) if dataclasses.is_dataclass(text) else text for text in item.texts]
    return {"place": item.place, "texts": texts, **_gold(kind, item)}


def _gold(kind: Any, item: TaskItem) -> dict[str, Any]:
    inner = _inner(kind)
    labels = getattr(inner, "labels", ())
    if _fits(inner, StoredGoldTask) and item.gold is not None:
        id, answers, starts = item.gold
        return {"id": id, "gold": {"answers": list(answers), "starts": list(starts)}}
    if isinstance(item.gold, int) and not isinstance(item.gold, bool) and item.gold < len(labels):
        return {"gold": labels[item.gold]}
    return {"gold": item.gold}


def restore_kind(union: Any, values: Mapping[str, Any]) -> Any:
    """The kind of task with these JSON values, for its scores only: the task inside a text-to-text task, and without
    settings of generation."""
    if isinstance(values.get("task"), Mapping):
        values = values["task"]
    return part(union, {name: value for name, value in values.items() if name != "generation"})


def restore_item(kind: Any, question: Mapping[str, Any]) -> TaskItem:
    """The item of a stored question: the inverse of `question_of`. Raises KeyError if the question lacks its texts."""
    inner = _inner(kind)
    texts, gold = question["texts"], question["gold"]
    if _fits(kind, StoredTextsTask):
        texts = kind.restore_texts(texts)
    labels = getattr(inner, "labels", ())
    if _fits(inner, StoredGoldTask):
        gold = inner.restore_gold(question)
    elif isinstance(gold, str) and gold in labels:
        gold = labels.index(gold)
    return TaskItem(question["place"], tuple(texts), gold)


def restore_answer(kind: Any, prediction: Any) -> Any:
    """The answer of a stored prediction, in the form for `scores`.

    Raises KeyError or TypeError if the prediction lacks a value that the metrics need.
    """
    inner = _inner(kind)
    return inner.restore_answer(prediction) if _fits(inner, StoredAnswersTask) else prediction


def _fits(kind: Any, protocol: Any) -> bool:
    """Whether a kind has the functions of a protocol."""
    of: Any = type(kind)
    return _has_functions(of, protocol)


@cache
def _has_functions(type_: Any, protocol: Any) -> bool:
    """`issubclass` of a protocol, which takes a tenth of a millisecond without the cache."""
    return issubclass(type_, protocol)


def _inner(kind: Any) -> Any:
    """The task inside a text-to-text task; otherwise the task itself."""
    return getattr(kind, "task", kind)


def show_answer(kind: Any, question: Mapping[str, Any], prediction: Any) -> ShownAnswer:
    """A stored question and a stored prediction for a reader. `kind` is None for a task of held-out documents.

    Raises KeyError if the question lacks its texts.
    """
    inner = _inner(kind)
    if isinstance(prediction, Mapping) and prediction.get("left_out"):
        return ShownAnswer(_join(question["texts"]), "", f"not scored: {prediction['left_out']}")
    if _fits(inner, ShownTask):
        return inner.show_answer(restore_item(kind, question), restore_answer(kind, prediction))
    gold = question["gold"]
    if isinstance(gold, str):
        gold = getattr(inner, "merge_labels", {}).get(gold, gold)
    if isinstance(prediction, Mapping) and "answer" in prediction:
        more: dict[str, Any] = {"choices": tuple(prediction.get("choices", ())), "margin": prediction.get("margin")}
        is_right = prediction.get("correct", prediction["answer"] == gold)
        return ShownAnswer(_join(question["texts"]), str(gold), str(prediction["answer"]), is_right, **more)
    answer = _join([prediction])
    is_right = None if gold is None else _is_equal(gold, prediction)
    return ShownAnswer(_join(question["texts"]), "" if gold is None else _join([gold]), answer, is_right)


def _is_equal(gold: Any, prediction: Any) -> bool | None:
    """Whether a prediction equals a gold answer, or one of several; None for numbers and counts."""
    is_list = isinstance(gold, list | tuple)
    if isinstance(prediction, str):
        return prediction == gold if isinstance(gold, str) else prediction in gold if is_list else None
    return list(prediction) == list(gold) if is_list and isinstance(prediction, list | tuple) else None


def _join(texts: Sequence[Any]) -> str:
    """Texts, lists of words and records as one text, with an empty line between them."""
    return "\n\n".join(filter(None, map(_plain, texts)))


def _plain(text: Any) -> str:
    if isinstance(text, Mapping):
        return "\n".join(f"{name}: {_plain(value)}" for name, value in text.items() if value not in ("", None, []))
    if isinstance(text, list | tuple):
        return " ".join(map(_plain, text))
    return f"{text:.4g}" if isinstance(text, float) else str(text)
