"""Functions of several verbs: open a job, check it, and build the command lines to print after the answer."""

import dataclasses
import json
import os
import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestration import environment
from orchestration.cli.groups import TextOptions
from orchestration.terminal import announce, show_wait
from preprocessing.credentials import without_credentials

if TYPE_CHECKING:
    from orchestration.jobs import CorpusJob, Job, JobFlags, JobPlan, JobStage
    from orchestration.launch import JobServer

TYPED = ContextVar[tuple[str, ...]]("TYPED", default=())
"""The command line of `main`, as words."""


def flags_of(recipe: str, overrides: Sequence[str] | None, given: TextOptions, **more: Any) -> "JobFlags":
    """The shared options of verbs, as `JobFlags`."""
    with show_wait("importing"):
        from orchestration.jobs import JobFlags

    words = quote_words()
    typed = shlex.join(without_credentials(words))
    more["is_cluster_given"] = any(word == "--cluster" or word.startswith("--cluster=") for word in words)
    values: dict[str, Any] = {one.name: getattr(given, one.name) for one in dataclasses.fields(given)}
    values |= {"data": values["data"] or (), "command_line": typed}
    return JobFlags(recipe=recipe, overrides=overrides or (), **values, **more)


def open_flags(
    recipe: str, overrides: Sequence[str] | None, given: TextOptions, **more: Any
) -> tuple["JobFlags", "Job"]:
    """The shared options, and the job that they describe. BadInput if its parts do not fit together."""
    flags = flags_of(recipe, overrides, given, **more)
    from orchestration.jobs import open_job

    with show_wait("reading the recipe"):
        return flags, open_job(flags)


def flags_of_folder(folder: Path, output_dir: Path) -> "JobFlags":
    """The flags of a command that names a run, instead of everything that made it."""
    from orchestration.jobs import JobFlags

    return JobFlags(recipe=folder.name, output_dir=output_dir)


def stages_of(job: "Job") -> "JobPlan":
    """The stages of a job. This takes time if its text has many files."""
    with show_wait("examining the text"):
        return job.plan


def describe_inputs(job: "Job") -> list[str]:
    """Lines about a job: how it reads its text, ignored keys of its cluster file, and tasks with too little text."""
    from orchestration.config import find_ignored_keys
    from orchestration.jobs import remind_of_vocabulary

    with show_wait("examining the text"):
        few = job.expected_problems
    return [*job.source_notes, *few, *find_ignored_keys(job.cluster), *remind_of_vocabulary(job.recipe)]


def refuse_impossible(job: "Job", resume: str) -> list[str]:
    """Check that a job can run, unless its run is finished, and return assumptions about its devices, one line each.

    BadInput if a variable of `env` is unset or the weights of `init_checkpoint` do not fit, ResourceError if GPUs are
    missing or the run does not fit into memory.
    """
    from orchestration import planning
    from orchestration.jobs import choose_micro_batch

    if job.plan.run.state == "done" and resume != "never":
        return []
    environment.resolve(job.cluster.env, os.environ)
    check_initial_weights(job)
    job, chosen = choose_micro_batch(job, resume)
    return [*planning.refuse_what_cannot_be(job.recipe, job.cluster), *chosen]


def check_initial_weights(job: "Job") -> None:
    """Check that the weights of `init_checkpoint` fit the model. Torch is imported only if the recipe has this key."""
    if job.recipe.init_checkpoint:
        with show_wait("reading the initial weights"):
            from training.formats import require_fitting_weights

            require_fitting_weights(Path(job.recipe.init_checkpoint), job.recipe.model, job.recipe.losses)


def check_beam(job: "Job | CorpusJob", given: Sequence[str], stages: Sequence["JobStage"]) -> None:
    """Check the Beam options of a cluster and those after `--`. If one of `stages` is to be built, also check the
    services that the runner needs, and print a line on stderr for each that answers. Beam is imported only if options
    exist.
    """
    if words := [*job.cluster.beam.arguments, *given]:
        with show_wait("importing Beam"):
            from pipeline.runners import check_here, describe_services

        check_here(words, connect=False)
        if any(stage.state != "done" for stage in stages):
            with show_wait("connecting to the cluster"):
                lines = describe_services(words)
            announce((), lines)


def warn_of_few_rows(job: "Job") -> None:
    """Warn about each task that has too little held-out text."""
    from orchestration.jobs import held_out

    with show_wait(held_out.STAGE):
        held_out.tasks_without_text(job.plan.corpus, job.recipe.eval_tasks)


def job_server(address: str) -> "JobServer":
    """The jobs of the Ray cluster that --address or the environment names."""
    with show_wait("connecting to the cluster"):
        from orchestration.launch import JobServer, server_url

        return JobServer(server_url(address))


def quote_command() -> str:
    """The command line as it was typed, without `--dry-run`."""
    return shlex.join(quote_words())


def quote_words() -> list[str]:
    """The words of the command line as it was typed, without `--dry-run`."""
    return ["sesame", *(word for word in TYPED.get() if word != "--dry-run")]


def command(*words: str) -> str:
    """A command line of `sesame` with these words, which are quoted if necessary."""
    return shlex.join(["sesame", *words])


def job_command(verb: str, job: str, address: str, *more: str) -> str:
    """The command line of `sesame` for a verb and a job of a cluster."""
    return command(verb, job, *more, *(["--address", address] if address else []))


def python_command(code: str) -> str:
    """The command line that runs a line of Python."""
    return f"python -c {shlex.quote(code)}"


def python_literal(text: str) -> str:
    """A Python string that needs no quoting in a shell command with single quotes around it.

    >>> print(python_literal("it's"))
    "it\\u0027s"
    """
    return json.dumps(text, ensure_ascii=False).replace("'", "\\u0027")


def ui_command(output_dir: Path) -> str:
    """The command line that shows the runs of a directory."""
    return command("ui", "--output-dir", str(output_dir))
