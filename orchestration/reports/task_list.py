"""The available data of downstream tasks: splits, examples and faults."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from preprocessing.errors import BadInput
from training.evaluation.files import describe_faults
from training.evaluation.tasks import SplitAvailability, TaskFile, split_availability

Found = Mapping[str, Mapping[str, SplitAvailability]]
"""The available data by task and split."""


def find_available_tasks(tasks: Sequence[TaskFile], data_dir: Path) -> Found:
    """The available data of these tasks in a directory; BadInput if the directory does not exist.

    All examples are read.
    """
    if not data_dir.is_dir():
        raise BadInput(f"--task-data-dir {data_dir}: no such directory; check the path")
    with ThreadPoolExecutor() as pool:  # one thread can unpack an archive while another reads
        found = pool.map(lambda task: split_availability(task, data_dir), tasks)
        return {task.name: one for task, one in zip(tasks, found, strict=True)}


def find_faults(found: Found) -> Iterable[str]:
    """The faults of existing files, a line for each."""
    for name, splits in found.items():
        for split, one in splits.items():
            if one.wrong:
                yield one.wrong
            if one.malformed:
                yield f"task {name}, {split}: malformed rows are left out: {describe_faults(one.malformed)}"


def tasks_as_values(tasks: Sequence[TaskFile], found: Found) -> dict[str, Any]:
    """The tasks as plain values for JSON."""
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
