"""The downstream tasks that a model is scored on during training: their checks, and the sample of their questions.

The modules that read task files and questions are imported in functions, so that commands without these tasks start
faster.
"""

import logging
import os
from pathlib import Path
from typing import Any, Final

from orchestration.config import Cluster, Recipe
from preprocessing.errors import BadInput, DataError
from preprocessing.rng import key
from training.run import DOWNSTREAM

log = logging.getLogger(__name__)

_SEED: Final = 0  # of the sample: the same questions for all runs, so that their curves can be compared


def task_names(cluster: Cluster) -> tuple[str, ...]:
    """The names of the downstream tasks, without groups."""
    return tuple(task if isinstance(task, str) else task.name for task in _tasks(cluster))


def _tasks(cluster: Cluster) -> list[Any]:
    if not cluster.downstream_tasks:
        return []
    from orchestration.config import tasks_from_words

    return tasks_from_words(list(cluster.downstream_tasks))


def check_downstream_tasks(recipe: Recipe, cluster: Cluster) -> None:
    """Raise BadInput if a downstream task cannot be scored during training, or if its files are missing."""
    for task in _tasks(cluster):
        name = task if isinstance(task, str) else task.name
        if reason := _find_obstacle(task, recipe, cluster):
            raise BadInput(f"invalid cluster.downstream_tasks: got {name}, {reason}")


def _find_obstacle(task: Any, recipe: Recipe, cluster: Cluster) -> str:
    """Why a task cannot be scored during training, what is expected, and a remedy; "" if it can."""
    from training.evaluation.tasks import TASKS, LoglikelihoodChoice

    if not any(loss.names_tokens for loss in recipe.losses):
        return "expected none for a model that predicts no tokens; remove it"
    if isinstance(task, str):
        is_cloze = TASKS[task].way == "scored"
        return (
            "" if is_cloze else "expected cloze or tasks of kind loglikelihood_choice; evaluate it with `sesame eval`"
        )
    kind = task.task
    if not isinstance(kind, LoglikelihoodChoice):
        return f"which has kind {kind.kind}, expected loglikelihood_choice or cloze; evaluate it with `sesame eval`"
    if kind.num_fewshot:
        return f"which has num_fewshot {kind.num_fewshot}, expected 0; use the zero-shot task"
    directory = Path(cluster.downstream_data_dir)
    if cluster.downstream_data_dir and not directory.is_dir():
        return f"but {directory} is no directory; correct cluster.downstream_data_dir"
    if not any(split.is_there(directory) for split in task.files.values()):
        path = next(iter(task.files.values())).paths[0]
        where = f"{directory} has no {path}" if cluster.downstream_data_dir else "its files are not known"
        return f"but {where}; name their directory with cluster.downstream_data_dir=DIR"
    return ""


def write_downstream_sample(cluster: Cluster, run: Path, corpus: Path) -> None:
    """Write the questions of the downstream tasks into the directory of a run, and warn if an earlier sample differs.

    Raises BadInput if the files have no labeled questions, and DataError if the corpus has too little held-out text.
    """
    tasks = _tasks(cluster)
    if not tasks:
        return
    from orchestration.jobs import held_out
    from orchestration.jobs.task_splits import read_scored_items
    from training.evaluation import SampledTask, write_samples

    if reasons := held_out.find_too_few(corpus, [task for task in tasks if isinstance(task, str)], labels=1).values():
        raise DataError("\n".join(reasons))
    samples = []
    for task in tasks:
        if isinstance(task, str):
            continue
        items = [item for item in read_scored_items(task, Path(cluster.downstream_data_dir)) if item.gold is not None]
        chosen = key(_SEED, "task").at(4, 0).permutation(len(items))[: cluster.downstream_examples]
        samples.append(SampledTask(task.name, task.task, [items[number] for number in sorted(chosen.tolist())]))
    if write_samples(run / DOWNSTREAM, samples):
        log.warning(
            "%s: the questions of the downstream tasks differ from those of the earlier steps, so their curves have a "
            "break",
            os.fspath(run / DOWNSTREAM),
        )
