"""Ray: a group of workers that trains one run, and a grid of evaluations. The only ray.

Read group.py first; attempt.py is one start of a group, died.py how that ends, worker.py what runs in a worker's
process, steps.py what it says of how far it is, session.py the connection to Ray, address.py where that is. cell.py is
one evaluation, together.py one by several workers, cells.py the grid. submitted.py are the jobs of a cluster that this
machine is no part of.
"""

from orchestration.launch.address import resolve_address
from orchestration.launch.eval_trial import EvalTrial, TrialResources, digest_of
from orchestration.launch.eval_trials import run_trials
from orchestration.launch.group import STOPPED, RestartPolicy, cores, log_results, pretrain, run_alone
from orchestration.launch.job_server import ENDED, JobServer, SubmittedJob, server_url
from orchestration.launch.out_of_memory import OutOfMemory
from orchestration.launch.session import count_free_groups, ray_session
from orchestration.launch.worker import BETWEEN, EXPORT, EXPORTED, SAMPLES, WEIGHTS, finetune_one, load_held_out_task
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
    "cores",
    "count_free_groups",
    "digest_of",
    "finetune_one",
    "load_held_out_task",
    "log_results",
    "pretrain",
    "ray_session",
    "resolve_address",
    "run_alone",
    "run_trials",
    "server_url",
    "stop_signals",
]
