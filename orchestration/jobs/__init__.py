"""Jobs: one recipe on one text on one cluster, in stages.

Read job.py and stages.py first. corpus.py, pretrain.py and evaluate.py are the stages; ray_stages.py runs the last two
in one Ray session; held_out.py describes the text that is held out for evaluation. eval_request.py holds the options of
an evaluation, eval_target.py the evaluated model, grids.py its hyperparameters, score_plan.py its trials. runs.py finds
runs, run_tracking.py describes them for MLflow, model_export.py exports models, hub.py uploads them. generation.py
writes text with a model. ablation.py trains and compares many runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from orchestration.jobs.held_out import tasks_without_text
from orchestration.jobs.job import Job, JobFlags, cluster_of, open_job
from orchestration.jobs.stages import JobPlan, JobStage

if TYPE_CHECKING:  # these import the launcher and the tracker, which most commands do not need
    from orchestration.jobs.model_export import export, register
    from orchestration.jobs.pretrain import advise_on_memory, train, train_locked
    from orchestration.jobs.run_tracking import catch_up
    from orchestration.jobs.runs import (
        eval_tasks_of,
        list_saved_steps,
        refuse_another_run,
        result_of,
        run_folder,
        run_of,
        samples_of,
    )

__all__ = [
    "Job",
    "JobFlags",
    "JobPlan",
    "JobStage",
    "advise_on_memory",
    "catch_up",
    "cluster_of",
    "eval_tasks_of",
    "export",
    "list_saved_steps",
    "open_job",
    "refuse_another_run",
    "register",
    "result_of",
    "run_folder",
    "run_of",
    "samples_of",
    "tasks_without_text",
    "train",
    "train_locked",
]

_LAZY: Final = {
    "model_export": ("export", "register"),
    "pretrain": ("advise_on_memory", "train", "train_locked"),
    "run_tracking": ("catch_up",),
    "runs": (
        "eval_tasks_of",
        "list_saved_steps",
        "refuse_another_run",
        "result_of",
        "run_folder",
        "run_of",
        "samples_of",
    ),
}


def __getattr__(name: str) -> Any:
    """Import a function of training or export at its first use, so that other commands start faster."""
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
