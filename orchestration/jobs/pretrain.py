"""The second half of a job: pretraining through Ray, and what it leaves behind."""

import dataclasses
import glob
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestration import environment, launch, planning, tracking
from orchestration.config import Cluster, Recipe, flatten, split_overrides, to_non_defaults, to_yaml
from orchestration.full_disk import AGAIN, explain_full_disk
from orchestration.jobs import hub, stages
from orchestration.jobs.job import Job, JobFlags, open_job
from orchestration.launch import StopRequest
from orchestration.progress import Report
from orchestration.reports import row
from orchestration.reports.model_card import model_card
from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import (
    from_checked_json,
    is_new,
    of_kind,
    read_json,
    read_object,
    sums_of,
    whole_folder,
    write_atomic,
)
from preprocessing.finite import replace_non_finite
from preprocessing.folders import require_local_path
from preprocessing.lock import hold_lock
from preprocessing.manifest import Manifest
from preprocessing.tokenization import Vocab
from training.run import CHECKPOINTS, Resume, Run, step_of, steps, stored_run
from training.tasks import TASKS

RESULT = "result.json"
TRAIN_AGAIN = f"delete {stages.MARK} beside it, and the same `sesame train` writes it anew"
EXPORT_AGAIN = f"delete {stages.MARK} beside {launch.EXPORT}, and the same `sesame train` writes it anew"
UNTOLD = ("sums", "recent_losses", "recent_norms")  # of the state, what no reader of the result needs
EVALS = "evals.json"  # the downstream tasks that its recipe names: labels, not causes


def train(
    job: Job,
    resume: Resume,
    report: Report,
    more_tags: Mapping[str, str] | None = None,
    asked: StopRequest | None = None,
) -> dict[str, Any]:
    """Pretrain, or go on with it, or find it done; steps, tokens, loss and last evaluation of the finished run.

    `asked` is the caller's, where that listens to signals for several runs. ResourceError where another process holds
    the run's folder, before anything in it is read, moved or written.
    """
    stage = job.plan.run
    if stage.state == "done" and resume != "never":
        if tracking.pending_updates(stage.folder):
            with hold_lock(stage.folder):
                catch_up(stage.folder, tracking.tracking_store(job.out), report)
        return result_of(stage.folder)
    _made_corpus(job)
    with environment.applied(job.cluster.env), hold_lock(stage.folder):  # first of all: what is there may be at work
        return train_locked(job, resume, report, more_tags, asked)


def result_of(folder: Path) -> dict[str, Any]:
    """How the training of a run has ended: steps, tokens, loss and last evaluation."""
    return read_object(folder / RESULT, TRAIN_AGAIN, step=int, tokens=int, evaluation=dict)


def train_locked(
    job: Job,
    resume: Resume,
    report: Report,
    more_tags: Mapping[str, str] | None = None,
    asked: StopRequest | None = None,
) -> dict[str, Any]:
    """The same, for a caller that holds the lock of the run's folder."""
    stage, recipe, cluster = job.plan.run, job.recipe, job.cluster
    if cluster.profile_steps and stage.state == "done" and resume != "never":
        raise BadInput(f"--profile-steps: {stage.folder} is finished; profile a run from its start with --resume never")
    if stage.state != "done" or resume == "never":
        planning.refuse_what_cannot_be(job.recipe, job.cluster)
        corpus = _made_corpus(job)
        (stage.folder / stages.MARK).unlink(missing_ok=True)
        stage.begin(anew=resume == "never")
        write_atomic(stage.folder / EVALS, json.dumps(recipe.eval_tasks or list(TASKS)).encode())
        tags = {"corpus_hash": Manifest.load(corpus).digest, "changed_code": ", ".join(stage.changed_code())}
        metadata = _metadata(job, tags | dict(more_tags or {}))
        with advise_on_memory(recipe, cluster), environment.applied(cluster.env) as env:
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
                dashboard=cluster.ray_dashboard,
                on_progress=report,
                stop_request=asked,
            )
        ended = {key: value for key, value in dataclasses.asdict(result.state).items() if key not in UNTOLD}
        write_atomic(stage.folder / RESULT, json.dumps(replace_non_finite(ended), indent=1).encode())
        stage.finish()
    return result_of(stage.folder)


