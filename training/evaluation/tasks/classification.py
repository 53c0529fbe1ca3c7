"""Classification of a text or a pair of texts."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np

from preprocessing.schema import IGNORE, Ints
from preprocessing.spec import key, require, spec
from preprocessing.tokenization import Vocab
from training.evaluation import metrics as measures
from training.evaluation.files import Records
from training.evaluation.tasks.labeled_task import (
    NO_LABEL,
    EncodedItems,
    Outputs,
    TaskItem,
    Way,
    collect_known,
    most_frequent,
    one_answer,
    refuse_tuning,
    zero,
)
from training.evaluation.tasks.texts import encode_items, items_of, num_rows, number_of_label, orders_of
from training.evaluation.tasks.verbalizer import same, sentences

if TYPE_CHECKING:
    from training.finetuning import Target, Tuning

METRICS: Final[Mapping[str, Callable[[Ints, Ints], float]]] = {
    "accuracy": measures.accuracy,
    "f1": measures.f1,
    "macro_f1": measures.macro_f1,
    "matthews": measures.matthews,
}


@spec
class Classification:
    """Classification of texts or text pairs (GLUE, arXiv:1804.07461).

    Examples are CoLA, SST-2, MRPC, QQP, MNLI, QNLI and RTE.
    """

    kind: Literal["classification"] = "classification"
    way: ClassVar[Way] = "tuned"
    numerics: ClassVar[int] = 0
    answer_key: ClassVar[str] = "label"
    text: str = key(doc="Column of the text, or of the first text of a pair.")
    text_pair: str = key(default="", doc="Column of the second text; empty: single texts.")
    label: str = key(doc="Column of the label.")
    labels: tuple[str, ...] = key(doc="Labels as written in the files, in the order of their numbers.")
    merge_labels: Mapping[str, str] = key(
        default_factory=dict, doc="Labels that count as another label after prediction (HANS)."
    )
    both_orders: bool = key(default=False, doc="Whether training uses both orders of a pair, each as an example.")
    sum_orders: bool = key(default=False, doc="Whether an example has both orders of a pair, whose states are added.")
    # MRPC and QQP use the second of two labels.
    positive_label: str = key(default="", doc="Label for F1, after merging; empty: the second of two labels.")
    metrics: tuple[str, ...] = key(
        default=("accuracy",), choices=METRICS, doc="Metrics to report; the first selects hyperparameters."
    )

    most_written: ClassVar[int] = 16

    def __post_init__(self) -> None:
        require(len(set(self.labels)) == len(self.labels) >= 2, "labels", list(self.labels), "two or more, each once")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))
        of = self._classes
        require(self.positive_label in ("", *of), "positive_label", self.positive_label, " or ".join(of))
        several = "macro_f1, or f1 with `positive_label`, since there are more than two labels"
        require("f1" not in self.metrics or self.positive_label != "" or len(of) == 2, "metrics", "f1", several)

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        return items_of(self, records, columns, self._number)

    def _number(self, value: Any, column: str, place: str) -> int | None:
        return number_of_label(self.labels, value, column, place)

    def encode(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        def target(gold: int | None) -> dict[str, np.ndarray]:
            return {"label": np.asarray(IGNORE if gold is None else gold, np.int64)}

        encoded = encode_items(self, items, vocab, length, target, training=training)
        encoded.notes.extend(one_answer([self.labels[gold] for gold in collect_known(items)]) if training else [])
        return encoded

    def with_tuning(self, tuning: "Tuning") -> Self:
        refuse_tuning(self, tuning, "no_answer_loss_weight")
        both, added = orders_of(self, tuning)
        return replace(self, both_orders=both, sum_orders=added)

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import RowLabel

        return (RowLabel(classes=len(self.labels), added=num_rows(self)),)

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[str]:
        """The label of each item as in the file, after merging."""
        labels = [""] * len(items)
        for numbers, heads in outputs:
            for number, label in zip(numbers, heads["row_label"].argmax(-1).tolist(), strict=True):
                labels[number] = self._merge_label(self.labels[label])
        return labels

    def class_counts(self, items: Sequence[TaskItem]) -> Counter[str]:
        return Counter(self.labels[gold] for gold in collect_known(items))

    def _merge_label(self, label: str) -> str:
        return self.merge_labels.get(label, label)

    @property
    def _classes(self) -> tuple[str, ...]:
        """The labels after merging, in the order of their numbers in metrics."""
        return tuple(dict.fromkeys(map(self._merge_label, self.labels)))

    @property
    def _positive(self) -> int:
        """The number of the positive label of F1."""
        return self._classes.index(self.positive_label) if self.positive_label else 1

    @property
    def renamed(self) -> tuple[str, ...]:
        return self.labels

    def parts(self, item: TaskItem) -> list[tuple[str, str]]:
        return sentences(item.texts)

    def answer_text(self, gold: int) -> str:
        return self.labels[gold]

    def parse_answer(self, text: str) -> str:
        return self._merge_label(next((label for label in self.labels if same(label, text)), ""))

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> dict[str, float]:
        """The metrics; a prediction that is not a label is wrong."""
        gold_N, predicted_N = self._numbers(items, predictions)
        return {name: _metric_value(name, gold_N, predicted_N, self._positive) for name in self.metrics}

    def majority(self, items: Sequence[TaskItem]) -> list[str]:
        return most_frequent(items, lambda gold: [self._merge_label(self.labels[gold])]) * len(items)

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> list[str]:
        """Notes on the positive label of F1, and on metrics that are 0 because they are undefined."""
        gold_N, predicted_N = self._numbers(items, predictions)
        notes = list[str]()
        if "f1" in self.metrics:
            notes.append(f"f1 has the positive label {self._classes[self._positive]!r}")
            has = self._positive in gold_N or self._positive in predicted_N
            notes += zero(["f1"], "" if has else "neither gold answers nor predictions have this label")
        return notes + zero(
            ["matthews"] if "matthews" in self.metrics else [], measures.explain_undefined(gold_N, predicted_N)
        )

    def _numbers(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> tuple[Ints, Ints]:
        """The numbers of gold labels and of predictions, for the items that have an answer."""
        number = {name: at for at, name in enumerate(self._classes)}
        both = [
            (number[self._merge_label(self.labels[item.gold])], number.get(label, NO_LABEL))
            for item, label in zip(items, predictions, strict=True)
            if item.gold is not None
        ]
        gold_N, predicted_N = np.array(both, np.int64).reshape(-1, 2).T
        return gold_N, predicted_N


def _metric_value(name: str, gold_N: Ints, predicted_N: Ints, positive: int) -> float:
    """The value of a metric.

    F1 compares the positive label with all others. A prediction that is not a label counts as the opposite of the
    gold answer (text-to-text-transfer-transformer, evaluation/metrics.py, f1_score_with_invalid).
    """
    if name == "f1":
        is_N = np.where(predicted_N == NO_LABEL, gold_N != positive, predicted_N == positive)
        return METRICS[name]((gold_N == positive).astype(np.int64), is_N.astype(np.int64))
    return METRICS[name](gold_N, predicted_N)
