"""Ray: a group of workers that trains one run, and a grid of fine-tunings. The only ray.

Read group.py first; worker.py is what runs in a worker's process, steps.py what it says of how far it is, session.py
the connection to Ray.
"""

from orchestration.launch.group import RUN, STOPPED, alone, cores, evaluate, pretrain
from orchestration.launch.session import Asked, ray_session, room, stop_signals
from orchestration.launch.worker import EXPORT, WEIGHTS, finetune_one, made

__all__ = [
    "EXPORT",
    "RUN",
    "STOPPED",
    "WEIGHTS",
    "Asked",
    "alone",
    "cores",
    "evaluate",
    "finetune_one",
    "made",
    "pretrain",
    "ray_session",
    "room",
    "stop_signals",
]
