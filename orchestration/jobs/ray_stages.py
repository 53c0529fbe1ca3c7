"""The stages that need Ray, pretraining and evaluation, on one Ray: a busy machine takes minutes to start it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from orchestration.jobs import evaluate, hold_out, pretrain, stages
from orchestration.jobs.job import Job
from orchestration.launch import cores, ray_session
from orchestration.progress import Report
from training.evaluation import Comparison
from training.run import Resume


def pretrain_and_evaluate(
    job: Job, resume: Resume, report: Report, *, num_seeds: int, labels: int
) -> tuple[dict[str, Any], list[Comparison]]:
    """What `pretrain.train` and `evaluate.evaluate` return.

    There are no comparisons where the recipe names no evals, or too little is held out for any; that is said before.
    """
    report({"stage": hold_out.STAGE})
    unfit = hold_out.tasks_without_text(job.plan.corpus, job.recipe.evals, labels)
    with _ray(job, report) if _is_due(job, resume, num_seeds, labels) else nullcontext():
        result = pretrain.train(job, resume, report)
        if set(unfit) >= set(job.recipe.evals):
            return result, []
        stage = stages.scores(job.plan.run.folder, job.recipe.evals, num_seeds, labels)
        return result, evaluate.evaluate(job.plan.run.folder, stage, job.cluster.address, report)


def _is_due(job: Job, resume: Resume, num_seeds: int, labels: int) -> bool:
    """Whether one of the two stages is still to do."""
    run, evals = job.plan.run, job.recipe.evals
    if run.state != "done" or resume == "never":
        return True
    return bool(evals) and stages.scores(run.folder, evals, num_seeds, labels).state != "done"


def _ray(job: Job, report: Report) -> AbstractContextManager[None]:
    """A Ray with room for the workers of the one stage and a fine-tuning on each core of the other."""
    cluster = job.cluster
    workers = cluster.num_workers(job.recipe)
    return ray_session(
        cluster.address,
        cpus=max(cores(), workers * cluster.cpus_per_worker),
        gpus=workers * cluster.gpus_per_worker,
        logs=job.plan.run.folder / "ray-logs",
        report=report,
    )
