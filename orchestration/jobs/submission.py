"""A job that another machine runs: its command, its id, and whether it is sent at all. Nothing is sent from here."""

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
from orchestration.config import load, load_cluster, names, split_overrides
from orchestration.jobs.job import Job, JobFlags
from preprocessing.errors import ResourceError

if TYPE_CHECKING:
    from orchestration.launch import JobServer, SubmittedJob

Verb = Literal["run", "train"]
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")  # what Ray says of a job that has
PATHS = ("init_checkpoint", "data.tokenizer.path", "data.corpus")  # keys of a recipe that name a file or a folder
LEFT = ".environment"  # a folder of --output-dir: values on their way to a job, a file each, for their sender alone


def with_cluster_paths(flags: JobFlags) -> JobFlags:
    """The flags as another folder can read them, on a machine that is part of the cluster: all paths absolute, and
    `cluster.ray_address=auto`."""
    return replace(
        flags,
        recipe=_file(flags.recipe),
        cluster=_file(flags.cluster),
        data=[make_absolute(given) for given in flags.data],
        output_dir=Path(os.path.abspath(flags.output_dir)),
        overrides=(*_with_whole_paths(flags), "cluster.ray_address=auto"),
    )


def command(flags: JobFlags, verb: Verb) -> str:
    """What the shell of the head runs. `exec`: SIGTERM reaches Python itself, which then writes a checkpoint."""
    return "exec python -m " + with_cluster_paths(flags).command(verb)


def with_cluster_workers(flags: JobFlags, job: Job, server: "JobServer") -> JobFlags:
    """The flags with as many workers as the cluster behind `server` has room for, where the cluster file leaves that
    open; ResourceError where it has room for none."""
    cluster = job.cluster
    if cluster.num_workers:
        return flags
    room = server.room(cluster.cpus_per_worker, cluster.gpus_per_worker)
    if room < cluster.engine.workers_unit:
        raise ResourceError(
            f"{server.url}: has room for {room} workers, {cluster.name} wants {cluster.engine.workers_unit} at least; "
            "change cluster.cpus_per_worker or its machine, or send to another cluster"
        )
    return replace(flags, overrides=(*flags.overrides, f"cluster.num_workers={cluster.workers_in(room, job.recipe)}"))


def refuse_what_does_not_fit(job: Job) -> list[str]:
    """What is to be known of a layout that fits. ResourceError where the GPUs of a cluster have no room for what is
    asked of each; where the cluster file does not name them, of the largest that are known. Memory of its machines is
    not known here."""
    cluster = job.cluster
    if cluster.engine.device != "cuda":
        return []
    return planning.refuse_what_does_not_fit(job.recipe, cluster, elsewhere=True)


def identity(job: Job, flags: JobFlags, verb: Verb) -> str:
    """`<recipe>-<8 hexadecimal digits>`: equal for equal work into the same folder, and for nothing else."""
    asked = with_cluster_paths(flags)
    cluster = load_cluster(asked.cluster, split_overrides(asked.overrides)[1])
    values = [
        verb,
        job.recipe.hash,
        asdict(cluster),
        str(asked.output_dir),
        list(asked.data),
        asked.seed,
        asked.holdout_ratio,
    ]
    digest = sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
    return f"{re.sub('[^A-Za-z0-9_]+', '_', job.recipe.name)}-{digest[:8]}"


@contextmanager
def sent_environment(job: Job, name: str) -> Iterator[dict[str, str]]:
    """What the job `name` gets as variables: where it finds the values of `env`, in a file below --output-dir that it
    removes when it starts; {} where the cluster file takes none from here. Where the block fails, the file is not left.

    Each sender has a file of its own: of two that send the same work at once, one is refused.
    """
    file = Path(os.path.abspath(job.out)) / LEFT / f"{name}.{secrets.token_hex(8)}"
    left = environment.save(job.cluster.env, file)
    try:
        yield {environment.FILE: str(file)} if left else {}
    except BaseException:
        if left:
            file.unlink(missing_ok=True)
        raise


def remove_leftover_environments(out: Path, known: "Iterable[SubmittedJob]") -> None:
    """Remove the files of values that jobs have not taken which have ended: they never began."""
    ended = {one.id for one in known if one.status in ENDED}
    for file in (out / LEFT).glob("*"):
        if file.name.partition(".")[0] in ended:
            file.unlink(missing_ok=True)


def remove_leftover_environment(name: str, file: str) -> None:
    """Remove the file of values of one job that has ended; `file` as the cluster says, where others may write it."""
    path = Path(file)
    if path.parent.name == LEFT and path.name.partition(".")[0] == name:
        path.unlink(missing_ok=True)


def next_attempt(name: str, known: "Iterable[SubmittedJob]", again: bool = False) -> "tuple[str, SubmittedJob | None]":
    """The id under which the work `name` is sent now, and the job that has done it already, if one has.

    After one that failed or was stopped it is `name-2`, `name-3`, ...; it goes on from the checkpoints of the last.
    With a job that has done it nothing is sent, unless `again`. ResourceError where one is at it: two would write into
    one folder.
    """
    attempts = {_attempt(name, one.id): one for one in known if _attempt(name, one.id)}
    for one in attempts.values():
        if one.status not in ENDED:
            raise ResourceError(
                f"{one.id} is at this already ({one.status}); watch it with `sesame logs {one.id} --follow`, or end it "
                f"with `sesame stop {one.id}`"
            )
    last = max(attempts, default=0)
    done = attempts[last] if last and attempts[last].status == "SUCCEEDED" and not again else None
    return (done.id if done else f"{name}-{last + 1}" if last else name), done


def make_absolute(given: str) -> str:
    """What --data names, with an absolute path where it is one; names of corpora and URLs as they are.

    >>> given = ("demo", "gs://bucket/text", "jsonl:/a/b.jsonl#text", "/a/*.txt")
    >>> tuple(map(make_absolute, given))
    ('demo', 'gs://bucket/text', 'jsonl:/a/b.jsonl#text', '/a/*.txt')
    """
    if "://" in given or given in names("corpora"):
        return given
    if Path(given).exists():
        return os.path.abspath(given)
    before, path = re.fullmatch(r"((?:[\w.-]+=)?(?:\w+:)?)(.*)", given, re.DOTALL).groups()  # type: ignore[union-attr]
    return before + (path if path in names("corpora") else os.path.abspath(path))


def _file(given: str) -> str:
    """A recipe or a cluster: its name, or the absolute path of its file."""
    return os.path.abspath(given) if "/" in given or given.endswith((".yaml", ".yml")) else given


def _with_whole_paths(flags: JobFlags) -> list[str]:
    """The overrides, with one for each path of the recipe, or of them, that begins in the folder of this process."""
    read = load(flags.recipe, split_overrides(flags.overrides)[0], flags.scale)
    values = (read.init_checkpoint, getattr(read.data.tokenizer, "path", ""), read.data.corpus)
    known = names("corpora")
    whole = {
        key: os.path.abspath(path)
        for key, path in zip(PATHS, values, strict=True)
        if path and path not in known and not os.path.isabs(path) and Path(path).exists()
    }
    others = [given for given in flags.overrides if given.partition("=")[0] not in (*whole, "cluster.ray_address")]
    return [*others, *(f"{key}={path}" for key, path in whole.items())]


def _attempt(name: str, given: str) -> int:
    """Which attempt at the work `name` the id `given` is; 0: it is other work."""
    found = re.fullmatch(rf"{re.escape(name)}(?:-([2-9]|[1-9]\d+))?", given)
    return int(found[1] or 1) if found else 0
