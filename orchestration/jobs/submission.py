"""A job for a remote cluster: its command, its ID, and whether it must be submitted. This module submits nothing."""

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestration import environment, planning
from orchestration.config import list_names, load, load_cluster, split_overrides
from orchestration.jobs.job import Job, JobFlags
from orchestration.jobs.job_flags import make_absolute, make_file_absolute
from preprocessing.errors import ResourceError
from training.run import Resume

if TYPE_CHECKING:
    from orchestration.launch import JobServer, SubmittedJob

Verb = Literal["run", "train"]
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")  # states of a Ray job that has ended
PATHS = ("init_checkpoint", "data.tokenizer.path", "data.corpus")  # recipe keys that name a file or a directory

# directory below --output-dir for the environment values of submitted jobs: one file per job, which only its sender can
# read
LEFT = ".environment"
JOB_PYTHON = "orchestration/launch/job_python.sh"  # in the directory of the job, which has the code of Sesame


def with_cluster_paths(flags: JobFlags) -> JobFlags:
    """The flags for another working directory on a machine of the cluster: all paths absolute, and
    `cluster.ray_address=auto`."""
    return replace(
        flags,
        recipe=make_file_absolute(flags.recipe),
        cluster=make_file_absolute(flags.cluster),
        data=[make_absolute(given) for given in flags.data],
        output_dir=Path(os.path.abspath(flags.output_dir)),
        overrides=(*_with_absolute_paths(flags), "cluster.ray_address=auto"),
    )


def command(flags: JobFlags, verb: Verb, resume: Resume = "allow") -> str:
    """The shell command for the head node. A script selects the Python (job_python.sh).

    With `exec`, SIGTERM reaches Python itself, which then writes a checkpoint.
    """
    more = [] if resume == "allow" else ["--resume", resume]
    return f"exec sh {JOB_PYTHON} " + with_cluster_paths(flags).command(verb, *more).removeprefix("sesame ")


def with_cluster_workers(flags: JobFlags, job: Job, server: "JobServer") -> JobFlags:
    """The flags with the number of workers that the cluster behind `server` can hold, if the cluster file sets no
    number.

    Raises ResourceError if the cluster is too small.
    """
    cluster = job.cluster
    if cluster.num_workers:
        return flags
    room = server.room(cluster.cpus_per_worker, cluster.gpus_per_worker)
    if room < cluster.engine.workers_unit:
        raise ResourceError(
            f"{server.url}: has resources for {room} workers, but {cluster.name} needs at least "
            f"{cluster.engine.workers_unit}; change cluster.cpus_per_worker or cluster.engine, or submit to another "
            "cluster"
        )
    return replace(flags, overrides=(*flags.overrides, f"cluster.num_workers={cluster.workers_in(room, job.recipe)}"))


def describe_missing_room(job: Job, server: "JobServer") -> list[str]:
    """A note if the cluster behind `server` has resources for fewer workers than the cluster file asks for.

    This is no error, because nodes may be added.
    """
    cluster = job.cluster
    try:
        room = server.room(cluster.cpus_per_worker, cluster.gpus_per_worker, wait=False)
    except ResourceError:  # the dashboard does not list its nodes
        return []
    if room >= cluster.num_workers:
        return []
    of_worker = "cluster.gpus_per_worker" if cluster.gpus_per_worker else "cluster.cpus_per_worker"
    return [
        f"{server.url} has resources for {room} of {cluster.num_workers} workers: the job waits for more; without more "
        f"nodes, stop it and lower cluster.num_workers or {of_worker}"
    ]


def refuse_what_does_not_fit(job: Job) -> list[str]:
    """Notes on a layout that fits. Raises ResourceError if the GPUs of the cluster have too little memory for it.

    If the cluster file does not name its GPUs, this is raised only if even the largest known GPU has too little memory.
    The host memory of the machines is not checked, because it is unknown here.
    """
    cluster = job.cluster
    if cluster.engine.device != "cuda":
        return []
    return planning.refuse_what_does_not_fit(job.recipe, cluster, elsewhere=True)


