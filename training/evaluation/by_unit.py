"""Scores per question, and a check for constant predictions."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from training.evaluation.metrics import unit_values
from training.evaluation.tasks import GenerationTask, LabeledTask, ScoredTask, TaskItem, TextToText, group_dependent

FEW: Final = 5  # below this number of answers, equal answers are not reported

Scores = Callable[[Sequence[TaskItem], Sequence[Any]], Mapping[str, float]]


def units_of(
    task: LabeledTask | ScoredTask | GenerationTask, items: Sequence[TaskItem], answers: Sequence[Any]
) -> list[float]:
    """`by_unit` for the first metric of a task.

    Other metrics are not computed, to save time. F1 of 40,000 questions would take minutes, and chrF too.
    """
    return by_unit(_with_first_metric(task).scores, task.metrics[0], items, answers)


def _with_first_metric(task: Any) -> Any:
    """The task with its first metric only, if the task has the key `metrics`."""
    if isinstance(task, TextToText):
        return replace(task, task=_with_first_metric(task.task))
    has_key = any(key.name == "metrics" for key in fields(task))
    return replace(task, metrics=task.metrics[:1]) if has_key else task


def by_unit(score: Scores, metric: str, items: Sequence[TaskItem], answers: Sequence[Any]) -> list[float]:
    """The value of each question that has a gold answer; their mean is the score (`unit_values`).

    For a perplexity, the values are logarithms. The jackknife needs a statistic that is close to a mean, and the
    logarithm of a perplexity is a mean over texts. Questions that share their longest text (a passage, a premise) are
    one unit, because they are not independent. Returns [] if the metric is undefined or infinite without some of the
    questions.
    """

    def of(numbers: Sequence[int]) -> float:
        value = float(score([items[n] for n in numbers], [answers[n] for n in numbers])[metric])
        return math.log(value) if is_log(metric) else value

    try:
        values = unit_values(of, group_dependent(items, metric))
        return values if all(map(math.isfinite, values)) else []
    except (ValueError, LookupError, ZeroDivisionError):  # the metric is undefined for some of the questions
        return []


def is_log(metric: str) -> bool:
    """Whether the value of a question is the logarithm of the metric.

    >>> is_log("word_perplexity"), is_log("bits_per_byte")
    (True, False)
    """
    return "perplexity" in metric


def constant(answers: Sequence[Any]) -> str:
    """The answer predicted for all items, as text; "" if answers differ, or if there are fewer than FEW.

    >>> constant(["yes"] * 5), constant(["yes", "no"] * 5), constant([0.50001] * 5), constant([["O", "O"], ["O"]] * 5)
    ("'yes'", '', '0.5', "'O'")
    """
    distinct = set(_words(answers))
    return distinct.pop() if len(answers) >= FEW and len(distinct) == 1 else ""


def _words(answers: Sequence[Any]) -> Iterator[str]:
    for answer in answers:
        if isinstance(answer, list):  # tags of words
            yield from map(repr, answer)
        else:
            yield f"{answer:.3g}" if isinstance(answer, float) else repr(getattr(answer, "text", answer))


def of_constant(split: str, answer: str, count: int, metric: str, scores: Mapping[str, float]) -> list[str]:
    """A note that all answers to a split are equal, with the score of the most frequent gold answer; empty if not."""
    if not answer:
        return []
    guess = (
        f"; predicting the most frequent gold answer for all gives {metric} {scores['majority']:.4g}"
        if "majority" in scores
        else ""
    )
    return [f"{split}: constant prediction: all {count:,} are {answer}{guess}"]
