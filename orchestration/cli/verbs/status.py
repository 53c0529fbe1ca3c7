"""sesame status"""

import dataclasses

from orchestration.cli import options
from orchestration.cli.shared import command, job_command, job_server
from orchestration.terminal import CommandResult, print_answer


def status(job: options.AnyJob = "", address: options.Address = "", as_json: options.Json = False) -> int:
    """Show the jobs of a cluster, or one of them: state, duration, and its last progress or its error."""
    from orchestration.terminal import views

    server = job_server(address)
    found = [server.with_report(one) for one in ([server.job(job)] if job else server.jobs())]
    values = {"address": server.url, "jobs": [dataclasses.asdict(one) for one in found]}
    next_ = (
        job_command("logs", found[-1].id, address) if found else command("submit", "bert_base", "--address", server.url)
    )
    return print_answer(CommandResult((views.list_jobs(found),), values, (next_,)), as_json)
