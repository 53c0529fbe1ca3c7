"""The second half of a job: pretraining on Ray."""

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestration import environment, launch, planning, tracking
from orchestration.config import Cluster, Recipe
from orchestration.jobs import stages
from orchestration.jobs.downstream import write_downstream_sample
from orchestration.jobs.initial_weights import warn_of_other_vocabulary
from orchestration.jobs.job import Job
from orchestration.jobs.job_flags import save_flags
from orchestration.jobs.micro_batch import choose_micro_batch
from orchestration.jobs.run_tracking import catch_up, metadata_of
from orchestration.jobs.runs import EVALS, RESULT, list_saved_steps, require_corpus, result_of
from orchestration.launch import StopRequest
from orchestration.progress import Report
from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import write_atomic
from preprocessing.finite import replace_non_finite
from preprocessing.lock import hold_lock
from preprocessing.manifest import Manifest
from training.best import describe_best
from training.evaluation.tasks import TASKS
from training.run import Resume
from training.state import TrainingResult

log = logging.getLogger(__name__)

_LEFT_OUT = ("sums", "recent_losses", "recent_norms")  # parts of the training state that RESULT does not need


def train(
    job: Job,
    resume: Resume,
    report: Report,
    more_tags: Mapping[str, str] | None = None,
    stop_request: StopRequest | None = None,
) -> dict[str, Any]:
    """Pretrain or resume, unless the run is finished; returns its steps, tokens, loss and last evaluation.

    A caller that handles signals for several runs passes its own `stop_request`. Raises ResourceError if another
    process has locked the directory of the run, before anything in it is read, moved or written.
    """
    stage = job.plan.run
    if stage.state == "done" and resume != "never":
        if tracking.pending_updates(stage.folder):
            with hold_lock(stage.folder):
                catch_up(stage.folder, tracking.tracking_store(job.out), report)
        return result_of(stage.folder)
    require_corpus(job)
    # Take the lock first, because another process may be using the directory.
    with environment.apply(job.cluster.env), hold_lock(stage.folder):
        return train_locked(job, resume, report, more_tags, stop_request)


def train_locked(
    job: Job,
    resume: Resume,
    report: Report,
    more_tags: Mapping[str, str] | None = None,
    stop_request: StopRequest | None = None,
) -> dict[str, Any]:
    """Do the same as `train`, for a caller that holds the lock of the run's directory."""
    job, chosen = choose_micro_batch(job, resume)
    stage, recipe, cluster = job.plan.run, job.recipe, job.cluster
    if cluster.profile_steps and stage.state == "done" and resume != "never":
        raise BadInput(f"--profile-steps: {stage.folder} is finished; profile a run from its start with --resume never")
    if stage.state != "done" or resume == "never":
        planning.refuse_what_cannot_be(job.recipe, job.cluster)
        corpus = require_corpus(job)
        warn_of_other_vocabulary(recipe, corpus)
        (stage.folder / stages.MARK).unlink(missing_ok=True)
        stage.begin(anew=resume == "never")
        save_flags(stage.folder, job.flags)
        write_downstream_sample(cluster, stage.folder, corpus)
        write_atomic(stage.folder / EVALS, json.dumps(recipe.eval_tasks or list(TASKS)).encode())
        tags = {"corpus_hash": Manifest.load(corpus).digest, "changed_code": ", ".join(stage.find_changed_code())}
        metadata = metadata_of(job, tags | dict(more_tags or {}))

        def store_result(result: TrainingResult) -> None:
            ended = {key: value for key, value in dataclasses.asdict(result.state).items() if key not in _LEFT_OUT}
            if not ended["best"]:
                del ended["best"]
            write_atomic(stage.folder / RESULT, json.dumps(replace_non_finite(ended), indent=1).encode())

        with advise_on_memory(recipe, cluster, is_chosen=bool(chosen)), environment.apply(cluster.env) as env:
            result = launch.pretrain(
                job.pretraining(resume),
                num_workers=cluster.count_workers(recipe),
                cpus=cluster.cpus_per_worker,
                gpus=cluster.gpus_per_worker,
                place=tracking.tracking_store(job.out),
                metadata=metadata,
                address=cluster.ray_address,
                min_workers=cluster.min_workers,
                restart_policy=launch.RestartPolicy(
                    max_restarts=cluster.max_restarts,
                    hang_s=60 * cluster.hang_timeout_minutes,
                    grow_s=60 * cluster.scale_up_interval_minutes,
                ),
                env=env,
                other_trackers=cluster.trackers,
                dashboard=cluster.ray_dashboard,
                on_progress=report,
                stop_request=stop_request,
                store_result=store_result,
            )
        for line in _describe_end(result.state.step, recipe.num_steps, result.state.best, stage.folder):
            log.warning("%s", line)
        stage.finish()
    return result_of(stage.folder)


def _describe_end(step: int, last: int, best: Mapping[str, float], folder: Path) -> Iterator[str]:
    """One line if training ended early, and one line with the best checkpoint if it was kept."""
    if best and step < last:
        yield (
            f"{folder}: ended early, after step {step:,} of {last:,}: {best['in_vain']:.0f} "
            f"evaluation{'s' * (best['in_vain'] != 1)} without a lower validation loss; {describe_best(best)}"
        )
    if "step" in best and best["step"] != step and best["step"] in list_saved_steps(folder):
        yield (
            f"{folder}: {describe_best(best)}, step {step:,} is the end; `sesame export {folder.name} DIR --step "
            f"{best['step']:.0f}` exports the best checkpoint"
        )


@contextmanager
def advise_on_memory(recipe: Recipe, cluster: Cluster, *, is_chosen: bool = False) -> Iterator[None]:
    """If a worker runs out of memory inside the block, raise ResourceError with the micro-batch that would fit.

    `is_chosen`: the plan has chosen the micro-batch of the cluster, because the cluster file has `auto`.
    """
    try:
        yield
    except launch.OutOfMemory as error:
        fits = planning.suggest_settings(recipe, cluster, error.used, error.limit)
        if is_chosen:
            fits = f"`auto` chose this number by the plan, which counts too little memory here; {fits}"
        raise ResourceError(f"{error}; {fits}; then repeat the command to resume from the newest checkpoint") from error
