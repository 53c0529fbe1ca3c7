"""Runs work on Ray: a group of workers that trains one run, and a grid of evaluations.

No other directory of orchestration imports ray.

Read group.py first: it trains a run. One attempt with a group of workers is in attempt.py. The driver calls the workers
with running_workers.py, polls them with worker_polls.py and checks their progress with heartbeat.py. After the errors
in worker_errors.py, a group restarts. The process of a worker runs worker.py, which reports progress with
step_reports.py.

The connection to Ray is in session.py and its address in address.py; spare_workers.py starts Ray and workers early.
Resources are reserved in placement.py, and nodes are watched in nodes.py. One evaluation is in eval_trial.py, one with
several workers in multi_worker_eval.py, and the grid in eval_trials.py. Jobs are submitted to a remote cluster by
job_server.py; local_cluster.py starts a cluster on this machine to test this.
"""

from orchestration.launch.address import resolve_address
from orchestration.launch.eval_trial import CARD, SAVED, EvalTrial, TrialResources, digest_of
from orchestration.launch.eval_trials import run_trials, start_trial_processes
from orchestration.launch.group import STOPPED, RestartPolicy, cores, log_results, pretrain, run_alone
from orchestration.launch.job_server import ENDED, JobServer, SubmittedJob, has_server, server_url
from orchestration.launch.nodes import WorkerRequirements
from orchestration.launch.out_of_memory import OutOfMemory
from orchestration.launch.session import count_free_groups, ray_session
from orchestration.launch.spare_workers import start_trials_early, start_workers_early
from orchestration.launch.worker import (
    BETWEEN,
    EXPORT,
    EXPORTED,
    EXPORTING,
    SAMPLES,
    WEIGHTS,
    finetune_one,
    load_held_out_task,
)
from orchestration.signals import StopRequest, stop_signals
from training.run import RUN

__all__ = [
    "BETWEEN",
    "CARD",
    "ENDED",
    "EXPORT",
    "EXPORTED",
    "EXPORTING",
    "RUN",
    "SAMPLES",
    "SAVED",
    "STOPPED",
    "WEIGHTS",
    "EvalTrial",
    "JobServer",
    "OutOfMemory",
    "RestartPolicy",
    "StopRequest",
    "SubmittedJob",
    "TrialResources",
    "WorkerRequirements",
    "cores",
    "count_free_groups",
    "digest_of",
    "finetune_one",
    "has_server",
    "load_held_out_task",
    "log_results",
    "pretrain",
    "ray_session",
    "resolve_address",
    "run_alone",
    "run_trials",
    "server_url",
    "start_trial_processes",
    "start_trials_early",
    "start_workers_early",
    "stop_signals",
]
