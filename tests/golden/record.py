"""What is golden: first losses and first batch of each tiny recipe, and the manifests of three small corpora.

Three recipes go all the way, from a text through the pipeline; the others begin with text that is made in memory.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orchestration.config import compute_digest, load
from orchestration.jobs import Job, JobFlags, open_job
from orchestration.jobs import corpus as build
from preprocessing.manifest import Manifest
from preprocessing.schema import Batch
from tests import family
from tests.golden import text
from training import loop
from training.data import open_loader
from training.engines.local import LocalEngine
from training.formats import build_model
from training.model import Model
from training.optimizers import schedule
from training.run import Run
from training.specs import EngineSettings

HERE = Path(__file__).parent
RECIPES = ("bert_base", "gpt2", "roberta_base")
FAMILY = "family"  # the file with all of them
STEPS = 20
SHRUNK = (
    "data.tokenizer.vocab_size=600",
    "optimizer.warmup_steps=5",
    'phases=[{"seq_length": 48, "global_batch_size": 16, "steps": 20}]',
)
CORPUS = "{name: text, sources: [{kind: jsonl, path: text.jsonl}], validation_ratio: 0.02, test_ratio: 0.1}\n"


def made(recipe: str, folder: Path, *overrides: str) -> tuple[Job, Manifest]:
    """The recipe at tiny scale on the golden text, its corpus built by the product's own pipeline."""
    text.write(folder / "text.jsonl")
    given = folder / "text.yaml"
    given.write_text(CORPUS)
    flags = JobFlags(
        recipe=recipe, overrides=(*SHRUNK, *overrides), scale="tiny", data=[str(given)], output_dir=folder / "work"
    )
    job = open_job(flags)
    return job, build.build_untracked(job, (), lambda event: None)


def losses(run: Run) -> list[float]:
    """Of twenty steps in one plain process in float32; call it in the process of process.py."""
    torch.set_num_threads(1)
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
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
    return {"arrays": arrays, "first_row_ids": batch["input_ids"].reshape(-1)[: int(batch["lengths"][0])].tolist()}


def batch_of(name: str) -> str:
    """Hash of all arrays of the first batch of a tiny recipe."""
    (batch,) = family.loader(family.recipe(name, "tiny"), steps=1).at(0)
    found = hashlib.sha256()
    for key, array in sorted(batch.items()):
        found.update(f"{key} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def losses_of(name: str) -> list[float]:
    """The same of a tiny recipe on made-up text, each loss with its weight."""
    return train(name)[1]


def train(name: str) -> tuple[Model, list[float]]:
    """The model of a tiny recipe after twenty steps, and its losses."""
    one = load(name, ["optimizer.warmup_steps=5"], scale="tiny")
    torch.set_num_threads(1)
    model = family.model(one)
    engine, loader = LocalEngine(model, one.optimizer, EngineSettings()), family.loader(one, STEPS)
    found = []
    for step in range(STEPS):
        torch.manual_seed(step)  # ELECTRA samples
        (batch,) = loader.at(step)
        scores = engine.forward(batch)
        total = sum(
            loss.weight * scores[loss.kind].loss / max(1, scores[loss.kind].count)  # no pair may be asked for its label
            for loss in one.losses
        )
        engine.backward(total)
        engine.step(schedule.rate(one.optimizer, step, STEPS))
        found.append(float(total.detach()))
    return model, found


def alike(names: list[str]) -> dict[str, str]:
    """For each recipe the first that is the same at tiny scale, but for its vocabulary and text: they learn alike."""
    first: dict[str, str] = {}
    found = {}
    for name in names:
        science = family.recipe(name, "tiny").science
        key = compute_digest(science | {"data": [science["data"]["packing"], science["data"]["static_masks"]]})
        found[name] = first.setdefault(key, name)
    return found


def read(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text())


def write(name: str, value: Any) -> None:
    (HERE / f"{name}.json").write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
