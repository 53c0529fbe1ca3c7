"""Downstream scores of a finished run: fine-tuning from its weights and from random ones, through Ray."""

import dataclasses
import json
from pathlib import Path

from orchestration import launch
from orchestration.jobs import stages
from orchestration.progress import Report
from preprocessing.files import write_atomic
from training.evaluation import Budget, Comparison, table

FILE = "scores.json"


def evaluate(run_folder: Path, stage: stages.Stage, address: str, report: Report) -> list[Comparison]:
    """One comparison per task of `stage`; those of an earlier time, where they are done."""
    if stage.state != "done":
        compared = launch.evaluate(
            run_folder,
            tasks=stage.causes["tasks"],
            seeds=range(stage.causes["num_seeds"]),
            budget=Budget(labels=stage.causes["labels"]),
            address=address,
            on_progress=report,
        )
        stage.folder.mkdir(parents=True, exist_ok=True)
        scores = [dataclasses.asdict(each) for each in compared]
        write_atomic(stage.folder / FILE, json.dumps(scores, indent=1).encode())
        stage.finish()
    return [Comparison(**score) for score in json.loads((stage.folder / FILE).read_text())]


def rows(compared: list[Comparison]) -> list[dict[str, str]]:
    """The comparisons as rows of words."""
    return table(compared)
