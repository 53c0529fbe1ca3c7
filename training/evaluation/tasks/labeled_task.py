"""The interface of tasks on labeled files: items with gold answers, model inputs, predictions and scores.

A kind of task is a spec; a task file gives its keys below `task` (task_file.py).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self, runtime_checkable

from preprocessing.errors import BadInput
from preprocessing.schema import Row
from preprocessing.tokenization import TemplatedRow, Vocab
from training.evaluation.files import Record, Records
from training.evaluation.likelihood import LikelihoodModel
from training.evaluation.tasks.part import Way
from training.evaluation.tasks.split import value_of

if TYPE_CHECKING:
    from torch import Tensor

    from training.finetuning import Target, Tuning

FEW: Final = 3  # below this number of questions, a choice that is never correct is not reported
NO_LABEL: Final = -1  # number of an invalid label, which is always wrong
Outputs = Iterable[tuple[Sequence[int], "Mapping[str, Tensor]"]]
"""Example indices, and the outputs of each head for them, by kind of target."""


@dataclass(frozen=True)
class TaskItem:
    """One question of a task: its texts and the gold answer, or None if the file has none."""

    place: str  # file and line
    texts: tuple[Any, ...]
    gold: Any = None


@dataclass(frozen=True)
class EncodedItems:
    """Items as model inputs; `item_of` has the item index of each example, since a long text makes several examples."""

    examples: list[list[Row]] = field(default_factory=list)
    item_of: list[int] = field(default_factory=list)
    stands_for: list[Any] = field(default_factory=list)  # what the outputs of an example refer to: words, or a window
    notes: list[str] = field(default_factory=list)  # what was left out or truncated, with counts


class TaskKind(Protocol):
    """A member of the union Kinds: a task whose questions and answers are in files."""

    way: ClassVar[Way]
    """How a model is evaluated."""

    numerics: ClassVar[int]
    """A version number, increased when inputs or metrics change without a change of keys; old scores are then
    recomputed."""

    @property
    def kind(self) -> str:
        """The name of the kind in a task file."""

    @property
    def answer_key(self) -> str:
        """The key with the column of the gold answer; "" if there is no such key."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics; the first compares trials."""

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Return the questions of the records; `columns` replaces columns of the task.

        Raises BadInput if a column is missing or a label is invalid.
        """


class LabeledTask(TaskKind, Protocol):
    """A kind of task with fine-tuning."""

    def encode(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        """Encode the items as sequences of at most `length` tokens; with `training`, only those with an answer."""

    def with_tuning(self, tuning: "Tuning") -> Self:
        """Apply the tuning's keys to the task. Raises BadInput if the kind does not support them."""

    def targets(self) -> "tuple[Target, ...]":
        """The fine-tuning targets."""

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[Any]:
        """The prediction for each item, in the form for `scores` and for leaderboard files."""

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> dict[str, float]:
        """The value of each metric, over the items with a gold answer."""

    def majority(self, items: Sequence[TaskItem]) -> list[Any]:
        """The most frequent gold answer as the prediction for each item; [] if there is none."""

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> list[str]:
        """Notes on the meaning of the scores, one line each."""


@runtime_checkable
class FittedTask(Protocol):
    """A kind that fits a parameter, such as a threshold, to the predictions on dev."""

    def fit_threshold(self, split: str, items: Sequence[TaskItem], predictions: Sequence[Any]) -> tuple[Self, str]:
        """Return the task with the best parameter for these predictions, and a note ("" if nothing is fitted).

        `items` is empty if no dev split has labels.
        """


@runtime_checkable
class ClassLabelTask(Protocol):
    """A kind whose answers are classes."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes."""

    def class_counts(self, items: Sequence[TaskItem]) -> Counter[str]:
        """The number of gold answers of each class."""


def never_learned(task: object, train: Sequence[TaskItem]) -> list[str]:
    """A note on classes that have no training example; empty if there are none."""
    if not isinstance(task, ClassLabelTask) or not (learned := task.class_counts(train)):
        return []
    missing = [repr(label) for label in task.labels if not learned[label]]
    return (
        [f"no example with the label {' or '.join(missing)}, so the model cannot learn to predict it"]
        if missing
        else []
    )


def never_in_train(task: object, train: Sequence[TaskItem], items: Sequence[TaskItem]) -> list[str]:
    """A note on gold answers of a scored split that are not in train; empty if there are none."""
    if not isinstance(task, ClassLabelTask) or not (learned := task.class_counts(train)):
        return []
    counts = task.class_counts(items)
    lacking = {label: count for label, count in counts.items() if not learned[label]}
    names = ", ".join(f"{label!r} ({count:,})" for label, count in lacking.items())
    message = f"{sum(lacking.values()):,} of {sum(counts.values()):,} gold answers do not occur in train"
    return [f"{message}, and cannot be learned: {names}"] if lacking else []


def refuse_tuning(task: LabeledTask, tuning: "Tuning", *names: str) -> None:
    """Raise BadInput if the tuning sets one of these keys, which this kind of task does not support.

    A kind that does not support both_orders does not support sum_orders either.
    """
    for name in (*names, *(["sum_orders"] if "both_orders" in names else [])):
        if value := getattr(tuning, name):
            raise BadInput(f"invalid tuning.{name}: got {value}, not supported by {task.kind} tasks; use another grid")


