"""sesame corpus"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli import options
from orchestration.cli.groups import JobOptions, TextOptions
from orchestration.cli.shared import (
    check_beam,
    command,
    describe_inputs,
    flags_of,
    open_flags,
    quote_command,
    stages_of,
    ui_command,
    warn_of_few_rows,
)
from orchestration.terminal import CommandResult, announce, print_answer, print_plan, show_wait
from preprocessing.errors import BadInput

if TYPE_CHECKING:
    from orchestration.jobs import CorpusJob, JobFlags


def corpus(
    context: typer.Context,
    recipe: options.RecipeOrCorpus,
    overrides: options.Overrides = None,
    *,
    cluster: options.ClusterName = "local",
    tokenizer: options.Tokenizer = "",
    text: TextOptions,
    data_card: Annotated[bool, typer.Option("--data-card", help="Also write a data card (Markdown and HTML).")] = False,
    materialize: Annotated[
        bool, typer.Option("--materialize", help="Also write training sequences (static masking).")
    ] = False,
    output: JobOptions,
) -> int:
    """Build the vocabulary and the Arrow corpus with Beam; Beam's own options follow `--`."""
    from orchestration.config import names_corpus
    from orchestration.jobs import stages
    from orchestration.terminal import views

    if names_corpus(recipe):
        flags = flags_of(recipe, overrides, text, cluster=cluster)
        return _build_without_recipe(context, flags, tokenizer, data_card, materialize, output)
    if tokenizer:
        raise BadInput(
            f"invalid --tokenizer: got {tokenizer} with the recipe {recipe}, expected no value, because the recipe has "
            "a tokenizer; override its keys, e.g. data.tokenizer.vocab_size=8000"
        )
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
        from orchestration.jobs import describe_built_mixture

        manifest = corpus_stage.corpus(job, context.obj, report, data_card)
        folders = corpus_stage.rows(job, context.obj, report) if materialize else {}
    warn_of_few_rows(job)
    folder = job.plan.corpus.folder
    values = {
        "folder": str(folder),
        "digest": manifest.digest,
        "splits": manifest.splits,
        "ledger": manifest.ledger.to_dict(),
        "mixture": {name: group.share for name, group in manifest.mixture.items()},
        "rows": {length: str(made) for length, made in folders.items()},
    }
    made = [f"data card: {folder / name}" for name in (corpus_stage.data_card.NAMES if data_card else ())]
    made += [f"sequences of {length} tokens: {path}" for length, path in folders.items()]
    made += describe_built_mixture(job.corpus, folder)
    next_ = (flags.command("train"), flags.command("inspect"), ui_command(text.output_dir))
    return print_answer(CommandResult((views.card(manifest), views.lines(made)), values, next_), output.as_json)


def _build_without_recipe(
    context: typer.Context, flags: "JobFlags", tokenizer: str, data_card: bool, materialize: bool, output: JobOptions
) -> int:
    """Build a corpus that has no recipe; without a tokenizer, its cleaned documents only."""
    from orchestration.config import find_ignored_keys
    from orchestration.jobs import open_corpus_job

    if materialize:
        raise BadInput(
            "invalid --materialize: got a corpus without a recipe, expected a recipe; name one with --data FILE"
        )
    with show_wait("reading the corpus file"):
        job = open_corpus_job(flags, tokenizer)
    if data_card and job.vocab_spec is None:
        raise BadInput("invalid --data-card: got documents without token IDs, expected a tokenizer; set --tokenizer")
    with show_wait("examining the text"):
        wanted, notes = job.wanted, [*job.source_notes, *find_ignored_keys(job.cluster)]
    announce(wanted, notes)
    if output.dry_run:
        check_beam(job, context.obj, wanted)
        return print_answer(print_plan(wanted, quote_command()), output.as_json)
    return print_answer(_build_stages(context, job, data_card, output), output.as_json)


def _build_stages(context: typer.Context, job: "CorpusJob", data_card: bool, output: JobOptions) -> CommandResult:
    from orchestration.terminal import show_progress, views

    name = job.file
    with show_progress(output.progress) as report:
        report({"stage": "importing Beam"})
        from orchestration.jobs import corpus as corpus_stage
        from orchestration.jobs import describe_built_mixture

        if job.vocab_spec is None:
            texts = corpus_stage.documents(job, context.obj, report)
            ledger = texts.ledger.to_dict()
            values: dict[str, Any] = {"folder": str(job.text.folder), "digest": texts.hash, "ledger": ledger}
            next_ = [command("corpus", name, "--tokenizer", "TOKENIZER", *_out(job))]
            return CommandResult((views.documents(job.corpus.name, texts.hash, texts.ledger),), values, tuple(next_))
        manifest = corpus_stage.corpus(job, context.obj, report, data_card)
    folder = job.plan.corpus.folder
    values = {
        "folder": str(folder),
        "digest": manifest.digest,
        "splits": manifest.splits,
        "ledger": manifest.ledger.to_dict(),
        "mixture": {name: group.share for name, group in manifest.mixture.items()},
        "vocab": str(job.plan.vocab.folder),
    }
    made = [f"data card: {folder / name}" for name in (corpus_stage.data_card.NAMES if data_card else ())]
    made += describe_built_mixture(job.corpus, folder)
    next_ = [command("inspect", str(folder)), ui_command(job.out)]
    return CommandResult((views.card(manifest), views.lines(made)), values, tuple(next_))


def _out(job: "CorpusJob") -> list[str]:
    return ["--output-dir", str(job.out)]
