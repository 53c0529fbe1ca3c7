"""Estimates before a run starts: memory per device, time per step, days, cost, and the best parallel layout.

Read workload.py (the demands of a recipe), layout.py, memory.py and timing.py first. Then read search.py,
micro_batch.py (`micro_batch_tokens: auto`) and run_estimate.py (the plan). The data of hardware are in devices.py, and
the overheads of Sesame in overheads.py. The predictions are compared with measured steps in timed_steps.py and with
published runs in published_runs.py. compute_optimal.py has the best number of parameters and tokens for a budget of
FLOPs. This package builds no model and does not import torch.
"""

from orchestration.planning.compute_optimal import (
    LEAST_FLOPS,
    MOST_FLOPS,
    ComputeOptimum,
    Optimum,
    find_compute_optimum,
)
from orchestration.planning.devices import DEVICES, Device, device_of
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.memory import DeviceMemory, device_memory
from orchestration.planning.overheads import CALIBRATED
from orchestration.planning.published_runs import ComparedRun, compare_published_runs
from orchestration.planning.run_estimate import (
    CostedLayout,
    RunEstimate,
    describe_layout,
    estimate_run,
    format_bytes,
    format_duration,
    refuse_missing_gpus,
    refuse_what_cannot_be,
    refuse_what_does_not_fit,
    resolve_micro_batch,
    suggest_settings,
)
from orchestration.planning.search import find_best_layouts, find_smallest_layout
from orchestration.planning.timed_steps import TimedPrediction, predict_timed_steps
from orchestration.planning.timing import communication_volume, step_seconds
from orchestration.planning.workload import Workload, workload_of

__all__ = [
    "CALIBRATED",
    "DEVICES",
    "LEAST_FLOPS",
    "MOST_FLOPS",
    "ComparedRun",
    "ComputeOptimum",
    "CostedLayout",
    "Device",
    "DeviceMemory",
    "Optimum",
    "ParallelLayout",
    "RunEstimate",
    "TimedPrediction",
    "Workload",
    "communication_volume",
    "compare_published_runs",
    "describe_layout",
    "device_memory",
    "device_of",
    "estimate_run",
    "find_best_layouts",
    "find_compute_optimum",
    "find_smallest_layout",
    "format_bytes",
    "format_duration",
    "predict_timed_steps",
    "refuse_missing_gpus",
    "refuse_what_cannot_be",
    "refuse_what_does_not_fit",
    "resolve_micro_batch",
    "step_seconds",
    "suggest_settings",
    "workload_of",
]
