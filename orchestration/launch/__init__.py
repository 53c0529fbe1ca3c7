"""Ray: a group of workers that trains one run, and a grid of evaluations. The only ray.

Read group.py first; worker.py is what runs in a worker's process, steps.py what it says of how far it is, session.py
the connection to Ray, address.py where that is. cell.py is one evaluation, together.py one by several workers,
cells.py the grid.
"""

from orchestration.launch.address import reachable
from orchestration.launch.cell import Cell, Room
from orchestration.launch.cells import grid
from orchestration.launch.group import RUN, STOPPED, alone, cores, log_results, pretrain
from orchestration.launch.session import ray_session, room
from orchestration.launch.worker import BETWEEN, EXPORT, SAMPLES, WEIGHTS, finetune_one, made
from orchestration.signals import Asked, stop_signals

__all__ = [
    "BETWEEN",
    "EXPORT",
    "RUN",
    "SAMPLES",
    "STOPPED",
    "WEIGHTS",
    "Asked",
    "Cell",
    "Room",
    "alone",
    "cores",
    "finetune_one",
    "grid",
    "log_results",
    "made",
    "pretrain",
    "ray_session",
    "reachable",
    "room",
    "stop_signals",
]
