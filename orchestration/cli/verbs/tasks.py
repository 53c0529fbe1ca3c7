"""sesame tasks"""

from pathlib import Path

from orchestration.cli import options
from orchestration.cli.shared import command
from orchestration.terminal import CommandResult, print_answer, show_wait


def tasks(task: options.AnyTask = "", task_data_dir: options.TaskDataDir = None, as_json: options.Json = False) -> int:
    """List downstream tasks, and with --task-data-dir the files that exist."""
    from orchestration.config import beside_first, is_shipped_task, tasks_of
    from orchestration.reports import find_available_tasks, tasks_as_values
    from orchestration.terminal import views

    found = tasks_of(task)
    if task_data_dir is None:
        found = [beside_first(one) for one in found]
    are_own = not any(is_shipped_task(one.name) for one in found)  # their data files may be beside the task file
    with show_wait("reading the files of the tasks"):
        there = find_available_tasks(found, task_data_dir or Path()) if task_data_dir or are_own else {}
    shown = views.task(found[0], there.get(found[0].name)) if len(found) == 1 else views.tasks(found, there)
    first = found[0].name if task else "sst2"
    one = (
        first if is_shipped_task(first) else next(filter(None, task.split(",")))
    )  # a user's own task: the path of its file
    next_ = (command("tasks", one, *(["--task-data-dir", str(task_data_dir)] if task_data_dir else [])),)
    return print_answer(
        CommandResult((shown,), tasks_as_values(found, there), next_ if len(found) > 1 else ()), as_json
    )
