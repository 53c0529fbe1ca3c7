"""sesame where"""

import re
from typing import Annotated, Final

import typer

from orchestration.cli import options
from orchestration.cli.groups import OutputOptions, RunOptions
from orchestration.cli.shared import flags_of
from orchestration.terminal import CommandResult, print_answer, show_progress, show_wait
from preprocessing.errors import BadInput

_ROWS: Final = 20
_DOCUMENTS: Final = 5
_DIGITS: Final = 18  # of a step, at most
_SHOWN: Final = 40  # characters of an invalid value that a message shows


def where(
    run: options.RunOrRecipe,
    document: Annotated[
        str, typer.Argument(metavar="KEY|TEXT", help="First digits of a document's key, or a piece of its text.")
    ],
    overrides: options.Overrides = None,
    *,
    text: Annotated[bool, typer.Option("--text", help="Search for a text, even if it looks like a key.")] = False,
    steps: Annotated[
        str, typer.Option("--steps", metavar="A:B", help="Search steps A to B only.", show_default="all")
    ] = "",
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Show N rows of a document.")] = _ROWS,
    max_documents: Annotated[
        int, typer.Option(metavar="N", min=1, help="Show N documents that contain the text.")
    ] = _DOCUMENTS,
    given: RunOptions,
    output: OutputOptions,
) -> int:
    """Show the steps and rows that trained on a document, and those that will.

    A text is searched in the cleaned documents, with its case. Steps and rows are counted from 0, as in inspect.
    """
    flags = flags_of(run, overrides, given)
    with show_wait("importing"):
        from orchestration.jobs import find_uses, run_of
        from orchestration.terminal.where import render_uses
    described = run_of(flags)
    with show_progress(output.progress) as report:
        found = find_uses(
            described,
            document,
            report,
            is_text=text,
            steps=_parse_steps(steps, described.steps),
            most=max_documents,
        )
    values = {
        "documents": [each.plain() for each in found.documents],
        "num_found": found.num_found,
        "num_trained": found.documents[0].num_trained,
        "note": found.note,
    }
    first = next((use for each in found.documents for use in each.uses), None)
    kept = next((each.document.kept_key for each in found.documents if each.document.kept_source), "")
    next_ = [flags.command("inspect", "--step", str(first.step), "--row", str(first.row))] if first else []
    next_ += [flags.command("where", kept)] if kept and not first else []
    return print_answer(CommandResult((render_uses(found, rows),), values, tuple(next_)), output.as_json)


def _parse_steps(given: str, num_steps: int) -> range | None:
    """The steps of --steps; None without it.

    >>> _parse_steps("3:5", 10), _parse_steps("7:", 10), _parse_steps(":2", 10)
    (range(3, 6), range(7, 10), range(0, 3))
    """
    if not given:
        return None
    found = re.fullmatch(rf"([0-9]{{0,{_DIGITS}}}):([0-9]{{0,{_DIGITS}}})", given)
    if not found:
        shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}... ({len(given):,} characters)"
        raise BadInput(f"invalid --steps: got {shown}, expected A:B; write it like 1000:1999")
    return range(int(found[1] or 0), int(found[2] or num_steps - 1) + 1)
