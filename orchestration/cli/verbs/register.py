"""sesame register"""

import dataclasses
import shlex
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import flags_of, python_command, python_literal, ui_command
from orchestration.terminal import CommandResult, print_answer, show_wait


def register(
    run: options.Run,
    overrides: options.Overrides = None,
    *,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Registered model; created if it does not exist.")
    ],
    alias: Annotated[
        str, typer.Option("--alias", metavar="ALIAS", help="Let this alias refer to the version, e.g. champion.")
    ] = "",
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Register the model of a finished run, or of eval --save, as the next version of NAME in MLflow's registry."""
    with show_wait("importing"):
        from orchestration.jobs import register as register_model
        from orchestration.terminal import views

    flags = flags_of(run, overrides, where)
    with show_wait("connecting to MLflow"):
        found = register_model(flags, name, alias)
    line = (
        f"{name}: version {found.number}"
        + ("" if found.is_new else " (already registered)")
        + (f", alias {alias}" if alias else "")
    )
    model = f"mlflow.pyfunc.load_model({python_literal(found.uri)})"
    predict = python_command(f"import mlflow; print({model}.predict({python_literal(found.example)}))")
    next_ = (
        f"env MLFLOW_TRACKING_URI={shlex.quote(found.store)} {predict}",
        ui_command(where.output_dir),
    )
    return print_answer(CommandResult((views.lines([line]),), dataclasses.asdict(found), next_), as_json)
