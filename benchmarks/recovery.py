"""How long a training stands still when a worker or a node is lost: from the kill to the next step.

    python -m benchmarks.recovery [--trials 10] [--seed 0] [--what worker node] [--steps N] [--batch 64]

Two workers of one core each train a small BERT of the mini-world. A worker is one of a Ray of our own. A node is one
of two raylets of a cluster on this machine, killed with the worker on it; training goes on with one worker, and the
node is started again for the next trial. At which step, and which of the two, is drawn from the seed. Seconds:

    noticed   from the kill until fresh workers are asked for
    start     until their processes are there and have imported torch and DeepSpeed: what any start costs
    resume    until the first step that had not been done before the kill, steps since the checkpoint included
    beyond    noticed + resume: what is asked to be below 15

`first` is the start of the first group, for comparison. All times are by the driver's clock, which hears of workers
twice a second.
"""

import argparse
import json
import os
import platform
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from orchestration import tracking
from orchestration.launch import RestartPolicy, pretrain, ray_session
from orchestration.launch.address import bind_to_loopback
from orchestration.launch.session import PATIENCE
from tests.training.corpora import mini_corpus, mini_run
from training.run import Run
from training.specs import Phase

# Of a run. A worker whose raylet is gone trains on until Ray notices it, and is not to end before that.
STEPS = {"worker": 200, "node": 1_500}

HERE: dict[str, Any] = {
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
    "object_store_memory": 100_000_000,
}


class Trial:
    """One run that loses something at a step; when what happened, by the driver's clock."""

    def __init__(self, at: int, kill: Any) -> None:
        self.at, self.kill, self.done = at, kill, -1
        self.times: dict[str, float] = {}
        self.first: dict[str, float] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        now_s, stage = time.monotonic(), event["stage"]
        times = self.times if "kill" in self.times else self.first
        name = "asked" if "workers" in event else stage
        if stage == "pretrain":
            self.done = max(self.done, event["done"]) if not self.times else self.done
            times.setdefault("pretrain", now_s)
            if not self.times and event["done"] >= self.at:
                self.times["kill"] = now_s
                self.kill()
            elif self.times and "asked" in self.times and event["done"] > self.done:
                self.times.setdefault("next", now_s)
        elif name == "asked":
            times[name] = now_s  # the last one counts: a node's loss may be told in two steps
        else:
            times.setdefault(stage, now_s)

    def seconds(self) -> dict[str, float]:
        t, f = self.times, self.first
        built = t["building the model"]
        found = {
            "noticed": t["asked"] - t["kill"],
            "start": built - t["asked"],
            "resume": t["next"] - built,
            "total": t["next"] - t["kill"],
            "first": f["building the model"] - f["asked"],
        }
        return found | {"beyond": found["noticed"] + found["resume"]}


def trainers() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += [each] if "ray::Worker" in " ".join(each.cmdline()) else []
    return sorted(found, key=lambda each: each.pid)


@contextmanager
def cluster() -> Iterator[Any]:
    """A head without cores and two nodes of one core each, to which this process is connected."""
    from ray.cluster_utils import Cluster

    os.environ |= {name: str(seconds) for name, seconds in PATIENCE.items()}
    with bind_to_loopback():
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **HERE})
        try:
            nodes = [made.add_node(num_cpus=1, **HERE) for _ in range(2)]
            with ray_session(made.address, cpus=1):
                yield made, nodes
        finally:
            made.shutdown()


def trial(run: Run, folder: Path, draw: random.Random, kill: Any) -> dict[str, float]:
    """Train `run` and lose something once; the seconds."""
    one = Trial(draw.randrange(run.save_every + 2, STEPS["worker"] // 2), kill)
    pretrain(
        replace(run, folder=str(folder)),
        num_workers=2,
        min_workers=1,
        place=tracking.tracking_store(folder.parent),
        metadata=tracking.Metadata("recovery"),
        restart_policy=RestartPolicy(grow_s=0),
        on_progress=one,
    )
    return one.seconds()


def workers_killed(run: Run, folder: Path, draw: random.Random, trials: int) -> Iterator[dict[str, float]]:
    with ray_session(cpus=2):
        for number in range(trials):
            yield trial(run, folder / f"worker{number}", draw, lambda: trainers()[draw.randrange(2)].kill())


def nodes_killed(run: Run, folder: Path, draw: random.Random, trials: int) -> Iterator[dict[str, float]]:
    with cluster() as (made, nodes):
        for number in range(trials):

            def kill() -> None:
                gone = nodes.pop(draw.randrange(2))
                os.kill(gone.all_processes["raylet"][0].process.pid, signal.SIGKILL)

            yield trial(run, folder / f"node{number}", draw, kill)
            nodes.append(made.add_node(num_cpus=1, **HERE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="of a run; 0: 200, or 1,500 where a node is lost")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--what", nargs="+", choices=["worker", "node"], default=["worker", "node"])
    given = parser.parse_args()
    kinds = {"worker": workers_killed, "node": nodes_killed}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = mini_corpus(folder / "corpus")
        for what in given.what:
            phases = (Phase(seq_length=48, global_batch_size=given.batch, steps=given.steps or STEPS[what]),)
            run = mini_run(corpus, folder, phases=phases, save_every=20, eval_every=0)
            found = []
            for seconds in kinds[what](run, folder, random.Random(given.seed), given.trials):
                found.append(seconds)
                said = {key: round(value, 1) for key, value in seconds.items()}
                print(json.dumps({"what": what, "load": round(os.getloadavg()[0], 1), **said}), flush=True)
            for share in (50, 95):
                at = {key: round(quantile([one[key] for one in found], share), 1) for key in found[0]}
                print(json.dumps({"what": what, "trials": len(found), f"p{share}": at}), flush=True)
    print(json.dumps({"date": time.strftime("%F"), "cores": os.cpu_count(), "machine": platform.processor()}))


def quantile(values: list[float], percent: int) -> float:
    """By linear interpolation, as numpy's."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    main()
