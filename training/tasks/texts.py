"""What tasks of one text or a pair have in common: Classify and Regress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from preprocessing.vocab import Template, Vocab
from training.files import Records
from training.tasks.labelled import Encoded, Item, cut_rows, texts_of
from training.tasks.split import value_of


class OfTexts(Protocol):
    """A task of one text or a pair; its keys are names of columns."""

    @property
    def text(self) -> str:
        """Of the text, or of the first one."""

    @property
    def pair(self) -> str:
        """Of the second one, "" where there is none."""

    @property
    def label(self) -> str:
        """Of the answer."""

    @property
    def both_orders(self) -> bool:
        """Whether each order of a pair is an example in training."""


def items_of(
    task: OfTexts, records: Records, columns: Mapping[str, str], gold: Callable[[Any, str, str], Any]
) -> list[Item]:
    """The questions in the records; `gold` makes the answer of a value, given its column and place."""
    text, pair, label = (columns.get(name, getattr(task, name)) for name in ("text", "pair", "label"))
    wanted = [text, pair] if pair else [text]
    found = []
    for record, place in zip(records.rows, records.places, strict=True):
        answer = gold(value_of(record, label, place), label, place) if label else None
        found.append(Item(place, texts_of(record, place, wanted), answer))
    return found


def encoded_of(
    task: OfTexts,
    items: Sequence[Item],
    vocab: Vocab,
    length: int,
    target: Callable[[Any], dict[str, np.ndarray]],
    *,
    training: bool,
) -> Encoded:
    """A row of each item, with the column that `target` makes of its answer."""
    template, number_of = Template(vocab, length), list(range(len(items)))
    if training and task.both_orders:
        items = [*items, *(replace(item, texts=item.texts[::-1]) for item in items)]
        number_of += number_of
    rows = [template.row(*item.texts) for item in items]
    examples = [[row.columns() | target(item.gold)] for row, item in zip(rows, items, strict=True)]
    return Encoded(examples, number_of, notes=cut_rows(rows, length))
