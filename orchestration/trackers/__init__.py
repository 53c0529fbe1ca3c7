"""Trackers beside MLflow: each writes the metrics, figures and parameters of a run in the format of another library.

Read tracker.py first: the interface of a tracker, and the file with the trackers of a run. tensorboard.py and wandb.py
are the trackers. mirror.py sends them the record of a run, which is `metrics.jsonl`, in a thread. A new tracker is one
file here, and one line in TRACKERS.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from orchestration.trackers.mirror import Scores, TrackerMirror, log_scores
from orchestration.trackers.tensorboard import TensorBoard
from orchestration.trackers.tracker import SETUP, Tracker, TrackerSetup, is_installed, write_setup
from orchestration.trackers.wandb import WandB

TRACKERS: Final[Sequence[type[Tracker]]] = (TensorBoard, WandB)
MLFLOW: Final = "mlflow"  # the name of MLflow, which always tracks a run (orchestration/tracking)
NAMES: Final = (MLFLOW, *(tracker.kind for tracker in TRACKERS))
FILES: Final = (SETUP, *(tracker.directory for tracker in TRACKERS))
"""Names in a run directory that belong to its trackers."""


def select_trackers(names: Sequence[str]) -> list[type[Tracker]]:
    """The trackers with these names, in the order of TRACKERS, without MLflow."""
    return [tracker for tracker in TRACKERS if tracker.kind in names]


def find_missing(names: Sequence[str]) -> Iterator[type[Tracker]]:
    """Yield the trackers whose packages are not installed."""
    return (tracker for tracker in select_trackers(names) if not is_installed(tracker))


__all__ = [
    "FILES",
    "MLFLOW",
    "NAMES",
    "SETUP",
    "TRACKERS",
    "Scores",
    "Tracker",
    "TrackerMirror",
    "TrackerSetup",
    "find_missing",
    "log_scores",
    "select_trackers",
    "write_setup",
]
