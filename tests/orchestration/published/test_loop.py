"""The training loop and DeepSpeed make the steps of the papers: ZeRO on one worker is compared with an implementation
outside both. All recipes read sequences of the mini-world."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from tests import family
from tests.orchestration.published import plain, shrunk
from tests.orchestration.published.plain import Array, Plain
from tests.orchestration.published.table import Published
from tests.orchestration.published.test_published import published, stepping
from tests.orchestration.published.worker import STEPS
from tests.training.corpora import gpt, mini_corpus, mini_run, two_sided
from training.data import open_loader
from training.formats import build_model
from training.run import Run
from training.specs import EngineSettings, Phase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[3]
# Tolerances: relative to the change of a tensor, and float32 rounding of its weights per step, which dominates for
# small changes.
TIGHT, FLOAT32 = 5e-5, 1.2e-7
# Recipes with their ZeRO stage, and a changed setting of their paper that the comparison must detect.
RUNS: dict[str, tuple[int, dict[str, Any]]] = {
    "bert_base": (1, {"corrected": True}),
    "bert_large": (2, {"decays": "all"}),
    "bert_wwm": (3, {"rule": "adam"}),
    "albert_base": (2, {"rule": "adam"}),
    "roberta_base": (2, {"decays": "matrices"}),
    "ernie_1": (1, {"eps": 1e-6}),
    "gpt3_125m": (3, {"beta2": 0.999}),
    "grover_mega": (1, {"kept": 0.0}),
    "bart_base": (2, {"clip": 0.0}),
    "t5_base": (3, {"kept": 0.999}),
}
EDGES = ("start", "peak")


def first_step(name: str, edge: str) -> int:
    """Return the first of the twenty steps."""
    warmup = published(name).warmup
    assert warmup is not None
    return max(0, warmup - STEPS // 2) if edge == "peak" else 0


def run_of(name: str, corpus: Path, folder: Path) -> Run:
    """Return a run with a recipe's model, losses, optimizer and number of steps, on sequences of the mini-world."""
    recipe, (trunk, losses) = family.recipe(name), stepping(name)
    run = mini_run(corpus, folder)
    run = {"decoder": gpt, "encoder_decoder": two_sided}.get(trunk.kind, lambda same: same)(run)
    machine = EngineSettings(
        zero_stage=RUNS[name][0], micro_batch_tokens=96, param_persistence_threshold=0
    )  # a step has several micro-batches
    phases = (Phase(seq_length=48, global_batch_size=9, steps=recipe.num_steps),)
    return replace(run, model=trunk, losses=losses, optimizer=recipe.optimizer, phases=phases, engine=machine)


@dataclass(frozen=True)
class WorkerResults:
    """The worker's results: a directory for each run."""

    corpus: Path
    folder: Path

    def run(self, name: str, edge: str) -> Run:
        return run_of(name, self.corpus, self.folder / f"{name}-{edge}")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> WorkerResults:
    folder = tmp_path_factory.mktemp("published")
    found = WorkerResults(mini_corpus(folder / "corpus"), folder)
    jobs = [{"run": found.run(name, edge).to_json(), "at": first_step(name, edge)} for name in RUNS for edge in EDGES]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.orchestration.published.worker", str(port), str(folder / "jobs.json")]
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return found


def paper_weights(run: Run, paper: Published, at: int) -> tuple[dict[str, Array], ...]:
    """Return the weights of the paper before the first step and after each step, by the names of the authors' code."""
    return _papers(run.to_json(), paper, at)


@cache
def _papers(run_json: str, paper: Published, at: int) -> tuple[dict[str, Array], ...]:
    run = Run.from_json(run_json)
    own = Plain(paper, shrunk.separate_tensors(stored(run, 0)))
    after = [dict(own.weights)]
    for step in range(STEPS):
        own.step(shrunk.separate_tensors(gradients(run_json, step)), plain.rate(paper, at + step))
        after.append(dict(own.weights))
    return tuple(after)


def stored(run: Run, step: int) -> dict[str, Tensor]:
    """Return the worker's weights after this many steps."""
    return safetensors.torch.load_file(Path(run.folder) / f"step-{step}.safetensors")


@cache
def gradients(run_json: str, step: int) -> dict[str, Tensor]:
    """Compute a step's gradient outside the loop and engine, at the worker's own weights.

    Weights that differ in their last bits would sometimes put a ReLU unit on the other side of zero.
    """
    run = Run.from_json(run_json)
    weights = {name: weight.requires_grad_() for name, weight in stored(run, step).items()}
    batches = open_loader(run, rank=0, world=1).at(step)
    loss = mean_loss(run, build_model(run), weights, batches)
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {name: one for name, one in zip(weights, found, strict=True) if one is not None}


def mean_loss(
    run: Run, model: torch.nn.Module, weights: dict[str, Tensor], batches: list[dict[str, np.ndarray]]
) -> Tensor:
    """Return the weighted sum of each loss's mean over all micro-batches of a step."""
    total = torch.zeros(())
    counts = {loss.kind: sum(loss.count(batch) for batch in batches) for loss in run.losses}
    for batch in batches:
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        scores = torch.func.functional_call(model, weights, (tensors,))
        total = total + sum(loss.weight * scores[loss.kind].loss / max(1, counts[loss.kind]) for loss in run.losses)
    return total


def largest_deviation(run: Run, after: tuple[dict[str, Array], ...]) -> float:
    """Return the largest deviation of a tensor after any step, relative to the tolerance."""
    return max(one for step in range(STEPS + 1) for one in deviations(run, after, step))


def deviations(run: Run, after: tuple[dict[str, Array], ...], step: int) -> Iterator[float]:
    for one, part in shrunk.separate_tensors(stored(run, step)).items():
        if one.endswith(": key/bias"):  # the exact gradient is 0, so only rounding remains
            continue
        expected, change = after[step][one], np.linalg.norm(after[step][one] - after[0][one])
        allowed = TIGHT * change + FLOAT32 * (1 + step) * np.linalg.norm(expected) + 1e-12
        yield float(np.linalg.norm(part - expected) / allowed)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", RUNS)
def test_loop_makes_the_steps_of_the_paper(results: WorkerResults, name: str, edge: str) -> None:
    run = results.run(name, edge)
    assert largest_deviation(run, paper_weights(run, published(name), first_step(name, edge))) < 1


@pytest.mark.parametrize("name", RUNS)
def test_changed_paper_setting_is_detected(results: WorkerResults, name: str) -> None:
    run = results.run(name, "peak")
    other = replace(published(name), **RUNS[name][1])
    assert largest_deviation(run, paper_weights(run, other, first_step(name, "peak"))) > 2


@pytest.mark.parametrize("name", RUNS)
def test_rates_of_fifty_steps_later_are_detected(results: WorkerResults, name: str) -> None:
    """One step is small in a warmup of ten thousand steps; test_published.py compares the rates themselves to 1e-6."""
    run = results.run(name, "peak")
    assert largest_deviation(run, paper_weights(run, published(name), first_step(name, "peak") + 50)) > 2
