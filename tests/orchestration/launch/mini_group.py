"""Train sixty steps of the mini-world with a group of two workers, and inspect the run."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from orchestration.launch import group
from orchestration.progress import Report
from orchestration.tracking import metrics
from orchestration.tracking import runs as track
from tests.training.corpora import mini_run
from training.run import Run
from training.specs import Phase

STEPS = 60


def run_of(corpus: Path, folder: Path, **changes: Any) -> Run:
    phases = (Phase(seq_length=48, global_batch_size=8, steps=STEPS),)
    return mini_run(corpus, folder, **{"phases": phases, "save_every": 15, "eval_every": 30, **changes})


def start(run: Run, place: track.TrackingStore, num_workers: int = 2, **more: Any) -> Any:
    return group.pretrain(
        run, num_workers=num_workers, place=place, metadata=track.Metadata("mini", {"seed": run.seed}), **more
    )


def mlflow_run(place: track.TrackingStore, folder: Path) -> Any:
    """Return the MLflow run of a directory."""
    tracked = track.existing_run(folder)
    assert tracked
    return track.client_of(place.uri).get_run(tracked.run_id)


def trainers() -> list[psutil.Process]:
    """Return the training workers. Workers of a killed raylet remain as zombies."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += [each] if "ray::Worker" in " ".join(each.cmdline()) else []
    return found


def losses(folder: Path) -> list[tuple[int, float]]:
    return metrics.history(folder)["train/loss"]


def once_at(step: int, act: Callable[[], object]) -> Report:
    """Return a progress callback that calls `act` once, when the run has reached `step`."""
    due = [True]

    def report(event: Mapping[str, Any]) -> None:
        if due and event["stage"] == "pretrain" and event["done"] >= step:
            due.clear()
            act()

    return report
