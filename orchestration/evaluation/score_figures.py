"""The figures of scores: of one task, and of all tasks of a model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

from orchestration import figures
from orchestration.evaluation.score_plan import TaskPlan
from orchestration.evaluation.trials import Results, seed_of, select_chosen
from orchestration.reports import SHARES, figure_of, guesses, scale_value, unit_of
from training.evaluation.tasks import SMOOTH_METRICS, TaskScore

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure

MOST_CLASSES: Final = 20  # largest number of classes in a readable confusion matrix
OTHER: Final = "other"  # a prediction that is not a label


def draw_task(plan: TaskPlan, results: Results, score: TaskScore) -> dict[str, "Figure"]:
    """Figures of a task: its scores, its trials by learning rate, and its confusion matrix."""
    values = {start: score.values(start) for start in score.starts}
    title = f"{score.task}, {score.split}" + (f", {score.labels:,} labels" if score.labels else "")
    plots = {"scores": figures.plot_comparison(title, values, guesses(score), score.metric, score.intervals)}
    points: dict[str, list[tuple[float, float]]] = {}
    for cell, one in results:
        if plan.chosen_on and cell.tuning:
            points.setdefault(cell.start, []).append(
                (cell.tuning.learning_rate, one.scores[plan.chosen_on][plan.metric])
            )
    if points:
        plots["rates"] = figures.plot_against_rate(f"{score.task}, {plan.chosen_on}", points, score.metric)
    return plots | _confusion(plan, results, score)


def _confusion(plan: TaskPlan, results: Results, score: TaskScore) -> dict[str, "Figure"]:
    """The confusion matrix of a task with a few labels, for the first selected trial.

    Labels that count as one are merged (HANS merges two). A prediction that is not a label counts as `other`.
    """
    kind = getattr(plan.kind, "task", plan.kind)  # the task inside a text-to-text task
    merge = getattr(kind, "merge_labels", {})
    named = [merge.get(label, label) for label in getattr(kind, "labels", ())]
    labels = list(dict.fromkeys(named))
    (cell, result), *other_seeds = select_chosen(results, score.starts, "pretrained")
    splits = plan.parts or (plan.split,)
    answers = [one for split in splits for one in result.predictions.get(split, ())]
    items = [item for split in splits for item in plan.items.get(split, ())]
    if not 2 <= len(labels) <= MOST_CLASSES or not answers or not all(isinstance(one, str) for one in answers):
        return {}
    others = [OTHER] if any(answer not in labels for answer in answers) else []
    counts = Counter(
        (named[item.gold], answer if answer in labels else OTHER)
        for item, answer in zip(items, answers, strict=True)
        if isinstance(item.gold, int) and item.gold < len(named)
    )
    rows = [[counts[gold, answer] for answer in (*labels, *others)] for gold in labels]
    seed = f", seed {seed_of(cell)}" if other_seeds else ""
    return {"confusion": figures.plot_confusion(f"{score.task}, {plan.split}{seed}", labels, rows, others)}


def draw_tasks(scores: Sequence[TaskScore], last: int = 0) -> dict[str, "Figure"]:
    """Figures of all tasks; for a run with scores at several steps or label counts, also curves over these.

    Scores that are not fractions have a panel and figures for each unit. `last`: last step of the finished run.
    """
    scores = [replace(score, step=last) if score.step is None and last else score for score in scores]
    by_unit: dict[str, list[TaskScore]] = {}
    for score in scores:
        by_unit.setdefault(unit_of(score.metric), []).append(score)
    bars = {
        unit: {score.task: score for score in same_unit}.values() for unit, same_unit in by_unit.items()
    }  # the last score of each task
    plots = {"scores": figures.plot_scores({unit: [_bar(score) for score in of] for unit, of in bars.items()})}
    for metric in SMOOTH_METRICS:  # curves of scores that move while accuracies are still at chance
        measured = [replace(score, metric=metric) for score in scores if metric in _metrics_of(score)]
        if metric not in by_unit and (steps := _curves(measured, "step", "labels")):
            plots[f"scores_by_step_{metric}"] = figures.plot_curves(steps, unit_of(metric))
    for unit, of in by_unit.items():
        name = "" if unit == SHARES else f"_{unit}"
        if steps := _curves(of, "step", "labels"):
            plots[f"scores_by_step{name}"] = figures.plot_curves(steps, unit)
        if labels := _curves(of, "labels", "step"):
            plots[f"scores_by_labels{name}"] = figures.plot_curves(labels, unit, "labeled examples", log=True)
    return plots


def _metrics_of(score: TaskScore) -> Mapping[str, Any]:
    """The metrics of the scored split, which all initializations have."""
    return next(iter(score.starts.values())).scores[score.split]


def _bar(score: TaskScore) -> figures.Bar:
    """The scores of a task in the units of the table, with a reported result of the paper. This is the result for the
    same metric if there is one, otherwise the first result."""
    values = {start: [scale_value(value, score.metric) for value in score.values(start)] for start in score.starts}
    reported = [(*figure_of(name), value) for name, value in score.paper.items()]
    named = {name.replace("_", ""): (split, value) for name, split, value in reported}
    split, paper = named.get(score.metric.replace("_", ""), next(iter(named.values()), ("", None)))
    other = f"\n{score.split}, paper {split}" if split not in ("", score.split) else ""
    ends = {
        start: (scale_value(low, score.metric), scale_value(high, score.metric))
        for start, (low, high) in score.intervals.items()
    }
    return figures.Bar(f"{score.task}\n{score.metric.replace('_', ' ')}{other}", values, paper, ends)


def _curves(
    scores: Sequence[TaskScore], along: Literal["step", "labels"], apart: Literal["step", "labels"]
) -> dict[str, list[tuple[int, float]]]:
    """Medians along steps or labels; {} if there are none. Each task, initialization and value of `apart` has a
    curve."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for score in scores:
        values = getattr(score, apart), getattr(score, along)
        for start in score.starts if values[1] else ():
            label = f"{score.task}, {score.metric}" + (f", {start}" if len(score.starts) > 1 else "")
            label += f", {values[0]:,} {apart}" if values[0] else ""
            lines.setdefault(label, []).append((values[1], scale_value(median(score.values(start)), score.metric)))
    return {label: line for label, line in lines.items() if len(line) > 1}
