"""Loads tasks by name, group or path, and determines the directories of their data files."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from orchestration.config.library import HOME, find_labeled_form, list_names, open_document, refuse_name, task_groups
from orchestration.config.lm_eval_files import is_lm_eval_file, load_lm_eval_task
from orchestration.config.loading import validate
from orchestration.config.own_task import task_of_csv
from preprocessing.errors import BadInput
from training.evaluation.tasks import EACH, TASKS, LmEvalRecords, SplitRecords, TaskFile, to_text_task

A = TypeVar("A", TaskFile, TaskFile | str)


def load_task(name_or_path: str) -> TaskFile:
    """The task of this name or file. If no file NAME_text exists, NAME_text is the text-to-text form of the task NAME
    (or NAME_tuned).

    Data files of a user's own task are first searched in the data directory, then next to the task file;
    `beside_first` reverses this order. A YAML file of lm-eval is read as a task, too. BadInput if a user's own task
    has the name of a task of Sesame.

    >>> load_task("sst2").task.labels
    ('0', '1')
    >>> load_task("race_text").task.task.kind
    'multiple_choice'
    """
    if labelled := find_labeled_form(name_or_path):
        return to_text_task(load_task(labelled))
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") and name_or_path not in list_names("tasks") and is_lm_eval_file(path):
        task = load_lm_eval_task(path)
        folder = path.parent.resolve()
        return dataclasses.replace(task, files={name: _beside(split, folder) for name, split in task.files.items()})
    document, where = open_document("tasks", name_or_path)
    task = validate(TaskFile, document, where)
    is_shipped = name_or_path in list_names("tasks")
    if not is_shipped and Path(name_or_path).resolve().parent != HOME / "tasks":
        refuse_name(task.name, where, "rename the task")
    each = {name: task.variants if EACH in name else ("",) for name in task.files}
    files = {
        name.replace(EACH, word): _put(split, word) if EACH in name else split
        for name, split in task.files.items()
        for word in each[name]
    }
    scored = tuple(name.replace(EACH, word) for name in task.score_splits for word in each[name])
    if not is_shipped:
        folder = Path(name_or_path).parent.resolve()
        files = {name: _beside(split, folder) for name, split in files.items()}
    return dataclasses.replace(task, files=files, score_splits=scored)


def tasks_of(asked: str = "") -> list[TaskFile]:
    """The tasks of names, groups and files, separated by commas: `glue,squad2,mine.yaml`; all tasks without a name."""
    if not asked:
        return [load_task(name) for name in list_names("tasks")]
    found: dict[str, tuple[TaskFile, str]] = {}
    for word in filter(None, asked.split(",")):
        names = [name for name in list_names("tasks") if name == word or name in task_groups().get(word, ())]
        for name in names or [word]:
            add_task(found, load_task(name), word)
    if not found:
        raise BadInput(f"invalid task: got {asked!r}, expected names of tasks; see `sesame tasks`")
    return [task for task, _ in found.values()]


def add_task(found: dict[str, tuple[A, str]], task: A, given: str) -> bool:
    """Add a task, and the word of the user for it, to `found`; False if `found` has it already.

    BadInput if another task has this name: the scores of both would have the same directory.
    """
    name = task if isinstance(task, str) else task.name
    if name not in found:
        found[name] = task, given
        return True
    known, before = found[name]
    if known != task and Path(before).resolve() != Path(given).resolve():
        raise BadInput(
            f"invalid task: got the name {name} in {before} and in {given}, expected different names; rename one task"
        )
    return False


def _put(split: SplitRecords, word: str) -> SplitRecords:
    """The split with `word` in place of {variant}."""
    return dataclasses.replace(
        split,
        paths=tuple(path.replace(EACH, word) for path in split.paths),
        include={
            column: tuple(value.replace(EACH, word) for value in values) for column, values in split.include.items()
        },
        aligned_files={
            column: (one.replace(EACH, word), other) for column, (one, other) in split.aligned_files.items()
        },
        fallbacks=tuple(_put(one, word) for one in split.fallbacks),
    )


def _beside(split: SplitRecords, folder: Path) -> SplitRecords:
    """The split with this directory as the last place to search for its files."""
    there = tuple(str(folder / path) for path in split.paths if not Path(path).is_absolute())
    more: dict[str, Any] = {}
    if isinstance(split, LmEvalRecords):
        more["fewshot"] = tuple(_beside(one, folder) for one in split.fewshot)
    fallbacks = tuple(_beside(one, folder) for one in split.fallbacks)
    return dataclasses.replace(split, paths=(*split.paths, *there), fallbacks=fallbacks, **more)


def beside_first(task: TaskFile) -> TaskFile:
    """The task, with the directory of a user's own task file searched before the data directory.

    Without --task-data-dir, the data directory is the current directory, whose files do not belong to the task.
    """

    def reorder(split: SplitRecords) -> SplitRecords:
        paths = sorted(split.paths, key=lambda path: not Path(path).is_absolute())
        more: dict[str, Any] = {}
        if isinstance(split, LmEvalRecords):
            more["fewshot"] = tuple(map(reorder, split.fewshot))
        return dataclasses.replace(split, paths=tuple(paths), fallbacks=tuple(map(reorder, split.fallbacks)), **more)

    return dataclasses.replace(task, files={name: reorder(split) for name, split in task.files.items()})


def tasks_from_words(
    words: str | Sequence[str], tables: Sequence[str] = (), describe: Callable[[str], object] | None = None
) -> list[TaskFile | str]:
    """The tasks of names, groups and files (`glue,squad2,mine.yaml`, `next_sentence`) and of tables
    (`my.csv:text,label`), without duplicates. `describe` receives a line about each table.

    Raises BadInput if a name is unknown, a table has the wrong form, two tasks have the same name, or `words` contains
    no name.
    """
    tasks_by_name = dict[str, tuple[TaskFile | str, str]]()  # by name: the task, and the word that named it
    for word in filter(None, map(str.strip, words.split(",") if isinstance(words, str) else words)):
        for task in [word] if word in TASKS else tasks_of(word):
            add_task(tasks_by_name, task, word)
    if words and not tasks_by_name:
        raise BadInput(f"invalid --tasks: got {words!r}, expected names of tasks; `sesame tasks` lists them")
    notes = list[str]()
    for name in tables:
        task, line = task_of_csv(name)
        if add_task(tasks_by_name, task, name):
            notes.append(line)
    if describe is not None:
        for line in notes:
            describe(line)
    return [task for task, _ in tasks_by_name.values()]
