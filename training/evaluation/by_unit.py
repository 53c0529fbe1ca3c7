"""What a score rests on: the value of each question, and whether all answers are the same."""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from training.metrics import unit_values
from training.tasks import GenerationTask, LabeledTask, ScoredTask, TaskItem, TextToText

FEW: Final = 5  # answers, of which all being the same says nothing
SUBSETS: Final = "macro_accuracy"  # the metric that is a mean over subsets: these are its units

Scores = Callable[[Sequence[TaskItem], Sequence[Any]], Mapping[str, float]]


def units_of(
    task: LabeledTask | ScoredTask | GenerationTask, items: Sequence[TaskItem], answers: Sequence[Any]
) -> list[float]:
    """`by_unit` for the first metric of a task. The others are not computed, as a score of each question, or of all but
    a hundredth, takes minutes: F1 beside the accuracy of 40,000 questions, chrF beside BLEU."""
    return by_unit(_with_first_metric(task).scores, task.metrics[0], items, answers)


def _with_first_metric(task: Any) -> Any:
    """The task with its first metric alone, where its file may name them."""
    if isinstance(task, TextToText):
        return replace(task, task=_with_first_metric(task.task))
    has_key = any(key.name == "metrics" for key in fields(task))
    return replace(task, metrics=task.metrics[:1]) if has_key else task


def by_unit(score: Scores, metric: str, items: Sequence[TaskItem], answers: Sequence[Any]) -> list[float]:
    """The value of each question with a right answer for a metric, whose mean is its score (`unit_values`).

    Those of a perplexity are of its logarithm, which is a mean: far from it the jackknife of one text says nothing.
    Questions that have their longest text in common (a passage, a premise) have one: they are not independent. []
    where a metric has no value, or an infinite one, without some of the questions.
    """
    together: dict[Hashable, list[int]] = {}
    for number, item in enumerate(items):
        if item.gold is not None:
            together.setdefault(_shared(item, metric), []).append(number)

    def of(numbers: Sequence[int]) -> float:
        found = float(score([items[n] for n in numbers], [answers[n] for n in numbers])[metric])
        return math.log(found) if is_log(metric) else found

    try:
        found = unit_values(of, list(together.values()))
        return found if all(map(math.isfinite, found)) else []
    except (ValueError, LookupError, ZeroDivisionError):  # a metric that some of the questions alone have not
        return []


def is_log(metric: str) -> bool:
    """Whether the values of questions are those of the logarithm of a metric.

    >>> is_log("word_perplexity"), is_log("bits_per_byte")
    (True, False)
    """
    return "perplexity" in metric


def _shared(item: TaskItem, metric: str) -> Hashable:
    """What questions have in common that are not independent."""
    if metric == SUBSETS:
        return getattr(item.texts[0], "subset", "")
    texts = [text for text in item.texts if isinstance(text, str)]
    return max(texts, key=len) if texts and len(item.texts) > 1 else item.place


def constant(answers: Sequence[Any]) -> str:
    """The answer that all are, in words; "" where there are several, or few answers.

    >>> constant(["yes"] * 5), constant(["yes", "no"] * 5), constant([0.50001] * 5), constant([["O", "O"], ["O"]] * 5)
    ("'yes'", '', '0.5', "'O'")
    """
    found = set(_words(answers))
    return found.pop() if len(answers) >= FEW and len(found) == 1 else ""


def _words(answers: Sequence[Any]) -> Iterator[str]:
    for answer in answers:
        if isinstance(answer, list):  # tags of words
            yield from map(repr, answer)
        else:
            yield f"{answer:.3g}" if isinstance(answer, float) else repr(getattr(answer, "text", answer))


def of_constant(split: str, said: str, count: int, metric: str, scores: Mapping[str, float]) -> list[str]:
    """A note that all answers to a split are the same, beside what the most frequent right one gets."""
    if not said:
        return []
    guess = (
        f"; the most frequent right answer alone gets {metric} {scores['majority']:.4g}" if "majority" in scores else ""
    )
    return [f"{split}: a constant answer: all {count:,} are {said}{guess}"]
