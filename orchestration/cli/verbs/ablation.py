"""sesame ablation"""

from typing import Annotated, Any

import typer

from orchestration.cli import options
from orchestration.cli.groups import WORK, JobOptions, TextOptions
from orchestration.cli.shared import flags_of, quote_command, refuse_impossible, ui_command
from orchestration.terminal import CommandResult, announce, complete, print_answer, show_wait


def ablation(
    name: options.AnyTable = "",
    overrides: options.Overrides = None,
    *,
    cluster: options.ClusterName = "local",
    scale: options.Scale = "tiny",
    data: options.Data = None,
    holdout_ratio: options.HoldoutRatio = None,
    output_dir: options.OutputDir = WORK,
    num_seeds: Annotated[
        int | None,
        typer.Option(
            "--num-seeds",
            metavar="N",
            min=1,
            help="Pretrain each row with N seeds.",
            show_default="3; scaling: 1",
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            metavar="RECIPE",
            help="Recipe of the models of `scaling`.",
            show_default="gpt2",
            autocompletion=complete.recipe,
        ),
    ] = "",
    output: JobOptions,
) -> int:
    """Reproduce an ablation table at small scale: pretrain its rows side by side and test the paper's claims.

    `scaling` fits a scaling law: it pretrains a ladder of sizes at several budgets.
    """
    with show_wait("importing"):
        from orchestration.reports.ablations import tables
        from orchestration.terminal import views

    if not name:
        known = tables.TABLES.values()
        values: dict[str, Any] = {one.name: {"title": one.title, "paper": one.paper} for one in known}
        return print_answer(
            CommandResult((views.tables(known),), values, ("sesame ablation albert-sp",)), output.as_json
        )
    from orchestration.terminal import show_progress

    compared = tables.ablation_from_name(name)
    if recipe:
        compared = tables.with_recipe(compared, recipe)
    flags = flags_of(name, overrides, TextOptions(scale, data, holdout_ratio, output_dir), cluster=cluster)
    with show_wait("importing Beam"):
        from orchestration.jobs import ablation as ablation_job
    with show_wait("looking for finished runs"):
        plan = ablation_job.plan(compared, flags, num_seeds or compared.num_seeds)
        notes = [note for cell in plan.cells for note in refuse_impossible(cell.job, "allow")]
    announce((), dict.fromkeys(notes))
    next_ = ui_command(output_dir)
    if output.dry_run:
        lines = [cell.describe() for cell in plan.cells]
        return print_answer(CommandResult((views.lines(lines),), {"cells": lines}, (quote_command(),)), output.as_json)
    with show_progress(output.progress) as report:
        values = ablation_job.run_ablation(plan, report)
    if not output.as_json:
        print((plan.stage.folder / ablation_job.PAGE).read_text(encoding="utf-8"))
    return print_answer(CommandResult((), values | {"folder": str(plan.stage.folder)}, (next_,)), output.as_json)
