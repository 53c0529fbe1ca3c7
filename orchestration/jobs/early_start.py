"""Ray and the workers start while the corpus of a small text is built, or while the files of tasks are read."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from orchestration import environment, launch, tracking
from orchestration.config import Cluster
from orchestration.jobs import stages
from orchestration.jobs.job import Job
from pipeline.readers import plan_splits
from training.evaluation.tasks import TaskFile
from training.run import Resume

MOST_BYTES: Final = 150_000_000  # bytes of text; a larger text is processed on all cores


@contextmanager
def start_early(job: Job, resume: Resume) -> Iterator[None]:
    """Inside the block, our own Ray and the workers of the training start in the background.

    Nothing starts early if the run is finished, if a cluster has an address, or if the text has more than MOST_BYTES:
    then the corpus needs all cores and the memory.
    """
    cluster, is_finished = job.cluster, job.plan.run.state == "done" and resume != "never"
    if is_finished or cluster.ray_address or _is_large(job):
        yield
        return
    workers = cluster.count_workers(job.recipe)
    needs = launch.WorkerRequirements(num_workers=workers, cpus=cluster.cpus_per_worker, gpus=cluster.gpus_per_worker)
    with (
        environment.apply(cluster.env) as env,
        launch.start_workers_early(
            needs,
            cluster.engine,
            env,
            cpus=max(launch.cores(), workers * cluster.cpus_per_worker),
            gpus=max(workers, cluster.finetuning_workers) * cluster.gpus_per_worker,
            dashboard=cluster.ray_dashboard,
            logs=job.plan.run.folder / "ray-logs",
        ),
    ):
        yield


@contextmanager
def start_evaluation_early(folder: Path, tasks: Sequence[TaskFile | str], cluster: Cluster) -> Iterator[None]:
    """Inside the block, our own Ray and the processes of evaluations start in the background.

    Nothing starts early if a cluster has an address, or if each of `tasks` has a finished score of the run in `folder`:
    then there may be nothing to do.
    """
    names = [task if isinstance(task, str) else task.name for task in tasks]
    has_scores = all(any(folder.glob(f"scores/{name}*/{stages.MARK}")) for name in names)
    if has_scores or cluster.ray_address:
        yield
        return
    with (
        environment.apply(cluster.env) as env,
        launch.start_trials_early(
            resources_of(cluster, env),
            launch.cores(),
            cpus=max(launch.cores(), cluster.cpus_per_worker),
            gpus=cluster.gpus,
            dashboard=cluster.ray_dashboard,
            logs=folder / "ray-logs",
        ),
        import_mlflow_beside(folder),
    ):
        yield


@contextmanager
def import_mlflow_beside(folder: Path) -> Iterator[None]:
    """Import MLflow and matplotlib in a thread, while the block waits for Ray or for trials. The imports take seconds.

    Errors are ignored, because the same imports fail again when the scores are logged.
    """
    if (tracked := tracking.existing_run(folder)) is None:
        yield
        return

    def load() -> None:
        with suppress(Exception):
            tracking.load_mlflow(tracked.uri)
            import matplotlib.figure  # noqa: F401

    thread = threading.Thread(target=load, name="importing MLflow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def resources_of(cluster: Cluster, env: Mapping[str, str]) -> launch.TrialResources:
    """The resources of each evaluation. `env` are the resolved variables of the cluster file."""
    return launch.TrialResources(cluster.cpus_per_worker, cluster.gpus_per_worker, cluster.finetuning_workers, env)


def _is_large(job: Job) -> bool:
    """Whether the corpus is still to be built, and the text is large."""
    if job.plan.corpus.state == "done":
        return False
    pieces = (piece for split in plan_splits(job.corpus.sources) for piece in split.pieces)
    return sum(piece.weight for piece in pieces) > MOST_BYTES
