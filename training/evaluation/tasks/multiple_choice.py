"""Multiple choice with fine-tuning."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import Row
from preprocessing.spec import key, require, spec
from preprocessing.tokenization import Template, TemplatedRow, Vocab
from training.evaluation.files import Record, Records
from training.evaluation.tasks.labeled_task import (
    EncodedItems,
    Outputs,
    TaskItem,
    Way,
    describe_truncation,
    mean_of,
    most_frequent,
    never_first,
    refuse_from_one,
    refuse_tuning,
    select_answered,
    texts_of,
)
from training.evaluation.tasks.split import BadRows, each_row, spellings, value_of
from training.evaluation.tasks.texts import number_of_label
from training.evaluation.tasks.verbalizer import same

if TYPE_CHECKING:
    from training.finetuning import Target, Tuning

METRICS: Final = ("accuracy",)


@spec
class MultipleChoice:
    """Multiple choice with a fine-tuned head: SWAG, RACE, Story Cloze, COPA (BERT 4.4, GPT-1 3.3).

    A choice is a sequence of two texts: `context`, and `question` followed by the choice. `groups` adds scores for
    parts of the items, selected by file name (RACE: middle and high).
    """

    kind: Literal["multiple_choice"] = "multiple_choice"
    way: ClassVar[Way] = "tuned"
    numerics: ClassVar[int] = 0
    answer_key: ClassVar[str] = "label"
    context: str = key(doc="Column of the context that all choices share.")
    question: str = key(default="", doc="Column of the text before each choice; empty: none.")
    choices: tuple[str, ...] = key(doc="Columns of the choices, or one column with a list of them.")
    label: str = key(doc="Column of the correct choice.")
    labels: tuple[str, ...] = key(doc="Labels as written in the files, in the order of the choices.")
    groups: Mapping[str, str] = key(
        default_factory=dict, doc="Additional scores: name, and the part of the file name that selects its items."
    )
    metrics: tuple[str, ...] = key(
        default=("accuracy",), choices=METRICS, doc="Metrics to report; the first selects hyperparameters."
    )

    most_written: ClassVar[int] = 16
    renamed: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(len(set(self.labels)) == len(self.labels) >= 2, "labels", list(self.labels), "two or more, each once")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Return items with the texts (context, question, choices)."""
        column_names = {name: columns.get(name, getattr(self, name)) for name in ("context", "question", "label")}
        columns_of_options = (columns["choices"],) if "choices" in columns else self.choices

        given = list[tuple[Sequence[str], int]]()

        def item(record: Record, place: str) -> TaskItem:
            options = self._options([value_of(record, column, place) for column in columns_of_options], place)
            (context,) = texts_of(record, place, [column_names["context"]])
            (question,) = texts_of(record, place, [column_names["question"]]) if column_names["question"] else ("",)
            label = value_of(record, column_names["label"], place) if column_names["label"] else None
            given.append((spellings(label), len(options)))
            gold = number_of_label(self.labels[: len(options)], label, column_names["label"], place)
            return TaskItem(place, (context, question, options), gold)

        try:
            return each_row(records, item)
        except BadRows:
            if self.labels[0] == "0":
                refuse_from_one(column_names["label"], given)
            raise

    def _options(self, values: Sequence[Any], place: str) -> tuple[str, ...]:
        options = tuple(values[0]) if len(values) == 1 and isinstance(values[0], list) else tuple(values)
        if len(options) < 2 or not all(isinstance(option, str) for option in options):
            raise BadInput(f"{place}: invalid choices: got {list(options)!r}, expected at least two texts")
        if len(options) > len(self.labels):
            raise BadInput(
                f"{place}: got {len(options)} choices, expected at most {len(self.labels)}, one per label: "
                f"{', '.join(self.labels)}"
            )
        return options

    def encode(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        template, (used, notes) = Template(vocab, length), select_answered(items, training=training)
        rows = [self._rows(items[number], template) for number in used]
        examples = [_example(row, items[number].gold or 0) for row, number in zip(rows, used, strict=True)]
        return EncodedItems(examples, used, notes=[*notes, *describe_truncation(chain.from_iterable(rows), length)])

    def _rows(self, item: TaskItem, template: Template) -> list[TemplatedRow]:
        context, question, options = item.texts
        return [template.row(context, f"{question} {option}".strip()) for option in options]

    def with_tuning(self, tuning: "Tuning") -> Self:
        refuse_tuning(self, tuning, "both_orders", "no_answer_loss_weight")
        return self

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import OptionChoice

        return (OptionChoice(),)

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[str]:
        """The label of the predicted choice of each item."""
        labels = [""] * len(items)
        for numbers, heads in outputs:
            for number, option in zip(numbers, heads["option_choice"].argmax(-1).tolist(), strict=True):
                labels[number] = self.labels[option]
        return labels

    def parts(self, item: TaskItem) -> list[tuple[str, str]]:
        context, question, options = item.texts
        return [("context", context), ("question", question), *((choice(n), one) for n, one in enumerate(options))]

    def answer_text(self, gold: int) -> str:
        return choice(gold)

    def parse_answer(self, text: str) -> str:
        return next((label for number, label in enumerate(self.labels) if same(choice(number), text)), "")

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> dict[str, float]:
        """The accuracy over all items, and over the items of each group."""
        right = [
            (item.place, float(self.labels[item.gold] == label))
            for item, label in zip(items, predictions, strict=True)
            if item.gold is not None
        ]
        parts = {
            f"accuracy_{name}": [value for place, value in right if part in place] for name, part in self.groups.items()
        }
        return {"accuracy": mean_of([value for _, value in right])} | {
            name: mean_of(one) for name, one in parts.items() if one
        }

    def majority(self, items: Sequence[TaskItem]) -> list[str]:
        return most_frequent(items, lambda gold: [self.labels[gold]]) * len(items)

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> list[str]:
        """A note if the file may count choices from 1, although the labels count from 0."""
        return never_first(items) if self.labels[0] == "0" else []


def _example(rows: Sequence[TemplatedRow], gold: int) -> list[Row]:
    right = np.asarray(gold, np.int64)
    return [row.columns() | {"option": np.asarray(number, np.int64), "right": right} for number, row in enumerate(rows)]


def choice(number: int) -> str:
    """A choice as text, counted from 1."""
    return f"choice{number + 1}"
