"""sesame doctor"""

import dataclasses
import os

from orchestration.cli import options
from orchestration.cli.groups import WORK
from orchestration.terminal import CommandResult, print_answer, show_wait


def doctor(
    output_dir: options.OutputDir = WORK,
    cluster: options.ClusterName = "local",
    port: options.Port = 5000,
    as_json: options.Json = False,
) -> int:
    """Check the environment and suggest fixes: versions, compiler, /dev/shm, disk, ports, Ray, MLflow."""
    from orchestration.config import load_cluster
    from orchestration.terminal import doctor as checkup
    from orchestration.terminal import views

    def find_cluster(address: str) -> str:
        from orchestration.launch import resolve_address

        return resolve_address(address)

    def find_store(uri: str) -> tuple[str, str]:
        from orchestration.tracking import examine_store

        return examine_store(uri)

    with show_wait("examining this machine"):
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        found = checkup.run_checks(output_dir, load_cluster(cluster).ray_address, uri, port, find_cluster, find_store)
    values = {"findings": [dataclasses.asdict(finding) for finding in found]}
    exit_code = 4 if any(finding.fatal and finding.remedy for finding in found) else 0
    next_ = ("sesame run bert_base --scale tiny",)
    return print_answer(CommandResult((views.findings(found),), values, next_, exit_code), as_json)
