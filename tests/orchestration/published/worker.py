"""One DeepSpeed worker as a program: the loop makes twenty steps of each run, and the weights after each step are
saved.

python -m tests.orchestration.published.worker PORT JOBS.json
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch

from training import loop
from training.engines import StepResult
from training.engines import deepspeed as zero
from training.formats import build_model
from training.optimizers import Optimizer, rate_at
from training.run import Run
from training.specs import EngineSettings, Phase

STEPS = 20


def train(run: Run, at: int) -> None:
    """Make twenty steps with the rates from step `at` on; step-0.safetensors has the initial weights."""
    engine = zero.DeepSpeedEngine(build_model(run), run.optimizer, run.engine)
    folder, update, done = Path(run.folder), engine.step, 0
    folder.mkdir(parents=True)
    safetensors.torch.save_file(engine.full_state(), folder / "step-0.safetensors")

    def step(rate: float) -> StepResult:
        nonlocal done
        result, done = update(rate), done + 1
        safetensors.torch.save_file(engine.full_state(), folder / f"step-{done}.safetensors")
        return result

    def shifted(optim: Optimizer, phases: Sequence[Phase], step: int) -> float:
        return rate_at(optim, phases, step + at)

    engine.step = step  # type: ignore[method-assign]
    loop.rate_at = shifted  # type: ignore[attr-defined]
    loop.pretrain(run, engine, lambda step, metrics: None, loop.Callbacks(should_stop=lambda: done == STEPS))


def main(port: str, jobs_file: str) -> None:
    where = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= where
    zero.connect(EngineSettings())
    jobs: list[dict[str, Any]] = json.loads(Path(jobs_file).read_text(encoding="utf-8"))
    for job in jobs:
        train(Run.from_json(job["run"]), job["at"])


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # gloo's threads abort about every fourth normal exit
