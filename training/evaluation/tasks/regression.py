"""Regression: a number for a text or a pair, such as the similarity of two sentences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import Floats
from preprocessing.spec import key, require, spec
from preprocessing.tokenization import Vocab
from training.evaluation import metrics as measures
from training.evaluation.files import Records
from training.evaluation.tasks.labeled_task import (
    EncodedItems,
    Outputs,
    TaskItem,
    Way,
    collect_known,
    mean_of,
    one_answer,
    refuse_tuning,
    zero,
)
from training.evaluation.tasks.split import is_missing
from training.evaluation.tasks.texts import encode_items, items_of, num_rows, orders_of
from training.evaluation.tasks.verbalizer import number_of, sentences

if TYPE_CHECKING:
    from training.finetuning import Target, Tuning

_NO_NUMBER: Final = -1.0  # placeholder of a number that is not published (STS-B's test)
STEP: Final = 0.2  # numbers are rounded to multiples of it (arXiv:1910.10683, 2.4: 21 values from 1 to 5)
METRICS: Final[Mapping[str, Callable[[Floats, Floats], float]]] = {
    "spearman": measures.spearman,
    "pearson": measures.pearson,
}


@spec
class Regression:
    """Regression for texts or text pairs: STS-B (0 to 5), SICK-R (1 to 5)."""

    kind: Literal["regression"] = "regression"
    way: ClassVar[Way] = "tuned"
    numerics: ClassVar[int] = 0
    answer_key: ClassVar[str] = "label"
    text: str = key(doc="Column of the text, or of the first text of a pair.")
    text_pair: str = key(default="", doc="Column of the second text; empty: single texts.")
    label: str = key(doc="Column of the number.")
    min_value: float = key(doc="Minimum of the scale.")
    max_value: float = key(doc="Maximum of the scale.")
    both_orders: bool = key(default=False, doc="Whether training uses both orders of a pair, each as an example.")
    sum_orders: bool = key(default=False, doc="Whether an example has both orders of a pair, whose states are added.")
    metrics: tuple[str, ...] = key(
        default=("spearman", "pearson"), choices=METRICS, doc="Metrics to report; the first selects hyperparameters."
    )

    most_written: ClassVar[int] = 16
    renamed: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.min_value < self.max_value, "max_value", self.max_value, f"more than {self.min_value}")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        return items_of(self, records, columns, self._number)

    def _number(self, value: object, column: str, place: str) -> float | None:
        """The number, or None if it is missing: empty, NaN, or -1 if that is below min_value."""
        try:
            number = float("nan" if isinstance(value, bool) else value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = float("nan")
        if is_missing(value) or str(value).lower() == "nan" or (number == _NO_NUMBER < self.min_value):
            return None
        if not self.min_value <= number <= self.max_value:
            raise BadInput(
                f"{place}: invalid {column}: got {value!r}, expected a number from {self.min_value:g} to "
                f"{self.max_value:g}"
            )
        return number

    def encode(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        def target(gold: float | None) -> dict[str, np.ndarray]:
            return {"value": np.asarray(np.nan if gold is None else gold, np.float32)}

        encoded = encode_items(self, items, vocab, length, target, training=training)
        encoded.notes.extend(one_answer(collect_known(items)) if training else [])
        return encoded

    def with_tuning(self, tuning: "Tuning") -> Self:
        refuse_tuning(self, tuning, "no_answer_loss_weight")
        both, added = orders_of(self, tuning)
        return replace(self, both_orders=both, sum_orders=added)

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import RowValue

        return (RowValue(added=num_rows(self)),)

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[float]:
        """The number of each item, clipped to min_value and max_value."""
        values = [0.0] * len(items)
        for numbers, heads in outputs:
            for number, value in zip(numbers, heads["row_value"].tolist(), strict=True):
                values[number] = min(self.max_value, max(self.min_value, value))
        return values

    def parts(self, item: TaskItem) -> list[tuple[str, str]]:
        return sentences(item.texts)

    def answer_text(self, gold: float) -> str:
        return f"{round(gold / STEP) * STEP:.1f}"

    def parse_answer(self, text: str) -> float:
        """The number in a text; min_value - 1 if it is not a number."""
        return number_of(text, self.min_value - 1)

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[float]) -> dict[str, float]:
        gold_N, predicted_N = _both(items, predictions)
        return {name: METRICS[name](gold_N, predicted_N) for name in self.metrics}

    def majority(self, items: Sequence[TaskItem]) -> list[float]:
        return [mean_of(known)] * len(items) if (known := collect_known(items)) else []

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[float]) -> list[str]:
        """A note if a correlation is 0 because it is undefined."""
        return zero(self.metrics, measures.explain_undefined(*_both(items, predictions)))


def _both(items: Sequence[TaskItem], predictions: Sequence[float]) -> tuple[Floats, Floats]:
    """Gold numbers and predictions of the items that have an answer."""
    both = [(item.gold, value) for item, value in zip(items, predictions, strict=True) if item.gold is not None]
    gold_N, predicted_N = np.array(both, np.float64).reshape(-1, 2).T
    return gold_N, predicted_N
