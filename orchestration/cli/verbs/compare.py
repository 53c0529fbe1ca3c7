"""sesame compare"""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.groups import WORK, OutputOptions
from orchestration.cli.shared import quote_command, ui_command
from orchestration.terminal import CommandResult, complete, print_answer, show_progress, show_wait


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Baseline, then the runs to compare; commas join the seeds of a recipe.",
            autocompletion=complete.run,
        ),
    ],
    *,
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            "--task",
            metavar="A,B",
            help="Compare these tasks only.",
            show_default="all that the runs share",
            autocompletion=complete.task,
        ),
    ] = "",
    output_dir: options.OutputDir = WORK,
    output: OutputOptions,
) -> int:
    """Compare the scores of runs question by question, with intervals over questions and pretraining seeds."""
    with show_wait("importing"):
        from orchestration.evaluation import comparison
        from orchestration.reports import comparison_rows, summarize_coverage
        from orchestration.terminal import views

    groups = comparison.find_groups(runs, Path(output_dir))
    names = [name for name in tasks.split(",") if name]
    with show_progress(output.progress) as report:
        found = comparison.compare_runs(groups, names, Path(output_dir), report, quote_command())
    labels = [group.name for group in groups]
    rows = comparison_rows(labels, found.tasks)
    files = [f"{name}: {path}" for name in comparison.FILES if (path := found.folder / name).is_file()]
    shown = views.comparison(labels, rows, summarize_coverage(found.tasks)), views.lines([*found.notes, *files])
    return print_answer(CommandResult(shown, found.values(), (ui_command(output_dir),)), output.as_json)
