"""The scores that a run folder keeps: each in a folder of its own, with the causes that tell it apart."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from preprocessing.files import read_json
from training.tasks import Chosen, TaskScore

log = logging.getLogger(__name__)

FILE, MARK = "scores.json", "stage.json"  # the latter is written by jobs, once all cells have a result

Apart = tuple[int | None, int]
"""What tells scores of a task apart that stand beside each other: a step of the pretraining, a number of labels."""
WHOLE: Final[Apart] = (None, 0)  # the finished run, and all labels

Kept = Mapping[str, tuple[TaskScore, Apart]]
"""Scores by the name of each one's folder. Their own step and labels may be those of the finished run, by number."""


def kept(folder: Path) -> TaskScore:
    """The score that the folder of a finished stage has."""
    (found,) = read_json(folder / FILE, "delete its folder, and `sesame eval` makes it anew")
    starts = {
        name: Chosen(one["how"], {s: {m: tuple(v) for m, v in by.items()} for s, by in one["scores"].items()})
        for name, one in found["starts"].items()
    }
    return TaskScore(**{**found, "starts": starts, "notes": tuple(found["notes"]), "failed": tuple(found["failed"])})


def finished(run_folder: Path) -> dict[str, tuple[TaskScore, Apart]]:
    """The scores of a run of which no cell is lacking; a warning for each that cannot be read."""
    found = dict[str, tuple[TaskScore, Apart]]()
    for mark in sorted((run_folder / "scores").glob(f"*/{MARK}")):
        try:
            causes = read_json(mark, "delete its folder, and `sesame eval` makes it anew")["causes"]
            if "task" not in causes:
                continue  # what a table of ablations measures of the run
            found[mark.parent.name] = kept(mark.parent), (causes.get("step"), causes.get("labels", 0))
        except (OSError, KeyError, TypeError, ValueError) as error:
            log.warning("left out: %s: not a score of this version (%s)", mark.parent, error)
    return found


def ordered(found: Kept) -> list[TaskScore]:
    """Scores in an order that says nothing of when they were made. A task that has several which neither steps nor
    labels tell apart (other grids, lengths, data) is named with their hash."""

    def order(name: str) -> tuple[str, tuple[float, float], str]:
        return found[name][0].task, place(found[name][1]), name

    times = Counter(order(name)[:2] for name in found)
    return [
        replace(found[name][0], task=f"{found[name][0].task} ({name.rpartition('-')[2]})")
        if times[order(name)[:2]] > 1
        else found[name][0]
        for name in sorted(found, key=order)
    ]


def whole(found: Kept) -> list[TaskScore]:
    """Of each task the score of the finished run, with all labels; else of the last step, with the most. Several that
    only a hash tells apart are all there."""
    last = dict[str, tuple[float, float]]()
    for score, apart in found.values():
        last[score.task] = max(place(apart), last.get(score.task, place(apart)))
    return ordered(
        {
            name: (replace(score, step=apart[0], labels=apart[1]), apart)
            for name, (score, apart) in found.items()
            if place(apart) == last[score.task]
        }
    )


def place(apart: Apart) -> tuple[float, float]:
    """Where a score stands among those of its task: the finished run, and all labels, come last."""
    step, labels = apart
    return float("inf") if step is None else step, labels or float("inf")
