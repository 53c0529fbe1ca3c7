"""sesame ui"""

from orchestration.cli import options
from orchestration.cli.groups import WORK


def ui(output_dir: options.OutputDir = WORK, port: options.Port = 5000) -> int:
    """Serve the MLflow UI of a directory on this machine only; Ctrl-C stops it."""
    from orchestration.tracking import server

    return server.ui(output_dir, port)
