"""What tasks of one text or a pair have in common: Classify and Regress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.tokenization import Template, TemplatedRow, Vocab
from training.files import Record, Records
from training.tasks.labeled_task import EncodedItems, TaskItem, cut_rows, select_answered, texts_of
from training.tasks.split import each_row, label_of, value_of

if TYPE_CHECKING:
    from training.finetuning import Tuning


class TextTask(Protocol):
    """A task of one text or a pair; its keys are names of columns."""

    @property
    def text(self) -> str:
        """Of the text, or of the first one."""

    @property
    def text_pair(self) -> str:
        """Of the second one, "" where there is none."""

    @property
    def label(self) -> str:
        """Of the answer."""

    @property
    def both_orders(self) -> bool:
        """Whether each order of a pair is an example in training."""

    @property
    def sum_orders(self) -> bool:
        """Whether an example is a pair in both orders, whose states are added (GPT-1, 3.3)."""


def items_of(
    task: TextTask, records: Records, columns: Mapping[str, str], gold: Callable[[Any, str, str], Any]
) -> list[TaskItem]:
    """The questions in the records; `gold` makes the answer of a value, given its column and place, None of none."""
    text, pair, label = (columns.get(name, getattr(task, name)) for name in ("text", "text_pair", "label"))
    wanted = [text, pair] if pair else [text]

    def item(record: Record, place: str) -> TaskItem:
        answer = gold(value_of(record, label, place), label, place) if label else None
        return TaskItem(place, texts_of(record, place, wanted), answer)

    found = each_row(records, item)
    if blank := [one.place for one in found if not all(text.strip() for text in one.texts)]:
        records.remarks.append(
            f"{len(blank):,} of {len(found):,} rows have no text in {' or '.join(wanted)}: {blank[0]}"
        )
    return found


def number_of_label(labels: Sequence[str], given: Any, column: str, place: str) -> int | None:
    """The number of the label that a record has, None where it has none. BadInput where it has another."""
    try:
        found = label_of(given, labels)
    except ValueError:
        raise BadInput(f"{place}: {column} is {given!r}, allowed is {' or '.join(labels)}") from None
    return None if found is None else labels.index(found)


def encoded_of(
    task: TextTask,
    items: Sequence[TaskItem],
    vocab: Vocab,
    length: int,
    target: Callable[[Any], dict[str, np.ndarray]],
    *,
    training: bool,
) -> EncodedItems:
    """A row of each item, with the column that `target` makes of its answer; or a row of each order, of which the first
    has the answer."""
    template, (number_of, unlabelled) = Template(vocab, length), select_answered(items, training=training)
    items = [items[number] for number in number_of]
    if training and task.both_orders:
        items = [*items, *(replace(item, texts=item.texts[::-1]) for item in items)]
        number_of += number_of

    def rows(item: TaskItem) -> list[tuple[TemplatedRow, Any]]:
        orders = ((item.texts, item.gold), (item.texts[::-1], None))[: num_rows(task)]
        return [(template.row(*texts), gold) for texts, gold in orders]

    found = [rows(item) for item in items]
    notes = [*unlabelled, *cut_rows((row for rows in found for row, _ in rows), length)]
    examples = [[row.columns() | target(gold) for row, gold in rows] for rows in found]
    return EncodedItems(examples, number_of, notes=notes)


def num_rows(task: TextTask) -> int:
    """Rows of an example."""
    return 2 if task.sum_orders else 1


def orders_of(task: TextTask, tuning: "Tuning") -> tuple[bool, bool]:
    """Whether the orders of a pair are two examples, and whether their states are added, as the task says or a tuning
    wants it. BadInput where that wants two orders of one text."""
    for name in ("both_orders", "sum_orders"):
        if getattr(tuning, name) and not task.text_pair:
            raise BadInput(f"tuning.{name} is True, which is for pairs; this task has one text: use another grid")
    return tuning.both_orders or task.both_orders, tuning.sum_orders or task.sum_orders
