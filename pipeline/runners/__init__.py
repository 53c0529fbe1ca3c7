"""Beam on this machine or on a cluster.

running.py runs a pipeline, and services.py checks the services that it needs. workers.py manages its processes, and
forkserver.py starts them.
"""

from pipeline.runners.running import (
    Report,
    beam,
    check_here,
    check_options,
    describe_services,
    pipeline,
    report_progress,
)

__all__ = ["Report", "beam", "check_here", "check_options", "describe_services", "pipeline", "report_progress"]
