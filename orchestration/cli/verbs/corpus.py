"""sesame corpus"""

from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.groups import JobOptions, TextOptions
from orchestration.cli.shared import (
    check_beam,
    describe_inputs,
    open_flags,
    quote_command,
    stages_of,
    ui_command,
    warn_of_few_rows,
)
from orchestration.terminal import CommandResult, announce, print_answer, print_plan


def corpus(
    context: typer.Context,
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    *,
    cluster: options.ClusterName = "local",
    text: TextOptions,
    data_card: Annotated[bool, typer.Option("--data-card", help="Also write a data card (Markdown and HTML).")] = False,
    materialize: Annotated[
        bool, typer.Option("--materialize", help="Also write training sequences (static masking).")
    ] = False,
    output: JobOptions,
) -> int:
    """Build the vocabulary and the Arrow corpus with Beam; Beam's own options follow `--`."""
    from orchestration.jobs import stages
    from orchestration.terminal import views

    flags, job = open_flags(recipe, overrides, text, cluster=cluster)
    static = stages.rows(job.recipe, job.plan.corpus, text.output_dir).values() if materialize else ()
    wanted = [*stages_of(job)[:3], *static]
    announce(wanted, describe_inputs(job))
    if output.dry_run:
        check_beam(job, context.obj, wanted)
        return print_answer(print_plan(wanted, quote_command()), output.as_json)
    from orchestration.terminal import show_progress

    with show_progress(output.progress) as report:
        report({"stage": "importing Beam"})
        from orchestration.jobs import corpus as corpus_stage

        manifest = corpus_stage.corpus(job, context.obj, report, data_card)
        folders = corpus_stage.rows(job, context.obj, report) if materialize else {}
    warn_of_few_rows(job)
    folder = job.plan.corpus.folder
    values = {
        "folder": str(folder),
        "digest": manifest.digest,
        "splits": manifest.splits,
        "ledger": manifest.ledger.to_dict(),
        "rows": {length: str(made) for length, made in folders.items()},
    }
    made = [f"data card: {folder / name}" for name in (corpus_stage.data_card.NAMES if data_card else ())]
    made += [f"sequences of {length} tokens: {path}" for length, path in folders.items()]
    next_ = (flags.command("train"), flags.command("inspect"), ui_command(text.output_dir))
    return print_answer(CommandResult((views.card(manifest), views.lines(made)), values, next_), output.as_json)
