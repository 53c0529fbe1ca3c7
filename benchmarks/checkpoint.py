"""How long training waits for a checkpoint, and a start for reading it: one worker, weights and Adam's moments.

    python -m benchmarks.checkpoint [NAME] [--rounds 5] [--rows 8] [--length 128] [--folder DIR]

The net has its published size; its state is made without a training step. `pause` is what a step waits for a save,
`whole` is when the folder is there with all hashes, `restore` reads, verifies and loads it. The first save in the
background takes the memory of its copies and is given by itself; all figures are seconds, medians of the rounds.

`step` is one of so many rows without a checkpoint, `step, while it is written` one that begins while the thread writes.
Ratios are to the step: the pause as a share of it, and what it takes while a checkpoint is written. A pause depends on
the net alone, a step on its rows too: one of more rows has a smaller share.
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
from preprocessing.collate import unpadded
from training import checkpoint
from training.engines import LocalEngine
from training.model import Model
from training.saver import Saver
from training.specs import EngineSettings

Step = Callable[[], None]

ABOUT: checkpoint.Topology = {"recipe": "", "workers": 1, "zero": "none", "precision": "fp32"}


def engine_of(name: str) -> LocalEngine[Model]:
    """An engine with the net of a recipe, whose optimiser has taken a step."""
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
    """Pause, and time until the checkpoint is whole, of each save; `prepared`: as in training, some steps later."""
    saver, times = Saver(engine, folder, ABOUT, asdict(engine.model.spec), keep=1, background=background), []
    if prepared:
        saver.prepare()
        saver._thread.submit(int).result()  # when what is before it is done
    for step in range(1, rounds + 1):
        started = perf_counter()
        saver.save(step, {})
        paused = perf_counter()
        saver.finish()
        times.append((paused - started, perf_counter() - started))
    return times


def step_of(engine: LocalEngine[Model], name: str, rows: int, length: int) -> Step:
    """A training step of the net of a recipe on random rows."""
    recipe = load(name)
    with tempfile.TemporaryDirectory() as folder:
        batch = unpadded(made_up(recipe, small_vocab(recipe, Path(folder)), rows, length))
    weights = {loss.kind: loss.weight for loss in recipe.losses}

    def step() -> None:
        scores = engine.forward(batch)
        terms = [weight * scores[kind].loss / max(1, scores[kind].count) for kind, weight in weights.items()]
        engine.backward(torch.stack(terms).sum())
        engine.step(1e-4)

    return step


def seconds_of(step: Step) -> float:
    """Of one step."""
    started = perf_counter()
    step()
    return perf_counter() - started


def steps_beside(engine: LocalEngine[Model], folder: Path, rounds: int, step: Step) -> tuple[list[float], list[float]]:
    """Seconds of steps without a checkpoint, and of those that begin while one is written: in turns."""
    saver, alone, beside = Saver(engine, folder, ABOUT, asdict(engine.model.spec), keep=1), list[float](), list[float]()
    saver.prepare()
    step()  # the first one is slower
    for number in range(1, rounds + 1):
        alone.append(seconds_of(step))
        saver.save(number, {})
        while not beside or not any(saver.votes()):  # until the thread is done, or has failed
            beside.append(seconds_of(step))
        saver.finish()
    return alone, beside


def measured(name: str, rounds: int, rows: int = 8, length: int = 128, folder: Path | None = None) -> dict[str, Any]:
    """Weights and bytes of a recipe's net, seconds of its checkpoints, in a folder on the disk to be measured, and of
    its steps of so many rows."""
    engine, found = engine_of(name), {}
    with tempfile.TemporaryDirectory(dir=folder) as folder:
        waited = saves(engine, Path(folder), rounds, background=False)
        found["pause, waiting"] = median(pause for pause, _ in waited)
        firsts = [saves(engine, Path(folder), 1, background=True)[0][0] for _ in range(rounds)]
        found["pause, in the background, first, unprepared"] = median(firsts)
        (first, _), *later = saves(engine, Path(folder), rounds + 1, background=True, prepared=True)
        found["pause, in the background, first"] = first
        found["pause, in the background"] = median(pause for pause, _ in later)
        found["whole, in the background"] = median(whole for _, whole in later)
        restores = []
        for _ in range(rounds):
            started = perf_counter()
            checkpoint.restore(engine, Path(folder), ABOUT, "must")
            restores.append(perf_counter() - started)
        found["restore"] = median(restores)
        alone, beside = steps_beside(engine, Path(folder), rounds, step_of(engine, name, rows, length))
        found["step"], found["step, while it is written"] = median(alone), median(beside)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    weights = engine.model.num_parameters
    figures = {key: round(value, 3) for key, value in found.items()}
    ratios = {
        "pause, in the background": round(found["pause, in the background"] / found["step"], 3),
        "step, while it is written": round(found["step, while it is written"] / found["step"], 3),
    }
    told = {"net": name, "weights": weights, "bytes": size, "rows": rows, "length": length}
    return told | {"seconds": figures, "steps": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="bert_base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8, help="of a step")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    given = parser.parse_args()
    print(json.dumps(measured(given.name, given.rounds, given.rows, given.length, given.folder), indent=1))


if __name__ == "__main__":
    main()
