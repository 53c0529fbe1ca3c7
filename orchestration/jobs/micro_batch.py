"""The number that a job uses instead of `micro_batch_tokens: auto`."""

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestration import planning
from preprocessing.errors import BadInput
from training.run import load_stored_run

if TYPE_CHECKING:
    from orchestration.jobs.job import Job


def choose_micro_batch(job: "Job", resume: str) -> tuple["Job", list[str]]:
    """The job with a number instead of `auto`, and a line that says so; without `auto`, the job itself and no line.

    A run that resumes keeps its number while it fits, so that the order of sums and the dropout masks stay the same.
    """
    recorded = 0 if resume == "never" else _find_recorded(job)
    cluster, lines = planning.resolve_micro_batch(job.recipe, job.cluster, recorded=recorded)
    return (replace(job, cluster=cluster) if lines else job), lines


def _find_recorded(job: "Job") -> int:
    """The tokens per micro-batch with which a run with checkpoints was trained last; 0 if its engine differed."""
    stage, engine = job.plan.run, job.cluster.engine
    if engine.micro_batch_tokens != "auto" or not stage.has_saved:
        return 0
    try:
        before = load_stored_run(stage.folder).engine
    except BadInput:
        return 0
    same = replace(before, micro_batch_tokens="auto", init_timeout_seconds=engine.init_timeout_seconds)
    return before.micro_tokens if same == engine else 0
