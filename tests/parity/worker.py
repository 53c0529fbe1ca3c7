"""One worker of a group, as a program that trains one cell after the other.

python -m tests.parity.worker RANK WORLD PORT JOBS.json OUT.json
"""

import gc
import json
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.parity import bare
from tests.parity.cells import Cell
from tests.parity.plain import plain_losses
from tests.training.worker import Fault, engine_of, join, train
from training.engines import LocalEngine
from training.formats import build_model
from training.run import Run
from training.specs import EngineSettings


def losses(job: dict[str, Any]) -> list[float]:
    """The losses of the steps of a job."""
    run = Run.from_json(job["run"])
    if job.get("bare"):
        return bare.losses(run, Cell(*job["bare"]))
    if not job["plain"]:
        seen = train(run, Fault())
        if "error" in seen:
            raise RuntimeError(seen["error"])
        return [metrics["train/loss"] for metrics in seen["steps"].values()]
    if run.engine.precision == "fp32":
        plain = replace(run, engine=EngineSettings(micro_batch_tokens=run.engine.micro_batch_tokens))
        return plain_losses(plain, LocalEngine(build_model(plain), plain.optimizer, plain.engine), job["data"])
    return plain_losses(run, engine_of(run), job["data"])


def main(rank: str, world: str, port: str, jobs_file: str, out_file: str) -> None:
    join(rank, world, port)
    seen: list[Any] = []
    for job in json.loads(Path(jobs_file).read_text(encoding="utf-8")):
        started = time.process_time()
        found = losses(job)
        seen.append({"losses": found, "cpu_s": time.process_time() - started})
        gc.collect()
        if rank == "0":
            Path(f"{out_file}.new").write_text(json.dumps(seen), encoding="utf-8")
            os.replace(f"{out_file}.new", out_file)


if __name__ == "__main__":
    code = 0
    try:
        main(*sys.argv[1:])
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without this, the other workers of the group may wait forever
