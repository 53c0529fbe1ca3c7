"""One DeepSpeed worker, as a program that trains one run after the other and writes the results.

python -m tests.training.worker RANK WORLD PORT JOBS.json OUT.json
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from preprocessing.errors import SesameError
from preprocessing.manifest import Manifest
from preprocessing.schema import Batch
from training import checkpoint
from training.data import open_loader
from training.engines import StepResult, mesh_of
from training.engines import deepspeed as zero
from training.formats import describe_model
from training.loop import pretrain
from training.model import Model
from training.run import CHECKPOINTS, Run
from training.saver import Saver
from training.score import Score
from training.specs import EngineSettings

CRUMBS, CRUMB = 32, 1 / 512  # bf16 has 8 significant bits: adding a 512th of a number never changes it


@dataclass
class Fault:
    """Faults: the update before which they occur, in the last worker unless stated otherwise."""

    kill_at: int = -1  # SIGKILL
    poison_at: int = -1  # a NaN loss
    # in all workers: the batches of this step have losses fifty times too large, whenever they are read
    spike_at: int = -1


def job(run: Run, **fault: int) -> dict[str, Any]:
    """An entry of JOBS.json: a run to train."""
    return {"run": run.to_json(), "fault": fault}


def engine_of(run: Run) -> zero.DeepSpeedEngine[Model]:
    """The engine of this worker, with its shard of the model."""
    mesh = mesh_of(run.engine)
    return zero.DeepSpeedEngine(describe_model(run, mesh.share, mesh.line.stage), run.optimizer, run.engine)


def train(run: Run, fault: Fault) -> dict[str, Any]:
    """Return metrics by step and the result, or the error. The weights go to the directory of the run."""
    engine = engine_of(run)
    steps: dict[int, dict[str, float]] = {}
    _break(engine, fault)
    if fault.spike_at >= 0:
        _spike(engine, run, fault.spike_at)
    try:
        result = pretrain(run, engine, lambda step, metrics: steps.setdefault(step, {}).update(metrics))
    except SesameError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    weights = engine.full_state()
    if engine.rank == 0:
        Path(run.folder).mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(weights, Path(run.folder) / "final.safetensors")
    partitioned = sum(weight.numel() == 0 for weight in engine.model.parameters())
    of_each = [0.0] * engine.world
    of_each[engine.rank] = sum(weight.numel() for weight in engine.model.parameters())
    ended = {"loss": result.state.loss, "skipped": result.state.skipped, "skip_steps": result.state.skip_steps}
    return {"steps": steps, "partitioned": partitioned, "weights": engine.reduce_sums(of_each)} | ended


def _break(engine: zero.DeepSpeedEngine, fault: Fault) -> None:
    """Insert the fault between the training loop and the engine."""
    update, backward, done = engine.step, engine.backward, 0

    def step(rate: float) -> StepResult:
        nonlocal done
        if done == fault.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return update(rate)

    def poison(loss: Tensor) -> None:
        backward(loss * float("nan") if done == fault.poison_at else loss)

    if engine.rank == engine.world - 1:
        engine.step, engine.backward = step, poison  # type: ignore[method-assign]


def _spike(engine: zero.DeepSpeedEngine, run: Run, step: int) -> None:
    """Multiply the losses of the batches of a step."""
    iterate_scores, loader = engine.iterate_scores, open_loader(run, engine.data_rank, engine.data_world)
    bad = {batch["input_ids"].tobytes() for batch in loader.at(step)}

    def louder(batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        for batch, scores in iterate_scores(batches):
            factor = 50.0 if batch["input_ids"].tobytes() in bad else 1.0
            yield batch, {kind: score._replace(loss=score.loss * factor) for kind, score in scores.items()}

    engine.iterate_scores = louder  # type: ignore[method-assign]


def crumbs(run: Run) -> list[float]:
    """The norm of a gradient g, and that of g plus CRUMBS gradients g * CRUMB. A bf16 sum would lose all of the
    latter."""
    engine = engine_of(run)
    (batch,) = open_loader(run, engine.rank, engine.world).at(0)

    def norm(parts: list[float]) -> float:
        for part in parts:
            engine.backward(part * engine.forward(batch)["masked_tokens"].loss)
        return engine.step(0.0).grad_norm

    return [norm([1.0]), norm([1.0] + [CRUMB] * CRUMBS)]


def first_weights(run: Run) -> list[int]:
    """Write the weights before any update to the directory of the run. Return the number of values of each weight on
    this worker."""
    engine = engine_of(run)
    weights = engine.full_state()
    if engine.rank == 0:
        Path(run.folder).mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(weights, Path(run.folder) / "first.safetensors")
    return [weight.numel() for weight in engine.model.parameters()]


def resave(run: Run) -> dict[str, Any]:
    """Load the newest checkpoint of a run, and write it again in the layout of these workers, into the directory
    `again`."""
    engine = engine_of(run)
    about: checkpoint.Topology = {"recipe": "", "workers": engine.world, "precision": run.engine.precision}
    about |= {"corpus": Manifest.load(run.corpus).digest}
    state = checkpoint.restore(engine, Path(run.folder) / CHECKPOINTS, about, "must")
    assert state
    Saver(engine, Path(run.folder) / "again", about, {}, keep=1, background=False).save(state["step"], state)
    weights = engine.full_state()
    if engine.rank == 0:
        safetensors.torch.save_file(weights, Path(run.folder) / "loaded.safetensors")
    return {"step": state["step"]}


def join(rank: str, world: str, port: str) -> None:
    """Join a group of workers on this machine."""
    os.environ |= {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    zero.connect(EngineSettings())
    gc.collect()
    # ZeRO stage 3 collects garbage at each start; imported modules, excluded here, would take half a second
    gc.freeze()


def main(rank: str, world: str, port: str, jobs_file: str, out_file: str) -> None:
    join(rank, world, port)
    seen: list[Any] = []
    for job in json.loads(Path(jobs_file).read_text(encoding="utf-8")):
        gc.freeze()  # also exclude objects of the previous run
        run = Run.from_json(job["run"])
        if job.get("first"):
            seen.append(first_weights(run))
        elif job.get("resave"):
            seen.append(resave(run))
        else:
            seen.append(crumbs(run) if job.get("crumbs") else train(run, Fault(**job["fault"])))
        if rank == "0":
            Path(out_file).write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # gloo's threads abort the process at every fourth normal exit
