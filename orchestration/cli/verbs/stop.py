"""sesame stop"""

from orchestration import environment
from orchestration.cli import options
from orchestration.cli.shared import job_command, job_server
from orchestration.terminal import CommandResult, print_answer, show_wait


def stop(job: options.JobId, address: options.Address = "", as_json: options.Json = False) -> int:
    """Stop a job as SIGTERM does: training writes a checkpoint first, and resumes there when submitted again."""
    from orchestration.jobs import submission
    from orchestration.terminal import views

    server = job_server(address)
    left = server.variable(job, environment.FILE)
    was_running = server.stop(job)
    with show_wait(f"waiting for {job} to write a checkpoint and end"):
        ended = server.wait_for_end(job)
    submission.remove_leftover_environment(job, left)
    line = f"{job}: {ended.status}" + ("" if was_running else " (it had already ended)")
    values = {"job": job, "status": ended.status, "stopped": was_running}
    return print_answer(CommandResult((views.lines([line]),), values, (job_command("logs", job, address),)), as_json)
