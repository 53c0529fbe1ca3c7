"""Ray: a group of workers that trains one run, and a grid of evaluations. The only ray.

Read group.py first; attempt.py is one start of a group, died.py how that ends, worker.py what runs in a worker's
process, steps.py what it says of how far it is, session.py the connection to Ray, address.py where that is. cell.py is
one evaluation, together.py one by several workers, cells.py the grid. submitted.py are the jobs of a cluster that this
machine is no part of.
"""

from orchestration.launch.address import reachable
from orchestration.launch.eval_trial import EvalTrial, TrialResources, digest_of
from orchestration.launch.eval_trials import grid
from orchestration.launch.group import STOPPED, RestartPolicy, alone, cores, log_results, pretrain
from orchestration.launch.job_server import ENDED, JobServer, SubmittedJob, server_url
from orchestration.launch.out_of_memory import OutOfMemory
from orchestration.launch.session import ray_session, room
from orchestration.launch.worker import BETWEEN, EXPORT, EXPORTED, SAMPLES, WEIGHTS, finetune_one, made
from orchestration.signals import StopRequest, stop_signals
from training.run import RUN

__all__ = [
    "BETWEEN",
    "ENDED",
    "EXPORT",
    "EXPORTED",
    "RUN",
    "SAMPLES",
    "STOPPED",
    "WEIGHTS",
    "EvalTrial",
    "JobServer",
    "OutOfMemory",
    "RestartPolicy",
    "StopRequest",
    "SubmittedJob",
    "TrialResources",
    "alone",
    "cores",
    "digest_of",
    "finetune_one",
    "grid",
    "log_results",
    "made",
    "pretrain",
    "ray_session",
    "reachable",
    "room",
    "server_url",
    "stop_signals",
]
