"""The table of the single questions of a task: question, expected answer, prediction, and whether it is correct."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from training.evaluation.tasks import TaskItem

MOST_QUESTIONS: Final = 500  # rows of a table
_MOST_LETTERS: Final = 1_000  # maximum characters of a cell
_ANSWER: Final = "answer"  # key of a prediction that is a mapping, whose value is the answer


@dataclass(frozen=True)
class QuestionTable:
    """Columns and rows; `total` is the number of all questions, of which the table may have fewer."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    total: int

    def describe(self) -> str:
        """The number of rows, and of how many questions.

        >>> QuestionTable(("place",), [["a.csv:2"]], 3).describe()
        '1 of 3 questions, evenly spaced'
        """
        of = f" of {self.total:,} questions, evenly spaced" if len(self.rows) < self.total else " questions"
        return f"{len(self.rows):,}{of}"


def make_question_table(
    items: Mapping[str, Sequence[TaskItem]],
    golds: Mapping[str, Sequence[Any]],
    answers: Mapping[str, Mapping[str, Sequence[Any]]],
    is_correct: Callable[[TaskItem, Any], bool | None],
    most: int = MOST_QUESTIONS,
) -> QuestionTable | None:
    """The table of at most `most` questions of some splits; None if there is no prediction.

    `golds` has the expected answers by split, None if unknown. `answers` has the predictions by initialization, then by
    split. Predictions of the first initialization are in the columns `predicted` and `correct`; those of others have
    their name before. `is_correct` judges a prediction; None: it is neither right nor wrong.
    """
    first = next(iter(answers.values()), {})
    every = [
        (split, number) for split in items for number in range(len(items[split])) if number < len(first.get(split, ()))
    ]
    if not every:
        return None
    count = min(most, len(every))
    records = [
        _record(items, golds, answers, is_correct, *every[index * len(every) // count]) for index in range(count)
    ]
    columns = tuple(dict.fromkeys(name for record in records for name in record))
    return QuestionTable(columns, [[record.get(name) for name in columns] for record in records], len(every))


def _record(
    items: Mapping[str, Sequence[TaskItem]],
    golds: Mapping[str, Sequence[Any]],
    answers: Mapping[str, Mapping[str, Sequence[Any]]],
    is_correct: Callable[[TaskItem, Any], bool | None],
    split: str,
    number: int,
) -> dict[str, Any]:
    """The row of a question by column."""
    item, gold = items[split][number], golds[split][number]
    record: dict[str, Any] = {"question": _shorten(" ‖ ".join(map(_as_text, item.texts)))}
    if gold is not None:
        record["expected"] = _shorten(_as_text(gold))
    for index, (start, by_split) in enumerate(answers.items()):
        before = f"{start} " if index else ""
        answer = by_split[split][number]
        correct = None if gold is None else is_correct(item, answer)
        if isinstance(gold, Mapping) and isinstance(answer, list | tuple):  # a span, and scores behind it
            answer = answer[0]
        values = answer if isinstance(answer, Mapping) else {_ANSWER: answer}
        main = _ANSWER if _ANSWER in values else ""
        if main:
            record[f"{before}predicted"] = _shorten(_as_text(values[main]))
        if main and correct is not None:
            record[f"{before}correct"] = correct
        record |= {f"{before}{name}": _as_cell(value) for name, value in values.items() if name != main}
    return record | {"split": split, "place": item.place}


def _as_text(value: Any) -> str:
    """A text, or the texts of a list with | between them.

    >>> _as_text(["a", "b"]), _as_text({"answers": ["x"], "starts": [3]}), _as_text(1.5)
    ('a | b', 'x', '1.5')
    """
    if isinstance(value, Mapping) and "answers" in value:
        value = value["answers"]
    value = getattr(value, "text", value)
    return " | ".join(map(_as_text, value)) if isinstance(value, list | tuple) else str(value)


def _as_cell(value: Any) -> Any:
    """A number, or the text of another value; log-likelihoods have four digits behind the point.

    A number that is not finite is a text, because JSON has none: the UI of MLflow could not read the whole table.

    >>> _as_cell([-1.23456, -2.0]), _as_cell(True), _as_cell(float("-inf"))
    ('-1.2346 | -2.0', True, '-inf')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return _shorten(_as_text([round(one, 4) if isinstance(one, float) else one for one in value]))
    return value if isinstance(value, bool | int | float | None) else _shorten(_as_text(value))


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} ... ({len(text):,} characters)"
