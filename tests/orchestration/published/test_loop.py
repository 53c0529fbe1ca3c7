"""The loop and DeepSpeed take the steps of the papers: ZeRO on one worker, against losses, gradients and updates that
are made outside of both. The rows are those of the mini-world, whatever the recipe reads.
"""

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
# Of the way that a tensor has gone; and of its weights, in each step: float32's own, all there is of small ways.
TIGHT, FLOAT32 = 5e-5, 1.2e-7
# Recipes with the ZeRO stage that they run on, and what of their paper is changed to see that it would be noticed.
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


def at_of(name: str, edge: str) -> int:
    """The first of the twenty steps."""
    warmup = published(name).warmup
    assert warmup is not None
    return max(0, warmup - STEPS // 2) if edge == "peak" else 0


def run_of(name: str, corpus: Path, folder: Path) -> Run:
    """The net, losses, optimiser and number of steps of a recipe, on rows of the mini-world."""
    recipe, (trunk, losses) = family.recipe(name), stepping(name)
    run = mini_run(corpus, folder)
    run = {"decoder": gpt, "encoder_decoder": two_sided}.get(trunk.kind, lambda same: same)(run)
    machine = EngineSettings(
        zero_stage=RUNS[name][0], micro_batch_tokens=96, param_persistence_threshold=0
    )  # a step is several micro-batches
    phases = (Phase(seq_length=48, global_batch_size=9, steps=recipe.num_steps),)
    return replace(run, model=trunk, losses=losses, optimizer=recipe.optimizer, phases=phases, engine=machine)


@dataclass(frozen=True)
class Seen:
    """What the worker did: a folder for each run."""

    corpus: Path
    folder: Path

    def run(self, name: str, edge: str) -> Run:
        return run_of(name, self.corpus, self.folder / f"{name}-{edge}")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("published")
    found = Seen(mini_corpus(folder / "corpus"), folder)
    jobs = [{"run": found.run(name, edge).to_json(), "at": at_of(name, edge)} for name in RUNS for edge in EDGES]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.orchestration.published.worker", str(port), str(folder / "jobs.json")]
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return found


def papers(run: Run, paper: Published, at: int) -> tuple[dict[str, Array], ...]:
    """The weights of the paper before the first step and after each, by the names of the authors' code."""
    return _papers(run.to_json(), paper, at)


@cache
def _papers(run_json: str, paper: Published, at: int) -> tuple[dict[str, Array], ...]:
    run = Run.from_json(run_json)
    own = Plain(paper, shrunk.apart(stored(run, 0)))
    after = [dict(own.weights)]
    for step in range(STEPS):
        own.step(shrunk.apart(gradients(run_json, step)), plain.rate(paper, at + step))
        after.append(dict(own.weights))
    return tuple(after)


def stored(run: Run, step: int) -> dict[str, Tensor]:
    """The worker's weights after so many steps."""
    return safetensors.torch.load_file(Path(run.folder) / f"step-{step}.safetensors")


@cache
def gradients(run_json: str, step: int) -> dict[str, Tensor]:
    """The gradient of a step, outside of loop and engine, at the weights that the worker had then: at others, that
    differ in their last bits, a unit of a relu now and then falls on the other side."""
    run = Run.from_json(run_json)
    weights = {name: weight.requires_grad_() for name, weight in stored(run, step).items()}
    batches = open_loader(run, rank=0, world=1).at(step)
    loss = mean_loss(run, build_model(run), weights, batches)
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {name: one for name, one in zip(weights, found, strict=True) if one is not None}


def mean_loss(
    run: Run, model: torch.nn.Module, weights: dict[str, Tensor], batches: list[dict[str, np.ndarray]]
) -> Tensor:
    """The weighted sum of the means of each loss over all micro-batches of a step."""
    total = torch.zeros(())
    counts = {loss.kind: sum(loss.count(batch) for batch in batches) for loss in run.losses}
    for batch in batches:
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        scores = torch.func.functional_call(model, weights, (tensors,))
        total = total + sum(loss.weight * scores[loss.kind].loss / max(1, counts[loss.kind]) for loss in run.losses)
    return total


def farthest(run: Run, after: tuple[dict[str, Array], ...]) -> float:
    """The longest that a tensor is off after any step, in units of what is allowed."""
    return max(one for step in range(STEPS + 1) for one in distances(run, after, step))


def distances(run: Run, after: tuple[dict[str, Array], ...], step: int) -> Iterator[float]:
    for one, part in shrunk.apart(stored(run, step)).items():
        if one.endswith(": key/bias"):  # its gradient is 0 but for rounding
            continue
        theirs, way = after[step][one], np.linalg.norm(after[step][one] - after[0][one])
        allowed = TIGHT * way + FLOAT32 * (1 + step) * np.linalg.norm(theirs) + 1e-12
        yield float(np.linalg.norm(part - theirs) / allowed)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", RUNS)
def test_the_loop_takes_the_steps_of_the_paper(seen: Seen, name: str, edge: str) -> None:
    run = seen.run(name, edge)
    assert farthest(run, papers(run, published(name), at_of(name, edge))) < 1


@pytest.mark.parametrize("name", RUNS)
def test_another_paper_is_noticed(seen: Seen, name: str) -> None:
    run = seen.run(name, "peak")
    other = replace(published(name), **RUNS[name][1])
    assert farthest(run, papers(run, other, at_of(name, "peak"))) > 2


@pytest.mark.parametrize("name", RUNS)
def test_rates_of_fifty_steps_later_are_noticed(seen: Seen, name: str) -> None:
    """A single step is little in a warm-up of ten thousand; the rates themselves are compared to a millionth."""
    run = seen.run(name, "peak")
    assert farthest(run, papers(run, published(name), at_of(name, "peak") + 50)) > 2
