"""Downstream tasks that are made from a corpus' own held-out documents: no download. No torch in here.

Read part.py (what a task is), then documents.py and source.py. A task is one file here and one line in the union below,
which is the registry; `evals:` of a recipe and `--tasks` name its kind.
"""

from collections.abc import Mapping
from typing import Final, get_args

from preprocessing.spec import kind_of
from training.tasks.follows import Follows
from training.tasks.part import LENGTH, MORE, Examples, Task, TaskPart
from training.tasks.source import Source

__all__ = ["LENGTH", "MORE", "TASKS", "Examples", "Follows", "Source", "Task", "TaskPart", "Tasks"]

Tasks = Source | Follows
TASKS: Final[Mapping[str, TaskPart]] = {kind_of(member): member() for member in get_args(Tasks)}


def _has_every_fact(task: Tasks) -> TaskPart:
    return task  # a member without a fact is a type error here
