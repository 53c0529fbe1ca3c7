"""What there is of downstream tasks: splits, rows, what is wrong with them."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from preprocessing.errors import BadInput
from training.files import describe_faults
from training.tasks import SplitAvailability, TaskFile, split_availability

Found = Mapping[str, Mapping[str, SplitAvailability]]
"""By task and split."""


def find_available_tasks(tasks: Sequence[TaskFile], data_dir: Path) -> Found:
    """What there is of these tasks below a folder, all rows read; BadInput where it is no folder."""
    if not data_dir.is_dir():
        raise BadInput(f"--task-data-dir {data_dir}: no such directory; check the path")
    with ThreadPoolExecutor() as pool:  # archives are unpacked while others are read
        found = pool.map(lambda task: split_availability(task, data_dir), tasks)
        return {task.name: one for task, one in zip(tasks, found, strict=True)}


def find_faults(found: Found) -> Iterable[str]:
    """What is wrong with files that are there, a line for each split."""
    for name, splits in found.items():
        for split, one in splits.items():
            if one.wrong:
                yield one.wrong
            if one.malformed:
                yield f"task {name}, {split}: malformed rows are left out: {describe_faults(one.malformed)}"


def tasks_as_values(tasks: Sequence[TaskFile], found: Found) -> dict[str, Any]:
    """The same for a program."""
    return {task.name: _values(task, found.get(task.name)) for task in tasks}


def _values(task: TaskFile, found: Mapping[str, SplitAvailability] | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "description": task.description,
        "kind": task.task.kind,
        "way": task.task.way,
        "group": task.group,
    }
    values |= {
        "metrics": task.task.metrics,
        "citation": task.citation,
        "license": task.license,
        "reported_keys": task.reported_keys,
    }
    values |= {"splits": list(task.files), "grids": {name: dataclasses.asdict(one) for name, one in task.grids.items()}}
    if found is not None:
        values["at_hand"] = {name: dataclasses.asdict(one) for name, one in found.items()}
    return values
