"""Shared parts of tasks with one text or a pair: Classification and Regression."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.tokenization import Template, TemplatedRow, Vocab
from training.evaluation.files import Record, Records
from training.evaluation.tasks.labeled_task import (
    EncodedItems,
    TaskItem,
    describe_truncation,
    select_answered,
    texts_of,
)
from training.evaluation.tasks.split import each_row, label_of, value_of

if TYPE_CHECKING:
    from training.finetuning import Tuning


class TextTask(Protocol):
    """A task of one text or a pair; its keys are names of columns."""

    @property
    def text(self) -> str:
        """The column of the text, or of the first text."""

    @property
    def text_pair(self) -> str:
        """The column of the second text; "" if there is none."""

    @property
    def label(self) -> str:
        """The column of the answer."""

    @property
    def both_orders(self) -> bool:
        """Whether training uses both orders of a pair, each as an example."""

    @property
    def sum_orders(self) -> bool:
        """Whether an example has both orders of a pair, whose states are added (GPT-1, 3.3)."""


def items_of(
    task: TextTask, records: Records, columns: Mapping[str, str], gold: Callable[[Any, str, str], Any]
) -> list[TaskItem]:
    """Return the questions of the records; `gold` converts a value, its column and place to the answer, or None."""
    text, pair, label = (columns.get(name, getattr(task, name)) for name in ("text", "text_pair", "label"))
    text_columns = [text, pair] if pair else [text]

    def item(record: Record, place: str) -> TaskItem:
        answer = gold(value_of(record, label, place), label, place) if label else None
        return TaskItem(place, texts_of(record, place, text_columns), answer)

    questions = each_row(records, item)
    if blank_places := [one.place for one in questions if not all(text.strip() for text in one.texts)]:
        records.remarks.append(
            f"{len(blank_places):,} of {len(questions):,} rows have no text in {' or '.join(text_columns)}: "
            f"{blank_places[0]}"
        )
    return questions


def number_of_label(labels: Sequence[str], value: Any, column: str, place: str) -> int | None:
    """Return the number of a record's label, or None if it is missing. Raises BadInput for another value."""
    try:
        label = label_of(value, labels)
    except ValueError:
        raise BadInput(f"{place}: invalid {column}: got {value!r}, expected {' or '.join(labels)}") from None
    return None if label is None else labels.index(label)


def encode_items(
    task: TextTask,
    items: Sequence[TaskItem],
    vocab: Vocab,
    length: int,
    target: Callable[[Any], dict[str, np.ndarray]],
    *,
    training: bool,
) -> EncodedItems:
    """Encode each item as a sequence, with the column that `target` makes of its answer.

    With sum_orders, an item has one sequence per order; the first one has the answer.
    """
    template, (number_of, unlabelled) = Template(vocab, length), select_answered(items, training=training)
    items = [items[number] for number in number_of]
    if training and task.both_orders:
        items = [*items, *(replace(item, texts=item.texts[::-1]) for item in items)]
        number_of += number_of

    def rows(item: TaskItem) -> list[tuple[TemplatedRow, Any]]:
        orders = ((item.texts, item.gold), (item.texts[::-1], None))[: num_rows(task)]
        return [(template.row(*texts), gold) for texts, gold in orders]

    row_groups = [rows(item) for item in items]
    notes = [*unlabelled, *describe_truncation((row for rows in row_groups for row, _ in rows), length)]
    examples = [[row.columns() | target(gold) for row, gold in rows] for rows in row_groups]
    return EncodedItems(examples, number_of, notes=notes)


def num_rows(task: TextTask) -> int:
    """The number of sequences of an example."""
    return 2 if task.sum_orders else 1


def orders_of(task: TextTask, tuning: "Tuning") -> tuple[bool, bool]:
    """Return both_orders and sum_orders, as set by the task or the tuning.

    Raises BadInput if the tuning sets one of them, but the task has only one text.
    """
    for name in ("both_orders", "sum_orders"):
        if getattr(tuning, name) and not task.text_pair:
            raise BadInput(
                f"invalid tuning.{name}: got true, expected false for a task with one text; use another grid"
            )
    return tuning.both_orders or task.both_orders, tuning.sum_orders or task.sum_orders
