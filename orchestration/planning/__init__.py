"""Before anything is spent: memory of a device, time of a step, days and money, and the best layout.

Read demand.py (what a recipe asks for), layout.py, memory.py, timing.py, then search.py and costed.py (the plan).
devices.py has the figures of hardware, overheads.py those of our code, measured.py and published.py runs of our own
and of the literature to compare with. Nothing is built, and no
torch is imported.
"""

from orchestration.planning.devices import DEVICES, Device, device_of
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.memory import DeviceMemory, memory
from orchestration.planning.overheads import CALIBRATED
from orchestration.planning.published_runs import ComparedRun, compared
from orchestration.planning.run_estimate import (
    CostedLayout,
    RunEstimate,
    brief_bytes,
    duration,
    plan,
    refuse_missing_gpus,
    refuse_what_cannot_be,
    refuse_what_does_not_fit,
    what_would_fit,
)
from orchestration.planning.search import best, chosen, smallest
from orchestration.planning.timed_steps import TimedPrediction, retold
from orchestration.planning.timing import CommunicationVolume, StepSeconds, seconds, sent
from orchestration.planning.workload import Workload, demand_of

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
    "best",
    "brief_bytes",
    "chosen",
    "compared",
    "demand_of",
    "device_of",
    "duration",
    "memory",
    "plan",
    "refuse_missing_gpus",
    "refuse_what_cannot_be",
    "refuse_what_does_not_fit",
    "retold",
    "seconds",
    "sent",
    "smallest",
    "what_would_fit",
]