class ScoredTask(TaskKind, Protocol):
    """A kind that is scored by likelihoods; the answer type depends on the kind."""

    left_to_right: ClassVar[bool]
    """Whether the task needs the probability of running text, and so a causal language model."""

    def within(self, rows: int) -> Self:
        """Return the task with windows of at most `rows` tokens, unless its keys set the window."""

    def answers(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> list[Any]:
        """Score each item with the reader; few-shot examples are drawn from `train`.

        Raises BadInput if an item is too long, or the reader does not give such likelihoods.
        """

    def predictions(self, items: Sequence[TaskItem], answers: Sequence[Any]) -> list[Any]:
        """The answers in a JSON-serializable form."""

    def scores(self, items: Sequence[TaskItem], answers: Sequence[Any]) -> dict[str, float]:
        """The value of each metric, and baselines to compare them with."""

    def notes(self, items: Sequence[TaskItem], answers: Sequence[Any], reader: LikelihoodModel) -> list[str]:
        """Notes on the scores, one line each: kind of likelihood, window, normalization, ties."""

    def example(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> str:
        """The model input for the first item, as text."""


def select_answered(items: Sequence[TaskItem], *, training: bool) -> tuple[list[int], list[str]]:
    """Return the indices of the items to use (for training, those with an answer), and notes on the others.

    Raises BadInput if no item can be used for training.
    """
    used = [number for number, item in enumerate(items) if not training or item.gold is not None]
    if training and not used:
        raise BadInput("no training question has an answer; give labeled data")
    return used, describe_unlabeled(items, training=training)


def describe_unlabeled(items: Sequence[TaskItem], *, training: bool) -> list[str]:
    """A note on items without an answer; empty for a scored split without any answers."""
    lacking = sum(item.gold is None for item in items)
    message = f"{lacking} of {len(items)} questions have no answer in the file, and are ignored"
    return [message] if lacking and (training or lacking < len(items)) else []


def most_frequent(items: Sequence[TaskItem], answer: Callable[[Any], Iterable[Any]]) -> list[Any]:
    """The most frequent gold answer (of equal ones, the first) in a list; [] if there are none."""
    counts = Counter(one for gold in collect_known(items) for one in answer(gold))
    return [counts.most_common(1)[0][0]] if counts else []


def collect_known(items: Sequence[TaskItem]) -> list[Any]:
    """The gold answers of the items that have one."""
    return [item.gold for item in items if item.gold is not None]


def one_answer(golds: Sequence[Any], what: str = "answers") -> list[str]:
    """A note if all training answers are equal; empty if not.

    >>> one_answer(["yes", "yes"]), one_answer(["yes", "no"])
    (["all 2 answers are 'yes': the model can learn no other answer"], [])
    """
    same = len(golds) > 1 and all(gold == golds[0] for gold in golds)
    return [f"all {len(golds):,} {what} are {golds[0]!r}: the model can learn no other answer"] if same else []


def never_first(items: Sequence[TaskItem]) -> list[str]:
    """A note if choice 0 is never correct, since the file may count choices from 1; empty if not."""
    golds = collect_known(items)
    if len(golds) < FEW or 0 in golds:
        return []
    never = f"choice 0 is correct in none of {len(golds):,} questions"
    return [f'{never}: if the file counts choices from 1, set `labels` accordingly, as ["1", "2"]']


def refuse_from_one(column: str, labels: Iterable[tuple[Sequence[str], int]]) -> None:
    """Raise BadInput if labels count choices from 1 instead of 0, since each question would have a wrong gold
    answer.

    `labels` has the spellings of each label, and the number of choices of its question.

    >>> refuse_from_one("y", [(["1"], 2), (["0"], 2), (["2"], 2)])
    >>> refuse_from_one("y", [(["1"], 2), (["2"], 2)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    preprocessing.errors.BadInput: y counts choices from 1 (none of 2 is 0, ...
    """
    numbers = [(int(number), count) for names, count in labels if (number := next(filter(str.isdecimal, names), ""))]
    if all(number for number, _ in numbers) and any(number == count for number, count in numbers):
        reason = f"none of {len(numbers):,} is 0, some equal the number of choices"
        raise BadInput(f'{column} counts choices from 1 ({reason}); set `labels` accordingly, as ["1", "2"]')


def zero(names: Sequence[str], why: str) -> list[str]:
    """A note on undefined metrics; empty if they are defined (`why` is "").

    >>> zero(["matthews"], "there is one question"), zero(["matthews"], "")
    (['matthews is undefined and counts as 0: there is one question'], [])
    """
    verb = "is undefined and counts" if len(names) == 1 else "are undefined and count"
    return [f"{', '.join(names)} {verb} as 0: {why}"] if names and why else []


def describe_truncation(rows: Iterable[TemplatedRow], length: int) -> list[str]:
    """A note on the number of sequences that were truncated to `length` tokens; empty if none was."""
    cut = [row.is_cut for row in rows]
    return [f"{sum(cut):,} of {len(cut):,} sequences are truncated to {length} tokens"] if any(cut) else []


def texts_of(record: Record, place: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the texts in these columns. Raises BadInput if one is missing or not text."""
    texts = tuple([value_of(record, column, place) for column in columns])
    for column, text in zip(columns, texts, strict=True):
        if not isinstance(text, str):
            raise BadInput(f"{place}: invalid {column}: got {text!r}, expected text")
    return texts


def mean_of(values: Sequence[float]) -> float:
    """The mean of the values, or 0 if there are none."""
    return sum(values) / len(values) if values else 0.0
