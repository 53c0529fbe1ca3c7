"""The saved scores of a run. Each score has its own directory, which also contains its settings."""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from preprocessing.files import of_kind, read_json, read_object
from training.evaluation.metrics import PairedDifference
from training.evaluation.tasks import SelectedTrials, TaskScore

log = logging.getLogger(__name__)

FILE, MARK = "scores.json", "stage.json"  # jobs write the second file after all trials have a result

ScoreKey = tuple[int | None, int]
"""Distinguishes the scores of a task: the step of the pretraining, and the number of labeled examples."""
WHOLE: Final[ScoreKey] = (None, 0)  # the finished run, and all labeled examples

SavedScores = Mapping[str, tuple[TaskScore, ScoreKey]]
"""Scores by the name of their directory.

If the step in the key is None and the TaskScore has a number, the key is right.
"""


def load_score(folder: Path) -> TaskScore:
    """The score in the directory of a finished stage."""
    remedy = "delete its directory and run `sesame eval` again"
    found = read_json(folder / FILE, remedy)
    with of_kind(folder / FILE, remedy):
        (one,) = found
        return _score_of(one)


def _score_of(values: Mapping[str, Any]) -> TaskScore:
    """The score from its JSON values."""
    starts = {
        name: SelectedTrials(one["how"], {s: {m: tuple(v) for m, v in by.items()} for s, by in one["scores"].items()})
        for name, one in values["starts"].items()
    }
    gain = PairedDifference(**values["gain"]) if values.get("gain") else None
    intervals = {start: (low, high) for start, (low, high) in values.get("intervals", {}).items()}
    plain = {"starts": starts, "notes": tuple(values["notes"]), "failed": tuple(values["failed"])}
    return TaskScore(**{**values, **plain, "gain": gain, "intervals": intervals})


def load_finished_scores(run_folder: Path) -> dict[str, tuple[TaskScore, ScoreKey]]:
    """The complete scores of a run. A score that cannot be read is left out with a warning."""
    found = dict[str, tuple[TaskScore, ScoreKey]]()
    for mark in sorted((run_folder / "scores").glob(f"*/{MARK}")):
        try:
            causes = read_object(mark, "delete its directory and run `sesame eval` again", causes=dict)["causes"]
            if "task" not in causes:
                continue  # a measurement for an ablation table
            score = load_score(mark.parent)
            labels = causes.get("labels", 0) if score.labels else 0  # a task without training has no labeled examples
            found[mark.parent.name] = score, (causes.get("step"), labels)
        except (OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s: not a score of this version (%s); it is ignored", mark.parent, error)
    return found


def has_other_settings(run_folder: Path, task: str, labels: int, causes: Mapping[str, Any]) -> bool:
    """Whether a finished score of a task has equal labels, but other settings than these causes; the step of the
    pretraining is no setting."""
    count = causes.get("labels", 0) if labels else 0
    of_task = [
        name for name, (one, key) in load_finished_scores(run_folder).items() if (one.task, key[1]) == (task, count)
    ]
    every = [read_object(run_folder / "scores" / name / MARK, "", causes=dict)["causes"] for name in of_task]
    return any(_without_step(other) != _without_step(causes) for other in every)


def _without_step(causes: Mapping[str, Any]) -> dict[str, Any]:
    """The causes as JSON returns them, without the step."""
    plain: dict[str, Any] = json.loads(json.dumps(causes))
    return {name: value for name, value in plain.items() if name != "step"}


def series(run_folder: Path) -> dict[str, str]:
    """The hash of the series of each finished score, by the name of the score.

    Scores that differ only in the step are a series. Its hash is the hash in the name of the last score.
    """
    names: dict[str, list[tuple[tuple[float, float], str]]] = {}
    for mark in sorted((run_folder / "scores").glob(f"*/{MARK}")):
        with suppress(KeyError, TypeError, ValueError):  # load_finished_scores warns about unreadable scores
            causes = read_object(mark, "", causes=dict)["causes"]
            same = {name: value for name, value in causes.items() if name != "step"}
            order = sort_key((causes.get("step"), causes.get("labels", 0)))
            names.setdefault(json.dumps(same, sort_keys=True, default=str), []).append((order, mark.parent.name))
    return {name: _hash(max(members)[1]) for members in names.values() for _, name in members}


def _hash(name: str) -> str:
    return name.rpartition("-")[2]


def sort_scores(found: SavedScores, series: Mapping[str, str] = MappingProxyType({})) -> list[TaskScore]:
    """The scores in an order that does not depend on when they were computed.

    If scores of a task have equal steps and labels (but other grids, lengths or data), a hash follows the name of the
    task. It is the hash of the series, because the scores of a series are a curve over the steps.
    """

    def order(name: str) -> tuple[str, tuple[float, float], str]:
        return found[name][0].task, sort_key(found[name][1]), name

    times = Counter(order(name)[:2] for name in found)
    ambiguous = {series.get(name, name) for name in found if times[order(name)[:2]] > 1}
    return [
        replace(found[name][0], task=f"{found[name][0].task} ({series.get(name, _hash(name))})")
        if series.get(name, name) in ambiguous
        else found[name][0]
        for name in sorted(found, key=order)
    ]


def select_final_scores(found: SavedScores) -> list[TaskScore]:
    """For each task the score with the latest step and the most labels. The finished run counts as the latest step.

    Scores with equal steps and labels are all returned.
    """
    last = dict[str, tuple[float, float]]()
    for score, key in found.values():
        last[score.task] = max(sort_key(key), last.get(score.task, sort_key(key)))
    return sort_scores(
        {
            name: (replace(score, step=key[0], labels=key[1]), key)
            for name, (score, key) in found.items()
            if sort_key(key) == last[score.task]
        }
    )


def sort_key(key: ScoreKey) -> tuple[float, float]:
    """The place of a score among the scores of its task: the finished run and all labels come last."""
    step, labels = key
    return float("inf") if step is None else step, labels or float("inf")
