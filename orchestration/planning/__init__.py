"""Before anything is spent: memory of a device, time of a step, days and money, and the best layout.

Read demand.py (what a recipe asks for), layout.py, memory.py, timing.py, then search.py and costed.py (the plan).
devices.py has the figures of hardware, overheads.py those of our code, measured.py and published.py runs of our own
and of the literature to compare with. Nothing is built, and no
torch is imported.
"""

from orchestration.planning.devices import DEVICES, Device, device_of
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.memory import DeviceMemory, device_memory
from orchestration.planning.overheads import CALIBRATED
from orchestration.planning.published_runs import ComparedRun, compare_published_runs
from orchestration.planning.run_estimate import (
    CostedLayout,
    RunEstimate,
    estimate_run,
    format_bytes,
    format_duration,
    refuse_missing_gpus,
    refuse_what_cannot_be,
    refuse_what_does_not_fit,
    suggest_settings,
)
from orchestration.planning.search import cost_layout, find_best_layouts, find_smallest_layout
from orchestration.planning.timed_steps import TimedPrediction, predict_timed_steps
from orchestration.planning.timing import CommunicationVolume, StepSeconds, communication_volume, step_seconds
from orchestration.planning.workload import Workload, workload_of

__all__ = [
    "CALIBRATED",
    "DEVICES",
    "CommunicationVolume",
    "ComparedRun",
    "CostedLayout",
    "Device",
    "DeviceMemory",
    "ParallelLayout",
    "RunEstimate",
    "StepSeconds",
    "TimedPrediction",
    "Workload",
    "communication_volume",
    "compare_published_runs",
    "cost_layout",
    "device_memory",
    "device_of",
    "estimate_run",
    "find_best_layouts",
    "find_smallest_layout",
    "format_bytes",
    "format_duration",
    "predict_timed_steps",
    "refuse_missing_gpus",
    "refuse_what_cannot_be",
    "refuse_what_does_not_fit",
    "step_seconds",
    "suggest_settings",
    "workload_of",
]
