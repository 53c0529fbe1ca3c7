"""Selects the questions of a page, and writes the page.

The page is bounded: it shows at most MOST questions, equally many of each task, and says how many there are. Texts are
escaped and never become markup. A script of the page filters and sorts; without scripts the page shows all of its
questions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestration.reports.page_text import show_controls
from preprocessing.errors import BadInput
from training.evaluation.tasks import ShownAnswer, show_answer

if TYPE_CHECKING:
    from jinja2 import Environment

MOST: Final = 2_000  # questions on a page
_CHARACTERS: Final = 1_500  # of a text; the rest is cut
_CHOICES: Final = 12  # choices of a question


@dataclass(frozen=True)
class AnswerPage:
    """The questions of a task as stored values, and for each model its kind of task and its predictions.

    `trial`: the trial of the predictions, if there are several; the table of scores has the median over all.
    """

    task: str
    questions: Sequence[Mapping[str, Any]]
    models: Mapping[str, tuple[Any, Sequence[Any]]]
    trial: str = ""


@dataclass(frozen=True)
class _ShownChoice:
    """A choice of a question with the share of the likelihood that each model gives it."""

    text: str
    is_right: bool
    values: tuple[str, ...]  # by model
    shares: tuple[float, ...]  # by model, in percent


@dataclass(frozen=True)
class _ShownQuestion:
    """A question on the page."""

    task: str
    place: str
    text: str
    gold: str
    answers: tuple[tuple[str, str, str], ...]  # by model: its name, its answer, and "right", "wrong" or "unknown"
    choices: tuple[_ShownChoice, ...]
    unit: str
    margins: tuple[float | None, ...]  # by model

    @property
    def outcome(self) -> str:
        """The outcomes of the models, for the filter: "right", or "wrong right" with two models."""
        return " ".join(result for *_, result in self.answers)

    @property
    def margin(self) -> str:
        """The number to sort by: the margin of the last model."""
        value = self.margins[-1]
        return "" if value is None or not math.isfinite(value) else f"{value:.6g}"

    @property
    def change(self) -> str:
        """The change of the margin from the first to the last model."""
        if None in self.margins or not all(math.isfinite(each or 0.0) for each in self.margins):
            return ""
        return f"{(self.margins[-1] or 0.0) - (self.margins[0] or 0.0):.6g}"


@dataclass(frozen=True)
class _TaskSummary:
    """The counts of a task: its questions, those that are shown, and the right answers of each model.

    `trial` is that of the page.
    """

    task: str
    count: int
    shown: int
    right: tuple[str, ...]
    flips: str
    trial: str


def questions_page(title: str, pages: Sequence[AnswerPage], left_out: Sequence[str] = ()) -> str:
    """The page with the questions of all tasks. With two models, their answers are side by side.

    `left_out`: tasks whose questions are not stored. The page names them, and tasks whose stored values are damaged.

    Raises ValueError if the pages have other models.
    """
    models = list(dict.fromkeys(name for page in pages for name in page.models))
    if any(list(page.models) != models for page in pages):
        raise ValueError("the tasks have answers of different models")
    quota = max(1, MOST // max(1, len(pages)))
    questions, summaries, left_out = list[_ShownQuestion](), list[_TaskSummary](), list(left_out)
    for page in pages:
        try:
            shown, summary = _select(page, quota)
        except (LookupError, TypeError, ValueError, BadInput) as error:
            left_out.append(f"{page.task} ({error})")
            continue
        questions += shown
        summaries.append(summary)
    return (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            models=models,
            questions=questions,
            summaries=summaries,
            quota=quota,
            left_out=left_out,
            trials=any(summary.trial for summary in summaries),
        )
    )


def _select(page: AnswerPage, quota: int) -> tuple[list[_ShownQuestion], _TaskSummary]:
    """The questions of a task to show, and its counts. Questions with different outcomes come first, then a sample."""
    answers = [
        [show_answer(kind, question, prediction) for question, prediction in zip(page.questions, of, strict=True)]
        for kind, of in page.models.values()
    ]
    count = len(page.questions)
    flips = [n for n in range(count) if len({one[n].correct for one in answers} - {None}) > 1]
    chosen = set(_spread(flips, quota))
    others = [n for n in range(count) if n not in chosen]
    chosen |= set(_spread(others, quota - len(chosen)))
    shown = [_show(page, n, [one[n] for one in answers]) for n in sorted(chosen)]
    right = tuple(_count_right(one) for one in answers)
    return shown, _TaskSummary(
        page.task, count, len(shown), right, f"{len(flips):,}" if len(answers) > 1 else "", page.trial
    )


def _spread(numbers: Sequence[int], most: int) -> list[int]:
    """At most `most` numbers, evenly spaced.

    >>> _spread([1, 2, 3, 4, 5, 6], 3), _spread([1, 2], 3)
    ([1, 3, 5], [1, 2])
    """
    return list(numbers) if len(numbers) <= most else [numbers[len(numbers) * at // most] for at in range(most)]


def _count_right(answers: Sequence[ShownAnswer]) -> str:
    known = [each.correct for each in answers if each.correct is not None]
    return f"{sum(known):,} of {len(known):,} ({100 * sum(known) / len(known):.1f} %)" if known else ""


def _show(page: AnswerPage, number: int, answers: Sequence[ShownAnswer]) -> _ShownQuestion:
    first = answers[0]
    results = {True: "right", False: "wrong", None: "unknown"}
    return _ShownQuestion(
        task=page.task,
        place=str(page.questions[number].get("place", "")),
        text=_cut(first.question),
        gold=_cut(first.gold),
        answers=tuple(
            (name, _cut(answer.answer), results[answer.correct])
            for name, answer in zip(page.models, answers, strict=True)
        ),
        choices=_show_choices(answers),
        unit=first.unit,
        margins=tuple(answer.margin for answer in answers),
    )


def _show_choices(answers: Sequence[ShownAnswer]) -> tuple[_ShownChoice, ...]:
    first = answers[0]
    shares = [_normalize(each.values) for each in answers]
    return tuple(
        _ShownChoice(
            _cut(text),
            at == first.right,
            tuple(f"{each.values[at]:.3f}" for each in answers if each.values),
            tuple(share[at] for share in shares if share),
        )
        for at, text in enumerate(first.choices[:_CHOICES])
    )


def _normalize(values: Sequence[float]) -> list[float]:
    """The share of each choice in percent: the softmax of the values by which choices are compared.

    >>> _normalize([0.0, 0.0]), _normalize([])
    ([50.0, 50.0], [])
    """
    if not values or not all(map(math.isfinite, values)):
        return []
    exps = [math.exp(value - max(values)) for value in values]
    return [round(100 * each / sum(exps), 1) for each in exps]


def _cut(text: str) -> str:
    """The beginning of a text, with the number of characters that are left out."""
    left = len(text) - _CHARACTERS
    return text if left <= 0 else f"{text[:_CHARACTERS]} ... ({left:,} characters left out)"


@cache
def _templates() -> "Environment":
    """The templates of this directory: they escape each value, and an unknown name is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: show_controls(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
