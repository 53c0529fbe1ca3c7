"""Which of some labels does a text, or a pair of texts, have?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Ints
from preprocessing.spec import require, spec
from preprocessing.vocab import Vocab
from training import metrics as measures
from training.files import Records
from training.tasks.in_words import same, sentences
from training.tasks.labelled import NO_LABEL, Encoded, Item, Outputs, Way, refuse
from training.tasks.texts import encoded_of, items_of, num_rows, orders_of

if TYPE_CHECKING:
    from training.finetuning import Target, Tuning

METRICS: Final[Mapping[str, Callable[[Ints, Ints], float]]] = {
    "accuracy": measures.accuracy,
    "f1": measures.f1,
    "macro_f1": measures.macro_f1,
    "matthews": measures.matthews,
}


@spec
class Classify:
    """A label of a text, or of a pair: CoLA, SST-2, MRPC, QQP, MNLI, QNLI, RTE (arXiv:1804.07461)."""

    kind: Literal["classify"] = "classify"
    way: ClassVar[Way] = "tuned"
    numerics: ClassVar[int] = 0
    text: str  # column of the text, or of the first one
    pair: str = ""  # column of the second one
    label: str  # column of the label
    labels: tuple[str, ...]  # as the file has them, in the order of their numbers
    merge: Mapping[str, str] = field(default_factory=dict)  # labels that count as another one, after the choice (HANS)
    both_orders: bool = False  # of a pair in training: each order is an example
    sum_orders: bool = False  # of a pair: an example is both orders, whose states are added
    metrics: tuple[str, ...] = ("accuracy",)

    most_written: ClassVar[int] = 16

    def __post_init__(self) -> None:
        require(len(set(self.labels)) == len(self.labels) >= 2, "labels", list(self.labels), "two or more, each once")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def items(self, records: Records, columns: Mapping[str, str]) -> list[Item]:
        return items_of(self, records, columns, self._number)

    def _number(self, given: Any, column: str, place: str) -> int:
        try:
            return self.labels.index(str(given))
        except ValueError:
            raise BadInput(f"{place}: {column} is {given!r}, allowed is {' or '.join(self.labels)}") from None

    def encoded(self, items: Sequence[Item], vocab: Vocab, length: int, *, training: bool) -> Encoded:
        def target(gold: int | None) -> dict[str, np.ndarray]:
            return {"label": np.asarray(IGNORE if gold is None else gold, np.int64)}

        return encoded_of(self, items, vocab, length, target, training=training)

    def tuned_as(self, tuning: "Tuning") -> Self:
        refuse(self, tuning, "no_answer")
        both, added = orders_of(self, tuning)
        return replace(self, both_orders=both, sum_orders=added)

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import RowLabel

        return (RowLabel(classes=len(self.labels), added=num_rows(self)),)

    def predictions(self, items: Sequence[Item], encoded: Encoded, outputs: Outputs) -> list[str]:
        """The label of each item, as the file writes it, once merged."""
        found = [""] * len(items)
        for numbers, heads in outputs:
            for number, label in zip(numbers, heads["row_label"].argmax(-1).tolist(), strict=True):
                found[number] = self._merged(self.labels[label])
        return found

    def _merged(self, label: str) -> str:
        return self.merge.get(label, label)

    @property
    def renamed(self) -> tuple[str, ...]:
        return self.labels

    def parts(self, item: Item) -> list[tuple[str, str]]:
        return sentences(item.texts)

    def written(self, gold: int) -> str:
        return self.labels[gold]

    def read(self, text: str) -> str:
        return self._merged(next((label for label in self.labels if same(label, text)), ""))

    def scores(self, items: Sequence[Item], predictions: Sequence[str]) -> dict[str, float]:
        """What is none of the labels is wrong."""
        number = {name: at for at, name in enumerate(dict.fromkeys(map(self._merged, self.labels)))}
        both = [
            (number[self._merged(self.labels[item.gold])], number.get(label, NO_LABEL))
            for item, label in zip(items, predictions, strict=True)
            if item.gold is not None
        ]
        gold_N, predicted_N = np.array(both, np.int64).reshape(-1, 2).T
        return {name: _share(name, gold_N, predicted_N) for name in self.metrics}

    def notes(self, items: Sequence[Item], predictions: Sequence[Any]) -> list[str]:
        return []


def _share(name: str, gold_N: Ints, predicted_N: Ints) -> float:
    """A metric. F1 asks for one class against all else; what is no label counts as the opposite of what is right there
    (text-to-text-transfer-transformer, evaluation/metrics.py, f1_score_with_invalid)."""
    if name == "f1":
        is_N = np.where(predicted_N == NO_LABEL, gold_N != 1, predicted_N == 1)
        return METRICS[name]((gold_N == 1).astype(np.int64), is_N.astype(np.int64))
    return METRICS[name](gold_N, predicted_N)
