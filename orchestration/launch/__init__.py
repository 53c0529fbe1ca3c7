"""Runs work on Ray: a group of workers that trains one run, and a grid of evaluations.

No other directory of orchestration imports ray.

Read group.py first: it trains a run. attempt.py is one attempt with a group of workers. running_workers.py has the
calls to these workers, worker_polls.py their polls, heartbeat.py the check of their progress, and worker_errors.py the
errors after which a group restarts. worker.py is the code in the process of a worker, step_reports.py its progress
events.

session.py connects to Ray, address.py finds its address, placement.py reserves resources, and nodes.py watches nodes.
eval_trial.py is one evaluation, multi_worker_eval.py one with several workers, and eval_trials.py the grid.
job_server.py submits jobs to a remote cluster, and local_cluster.py starts a cluster on this machine for tests of that.
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
