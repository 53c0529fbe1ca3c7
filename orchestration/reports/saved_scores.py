"""The scores that a run folder keeps: each in a folder of its own, with the causes that tell it apart."""

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
from training.metrics import PairedDifference
from training.tasks import SelectedTrials, TaskScore

log = logging.getLogger(__name__)

FILE, MARK = "scores.json", "stage.json"  # the latter is written by jobs, once all trials have a result

Apart = tuple[int | None, int]
"""What tells scores of a task apart that stand beside each other: a step of the pretraining, a number of labels."""
WHOLE: Final[Apart] = (None, 0)  # the finished run, and all labels

Kept = Mapping[str, tuple[TaskScore, Apart]]
"""Scores by the name of each one's folder. Their own step and labels may be those of the finished run, by number."""


def load_score(folder: Path) -> TaskScore:
    """The score that the folder of a finished stage has."""
    remedy = "delete its folder, and `sesame eval` makes it anew"
    found = read_json(folder / FILE, remedy)
    with of_kind(folder / FILE, remedy):
        (one,) = found
        return _score_of(one)


def _score_of(found: Mapping[str, Any]) -> TaskScore:
    """The score that was written as JSON."""
    starts = {
        name: SelectedTrials(one["how"], {s: {m: tuple(v) for m, v in by.items()} for s, by in one["scores"].items()})
        for name, one in found["starts"].items()
    }
    gain = PairedDifference(**found["gain"]) if found.get("gain") else None
    intervals = {start: (low, high) for start, (low, high) in found.get("intervals", {}).items()}
    plain = {"starts": starts, "notes": tuple(found["notes"]), "failed": tuple(found["failed"])}
    return TaskScore(**{**found, **plain, "gain": gain, "intervals": intervals})


def load_finished_scores(run_folder: Path) -> dict[str, tuple[TaskScore, Apart]]:
    """The scores of a run that lack no trial; a warning for each that cannot be read."""
    found = dict[str, tuple[TaskScore, Apart]]()
    for mark in sorted((run_folder / "scores").glob(f"*/{MARK}")):
        try:
            causes = read_object(mark, "delete its folder, and `sesame eval` makes it anew", causes=dict)["causes"]
            if "task" not in causes:
                continue  # what a table of ablations measures of the run
            found[mark.parent.name] = load_score(mark.parent), (causes.get("step"), causes.get("labels", 0))
        except (OSError, KeyError, TypeError, ValueError) as error:
            log.warning("left out: %s: not a score of this version (%s)", mark.parent, error)
    return found


def series(run_folder: Path) -> dict[str, str]:
    """By the name of each finished score, the hash that it has in common with those that differ from it in nothing but
    the step: that in the name of the last of them."""
    names: dict[str, list[tuple[tuple[float, float], str]]] = {}
    for mark in sorted((run_folder / "scores").glob(f"*/{MARK}")):
        with suppress(KeyError, TypeError, ValueError):  # load_finished_scores warns about one that cannot be read
            causes = read_object(mark, "", causes=dict)["causes"]
            same = {name: value for name, value in causes.items() if name != "step"}
            at = sort_key((causes.get("step"), causes.get("labels", 0)))
            names.setdefault(json.dumps(same, sort_keys=True, default=str), []).append((at, mark.parent.name))
    return {name: _hash(max(alike)[1]) for alike in names.values() for _, name in alike}


def _hash(name: str) -> str:
    return name.rpartition("-")[2]


def sort_scores(found: Kept, series: Mapping[str, str] = MappingProxyType({})) -> list[TaskScore]:
    """Scores in an order that says nothing of when they were made. A task that has several which neither steps nor
    labels tell apart (other grids, lengths, data) is named with their hash, or with that of their series: those of one
    are a curve over the steps."""

    def order(name: str) -> tuple[str, tuple[float, float], str]:
        return found[name][0].task, sort_key(found[name][1]), name

    times = Counter(order(name)[:2] for name in found)
    alike = {series.get(name, name) for name in found if times[order(name)[:2]] > 1}
    return [
        replace(found[name][0], task=f"{found[name][0].task} ({series.get(name, _hash(name))})")
        if series.get(name, name) in alike
        else found[name][0]
        for name in sorted(found, key=order)
    ]


def select_final_scores(found: Kept) -> list[TaskScore]:
    """Of each task the score of the finished run, with all labels; else of the last step, with the most. Several that
    only a hash tells apart are all there."""
    last = dict[str, tuple[float, float]]()
    for score, apart in found.values():
        last[score.task] = max(sort_key(apart), last.get(score.task, sort_key(apart)))
    return sort_scores(
        {
            name: (replace(score, step=apart[0], labels=apart[1]), apart)
            for name, (score, apart) in found.items()
            if sort_key(apart) == last[score.task]
        }
    )


def sort_key(apart: Apart) -> tuple[float, float]:
    """Where a score stands among those of its task: the finished run, and all labels, come last."""
    step, labels = apart
    return float("inf") if step is None else step, labels or float("inf")
