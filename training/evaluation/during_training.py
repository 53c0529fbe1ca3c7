"""Scores of likelihood tasks during training, on a fixed sample of their questions.

A small model's accuracy stays near chance for a long time, while bits per byte and the margin already move (Schaeffer
et al. 2024, arXiv:2406.04391). The sample is the same at each evaluation and after a restart, so that the points of a
curve differ in the model only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_object, to_checked_json, write_atomic
from training.evaluation.cloze import fill_in
from training.evaluation.eval_result import EvaluatedModel
from training.evaluation.likelihoods import evaluate_likelihoods
from training.evaluation.tasks import ClozeItems, Kinds, TaskItem, question_of, restore_item, restore_kind
from training.finetuning import OnStep, ignore_activity
from training.specs import EngineSettings

_SPLIT = "sample"
_AGAIN = "delete it and repeat the same `sesame train` command"


@dataclass(frozen=True)
class SampledTask:
    """A likelihood task, and the questions to score."""

    name: str
    kind: Any
    items: Sequence[TaskItem]


def write_samples(file: Path, tasks: Sequence[SampledTask]) -> bool:
    """Write the tasks and their questions; returns whether the file existed with other content."""
    values = [
        {"name": one.name, "kind": asdict(one.kind), "questions": [question_of(one.kind, item) for item in one.items]}
        for one in tasks
    ]
    content = to_checked_json({"tasks": values})
    is_changed = file.is_file() and file.read_bytes() != content
    write_atomic(file, content)
    return is_changed


def read_samples(file: Path) -> list[SampledTask]:
    """The tasks of a file that `write_samples` wrote. Raises BadInput if it is missing or damaged."""
    values = read_object(file, _AGAIN, tasks=list)["tasks"]
    with of_kind(file, _AGAIN):
        tasks = list[SampledTask]()
        for one in values:
            kind = restore_kind(Kinds, one["kind"])
            tasks.append(SampledTask(one["name"], kind, [restore_item(kind, each) for each in one["questions"]]))
        return tasks


def score_samples(
    net: EvaluatedModel,
    tasks: Sequence[SampledTask],
    blanks: ClozeItems | None,
    machine: EngineSettings,
    on_step: OnStep = ignore_activity,
) -> tuple[dict[str, float], list[str]]:
    """The metrics `eval/TASK/sample_METRIC` of a model, and a reason for each task without a score.

    `blanks` are the questions of the task cloze; None: it is not scored. Values are those of `sesame eval` for the same
    weights and questions.
    """
    metrics, problems = dict[str, float](), list[str]()
    for task in tasks:
        try:
            found = evaluate_likelihoods(net, task.kind, {_SPLIT: task.items}, machine=machine, on_step=on_step)
            metrics |= _name_metrics(task.name, found.scores[_SPLIT], task.kind.metrics)
        except BadInput as error:
            problems.append(f"task {task.name}: {error}")
    if blanks:
        found = fill_in(net, blanks, machine)
        metrics |= _name_metrics("cloze", found.scores["test"], ("accuracy", "top5"))
    return metrics, problems


def _name_metrics(task: str, scores: Mapping[str, float], named: Sequence[str]) -> dict[str, float]:
    """The metrics of the task, and those that move smoothly; intervals, counts and subsets are left out."""
    wanted = dict.fromkeys((*named, "bits_per_byte", "margin"))
    return {f"eval/{task}/sample_{name}": scores[name] for name in wanted if name in scores}
