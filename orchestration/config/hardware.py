"""What this machine has room for."""

from orchestration.gpus import list_gpus
from preprocessing import limits


def workers_with_room(cpus_per_worker: int, gpus_per_worker: int) -> int:
    """Workers that the GPUs of this machine are enough for; without GPUs per worker, its cores and its memory."""
    return len(list_gpus()) // gpus_per_worker if gpus_per_worker else limits.processes() // cpus_per_worker
