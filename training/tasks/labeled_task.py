"""What a task of labelled files is: items with their right answers, rows of a net, what its heads say, and scores.

A kind of task is a spec whose keys a task file gives below `task` (task_file.py); it states all that is true of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self, runtime_checkable

from preprocessing.errors import BadInput
from preprocessing.schema import Row
from preprocessing.tokenization import TemplatedRow, Vocab
from training.files import Record, Records
from training.likelihood import LikelihoodModel
from training.tasks.part import Way
from training.tasks.split import value_of

if TYPE_CHECKING:
    from torch import Tensor

    from training.finetuning import Target, Tuning

FEW: Final = 3  # questions, below which nobody wonders that an option is right in none
NO_LABEL: Final = -1  # the number of what is no label: always wrong
Outputs = Iterable[tuple[Sequence[int], "Mapping[str, Tensor]"]]
"""Numbers of examples, and what each head says of them, by the kind of its target."""


@dataclass(frozen=True)
class TaskItem:
    """One question of a task: its texts and the right answer, None where the file has none."""

    place: str  # file and line
    texts: tuple[Any, ...]
    gold: Any = None


@dataclass(frozen=True)
class EncodedItems:
    """Items as examples of a net; `item_of` is for each example the number of its item: a long text makes several."""

    examples: list[list[Row]] = field(default_factory=list)
    item_of: list[int] = field(default_factory=list)
    stands_for: list[Any] = field(default_factory=list)  # what the outputs of an example are of: words, a window
    notes: list[str] = field(default_factory=list)  # what could not be used, and how often


class TaskKind(Protocol):
    """A part of the union Kinds: a task whose questions and answers stand in files."""

    way: ClassVar[Way]
    """How a net is asked."""

    numerics: ClassVar[int]
    """Raised where its rows or metrics change while its keys stay: scores from before are then made anew."""

    @property
    def kind(self) -> str:
        """Its name in a task file."""

    @property
    def answer_key(self) -> str:
        """The key that names the column of the right answer, "" where the format or nothing does."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of its scores; cells of a grid are compared by the first."""

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """The questions in the records; `columns` are in place of those of the task. BadInput, in one line, where a
        column is missing or a label is out of range."""


