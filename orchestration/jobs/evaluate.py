"""Downstream scores of a finished run: fine-tuning from its weights and from random ones, through Ray."""

import dataclasses
import json
import logging
from pathlib import Path

from orchestration import launch
from orchestration.jobs import hold_out, stages
from orchestration.progress import Report
from preprocessing.errors import DataError
from preprocessing.files import write_atomic
from training.evaluation import Budget, Comparison, table

log = logging.getLogger(__name__)

FILE = "scores.json"


def evaluate(run_folder: Path, stage: stages.Stage, address: str, report: Report) -> list[Comparison]:
    """One comparison per task of `stage`; those of an earlier time, where they are done.

    A task for which too little is held out is left out, with a warning each time; DataError where that is all of them.
    """
    tasks, labels = list(stage.causes["tasks"]), stage.causes["labels"]
    if stage.state != "done":
        report({"stage": hold_out.STAGE})
        unfit = hold_out.too_few(_corpus(run_folder), tasks, labels)
        if unfit and len(unfit) == len(tasks):
            raise DataError("\n".join(unfit.values()))
        compared = launch.evaluate(
            run_folder,
            tasks=tasks,
            seeds=range(stage.causes["num_seeds"]),
            budget=Budget(labels=labels),
            address=address,
            on_progress=report,
        )
        stage.folder.mkdir(parents=True, exist_ok=True)
        scores = [dataclasses.asdict(each) for each in compared]
        write_atomic(stage.folder / FILE, json.dumps(scores, indent=1).encode())
        stage.finish()
        return compared
    compared = [Comparison(**score) for score in json.loads((stage.folder / FILE).read_text())]
    if lacking := [task for task in tasks if task not in {each.task for each in compared}]:
        for reason in hold_out.too_few(_corpus(run_folder), lacking, labels).values():
            log.warning("left out: %s", reason)
    return compared


def _corpus(run_folder: Path) -> Path:
    return Path(json.loads((run_folder / launch.RUN).read_text())["corpus"])


def rows(compared: list[Comparison]) -> list[dict[str, str]]:
    """The comparisons as rows of words."""
    return table(compared)
