"""sesame register"""

import dataclasses
import shlex
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import flags_of, ui_command
from orchestration.terminal import CommandResult, print_answer, show_wait


def register(
    run: options.Run,
    overrides: options.Overrides = None,
    *,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Registered model; created if it does not exist.")
    ],
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Register the model of a finished run as the next version of NAME in MLflow's model registry."""
    with show_wait("importing"):
        from orchestration.jobs import register as register_model
        from orchestration.terminal import views

    flags = flags_of(run, overrides, where)
    with show_wait("connecting to MLflow"):
        found = register_model(flags, name)
    line = f"{name}: version {found.number}" + ("" if found.is_new else " (already registered)")
    predict = f"import mlflow; print(mlflow.pyfunc.load_model({found.uri!r}).predict({found.example!r}))"
    next_ = (
        shlex.join(["env", f"MLFLOW_TRACKING_URI={found.store}", "python", "-c", predict]),
        ui_command(where.output_dir),
    )
    return print_answer(CommandResult((views.lines([line]),), dataclasses.asdict(found), next_), as_json)
