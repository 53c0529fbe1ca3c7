"""Time to save and to restore a checkpoint with weights and Adam's moments, with one worker.

    python -m benchmarks.checkpoint [NAME] [--rounds 5] [--rows 8] [--length 128] [--folder DIR]

The model has its published size, and its optimizer state is created without training. All results are in seconds,
medians over the rounds:

* `pause`: training waits for a save. The first save in the background allocates memory for its copies, so it is listed
  separately.
* `whole`: from the start of a save until the directory is complete with all hashes.
* `restore`: the checkpoint is read, verified and loaded.
* `step`: a training step with `--rows` sequences, without a checkpoint.
* `step, while it is written`: a step that starts while a thread writes a checkpoint.

Ratios are relative to `step`. The pause depends on the model only, and a step also on its number of sequences, so the
ratio is lower for steps with more sequences.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.step import made_up, small_vocab
from orchestration.config import load
from preprocessing.collate import collate_unpadded
from training import checkpoint
from training.engines import LocalEngine
from training.model import Model
from training.saver import Saver
from training.specs import EngineSettings

Step = Callable[[], None]

ABOUT: checkpoint.Topology = {"recipe": "", "workers": 1, "zero": "none", "precision": "fp32"}


def engine_of(name: str) -> LocalEngine[Model]:
    """An engine with the model of a recipe, whose optimizer has made one step."""
    recipe = load(name)
    model = Model(recipe.model, recipe.losses, recipe.data.tokenizer.vocab_size, seed=0)
    engine = LocalEngine(model, recipe.optimizer, EngineSettings())
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, 1e-3)
    engine.step(1e-4)
    return engine


def saves(
    engine: LocalEngine[Model], folder: Path, rounds: int, background: bool, prepared: bool = False
) -> list[tuple[float, float]]:
    """The pause and the time until the checkpoint is complete, for each save.

    `prepared`: allocate the memory for copies before the first save, as in training.
    """
    saver, times = Saver(engine, folder, ABOUT, asdict(engine.model.spec), keep=1, background=background), []
    if prepared:
        saver.prepare()
        saver._thread.submit(int).result()  # waits for earlier work of the thread
    for step in range(1, rounds + 1):
        started = perf_counter()
        saver.save(step, {})
        paused = perf_counter()
        saver.finish()
        times.append((paused - started, perf_counter() - started))
    return times


def step_of(engine: LocalEngine[Model], name: str, rows: int, length: int) -> Step:
    """A function that trains the model of a recipe for one step on random sequences."""
    recipe = load(name)
    with tempfile.TemporaryDirectory() as folder:
        batch = collate_unpadded(made_up(recipe, small_vocab(recipe, Path(folder)), rows, length))
    weights = {loss.kind: loss.weight for loss in recipe.losses}

    def step() -> None:
        scores = engine.forward(batch)
        terms = [weight * scores[kind].loss / max(1, scores[kind].count) for kind, weight in weights.items()]
        engine.backward(torch.stack(terms).sum())
        engine.step(1e-4)

    return step


def seconds_of(step: Step) -> float:
    """The time of one step, in seconds."""
    started = perf_counter()
    step()
    return perf_counter() - started


def steps_beside(engine: LocalEngine[Model], folder: Path, rounds: int, step: Step) -> tuple[list[float], list[float]]:
    """Seconds of steps without a checkpoint, and of steps that start while one is written, measured alternately."""
    saver, alone, beside = Saver(engine, folder, ABOUT, asdict(engine.model.spec), keep=1), list[float](), list[float]()
    saver.prepare()
    step()  # the first step is slower
    for number in range(1, rounds + 1):
        alone.append(seconds_of(step))
        saver.save(number, {})
        while not beside or not any(saver.votes()):  # until the thread has finished or failed
            beside.append(seconds_of(step))
        saver.finish()
    return alone, beside


def measured(name: str, rounds: int, rows: int = 8, length: int = 128, folder: Path | None = None) -> dict[str, Any]:
    """The size of a recipe's model, and the seconds of its checkpoints and steps.

    `folder`: a directory on the disk to measure. `rows`: sequences of a step. `length`: tokens of a sequence.
    """
    engine, found = engine_of(name), {}
    with tempfile.TemporaryDirectory(dir=folder) as room:
        waited = saves(engine, Path(room), rounds, background=False)
        found["pause, waiting"] = median(pause for pause, _ in waited)
        firsts = [saves(engine, Path(room), 1, background=True)[0][0] for _ in range(rounds)]
        found["pause, in the background, first, unprepared"] = median(firsts)
        (first, _), *later = saves(engine, Path(room), rounds + 1, background=True, prepared=True)
        found["pause, in the background, first"] = first
        found["pause, in the background"] = median(pause for pause, _ in later)
        found["whole, in the background"] = median(whole for _, whole in later)
        restores = []
        for _ in range(rounds):
            started = perf_counter()
            checkpoint.restore(engine, Path(room), ABOUT, "must")
            restores.append(perf_counter() - started)
        found["restore"] = median(restores)
        alone, beside = steps_beside(engine, Path(room), rounds, step_of(engine, name, rows, length))
        found["step"], found["step, while it is written"] = median(alone), median(beside)
        size = sum(file.stat().st_size for file in Path(room).rglob("*") if file.is_file())
    weights = engine.model.num_parameters
    figures = {key: round(value, 3) for key, value in found.items()}
    ratios = {
        "pause, in the background": round(found["pause, in the background"] / found["step"], 3),
        "step, while it is written": round(found["step, while it is written"] / found["step"], 3),
    }
    settings = {"net": name, "weights": weights, "bytes": size, "rows": rows, "length": length}
    return settings | {"seconds": figures, "steps": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="bert_base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8, help="sequences of a step")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--folder", type=Path, help="directory on the disk to measure")
    given = parser.parse_args()
    print(json.dumps(measured(given.name, given.rounds, given.rows, given.length, given.folder), indent=1))


if __name__ == "__main__":
    main()
