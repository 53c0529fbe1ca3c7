"""sesame inspect"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import command, flags_of
from orchestration.terminal import CommandResult, print_answer, show_wait
from preprocessing.errors import BadInput


def inspect(
    run: options.RunRecipeOrCorpus,
    overrides: options.Overrides = None,
    *,
    step: Annotated[int, typer.Option(metavar="N", min=0, help="Show the batch of this step.")] = 0,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Show N sequences.")] = 4,
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Show the decoded training sequences of a step, or the documents of a corpus directory, N at a time."""
    from orchestration.terminal import inspect_documents

    if inspect_documents.has_documents(folder := Path(run)):
        _refuse_options(overrides, where)
        with show_wait("reading the documents"):
            documents = inspect_documents.read_documents(folder, step * rows, rows)
        values = {"documents": [document.plain() for document in documents]}
        next_ = (command("inspect", run, "--step", str(step + 1), "--rows", str(rows)),)
        return print_answer(CommandResult((inspect_documents.render_documents(documents),), values, next_), as_json)
    with show_wait("importing"):
        from orchestration.jobs import run_of
        from orchestration.terminal import inspect as inspection

    flags = flags_of(run, overrides, where)
    with show_wait("making the sequences"):
        found = inspection.decode_examples(run_of(flags), step, rows)
    values = {"samples": [sample.plain() for sample in found]}
    next_ = (flags.command("inspect", "--step", str(step + 1)),)
    return print_answer(CommandResult((inspection.render_examples(found),), values, next_), as_json)


def _refuse_options(overrides: Sequence[str] | None, where: RunOptions) -> None:
    """BadInput for values that only a recipe uses: a corpus directory has none."""
    given = {"--scale": where.scale, "--data": where.data, "--holdout-ratio": where.holdout_ratio, "--seed": where.seed}
    used = [*(overrides or ()), *(name for name, value in given.items() if value not in ("", None, []))]
    if used:
        raise BadInput(f"invalid {used[0]}: got a corpus directory, expected a recipe or a run with it; leave it out")