def identity(job: Job, flags: JobFlags, verb: Verb) -> str:
    """`<recipe>-<8 hexadecimal digits>`: equal for equal work with the same output directory, and for nothing else."""
    absolute = with_cluster_paths(flags)
    cluster = load_cluster(absolute.cluster, split_overrides(absolute.overrides)[1])
    values = [
        verb,
        asdict(job.declared) if job.declared else job.recipe.hash,  # the steps of epochs change when the corpus exists
        asdict(cluster),
        str(absolute.output_dir),
        list(absolute.data),
        absolute.seed,
        absolute.holdout_ratio,
    ]
    digest = sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
    return f"{re.sub('[^A-Za-z0-9_]+', '_', job.recipe.name)}-{digest[:8]}"


@contextmanager
def send_environment(job: Job, name: str) -> Iterator[dict[str, str]]:
    """Environment variables of the job `name`: the path of a file below --output-dir with the values of `env`.

    The job deletes this file when it starts. The result is {} if the cluster file takes no values from the environment
    of this process. If the block fails, the file is removed. Each sender has its own file: if two users submit the same
    work at once, one submission is refused.
    """
    file = Path(os.path.abspath(job.out)) / LEFT / f"{name}.{secrets.token_hex(8)}"
    is_saved = environment.save(job.cluster.env, file)
    try:
        yield {environment.FILE: str(file)} if is_saved else {}
    except BaseException:
        if is_saved:
            file.unlink(missing_ok=True)
        raise


def remove_leftover_environments(out: Path, jobs: "Iterable[SubmittedJob]") -> None:
    """Remove the environment files of ended jobs that never started."""
    ended = {one.id for one in jobs if one.status in ENDED}
    for file in (out / LEFT).glob("*"):
        if file.name.partition(".")[0] in ended:
            file.unlink(missing_ok=True)


def remove_leftover_environment(name: str, file: str) -> None:
    """Remove the environment file of one job that has ended. The path `file` comes from the cluster, so it is checked
    first."""
    path = Path(file)
    if path.parent.name == LEFT and path.name.partition(".")[0] == name:
        path.unlink(missing_ok=True)


def next_attempt(
    name: str, jobs: "Iterable[SubmittedJob]", force: bool = False, address: str = ""
) -> "tuple[str, SubmittedJob | None]":
    """The ID for submitting the work `name` now, and the finished job for the same work, if there is one.

    After a failed or stopped job the ID is `name-2`, `name-3` and so on, and the new job resumes from the last
    checkpoint. If a job has finished the work, nothing is submitted without `force`. Raises ResourceError if a job is
    running, because two would write to the same directory. `address`: that of the cluster, if a command names it.
    """
    attempts = {_attempt(name, one.id): one for one in jobs if _attempt(name, one.id)}
    more = f" --address {address}" if address else ""
    for one in attempts.values():
        if one.status not in ENDED:
            raise ResourceError(
                f"{one.id} is already doing this work ({one.status}); watch it with `sesame logs {one.id}{more} "
                f"--follow`, or stop it with `sesame stop {one.id}{more}`"
            )
    last = max(attempts, default=0)
    done = attempts[last] if last and attempts[last].status == "SUCCEEDED" and not force else None
    return (done.id if done else f"{name}-{last + 1}" if last else name), done


def _with_absolute_paths(flags: JobFlags) -> list[str]:
    """The overrides, with an absolute path for each relative path in the recipe or in the overrides."""
    read = load(flags.recipe, split_overrides(flags.overrides)[0], flags.scale, with_epochs=True)
    values = (read.init_checkpoint, getattr(read.data.tokenizer, "path", ""), read.data.corpus)
    corpora = list_names("corpora")
    whole = {
        key: os.path.abspath(path)
        for key, path in zip(PATHS, values, strict=True)
        if path and path not in corpora and not os.path.isabs(path) and Path(path).exists()
    }
    others = [given for given in flags.overrides if given.partition("=")[0] not in (*whole, "cluster.ray_address")]
    return [*others, *(f"{key}={path}" for key, path in whole.items())]


def _attempt(name: str, job_id: str) -> int:
    """The number of the attempt with ID `given` at the work `name`; 0 if the ID belongs to other work."""
    match = re.fullmatch(rf"{re.escape(name)}(?:-([2-9]|[1-9]\d+))?", job_id)
    return int(match[1] or 1) if match else 0
