"""The questions in the files of a task: its splits, those that are scored, and what is wrong with them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestration.reports import SHARES, unit_of
from preprocessing.errors import BadInput
from training.evaluation.files import exists
from training.evaluation.tasks import SplitRecords, TaskFile, TaskItem

MOST_PATHS: Final = 4  # maximum paths in a message
FEW: Final = 30  # minimum examples of a reliable fraction: with fewer, each changes it by over 3 points
UNRELIABLE: Final = "too few for a reliable score"


@dataclass(frozen=True)
class SplitFile:
    """The file of a split, and its columns with the type of their first value."""

    location: str
    columns: Mapping[str, type]


def read_scored_items(task: TaskFile, directory: Path) -> list[TaskItem]:
    """The questions of the scored splits of a task without fine-tuning. Raises BadInput if none has a label."""
    items, *_ = read_items(task, directory, set())
    answered = [name for name, each in items.items() if name != "train" and any(i.gold is not None for i in each)]
    check_splits(task, items, answered, directory, is_tuned=False)
    scored, _ = select_scored_splits(task, items, answered, directory, is_submitted=False)
    return [item for name in scored for item in items[name]]


def read_items(
    task: TaskFile, data: Path, submitted: Collection[str]
) -> tuple[dict[str, list[TaskItem]], dict[str, SplitFile], list[str]]:
    """The items and the file of each split that exists, and notes on rows that are not used.

    Raises BadInput if a split for a leaderboard has malformed rows: its later predictions would have wrong row numbers.
    """
    items, locations, notes = {}, {}, []
    for split, files in task.files.items():
        if not files.is_there(data):
            continue
        items[split], records = task.items(split, data)
        first = records.rows[0] if records.rows else {}
        locations[split] = SplitFile(files.location(data), {name: type(first[name]) for name in _columns(first)})
        if split in submitted and records.malformed:
            raise BadInput(
                f"task {task.name}, {split}: malformed row in a split for a leaderboard: {records.malformed[0]}; "
                "repair the file, because predictions are numbered by row, or leave --leaderboard-dir out"
            )
        unlabeled = [] if _is_unlabeled(files.select_files(data), task) else _describe_unlabeled(items[split])
        notes += [f"task {task.name}, {split}: {note}" for note in records.notes]
        notes += [f"task {task.name}, {split}: {note}; this split is not scored" for note in unlabeled]
    return items, locations, notes


def _columns(record: Mapping[str, Any]) -> list[str]:
    """The columns of a record; those of a table by their names in its header, or else by their numbers.

    The record of a table has each column also by its number, and by its number from the end.

    >>> _columns({"0": "a", "1": "b", "-2": "a", "-1": "b", "text": "a", "label": "b"}), _columns({"0": "a", "-1": "a"})
    (['text', 'label'], ['0'])
    """
    from_end = [name for name in record if re.fullmatch(r"-[0-9]+", name)]
    numbers = list(map(str, range(len(from_end))))
    return [name for name in record if name not in (*from_end, *numbers)] or numbers


def _is_unlabeled(split: SplitRecords, task: TaskFile) -> bool:
    """Whether the task file itself declares that a split has no answers, like the splits of leaderboards."""
    key = task.task.answer_key
    return key != "" and split.columns.get(key) == ""


def _describe_unlabeled(items: Sequence[TaskItem]) -> list[str]:
    """One line if no question of a split has an answer; [] otherwise."""
    if not items or any(item.gold is not None for item in items):
        return []
    return [f"none of its {len(items):,} questions has an answer (the first is at {items[0].place})"]


def check_splits(
    task: TaskFile, items: Mapping[str, Sequence[TaskItem]], answered: Sequence[str], data: Path, is_tuned: bool
) -> None:
    """Raises BadInput if there are no training examples, or no examples to score."""
    lacking = list[str]()
    if is_tuned and not any(item.gold is not None for item in items.get("train", ())):
        lacking.append("labeled train" if "train" in items else "train")
    if not answered:
        lacking.append("labeled dev or test")
    if lacking:
        missing = [path for name, split in task.files.items() if name not in items for path in split.paths[:1]]
        shown = list(dict.fromkeys(missing))[:MOST_PATHS]
        looked = f"; looked for {', '.join(shown)}" + (", ..." if len(shown) < len(missing) else "") if missing else ""
        looked += "".join(f"; {split}: {one[0]}" for split, each in items.items() if (one := _describe_unlabeled(each)))
        remedy = "; add the files, or name their directory with --task-data-dir DIR"
        if answered and task.task.way == "written":
            remedy += ", or set zero_shot: true in `generation` of your own task file, which needs no fine-tuning"
        raise BadInput(
            f"task {task.name}: {_location(task, data)} has no {' and no '.join(lacking)} split{looked}{remedy}"
        )


def _location(task: TaskFile, data: Path) -> Path:
    """The directory with the files of a task, or the single file that contains all of its splits."""
    paths = list(dict.fromkeys(path for split in task.files.values() for path in split.paths))
    if len(paths) == 1 and Path(paths[0]).is_absolute():
        return Path(paths[0])
    patterns = (path for split in task.files.values() for path in split.patterns)
    local = next((path for path in patterns if data == Path() and exists(data, path)), "")
    return Path(local).absolute().parent if local else data


def select_scored_splits(
    task: TaskFile, items: Mapping[str, Sequence[TaskItem]], answered: Sequence[str], data: Path, is_submitted: bool
) -> tuple[tuple[str, ...], str]:
    """The splits that are scored, and a note if some of them are missing or too small.

    Raises BadInput if all splits that the task names are missing, except for a submission, which needs no score.
    """
    usual = (next((name for name in ("test", "dev") if name in answered), answered[0]),)
    there = tuple(name for name in task.score_splits if name in answered)
    absent = [name for name in task.score_splits if name not in answered]
    if not absent:
        return (there, "") if there else _prefer_larger_dev(task, items, usual)
    if there:
        score = f"the mean over {', '.join(there)}" if len(there) > 1 else f"computed on {there[0]} only"
        return there, f"task {task.name}: its score is {score}, because {data} has no labeled {', '.join(absent)}"
    missing = (
        f"task {task.name}: its score is computed on {', '.join(task.score_splits)}, but {data} has no labeled "
        f"file of these splits; looked for {task.files[absent[0]].paths[0]}"
    )
    if is_submitted:
        return usual, f"{missing}; the result is computed on {usual[0]} and is not the score of this task"
    raise BadInput(f"{missing}; add the file, or set another --task-data-dir")


def _prefer_larger_dev(
    task: TaskFile, items: Mapping[str, Sequence[TaskItem]], usual: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """The dev split with a note if the test split has few examples and dev has more; otherwise the usual split."""
    test, dev = (sum(item.gold is not None for item in items.get(split, ())) for split in ("test", "dev"))
    if usual != ("test",) or unit_of(task.metric) != SHARES or not (test < FEW <= dev or test < 2 <= dev):
        return usual, ""
    has = f"test has {test:,} labeled example{'s' * (test != 1)}, {UNRELIABLE}"
    return ("dev",), f"task {task.name}: its score is computed on dev ({dev:,} examples), because {has}"
