"""sesame logs"""

import sys
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.shared import job_command, job_server
from orchestration.terminal import CommandResult, print_answer
from preprocessing.errors import BadInput, ResourceError


def logs(
    job: options.JobId,
    address: options.Address = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stream until the job ends; return its exit code.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Print stdout and stderr of a job."""
    if follow and as_json:
        raise BadInput("invalid --follow: got --json too, expected only one of them; remove one")
    server = job_server(address)
    if not follow:
        text = server.logs(job)
        if as_json:
            next_ = (job_command("status", job, address),)
            return print_answer(CommandResult((), {"job": job, "logs": text}, next_), as_json)
        print(text, end="", flush=True)
        return 0
    try:
        server.follow(job, lambda text: print(text, end="", flush=True))
        ended = server.wait_for_end(job)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{job} goes on; to stop it, run `{job_command('stop', job, address)}`") from None
    print(f"{job}: {ended.status}  next  {job_command('status', job, address)}", file=sys.stderr)
    return 0 if ended.status == "SUCCEEDED" else ended.exit_code or ResourceError.exit_code
