"""The table of a comparison of runs, as text and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestration.figures import DifferenceBar
from orchestration.reports.score_table import (
    SHARES,
    format_decimal,
    format_p,
    scale_value,
    unit_of,
)
from training.evaluation.metrics import ScoreDifference
from training.evaluation.tasks import sign_of_metric

_LARGE: Final = 1e5  # numbers from here on have a power of ten
COMPARISON_LEGEND: Final = (
    "Difference: the score minus that of the baseline, with its 95 % interval over the same questions. p: McNemar's "
    "exact test if each question is right or wrong, otherwise a paired bootstrap; with several seeds a t test over "
    "seeds and questions. Holm: p, adjusted for the number of tasks; only the main metric of each task is adjusted"
)


@dataclass(frozen=True)
class ComparedTask:
    """A task and metric of a comparison: the result, or the reason why there is none."""

    task: str
    metric: str
    candidate: str  # the group that is compared with the baseline
    is_main: bool  # whether it is the main metric of the task
    result: ScoreDifference | None = None
    holm_p: float | None = None
    only_first: int = 0  # questions that only the baseline has
    only_second: int = 0
    left_out: int = 0  # common questions without an answer in the file, or that a model could not score
    reason: str = ""

    @property
    def clarity(self) -> float:
        """The size of the difference, relative to half the width of its interval; 0 without a difference."""
        if self.result is None or not self.result.difference:
            return 0.0
        half = (self.result.high - self.result.low) / 2
        return abs(self.result.difference) / half if half else float("inf")

    @property
    def improvement(self) -> int:
        """1 if the candidate is better, -1 if the baseline is, 0 if the interval contains 0 or p is not below 5 %."""
        if self.result is None or self.result.low <= 0 <= self.result.high or not self.result.is_significant:
            return 0
        return sign_of_metric(self.metric) * (1 if self.result.difference > 0 else -1)


def comparison_rows(names: Sequence[str], tasks: Sequence[ComparedTask]) -> list[dict[str, str]]:
    """A row of texts for each task and metric. Columns that are empty for all rows are left out."""
    rows = [_row(names, task) for task in tasks]
    empty = {column for column in (rows[0] if rows else ()) if not any(row[column] for row in rows)}
    return [{column: words for column, words in row.items() if column not in empty} for row in rows]


def _row(names: Sequence[str], task: ComparedTask) -> dict[str, str]:
    found, several = task.result, len(names) > 2
    row = {"task": task.task, "metric": task.metric.replace("_", " "), "model": task.candidate if several else ""}
    empty = dict.fromkeys(("baseline", "score", "difference", "95 % interval", "p", "Holm", "questions", "flips"), "")
    if found is None:
        return row | empty | {"note": f"not compared: {task.reason}"}
    mark = {1: " better", -1: " worse", 0: ""}[task.improvement]
    extra = {"the baseline": task.only_first, "the other": task.only_second}
    notes = [f"{count:,} questions only in {name}" for name, count in extra.items() if count]
    notes += [f"{task.left_out:,} without an answer or score" if task.left_out else ""]
    notes += [f"{found.units:,} groups of questions" if found.units < found.questions else ""]
    notes += ["over fine-tuning seeds, too" if "fine-tuning" in found.covers else ""]
    notes += ["jackknife" if found.test == "jackknife" else ""]
    return row | {
        "baseline": _format(found.first, task.metric),
        "score": _format(found.second, task.metric),
        "difference": f"{_format(found.difference, task.metric, '+')}{mark}",
        "95 % interval": f"[{_format(found.low, task.metric, '+')}, {_format(found.high, task.metric, '+')}]",
        "p": format_p(found.p),
        "Holm": "" if task.holm_p is None else format_p(task.holm_p),
        "questions": f"{found.questions:,}",
        "flips": f"+{found.wins:,} -{found.losses:,}" if found.wins or found.losses else "",
        "note": "; ".join(filter(None, notes)),
    }


def _format(value: float, metric: str, sign: str = "") -> str:
    """A score or a difference in the unit of the table; a large perplexity has a power of ten.

    >>> _format(0.525, "accuracy"), _format(-0.0049, "margin", "+"), _format(8679535874.4, "perplexity")
    ('52.5', '-0.00', '8.68e+09')
    """
    value = scale_value(value, metric)
    return (
        f"{value:{sign}.3g}"
        if abs(value) >= _LARGE
        else format_decimal(value, 1 if unit_of(metric) == SHARES else 2, sign)
    )


def comparison_page(names: Sequence[str], tasks: Sequence[ComparedTask], notes: Sequence[str]) -> str:
    """A Markdown page with the groups, the table and the notes."""
    rows = comparison_rows(names, tasks)
    head = list(rows[0]) if rows else []
    lines = [head, ["---"] * len(head), *(list(row.values()) for row in rows)]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    parts = [
        f"# {' and '.join(names[1:])}, compared with {names[0]}",
        f"Baseline: {names[0]}. {COMPARISON_LEGEND}; fractions in percent. {summarize_coverage(tasks)}",
        table,
        *(f"* {note}" for note in notes),
    ]
    return "\n\n".join(parts) + "\n"


def summarize_coverage(tasks: Sequence[ComparedTask]) -> str:
    """A sentence on the sources of variation that the intervals cover."""
    covered = {task.result.covers for task in tasks if task.result}
    if any("of one model" in each for each in covered):
        return (
            "Intervals cover questions and the pretraining seeds of one model only, because the other has one seed: "
            "another seed of that recipe can differ by more."
        )
    if any("pretraining seeds" in each for each in covered):
        return "Intervals cover questions and pretraining seeds."
    more = " and fine-tuning seeds" if any("fine-tuning" in each for each in covered) else ""
    return (
        f"Each model has one pretraining seed, so intervals cover questions{more} only: another seed of the same "
        "recipe can differ by more."
    )


def format_comparison(tasks: Sequence[ComparedTask]) -> list[DifferenceBar]:
    """The bars of the figure, one for each compared task and metric."""
    bars = []
    for task in tasks:
        if task.result is None:
            continue
        sign = sign_of_metric(task.metric)
        value, *ends = (
            sign * scale_value(each, task.metric)
            for each in (task.result.difference, task.result.low, task.result.high)
        )
        label = f"{task.task}, {task.metric.replace('_', ' ')}"
        bars.append(DifferenceBar(label, unit_of(task.metric), value, min(ends), max(ends), task.candidate))
    return bars
