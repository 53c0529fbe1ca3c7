"""The score of a task, computed from the results of its trials: medians, intervals, the gain, and notes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np

from orchestration.evaluation.score_plan import TaskPlan
from orchestration.evaluation.trials import Results, seed_of, select_chosen
from orchestration.reports import GUESSES, ROWS, SHARES, TRAIN_ROWS, unit_of
from preprocessing.errors import SesameError
from training.evaluation import is_log
from training.evaluation.metrics import PairedDifference, compare_paired, interval
from training.evaluation.tasks import SelectedTrials, TaskScore, TrialScore, select_trials, sign_of_metric

_CORRELATIONS: Final = frozenset(("matthews", "pearson", "spearman"))  # metrics whose lowest value is -1
_MOST_NATS: Final = 700.0  # largest exponent with a finite exponential


def summarize(plan: TaskPlan, results: Results, failed: Mapping[Path, SesameError]) -> TaskScore:
    """The score of a task, computed from the results of its trials."""
    errors = [(cell, failed.get(plan.file_of(cell))) for cell in plan.cells]
    named = [(cell, error) for cell, error in errors if error is not None]
    if not any(cell.start == "pretrained" for cell, _ in results):
        raise next(error for cell, error in named if cell.start == "pretrained")
    starts = select_trials(
        [TrialScore.of(cell.start, cell.how, result.scores) for cell, result in results], plan.metric, plan.chosen_on
    )
    of_starts = {start: select_chosen(results, starts, start) for start in starts}
    first = next(iter(starts.values())).scores[plan.split]
    guess_scores = [first[name][0] for name in GUESSES if name in first]
    return TaskScore(
        task=plan.task,
        metric=plan.metric,
        split=plan.split,
        chosen_on=plan.chosen_on,
        starts=with_counts(plan, starts),
        step=plan.step,
        labels=plan.labels,
        chance=plan.chance if plan.chance is not None else next(iter(guess_scores), None),
        paper=plan.paper,
        examples={cell.start: result.example for cell, result in results if result.example and plan.kind is None},
        notes=(*plan.remarks, *_notes_on_files(plan), *_notes(of_starts["pretrained"])),
        failed=tuple(f"{cell.name}: {error}" for cell, error in named),
        intervals={start: ends for start, cells in of_starts.items() if (ends := _interval(plan, cells))},
        gain=_gain(plan, of_starts.get("pretrained", ()), of_starts.get("random", ())),
        constant={start: one for start, cells in of_starts.items() if (one := _constant(plan, cells))},
    )


def with_counts(plan: TaskPlan, starts: Mapping[str, SelectedTrials]) -> dict[str, SelectedTrials]:
    """The scores of each initialization, with the number of scored examples and of training examples."""
    labelled = {split: sum(item.gold is not None for item in items) for split, items in plan.items.items()}
    rows = {split: count for split, count in labelled.items() if split != "train"}
    rows |= {plan.split: sum(rows[part] for part in plan.parts)} if plan.parts else {}
    counts = {split: {ROWS: (float(count),)} for split, count in rows.items()}
    if plan.is_tuned and "train" in labelled:
        counts[plan.split] |= {TRAIN_ROWS: (float(plan.labels or labelled["train"]),)}
    return {
        start: replace(
            one,
            scores={
                split: {**by, **_select_scored_rows(by, counts.get(split, {}))} for split, by in one.scores.items()
            },
        )
        for start, one in starts.items()
    }


def _select_scored_rows(
    scores: Mapping[str, tuple[float, ...]], counts: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float, ...]]:
    """The counts of examples, without the examples that could not be scored."""
    left_out = max(scores.get("left_out", (0.0,)))
    return {name: (count - left_out,) if name == ROWS else (count,) for name, (count,) in counts.items()}


def _interval(plan: TaskPlan, cells: Results) -> tuple[float, float] | None:
    """The 95 % interval of the score of an initialization. With one trial it is the interval of the task type, if the
    task type has one; otherwise it is computed over seeds and questions."""
    by_metric = [result.scores[plan.split] for _, result in cells]
    name = "macro" if plan.metric == "macro_accuracy" else plan.metric
    if len(cells) == 1 and f"{name}_low" in by_metric[0]:
        return by_metric[0][f"{name}_low"], by_metric[0][f"{name}_high"]
    units = _units(plan, cells)
    if len(units) < len(cells):
        return None
    value_SQ, score = np.array(list(units.values())), fmean(by[plan.metric] for by in by_metric)
    if not math.isfinite(score):
        return None
    if is_log(plan.metric):
        ends = interval(value_SQ, math.log(score), is_share=False)
        return ends and (math.exp(max(ends[0], -_MOST_NATS)), math.exp(min(ends[1], _MOST_NATS)))
    ends = interval(value_SQ, score, is_share=unit_of(plan.metric) == SHARES)
    return ends and _clip_interval(ends, *_range(plan.metric))


def _range(metric: str) -> tuple[float, float]:
    """The lowest and the highest possible score."""
    if unit_of(metric) != SHARES:
        return -math.inf, math.inf
    return (-1.0 if _CORRELATIONS.intersection(metric.split("_")) else 0.0), 1.0


def _clip_interval(ends: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    """The interval, clipped to possible scores. The interval of a metric that is not a mean is symmetric and may exceed
    them.

    >>> _clip_interval((0.9, 1.2), 0.0, 1.0)
    (0.9, 1.0)
    """
    return min(max(ends[0], low), high), min(max(ends[1], low), high)


def _gain(plan: TaskPlan, pretrained: Results, random: Results) -> PairedDifference | None:
    """The paired test of the gain over random initialization, with the seeds that both have.

    None if it was not measured, or if a fine-tuning has only one seed.
    """
    one, other = _units(plan, pretrained), _units(plan, random)
    seeds = [seed for seed in one if seed in other and len(one[seed]) == len(other[seed])]
    is_tuned = any(cell.tuning for cell, _ in (*pretrained, *random))
    if len(seeds) < (2 if is_tuned else 1):
        return None
    scores = [
        {seed_of(cell): result.scores[plan.split][plan.metric] for cell, result in cells}
        for cells in (pretrained, random)
    ]
    sign = sign_of_metric(plan.metric)
    difference = sign * fmean(scores[0][seed] - scores[1][seed] for seed in seeds)
    both = zip((one, other), scores, strict=True)
    first, second = (
        sign * np.array([_in_units(plan.metric, units[seed], of[seed]) for seed in seeds]) for units, of in both
    )
    result, (low, high) = compare_paired(first, second, difference), _range(plan.metric)
    if result is None:
        return None
    ends = _clip_interval((result.low, result.high), low - high, high - low)
    return replace(result, low=ends[0], high=ends[1])


def _in_units(metric: str, values: Sequence[float], score: float) -> Sequence[float]:
    """The values of questions in the unit of their metric: the contribution of each to the score. For metrics with a
    logarithm, this is a first-order approximation.

    >>> _in_units("perplexity", [2.0, 3.0], 10.0), _in_units("accuracy", [0.0, 1.0], 0.5)
    ([5.0, 15.0], [0.0, 1.0])
    """
    return [score * (1 + value - fmean(values)) for value in values] if is_log(metric) else values


def _units(plan: TaskPlan, cells: Results) -> dict[int, Sequence[float]]:
    """By seed, the values of the questions of the scored split; {} if they are unknown or differ in number."""
    units_by_seed = {seed_of(cell): units for cell, one in cells if (units := one.by_unit.get(plan.split, ()))}
    return units_by_seed if len({len(units) for units in units_by_seed.values()}) == 1 else {}


def _constant(plan: TaskPlan, cells: Results) -> str:
    """A note if a seed of this initialization always predicts the same answer; "" otherwise."""
    constants = [result.constant.get(plan.split, "") for _, result in cells]
    answers = ", ".join(dict.fromkeys(filter(None, constants)))
    of_seeds = f" with {sum(map(bool, constants))} of {len(constants)} seeds" if len(constants) > 1 else ""
    return f"one constant answer{of_seeds}: {answers}" if answers else ""


def _notes_on_files(plan: TaskPlan) -> list[str]:
    """Notes on the files of a task for the page of this task, without the name of the task."""
    return [re.sub(rf"^task {re.escape(plan.task)}[:,] ", "", note) for note in plan.notes]


def _notes(cells: Results) -> list[str]:
    """Notes of trials that differ only in their seed. If only some trials have a note, their seed is added to it."""
    shared = set.intersection(*(set(result.notes) for _, result in cells))
    notes = [(note, seed_of(cell)) for cell, result in cells for note in result.notes]
    return list(dict.fromkeys(note if note in shared else f"seed {seed}: {note}" for note, seed in notes))
