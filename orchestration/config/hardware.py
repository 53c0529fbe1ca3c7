"""How many workers fit on this machine."""

from orchestration.gpus import list_gpus
from preprocessing import limits


def workers_with_room(cpus_per_worker: int, gpus_per_worker: int) -> int:
    """The number of workers for which this machine has GPUs. Workers without GPUs are limited by cores and memory."""
    return len(list_gpus()) // gpus_per_worker if gpus_per_worker else limits.processes() // cpus_per_worker
