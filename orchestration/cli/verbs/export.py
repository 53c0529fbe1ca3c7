"""sesame export"""

from typing import Annotated, Literal

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import flags_of, python_command, python_literal
from orchestration.terminal import CommandResult, print_answer, show_wait


def export(
    run: options.Run,
    folder: options.NewFolder,
    overrides: options.Overrides = None,
    *,
    to: Annotated[Literal["hf"], typer.Option(help="Write the format of transformers' `from_pretrained`.")] = "hf",
    heads: Annotated[bool, typer.Option(help="Also export the heads, which AutoModel does not load.")] = True,
    license: Annotated[str, typer.Option(metavar="ID", help="License of the weights, for the model card.")] = "unknown",
    push_to_hub: Annotated[
        str, typer.Option("--push-to-hub", metavar="REPO", help="Also push to this repository of the hub.")
    ] = "",
    step: Annotated[
        int, typer.Option(metavar="N", min=0, help="Export the checkpoint of this step (0: the last one).")
    ] = 0,
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Export weights, configuration and tokenizer of a run for `transformers`."""
    with show_wait("importing PyTorch"):
        from orchestration.jobs import export as export_model
        from orchestration.jobs import run_folder as find_run_folder
        from orchestration.terminal import views
        from training.formats import auto_class, pipeline, uses_all_weights

    run_folder = find_run_folder(flags_of(run, overrides, where))
    with show_wait(f"writing {folder}" + (f", then pushing it to {push_to_hub}" if push_to_hub else "")):
        files, becomes, address = export_model(
            run_folder, folder, heads=heads, license=license, repo=push_to_hub, step=step
        )
    lines = [f"{folder}: {', '.join(files)}", f"class in transformers: {becomes}"]
    lines += [f"pushed to {address} (a new repository is private)"] if address else []
    auto = auto_class(becomes.split(",")[0])
    if heads and not uses_all_weights(folder):
        lines.append(
            f"{auto} loads all heads; pipeline({python_literal(pipeline(folder).task)}) and AutoModel report those "
            "that they do not load as UNEXPECTED, which is harmless"
        )
    loads = python_command(f"from transformers import {auto}; {auto}.from_pretrained({python_literal(str(folder))})")
    values = {"folder": str(folder), "files": files, "is": becomes, "auto_class": auto, "pushed": address}
    return print_answer(CommandResult((views.lines(lines),), values, (loads,)), as_json)
