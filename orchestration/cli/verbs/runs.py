"""sesame runs"""

from pathlib import Path

from orchestration.cli import options
from orchestration.cli.groups import WORK
from orchestration.cli.shared import command, ui_command
from orchestration.terminal import CommandResult, print_answer, show_wait


def runs(output_dir: options.OutputDir = WORK, as_json: options.Json = False) -> int:
    """List the runs of an output directory: state, step, loss, last scores and MLflow run."""
    with show_wait("reading the runs"):
        from orchestration.jobs import list_runs
        from orchestration.terminal import views

        found = list_runs(Path(output_dir))
    values = {"output_dir": str(output_dir), "runs": [one.values() for one in found]}
    out = [] if output_dir == WORK else ["--output-dir", str(output_dir)]
    finished = next((one.name for one in found if one.state == "finished"), "")
    stopped = next((one.name for one in found if one.state == "stopped"), "")
    next_ = [command("eval", finished, *out)] if finished else []
    next_ += [command("train", stopped, *out)] if stopped else []
    return print_answer(CommandResult((views.runs(found),), values, (*next_, ui_command(output_dir))), as_json)