@contextmanager
def advise_on_memory(recipe: Recipe, cluster: Cluster) -> Iterator[None]:
    """Where a worker has no memory left inside the block, ResourceError with the micro-batch that would fit."""
    try:
        yield
    except launch.OutOfMemory as error:
        fits = planning.suggest_settings(recipe, cluster, error.used, error.limit)
        raise ResourceError(f"{error}; {fits}; the same command goes on from the newest checkpoint") from error


def catch_up(folder: Path, place: tracking.TrackingStore, report: Report) -> None:
    """Give MLflow what it lacks of a finished run; where it still does not answer, that is said, and stays kept."""
    report({"stage": "mirroring metrics"})
    tracked, at = tracking.existing_run(folder), tracking.redact(place.uri)
    if tracked is None or (reason := tracking.explain_missing_run(tracked)):
        why = f"does not answer ({reason})" if tracked else "has no run of this folder"
        logging.getLogger(__name__).warning("MLflow at %s %s: it lacks parts of %s", at, why, folder)
        return
    tracking.catch_up(tracked, folder)
    if "results" in tracking.pending_updates(folder):
        launch.log_results(folder, tracked, finished=True, report=report)
    else:
        tracking.MetricLog(folder, tracked, system=False).close(report)
    tracking.complete(tracked, folder)


def _metadata(job: Job, tags: Mapping[str, object]) -> tracking.Metadata:
    """What the MLflow run of a job says about itself: how it differs from the defaults, in whole, and in words."""
    recipe, cluster = job.recipe, job.cluster
    tags = {
        "command": job.command,
        "recipe": recipe.name,
        "recipe_hash": recipe.hash,
        "cluster": cluster.name,
        **{f"cluster.{key}": value for key, value in flatten(dataclasses.asdict(cluster)) if key != "name"},
        **{f"cluster.{key}": value for key, value in cluster.intervals(recipe).items()},
        "num_workers": cluster.count_workers(recipe),
        "zero": cluster.engine.zero_stage,
        "precision": cluster.engine.precision,
        **tags,
    }
    params = {key: value for key, value in to_non_defaults(recipe).items() if key != "reported_results"}
    files = {"recipe.yaml": to_yaml(recipe), "cluster.yaml": to_yaml(cluster)}
    return tracking.Metadata(recipe.name, params, tags, _note(job), files)


def _note(job: Job) -> str:
    """The description of a run, in Markdown."""
    recipe, cluster = job.recipe, job.cluster
    workers, about = cluster.count_workers(recipe), row(recipe)
    lines = [
        f"`{recipe.name}`" + (f" ({recipe.paper})" if recipe.paper else "") + f" on the corpus `{job.corpus.name}`",
        *(f"{name}: {about[name]}" for name in ("packing", "masking", "objective", "architecture")),
        f"parameters: {about['parameters']:,}",
        f"steps: {recipe.num_steps:,} of "
        f"{', '.join(f'{p.global_batch_size:,} x {p.seq_length:,} tokens' for p in recipe.phases)}",
        f"workers: {workers:,} on the cluster `{cluster.name}`, {cluster.engine.precision}",
        f"folder: `{job.plan.run.folder.absolute()}`",
    ]
    again = [f"\n```sh\n{job.command}\n```"] if job.command else []
    return "\n".join([*(f"* {line}" for line in lines), *again])


def samples_of(folder: Path) -> dict[str, list[str]]:
    """What the net of a run wrote, `before` its training and `after` it; nothing where it writes none."""
    files = {int(file.stem.partition("-")[2]): file for file in (folder / launch.SAMPLES).glob("step-*.txt")}
    if len(files) < 2:
        return {}
    first, last = (files[step].read_text(encoding="utf-8") for step in (min(files), max(files)))
    return {"before": first.strip().split(launch.BETWEEN), "after": last.strip().split(launch.BETWEEN)}


