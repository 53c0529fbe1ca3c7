"""Pretraining and evaluation in one Ray session, because a busy machine takes minutes to start Ray."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from orchestration import environment, jobs, planning
from orchestration.evaluation import eval_target, evaluate
from orchestration.evaluation.eval_request import EvalRequest
from orchestration.evaluation.score_plan import plan_supported_tasks
from orchestration.jobs import HELD_OUT_STAGE, Job, resources_of, tasks_without_text
from orchestration.launch import EXPORTING, cores, ray_session, start_trial_processes
from orchestration.progress import Report
from preprocessing.errors import SesameError
from preprocessing.lock import hold_lock
from training.evaluation.tasks import TaskScore
from training.run import Resume

log = logging.getLogger(__name__)


def pretrain_and_evaluate(
    job: Job, resume: Resume, report: Report, request: EvalRequest, left_out: list[SesameError] | None = None
) -> tuple[dict[str, Any], list[TaskScore]]:
    """The results of pretraining (`train`) and of evaluation (`evaluate.evaluate`).

    A task is left out with a warning if too little text is held out for it, or if its files are missing. The amount of
    text is checked before training. The scores are [] if no task remains. `left_out` collects the errors of tasks that
    started and have no score.
    """
    report({"stage": HELD_OUT_STAGE})
    unfit = tasks_without_text(job.plan.corpus, request.held_out, request.held_out_labels)
    fit = request.without(unfit)
    if job.plan.run.state == "done" and resume != "never":
        return _evaluate(job, jobs.train(job, resume, report), report, fit, left_out)
    planning.refuse_what_cannot_be(job.recipe, job.cluster)
    with environment.apply(job.cluster.env) as env, hold_lock(job.plan.run.folder), _ray(job, report):
        reports = _StartTrials(report, job, env) if fit.tasks else report
        return _evaluate(job, jobs.train_locked(job, resume, reports), report, fit, left_out)


class _StartTrials:
    """A report that starts the processes of evaluations after the last step, while the model is exported and logged."""

    def __init__(self, report: Report, job: Job, env: Mapping[str, str]) -> None:
        self.report, self.job, self.env, self.is_due = report, job, env, True

    def __call__(self, event: Mapping[str, Any]) -> None:
        if self.is_due and event["stage"] == EXPORTING:
            self.is_due = False
            try:
                start_trial_processes(resources_of(self.job.cluster, self.env), cores())
            except Exception as error:
                log.warning("processes of evaluations did not start early (%s); they start when needed", error)
        self.report(event)


def _evaluate(
    job: Job, result: dict[str, Any], report: Report, fit: EvalRequest, left_out: list[SesameError] | None
) -> tuple[dict[str, Any], list[TaskScore]]:
    """The result of a run, and the scores of the tasks that it supports."""
    plans = plan_supported_tasks(eval_target.target_of_run(job.plan.run.folder), fit) if fit.tasks else []
    if not plans:
        return result, []
    return result, evaluate.evaluate(
        job.plan.run.folder, plans, job.cluster, report, left_out=left_out, command=job.command
    )


def _ray(job: Job, report: Report) -> AbstractContextManager[None]:
    """A Ray session with resources for the workers of the training, and for one fine-tuning per core."""
    cluster = job.cluster
    workers = cluster.count_workers(job.recipe)
    return ray_session(
        cluster.ray_address,
        cpus=max(cores(), workers * cluster.cpus_per_worker),
        gpus=max(workers, cluster.finetuning_workers) * cluster.gpus_per_worker,
        dashboard=cluster.ray_dashboard,
        logs=job.plan.run.folder / "ray-logs",
        report=report,
    )
