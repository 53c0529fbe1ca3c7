"""Ranking: pairs with the same first text compete, and one is correct; for WNLI as ranking."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import Row
from preprocessing.spec import key, require, spec
from preprocessing.tokenization import Template, TemplatedRow, Vocab
from training.evaluation import metrics as measures
from training.evaluation.files import Records
from training.evaluation.tasks.labeled_task import (
    EncodedItems,
    Outputs,
    TaskItem,
    Way,
    describe_truncation,
    most_frequent,
    refuse_tuning,
)
from training.evaluation.tasks.texts import items_of, number_of_label

if TYPE_CHECKING:
    from training.finetuning import Target, Tuning

METRICS: Final = ("accuracy",)
WRONG, RIGHT = 0, 1  # indices in `labels`


@spec
class Ranking:
    """Ranking of text pairs that share their first text: WNLI (after RoBERTa, 5.1).

    One pair of a group is correct. Training uses groups of at least two pairs with one correct pair, by a softmax over
    the group; other groups have no preference to learn. The predicted pair of a group is the one with the highest
    score. A pair without alternatives is predicted as correct if its score is above the mean of all pairs.
    """

    kind: Literal["ranking"] = "ranking"
    way: ClassVar[Way] = "tuned"
    numerics: ClassVar[int] = 0
    answer_key: ClassVar[str] = "label"
    text: str = key(doc="Column of the text that pairs share.")
    text_pair: str = key(doc="Column of the sentence that is correct or not.")
    label: str = key(doc="Column of the label.")
    labels: tuple[str, str] = key(doc="Labels as written in the files: wrong, correct.")
    both_orders: ClassVar[bool] = False
    sum_orders: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = METRICS

    def __post_init__(self) -> None:
        require(len(set(self.labels)) == len(self.labels) == 2, "labels", list(self.labels), "two, wrong and right")
        require(self.text_pair != "", "text_pair", self.text_pair, "a column")

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        return items_of(self, records, columns, self._number)

    def _number(self, given: Any, column: str, place: str) -> int | None:
        return number_of_label(self.labels, given, column, place)

    def encode(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        template, encoded, rows = Template(vocab, length), EncodedItems(), list[TemplatedRow]()
        groups: dict[str, list[int]] = {}
        for number, item in enumerate(items):
            groups.setdefault(item.texts[0], []).append(number)
        for numbers in groups.values():
            right = [place for place, number in enumerate(numbers) if items[number].gold == RIGHT]
            if not training or (len(right) == 1 and len(numbers) > 1):
                first = right[0] if right else 0
                encoded_rows = [template.row(*items[number].texts) for number in numbers]
                encoded.examples.append([_example(row, at, first) for at, row in enumerate(encoded_rows)])
                rows += encoded_rows
                encoded.item_of.append(numbers[0])
                encoded.stands_for.append(numbers)
        unused = len(items) - sum(map(len, encoded.stands_for))
        if unused:
            encoded.notes.append(
                f"{unused} of {len(items)} pairs are left out: "
                "they have no competing pair, or not exactly one is correct"
            )
        encoded.notes.extend(describe_truncation(rows, length))
        if training and not encoded.examples:
            raise BadInput(
                "no group of pairs to rank: two or more pairs must share their first text, with one correct; "
                "use another task"
            )
        return encoded

    def with_tuning(self, tuning: "Tuning") -> Self:
        refuse_tuning(self, tuning, "both_orders", "no_answer_loss_weight")
        return self

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import OptionChoice

        return (OptionChoice(),)

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[str]:
        """The label of each item, as in the file."""
        score_N, best = np.zeros(len(items)), set[int]()
        for examples, heads in outputs:
            for example, logits in zip(examples, heads["option_choice"].numpy(), strict=True):
                numbers = encoded.stands_for[example]
                score_N[numbers] = logits[: len(numbers)]
                best |= {numbers[int(np.argmax(logits[: len(numbers)]))]}
        alone = {numbers[0] for numbers in encoded.stands_for if len(numbers) == 1}
        mean = score_N.mean() if len(items) else 0.0
        chosen = {number for number in best if number not in alone or score_N[number] > mean}
        return [self.labels[RIGHT if number in chosen else WRONG] for number in range(len(items))]

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> dict[str, float]:
        both = [
            (item.gold, self.labels.index(label))
            for item, label in zip(items, predictions, strict=True)
            if item.gold is not None
        ]
        gold_N, predicted_N = np.array(both, np.int64).reshape(-1, 2).T
        return {"accuracy": measures.accuracy(gold_N, predicted_N)}

    def majority(self, items: Sequence[TaskItem]) -> list[str]:
        return most_frequent(items, lambda gold: [self.labels[gold]]) * len(items)

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> list[str]:
        return []


def _example(row: TemplatedRow, option: int, right: int) -> Row:
    return row.columns() | {"option": np.asarray(option, np.int64), "right": np.asarray(right, np.int64)}
