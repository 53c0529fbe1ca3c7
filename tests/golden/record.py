"""What is golden: first losses and first batch of each tiny recipe, and the manifest of a small corpus."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orchestration import build
from orchestration.job import Flags, Job, open_job
from preprocessing.manifest import Manifest
from preprocessing.schema import Batch
from tests.golden import text
from training import loop
from training.data import open_loader
from training.engine import LocalEngine, build_model

HERE = Path(__file__).parent
RECIPES = ("bert_base", "gpt2", "roberta_base")
SHRUNK = (
    "data.vocab.size=600",
    "optim.warmup=5",
    'phases=[{"length": 48, "batch": 16, "steps": 20}]',
)


def made(recipe: str, folder: Path, *overrides: str) -> tuple[Job, Manifest]:
    """The recipe at tiny scale on the golden text, its corpus built by the product's own pipeline."""
    given = text.write(folder / "text.jsonl")
    flags = Flags(recipe=recipe, overrides=(*SHRUNK, *overrides), scale="tiny", data=[str(given)], out=folder / "work")
    job = open_job(flags)
    return job, build.untracked(job, (), lambda event: None)


def losses(job: Job) -> list[float]:
    """Of twenty steps in one plain process in float32."""
    run = job.pretraining()
    torch.set_num_threads(1)
    engine = LocalEngine(build_model(run), run.optim, run.machine)
    found: dict[int, float] = {}
    quiet = dataclasses.replace(run, log_every=1, save_every=0, eval_every=0)
    loop.pretrain(quiet, engine, lambda step, metrics: found.update({step: metrics["train/loss"]}))
    return [found[step] for step in sorted(found)]


def first_batch(job: Job) -> dict[str, Any]:
    """Shape and hash of each array of the first micro-batch, and the ids of its first row, readable."""
    batch: Batch = open_loader(job.pretraining(), rank=0, world=1).at(0)[0]
    arrays = {
        name: {"shape": list(array.shape), "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}
        for name, array in sorted(batch.items())
    }
    return {"arrays": arrays, "first_row_ids": batch["ids"].reshape(-1)[: int(batch["lengths"][0])].tolist()}


def read(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text())


def write(name: str, value: Any) -> None:
    (HERE / f"{name}.json").write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
