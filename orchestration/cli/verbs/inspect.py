"""sesame inspect"""

from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import flags_of
from orchestration.terminal import CommandResult, print_answer, show_wait


def inspect(
    run: options.RunOrRecipe,
    overrides: options.Overrides = None,
    *,
    step: Annotated[int, typer.Option(metavar="N", min=0, help="Show the batch of this step.")] = 0,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Show N sequences.")] = 4,
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Show the decoded training sequences of a step; masked tokens are marked, with their labels."""
    with show_wait("importing"):
        from orchestration.jobs import run_of
        from orchestration.terminal import inspect as inspection

    flags = flags_of(run, overrides, where)
    with show_wait("making the sequences"):
        found = inspection.decode_examples(run_of(flags), step, rows)
    values = {"samples": [sample.plain() for sample in found]}
    next_ = (flags.command("inspect", "--step", str(step + 1)),)
    return print_answer(CommandResult((inspection.render_examples(found),), values, next_), as_json)
