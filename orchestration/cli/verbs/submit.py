"""sesame submit"""

import os
from typing import Annotated, Literal

import typer

from orchestration import environment
from orchestration.cli import options
from orchestration.cli.groups import RunOptions, TrainingOptions
from orchestration.cli.shared import job_command, open_flags, quote_command
from orchestration.terminal import CommandResult, print_answer, show_wait

NO_CLUSTER = "no cluster was contacted, because --address is missing; on the cluster, the number of workers may differ"


def submit(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    *,
    address: options.Address = "",
    stages: Annotated[
        Literal["run", "train"], typer.Option(help="Run all stages, or only pretrain on an existing corpus.")
    ] = "run",
    cluster: options.ClusterName = "local",
    where: RunOptions,
    training: TrainingOptions,
    force: Annotated[bool, typer.Option("--force", help="Submit even if an identical job finished.")] = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> int:
    """Submit a recipe to a running Ray cluster that can access --output-dir and --data; identical jobs run once."""
    flags, job = open_flags(
        recipe, [*(overrides or ()), *training.overrides()], where, cluster=cluster, max_steps=training.max_steps
    )
    environment.resolve(job.cluster.env, os.environ)  # reports a missing variable before it connects to the cluster
    from orchestration.jobs import open_job, submission
    from orchestration.terminal import views

    with show_wait("importing Ray"):
        from orchestration.launch import JobServer, has_server, server_url

        if dry_run and not has_server(address):
            notes = [*submission.refuse_what_does_not_fit(job), NO_CLUSTER]
            return _describe(
                submission.identity(job, flags, stages),
                submission.command(flags, stages, training.resume),
                "",
                notes,
                as_json,
            )
        url = server_url(address)
        with show_wait(f"connecting to {url}"):
            server = JobServer(url)
            known = server.jobs()
            name, done = submission.next_attempt(submission.identity(job, flags, stages), known, force, address)
            sent = flags if done else submission.with_cluster_workers(flags, job, server)
    notes = [] if done else submission.refuse_what_does_not_fit(job if sent is flags else open_job(sent))
    if sent is flags and not done:  # with sent flags of its own, the number of workers is that of the cluster
        notes += submission.describe_missing_room(job, server)
    if not dry_run:
        submission.remove_leftover_environments(job.out, known)
    command = submission.command(sent, stages, training.resume)
    values = {"job": name, "address": url, "command": command, "submitted": not (done or dry_run), "notes": notes}
    logs = job_command("logs", name, address)
    if done:
        line = f"{name} has already finished; use --force to submit it again"
        return print_answer(CommandResult((views.lines([line]),), values, (logs,)), as_json)
    if dry_run:
        return _describe(name, command, url, notes, as_json)
    with show_wait(f"submitting {name}"), submission.send_environment(job, name) as variables:
        server.submit(name, command, variables)
    next_ = (f"{logs} --follow", *(job_command(verb, name, address) for verb in ("status", "stop")))
    return print_answer(CommandResult((views.lines([f"{name}: submitted to {url}", *notes]),), values, next_), as_json)


def _describe(name: str, command: str, url: str, notes: list[str], as_json: bool) -> int:
    """Print the result of a dry run."""
    from orchestration.terminal import views

    values = {"job": name, "address": url, "command": command, "submitted": False, "notes": notes}
    shown = views.lines([f"would submit {name}: {command}", *notes])
    return print_answer(CommandResult((shown,), values, (quote_command(),)), as_json)
