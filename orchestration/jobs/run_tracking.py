"""The MLflow run of a training: its metadata, and data that MLflow still lacks of a finished run."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path

from orchestration import launch, tracking
from orchestration.config import flatten, to_non_defaults, to_yaml
from orchestration.jobs.job import Job
from orchestration.progress import Report
from orchestration.reports import row

log = logging.getLogger(__name__)


def metadata_of(job: Job, tags: Mapping[str, object]) -> tracking.Metadata:
    """MLflow metadata of a job: the values that differ from defaults, the complete files, and a description."""
    recipe, cluster = job.recipe, job.cluster
    tags = {
        "command": job.command,
        "recipe": recipe.name,
        "recipe_hash": recipe.hash,
        "cluster": cluster.name,
        **{f"cluster.{key}": value for key, value in flatten(dataclasses.asdict(cluster)) if key != "name"},
        **{f"cluster.{key}": value for key, value in cluster.intervals(recipe).items()},
        "num_workers": cluster.count_workers(recipe),
        "zero_stage": cluster.engine.zero_stage,
        "precision": cluster.engine.precision,
        **tags,
    }
    params = {key: value for key, value in to_non_defaults(recipe).items() if key != "reported_results"}
    files = {"recipe.yaml": to_yaml(recipe), "cluster.yaml": to_yaml(cluster)}
    return tracking.Metadata(recipe.name, params, tags, _note(job), files)


def _note(job: Job) -> str:
    """The description of a run in Markdown."""
    recipe, cluster = job.recipe, job.cluster
    workers, about = cluster.count_workers(recipe), row(recipe)
    lines = [
        f"`{recipe.name}`" + (f" ({recipe.paper})" if recipe.paper else "") + f" on the corpus `{job.corpus.name}`",
        *(f"{name}: {about[name]}" for name in ("packing", "masking", "objective", "architecture")),
        f"parameters: {about['parameters']:,}",
        f"steps: {recipe.num_steps:,} of "
        f"{', '.join(f'{p.global_batch_size:,} x {p.seq_length:,} tokens' for p in recipe.phases)}",
        f"workers: {workers:,} on the cluster `{cluster.name}`, {cluster.engine.precision}",
        f"directory: `{job.plan.run.folder.absolute()}`",
    ]
    command = [f"\n```sh\n{job.command}\n```"] if job.command else []
    return "\n".join([*(f"* {line}" for line in lines), *command])


def catch_up(folder: Path, place: tracking.TrackingStore, report: Report) -> None:
    """Send MLflow the data that it lacks of a finished run. If the store fails, warn and keep the data."""
    report({"stage": "mirroring metrics"})
    tracked, at = tracking.existing_run(folder), tracking.redact(place.uri)
    if tracked is None or (reason := tracking.explain_missing_run(tracked)):
        why = f"does not answer ({reason})" if tracked else "has no run of this directory"
        log.warning("MLflow at %s %s, so it lacks data of %s; repeat the command to send it", at, why, folder)
        return
    tracking.catch_up(tracked, folder)
    if "results" in tracking.pending_updates(folder):
        launch.log_results(folder, tracked, finished=True, report=report)
    else:
        tracking.MetricLog(folder, tracked, system=False).close(report)
    tracking.complete(tracked, folder)
