"""Recovery time of training after the loss of a worker or a node.

    python -m benchmarks.recovery [--trials 10] [--seed 0] [--what worker node] [--steps N] [--batch 64]

Two workers with one core each train a small BERT on the synthetic mini-world corpus. In a trial, one of them is killed.
For `worker`, the workers run in a local Ray. For `node`, a cluster on this machine has two raylets, and a raylet is
killed together with its worker. Training continues with one worker. The node is started again for the next trial.
The seed determines the step and which of the two is killed. Results in seconds:

    noticed   from the kill until new workers are requested
    start     until the new processes have imported torch and DeepSpeed, as in any start
    resume    until the first new step; includes the repeated steps since the checkpoint
    beyond    noticed + resume; must be below 15

`first` is the start of the first group of workers, for comparison. All times are from the clock of the driver, which
polls the workers twice per second.
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

# Steps of a run. A worker without its raylet trains until Ray notices the loss, and the run must be longer than that.
STEPS = {"worker": 200, "node": 1_500}

HERE: dict[str, Any] = {
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
    "object_store_memory": 100_000_000,
}


class Trial:
    """A run with a loss at a step, and the times of its events by the clock of the driver."""

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
            times[name] = now_s  # the last request counts: the loss of a node may be reported in two steps
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
    """Connect this process to a cluster with a head without cores and two nodes with one core each."""
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
    """Train `run`, kill a worker or a node once, and return the seconds."""
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
    parser.add_argument("--steps", type=int, default=0, help="steps of a run [200; 1,500 for node]")
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
                values = {key: round(value, 1) for key, value in seconds.items()}
                print(json.dumps({"what": what, "load": round(os.getloadavg()[0], 1), **values}), flush=True)
            for share in (50, 95):
                at = {key: round(quantile([one[key] for one in found], share), 1) for key in found[0]}
                print(json.dumps({"what": what, "trials": len(found), f"p{share}": at}), flush=True)
    print(json.dumps({"date": time.strftime("%F"), "cores": os.cpu_count(), "machine": platform.processor()}))


def quantile(values: list[float], percent: int) -> float:
    """A percentile of the values, with linear interpolation as in numpy."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    main()