class LabeledTask(TaskKind, Protocol):
    """A kind for which a net is fine-tuned."""

    def encoded(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        """The items in rows of at most `length` tokens; with `training` those that something can be learnt from."""

    def tuned_as(self, tuning: "Tuning") -> Self:
        """The task as a tuning wants it. BadInput, in one line, where that asks for what its kind has not."""

    def targets(self) -> "tuple[Target, ...]":
        """What a net is fine-tuned to predict."""

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[Any]:
        """The answer to each item, as `scores` and a submission take it."""

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> dict[str, float]:
        """Each of `metrics`, of the items that have an answer."""

    def majority(self, items: Sequence[TaskItem]) -> list[Any]:
        """The most frequent right answer as the prediction of each item; [] where there is none."""

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> list[str]:
        """What the scores mean, where they do not say it: a line each."""


@runtime_checkable
class FittedTask(Protocol):
    """A kind that has something to choose by a net's answers on dev, as a threshold."""

    def fitted(self, split: str, items: Sequence[TaskItem], predictions: Sequence[Any]) -> tuple[Self, str]:
        """The task with what is best for these answers, and a note of it, "" where nothing is chosen; of no items
        where no dev split has labels."""


@runtime_checkable
class ClassLabelTask(Protocol):
    """A kind whose answers are some of a few classes."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes."""

    def class_counts(self, items: Sequence[TaskItem]) -> Counter[str]:
        """How often each class is a right answer in these items."""


def never_learned(task: object, train: Sequence[TaskItem]) -> list[str]:
    """What there is to say of classes that are the answer to no question to learn from."""
    if not isinstance(task, ClassLabelTask) or not (learned := task.class_counts(train)):
        return []
    lacking = [repr(label) for label in task.labels if not learned[label]]
    return [f"has no {' or '.join(lacking)}, which a net does not learn to answer"] if lacking else []


def never_in_train(task: object, train: Sequence[TaskItem], items: Sequence[TaskItem]) -> list[str]:
    """What there is to say of answers that are in a split to score, and in no question to learn from."""
    if not isinstance(task, ClassLabelTask) or not (learned := task.class_counts(train)):
        return []
    counts = task.class_counts(items)
    lacking = {label: count for label, count in counts.items() if not learned[label]}
    named = ", ".join(f"{label!r} ({count:,})" for label, count in lacking.items())
    said = f"{sum(lacking.values()):,} of {sum(counts.values()):,} right answers are never the answer in train"
    return [f"{said}, and cannot be learned: {named}"] if lacking else []


def refuse_tuning(task: LabeledTask, tuning: "Tuning", *names: str) -> None:
    """BadInput, in one line, where a tuning says something by these keys, which a task of this kind cannot obey.

    What does not read a pair in both orders as two examples does not add them either.
    """
    for name in (*names, *(["sum_orders"] if "both_orders" in names else [])):
        if given := getattr(tuning, name):
            raise BadInput(f"tuning.{name} is {given}, which is not for a task of kind {task.kind}; use another grid")


class ScoredTask(TaskKind, Protocol):
    """A kind whose answers are how likely a net finds texts; an answer is whatever `answers` makes of an item."""

    left_to_right: ClassVar[bool]
    """Whether it asks for the probability of running text, which nets alone have that predict from left to right."""

    def within(self, rows: int) -> Self:
        """The task in windows of at most `rows` tokens, where its keys leave that to the net."""

    def answers(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> list[Any]:
        """What the reader says about each item, with examples from `train` in prompts. BadInput where one of them does
        not fit, or the reader gives no such likelihood."""

    def predictions(self, items: Sequence[TaskItem], answers: Sequence[Any]) -> list[Any]:
        """The same as JSON can hold it."""

    def scores(self, items: Sequence[TaskItem], answers: Sequence[Any]) -> dict[str, float]:
        """Each of `metrics`, and what they are to be compared with."""

    def notes(self, items: Sequence[TaskItem], answers: Sequence[Any], reader: LikelihoodModel) -> list[str]:
        """What the scores mean, a line each: the kind of likelihood, window, denominator, ties."""

    def example(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> str:
        """What is asked about the first item, as the reader gets it."""


def select_answered(items: Sequence[TaskItem], *, training: bool) -> tuple[list[int], list[str]]:
    """Numbers of the items that rows are made of, in training those that have an answer, and what there is to say of
    the others. BadInput where there is none to learn from."""
    used = [number for number, item in enumerate(items) if not training or item.gold is not None]
    if training and not used:
        raise BadInput("no question has an answer to learn from")
    return used, describe_unlabeled(items, training=training)


def describe_unlabeled(items: Sequence[TaskItem], *, training: bool) -> list[str]:
    """What there is to say of items without an answer: nothing of a split to score that has none at all."""
    lacking = sum(item.gold is None for item in items)
    said = f"{lacking} of {len(items)} questions have no answer in the file, and do not count"
    return [said] if lacking and (training or lacking < len(items)) else []


def most_frequent(items: Sequence[TaskItem], answer: Callable[[Any], Iterable[Any]]) -> list[Any]:
    """The most frequent of the answers that are known, of equal ones the first, in a list; [] where none is."""
    counts = Counter(one for gold in known_of(items) for one in answer(gold))
    return [counts.most_common(1)[0][0]] if counts else []


def known_of(items: Sequence[TaskItem]) -> list[Any]:
    """The answers that are known."""
    return [item.gold for item in items if item.gold is not None]


def one_answer(golds: Sequence[Any], what: str = "answers") -> list[str]:
    """What there is to say of answers to learn from that are all the same.

    >>> one_answer(["yes", "yes"]), one_answer(["yes", "no"])
    (["all 2 answers are 'yes': a net learns to say nothing else"], [])
    """
    same = len(golds) > 1 and all(gold == golds[0] for gold in golds)
    return [f"all {len(golds):,} {what} are {golds[0]!r}: a net learns to say nothing else"] if same else []


def never_first(items: Sequence[TaskItem]) -> list[str]:
    """What there is to say of right options, numbered from 0, of which none is the first: a file may count from 1."""
    golds = known_of(items)
    if len(golds) < FEW or 0 in golds:
        return []
    none = f"option 0 is right in none of {len(golds):,} questions"
    return [f'{none}: where the file counts options from 1, give `labels` that do so, as ["1", "2"]']


def refuse_from_one(column: str, given: Iterable[tuple[Sequence[str], int]]) -> None:
    """BadInput where labels that are to count options from 0 count them from 1, which would make another option right
    in each question; `given`: how each label may be written, and how many options its question has.

    >>> refuse_from_one("y", [(["1"], 2), (["0"], 2), (["2"], 2)])
    >>> refuse_from_one("y", [(["1"], 2), (["2"], 2)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    preprocessing.errors.BadInput: y counts options from 1 (none of 2 is 0, ...
    """
    found = [(int(number), count) for names, count in given if (number := next(filter(str.isdecimal, names), ""))]
    if all(number for number, _ in found) and any(number == count for number, count in found):
        from_one = f"none of {len(found):,} is 0, some are the number of options"
        raise BadInput(f'{column} counts options from 1 ({from_one}); give `labels` that do so, as ["1", "2"]')


def zero(names: Sequence[str], why: str) -> list[str]:
    """What there is to say of metrics that are not defined, "" where they are.

    >>> zero(["matthews"], "there is one question"), zero(["matthews"], "")
    (['matthews is not defined and counts as 0: there is one question'], [])
    """
    said = "is not defined and counts" if len(names) == 1 else "are not defined and count"
    return [f"{', '.join(names)} {said} as 0: {why}"] if names and why else []


def cut_rows(rows: Iterable[TemplatedRow], length: int) -> list[str]:
    """What there is to say of rows that were made to fit `length` tokens: how many lost some."""
    cut = [row.is_cut for row in rows]
    return [f"{sum(cut):,} of {len(cut):,} rows are cut to {length} tokens"] if any(cut) else []


def texts_of(record: Record, place: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The texts in these columns; BadInput where one is missing or is no text."""
    found = tuple([value_of(record, column, place) for column in columns])
    for column, text in zip(columns, found, strict=True):
        if not isinstance(text, str):
            raise BadInput(f"{place}: column {column} is {text!r}, allowed is text")
    return found


def mean_of(values: Sequence[float]) -> float:
    """Their mean, 0 of none."""
    return sum(values) / len(values) if values else 0.0