def register(flags: JobFlags, name: str) -> tracking.ModelVersion:
    """Register the model of a finished run in MLflow's model registry; BadInput where there is no such run or store."""
    folder = run_folder(flags)
    if not (folder / stages.MARK).is_file():
        raise BadInput(f"{folder}: this run is not finished, so it has no model; go on with `sesame train`")
    return tracking.register(folder, _whole_export(folder), name)


def run_folder(flags: JobFlags) -> Path:
    """The folder of a run: named as such, or by the recipe and the flags that it was trained with."""
    folder = _named(flags) or open_job(flags).plan.run.folder
    if not (folder / launch.RUN).is_file():
        raise BadInput(
            f"{flags.recipe}: not trained with these flags under {flags.output_dir}; do it with "
            f"`{flags.command('train')}`"
        )
    return folder


def eval_tasks_of(flags: JobFlags) -> list[str]:
    """The downstream tasks that the recipe of a run names; all where it names none."""
    if folder := _named(flags):
        kept = folder / EVALS
        return _names_in(kept, "delete it, and all tasks are meant") if kept.is_file() else list(TASKS)
    return list(open_job(flags).recipe.eval_tasks) or list(TASKS)


def _names_in(path: Path, remedy: str) -> list[str]:
    """The names in a file of ours that has nothing but these."""
    found = read_json(path, remedy)
    with of_kind(path, remedy):
        if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
            raise TypeError("no list of names")
    return found


def run_of(flags: JobFlags) -> Run:
    """The run in a folder, or else the one that the recipe would be on its corpus, which must be made."""
    if folder := _named(flags):
        return stored_run(folder)
    job = open_job(flags)
    _made_corpus(job)
    return job.pretraining()


def export(
    folder: Path, to: Path, *, heads: bool = True, license: str = "unknown", repo: str = "", step: int = 0
) -> tuple[list[str], str, str]:
    """Copy what a finished run has for `transformers` to `to`, which must be new or empty, with a model card.

    `heads` False: the trunk alone, for `AutoModel`. `repo`: of a hub, which gets the folder as well. `step`: what a
    run, finished or not, had after so many steps, of which a checkpoint or weights are kept. Returns the names of its
    files, what they are to transformers, and the address on the hub. BadInput where that has no such net, too.
    """
    from training.formats import describe_export, load_spec, load_weights, to_transformers, without_heads

    require_local_path("DIR", to)
    if step:
        return _export_step(folder, to, step, heads=heads, repo=repo)
    made, weights = _whole_export(folder), folder / launch.WEIGHTS
    if not (weights / "spec.json").is_file():
        raise BadInput(
            f"{folder}: this run is not finished, so it has nothing to export; go on with `sesame train`, or take "
            "a kept step with --step N"
        )
    vocab = Path(stored_run(folder).corpus) / "vocab"
    becomes = describe_export(load_spec(weights), Vocab.load(made if made.is_dir() else vocab).pad)
    if not made.is_dir():
        raise BadInput(f"{made}: is missing; {EXPORT_AGAIN}")
    if not is_new(to):
        raise BadInput(f"{to}: is there already and is not an empty folder; name another one")
    api = hub.connect(repo) if repo else None
    with explain_full_disk(to, lambda: "", AGAIN), whole_folder(to) as unfinished:
        if heads:
            shutil.copytree(made, unfinished, dirs_exist_ok=True)
        else:
            spec, tensors = load_weights(weights)
            to_transformers(tensors, spec, made, unfinished, heads=False)
            becomes = without_heads(becomes.split(",")[0])
        write_atomic(unfinished / "README.md", model_card(folder, license=license, heads=heads).encode())
    address = hub.push(api, to, repo) if api else ""
    return sorted(path.name for path in to.iterdir()), becomes, address


def _whole_export(folder: Path) -> Path:
    """The export of a run, which may have none; BadInput where its files are not those that were written. Runs of
    before have no record of them."""
    made, record = folder / launch.EXPORT, folder / launch.EXPORTED
    if not (record.is_file() and made.is_dir()):
        return made
    with of_kind(record, EXPORT_AGAIN):
        wanted = from_checked_json(record.read_bytes())
    found = sums_of(made)
    if other := sorted(name for name, digest in wanted.items() if found.get(name) != digest):
        said = "is missing" if other[0] not in found else "is not as it was written"
        raise BadInput(f"{made / other[0]}: {said}; {EXPORT_AGAIN}")
    return made


def _export_step(folder: Path, to: Path, step: int, *, heads: bool, repo: str) -> tuple[list[str], str, str]:
    """What `export` does for one step of a run; without scores, which are those of its end."""
    from training.formats import describe_export, load_weights, to_transformers, without_heads

    if repo:
        raise BadInput(f"--push-to-hub {repo}: with --step only a folder is written; push a run that is finished")
    if not is_new(to):
        raise BadInput(f"{to}: is there already and is not an empty folder; name another one")
    run, kept = stored_run(folder), list_saved_steps(folder)
    if step not in kept:
        has = ", ".join(map(str, sorted(kept))) or "none"
        raise BadInput(
            f"--step {step}: {folder} has kept these steps: {has}; cluster.keep_checkpoint_every=STEPS keeps more"
        )
    spec, tensors = load_weights(folder / kept[step])
    vocab = Path(run.corpus) / "vocab"
    becomes = describe_export(spec, Vocab.load(vocab).pad)
    name = folder.name.rpartition("-")[0] or folder.name
    text = f"# {name}, step {step:,} of {run.steps:,}\n\nWeights of a training before its end, from {kept[step]}.\n"
    with explain_full_disk(to, lambda: "", AGAIN), whole_folder(to) as unfinished:
        to_transformers(tensors, spec, vocab, unfinished, heads=heads, rows=run.sampling)
        write_atomic(unfinished / "README.md", text.encode())
    becomes = becomes if heads else without_heads(becomes.split(",")[0])
    return sorted(path.name for path in to.iterdir()), becomes, ""


def list_saved_steps(folder: Path) -> dict[int, str]:
    """By step, where a run keeps a checkpoint or weights of it, in its folder."""
    kept = {step_of(path): path for path in steps(folder / CHECKPOINTS)}
    for path in folder.glob(f"{launch.WEIGHTS}-*"):
        if number := re.fullmatch(rf"{launch.WEIGHTS}-([0-9]+)", path.name):
            kept[int(number[1])] = path
    return {step: str(path.relative_to(folder)) for step, path in kept.items()}


def _named(flags: JobFlags) -> Path | None:
    """The run folder that is given by its path, or by its name under runs/, also as MLflow shows that."""
    runs = flags.output_dir / "runs"
    folders = [Path(flags.recipe), runs / flags.recipe]
    if re.fullmatch(r"[^/]+-[0-9a-f]{4}", flags.recipe):
        folders += sorted(runs.glob(f"{glob.escape(flags.recipe)}????"))
    found = next((folder for folder in folders if (folder / launch.RUN).is_file()), None)
    if found:
        refuse_another_run(flags, found)
    elif "/" in flags.recipe and Path(flags.recipe).is_dir():
        raise BadInput(
            f"{flags.recipe}: has no {launch.RUN}, so it is no run; give the folder of one, its name, or a recipe"
        )
    return found


def refuse_another_run(flags: JobFlags, trained: Path) -> None:
    """BadInput where flags choose the recipe, its text or its seed beside a folder that is trained already."""
    given = {"--scale": flags.scale, "--data": flags.data, "--holdout-ratio": flags.holdout_ratio, "--seed": flags.seed}
    options = [name for name, value in given.items() if value not in ("", (), [], None)]
    if what := [*split_overrides(flags.overrides)[0], *options]:
        kind = "flag" if what == options else "key"
        raise BadInput(f"{what[0]}: {trained} is trained, and no {kind} of its recipe changes it; leave that out")


def _made_corpus(job: Job) -> Path:
    stage = job.plan.corpus
    if stage.state != "done":
        raise BadInput(
            f"{stage.folder}: this corpus is not made yet; make it with `sesame corpus`, or do all with `sesame run`"
        )
    return stage.folder
