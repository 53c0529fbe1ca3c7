"""Costs of distributed training on this machine: ZeRO stages, checkpoints, Ray and tracking, startup.

    python -m benchmarks.scale [PART ...] [--rounds 3] [--write]        # parts: stages checkpoint overhead start

* `stages`: time of a step, peak memory of all tensors and bytes sent, planned and measured, for 1 and 2 workers and
  ZeRO stages 0 to 3.
* `checkpoint`: see benchmarks/checkpoint.py.
* `overhead`: wall time and CPU time of a step of `sesame train`, compared with a loop under torchrun that has only the
  same engine and sequences. Both run alternately.
* `start`: time from the command to the first update, by stage.

benchmarks/recovery.py measures recovery. On a busy machine, wall times are unreliable; CPU times and ratios of
alternate runs are better, and bytes do not change. `--write` writes the results to today's file in benchmarks/results,
and keeps its other parts.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from benchmarks.memory import RESULTS, Alive, Case, Trainer
from benchmarks.workers import hardware, now, together

STEPS: Final = 8  # timed steps, after two that are not timed
# Collective operations of torch: name, argument whose bytes are counted, and how many times a ring sends them.
COUNTED: Final = (
    ("allreduce", 0, 2.0),
    ("allgather", 0, 1.0),
    ("reduce_scatter", 1, 1.0),
    ("broadcast", 0, 1.0),
    ("reduce_", 0, 1.0),
)
LOG_EVERY: Final = 10
TRAINED: Final = 160  # steps of a run for `overhead`
CORPUS: Final = Path(__file__).parents[1] / "README.md"


# ZeRO stages


def stages(rounds: int) -> str:
    """A table of step time, memory and bytes sent, by number of workers and ZeRO stage."""
    from orchestration.planning import communication_volume, device_memory, step_seconds, workload_of
    from orchestration.planning.devices import measure_cores
    from orchestration.planning.layout import layout_of

    first = Case(net="gpt2", layers=4, rows=4, bucket=1_000_000)
    lines = [
        "| workers | ZeRO | ms per step, range | planned, ratio | peak MB | planned, ratio "
        "| MB sent (ring formula) | planned |"
    ]
    lines.append("|" + "---|" * 8)
    for world in (1, 2):
        cases = [replace(first, zero=stage) for stage in range(4)]
        for case, found in zip(
            cases, together("benchmarks.scale", [asdict(case) for case in cases], world), strict=True
        ):
            layout, demand = layout_of(case.machine, world, case.length, world * case.rows), workload_of(case.recipe)
            device, batch = measure_cores(1, world), world * case.rows
            planned_s = step_seconds(demand, layout, device, case.length, batch).total
            planned_bytes = device_memory(demand, layout, case.length, cuda=False).peak
            planned_sent = communication_volume(demand, layout, case.length, batch).total
            took = sorted(second for each in found for second in each["seconds"])
            peak, sent_bytes = (max(each[name] for each in found) for name in ("peak", "sent"))
            step_s = median(took)
            lines.append(
                f"| {world} | {case.zero} | {1e3 * step_s:.0f}, {1e3 * took[0]:.0f} to {1e3 * took[-1]:.0f} "
                f"| {1e3 * planned_s:.0f} = {planned_s / step_s:.2f} | {peak / 1e6:.1f} "
                f"| {planned_bytes / 1e6:.1f} = {planned_bytes / peak:.2f} | {sent_bytes / 1e6:.2f} "
                f"| {planned_sent / 1e6:.2f} |"
            )
    return (
        f"GPT-2 with {first.layers} layers and hidden size {first.width}, {first.rows} sequences of {first.length} "
        f"tokens per worker, float32, buckets of {first.bucket:,} elements. The planned time of a step uses the speed "
        "of a core, measured just before. Two workers communicate over loopback.\n\n" + "\n".join(lines)
    )


def worker(cases: Sequence[Case]) -> None:
    """Measure the steps of each case in this process, which is one of the workers, and print the results."""
    from training.engines import connect

    connect(cases[0].machine)
    for case in cases:
        print(json.dumps(timed(case)), flush=True)


def timed(case: Case) -> dict[str, Any]:
    """The seconds of each timed step, and the peak memory and bytes sent of one more step."""
    alive, trainer, seconds = Alive(), Trainer(case), []
    for step in range(2 + STEPS):
        began = time.perf_counter()
        trainer.pass_through()
        trainer.engine.step(1e-4)
        if step > 1:
            seconds.append(time.perf_counter() - began)
    with alive, exchanged() as sent:
        trainer.pass_through()
        trainer.engine.step(1e-4)
    return {"seconds": seconds, "peak": alive.most, "sent": sent[0]}


@contextmanager
def exchanged() -> Iterator[list[float]]:
    """Yield a list with one number: the bytes that this worker sends inside the block.

    The bytes are computed from the operands of each collective operation, for a ring of all workers. They are not
    measured on the network.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    sent, world = [0.0], torch.distributed.get_world_size()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace == "c10d":
                name = func.name().partition("::")[2].lstrip("_")
                for begins, argument, times in COUNTED:
                    if name.startswith(begins):
                        tensors = (each for each in tree_iter(args[argument]) if isinstance(each, torch.Tensor))
                        sent[0] += times * (world - 1) / world * sum(each.nbytes for each in tensors)
                        break
            return func(*args, **(kwargs or {}))

    with Count():
        yield sent


# Checkpoints


def checkpoints(rounds: int) -> str:
    """A table of the times of benchmarks/checkpoint.py."""
    from benchmarks.checkpoint import measured

    found = measured("bert_base", rounds)
    lines = [f"| {name} | {seconds:.2f} s |" for name, seconds in found["seconds"].items()]
    lines += [f"| {name} | {ratio:.2f} steps |" for name, ratio in found["steps"].items()]
    about = f"BERT base, {found['weights']:,} weights with Adam's moments, {found['bytes'] / 1e9:.2f} GB, one worker."
    about += f" A step has {found['rows']} sequences of {found['length']} tokens."
    return f"{about}\n\n| | median of {rounds} |\n|---|---|\n" + "\n".join(lines)


# Ray and tracking


def overhead(rounds: int) -> str:
    """A table of the time of a step of `sesame train` and of a bare loop, both with one worker."""
    turns: list[dict[str, dict[str, float]]] = []
    with prepared() as command:
        for turn in range(rounds):
            ways: dict[str, Callable[[], dict[str, float]]] = {
                "sesame": lambda: by_sesame(command),
                "bare": by_torchrun,
            }
            order = sorted(ways, reverse=turn % 2 == 1)
            if not turn:  # the bare loop needs the run file that `sesame train` has written
                by_sesame(command)
            turns.append({way: ways[way]() for way in order})
    return overhead_table(turns)


def overhead_table(turns: Sequence[Mapping[str, Mapping[str, float]]]) -> str:
    """The medians over the turns, with the ratio of each turn."""
    lines = ["| time of a step | `sesame train` | bare loop | ratio (each turn) |", "|---|---|---|---|"]
    for name, about in (("wall", "wall time"), ("worker", "CPU time of the worker")):
        ours, bare = ([turn[way][name] for turn in turns] for way in ("sesame", "bare"))
        ratios = sorted(our / other for our, other in zip(ours, bare, strict=True))
        each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        lines.append(f"| {about} | {median(ours):.4f} s | {median(bare):.4f} s | {median(ratios):.3f} ({each}) |")
    others = median(turn["sesame"]["others"] for turn in turns)
    lines.append(f"| CPU time of driver and Ray | {others:.4f} s | | |")
    about = f"GPT-2 at tiny scale with larger batches, one worker, {TRAINED} steps; the first {LOG_EVERY} do not count"
    return f"{about}. Metrics are logged every {LOG_EVERY} steps.\n\n" + "\n".join(lines)


@contextmanager
def prepared() -> Iterator[list[str]]:
    """Build a corpus in a temporary directory, and yield the command that trains on it.

    The environment variable SCALE_ROOM has the path of the directory.
    """
    with tempfile.TemporaryDirectory(prefix="scale-") as room:
        os.environ["SCALE_ROOM"] = room
        common = ["gpt2", "--scale", "tiny", "--data", str(CORPUS), "--output-dir", room]
        common += [
            f"phases=[{{seq_length: 128, global_batch_size: 24, steps: {TRAINED}}}]",
            "optimizer.warmup_steps=10",
        ]
        subprocess.run(sesame("corpus", *common), check=True, capture_output=True)
        rest = ["cluster.num_workers=1", "cluster.engine.micro_batch_tokens=16384", f"cluster.log_every={LOG_EVERY}"]
        rest += [f"cluster.{key}_every={TRAINED}" for key in ("eval", "save")]
        yield sesame("train", *common, *rest, "--resume", "never", "--progress", "plain")


def sesame(*words: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from orchestration.cli import main; sys.exit(main())", *words]


def by_sesame(command: Sequence[str]) -> dict[str, float]:
    """The seconds of a step of `sesame train`: wall time, and CPU time of the worker and of all other processes."""
    runs = Path(os.environ["SCALE_ROOM"]) / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
        Tree(process.pid) as tree,
    ):
        if process.wait():
            raise RuntimeError(f"exit {process.returncode}: {' '.join(command)}")
    (file,) = runs.glob("*/metrics.jsonl")
    at = {
        line["step"]: line["time"]
        for line in map(json.loads, file.read_text().splitlines())
        if "perf/tokens_per_second" in line["metrics"]
    }
    first, last = min(at), max(step for step in at if step < TRAINED)  # the last point includes an evaluation
    steps, (worker, others) = last - first, tree.between(at[first], at[last])
    return {"wall": (at[last] - at[first]) / steps, "worker": worker / steps, "others": others / steps}


def by_torchrun() -> dict[str, float]:
    """The seconds of a step of the bare loop."""
    (run,) = Path(os.environ["SCALE_ROOM"]).glob("runs/*/pretrain.json")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    command = [*launcher, "-m", "benchmarks.scale", "--bare", str(run)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return json.loads(next(line for line in output.splitlines() if line.startswith("{")))


def bare(file: Path) -> dict[str, float]:
    """Train a run with only its engine and sequences, without communication about counts, metrics or checkpoints."""
    import torch

    from training.data import open_loader
    from training.engines import DeepSpeedEngine, connect, mesh_of
    from training.formats import describe_model
    from training.optimizers import rate_at
    from training.run import load_stored_run

    run = load_stored_run(file.parent)
    connect(run.engine)
    engine = DeepSpeedEngine(describe_model(run, mesh_of(run.engine).share), run.optimizer, run.engine)
    loader, at = open_loader(run, engine.data_rank, engine.data_world), []
    for step in range(run.steps):
        if step in (LOG_EVERY, TRAINED - LOG_EVERY):
            at.append((time.perf_counter(), time.process_time()))
        batches = loader.at(step)
        counts = {loss.kind: max(1, sum(loss.count(batch) for batch in batches)) for loss in run.losses}
        for batch in batches:
            scores = engine.forward(batch)
            terms = [loss.weight * scores[loss.kind].loss / counts[loss.kind] for loss in run.losses]
            engine.backward(torch.stack(terms).sum())
        engine.step(rate_at(run.optimizer, run.phases, step))
    wall, processor = (after - before for before, after in zip(*at, strict=True))
    steps = TRAINED - 2 * LOG_EVERY
    return {"wall": wall / steps, "worker": processor / steps}


class Tree:
    """Samples the CPU seconds of a process and of its descendants a few times per second."""

    EVERY_S = 0.2

    def __init__(self, pid: int) -> None:
        self.root, self.seen = psutil.Process(pid), list[tuple[float, dict[int, float]]]()
        self.names: dict[int, str] = {}
        self.ended = threading.Event()

    def __enter__(self) -> "Tree":
        self._see()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()

    def _look(self) -> None:
        while not self.ended.wait(self.EVERY_S):
            self._see()

    def _see(self) -> None:
        used: dict[int, float] = {}
        try:
            below = self.root.children(recursive=True)
        except psutil.Error:
            return
        for process in [self.root, *below]:
            with suppress(psutil.Error):  # the process has just ended
                times = process.cpu_times()
                used[process.pid] = times.user + times.system
                self.names[process.pid] = process.name()
        self.seen.append((time.time(), used))

    def between(self, start: float, stop: float) -> tuple[float, float]:
        """CPU seconds between two times: of the process with the most, and the sum of all others."""
        before = [used for at, used in self.seen if at <= start] or [self.seen[0][1]]
        after = [used for at, used in self.seen if at <= stop]
        grown = sorted((used - before[-1].get(pid, 0.0) for pid, used in after[-1].items()), reverse=True)
        return grown[0], sum(grown[1:])

    def total(self, at_most: float) -> float:
        """CPU seconds of all processes until a time."""
        best: dict[int, float] = {}
        for at, used in self.seen:
            if at <= at_most:
                best |= used
        return sum(best.values())


# From the command to the first update


def start(rounds: int) -> str:
    """A table of the stages until the first update of a new run whose corpus exists."""
    found: list[dict[str, tuple[float, float]]] = []
    with prepared() as command:
        for _ in range(rounds):
            shutil.rmtree(Path(os.environ["SCALE_ROOM"]) / "runs", ignore_errors=True)
            found.append(begun([word for word in command if "log_every" not in word] + ["cluster.log_every=1"]))
    lines = ["| stage | seconds | CPU seconds |", "|---|---|---|"]
    for name in found[0]:
        wall, processor = (median(each.get(name, (0.0, 0.0))[part] for each in found) for part in (0, 1))
        lines.append(f"| {name} | {wall:.1f} | {processor:.1f} |")
    sums = [[sum(each[part] for each in one.values()) for one in found] for part in (0, 1)]
    lines.append(f"| **total** | {median(sums[0]):.1f} | {median(sums[1]):.1f} |")
    about = "The stages are those that the command prints. Stages of a worker are polled every half second."
    return f"{about} Medians of {rounds} runs.\n\n" + "\n".join(lines)


def begun(command: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Wall time and CPU time of each stage in seconds, until the metrics have the first update."""
    marks, runs = [(time.time(), "command and recipe")], Path(os.environ["SCALE_ROOM"]) / "runs"
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
        Tree(process.pid) as tree,
    ):
        assert process.stderr
        for line in process.stderr:
            if stage := re.match(r"([a-z][A-Za-z ]+?) \.\.\.", line):
                marks.append((time.time(), stage[1]))
    if process.returncode:
        raise RuntimeError(f"exit {process.returncode}: {' '.join(command)}")
    (file,) = runs.glob("*/metrics.jsonl")
    first = min(line["time"] for line in map(json.loads, file.read_text().splitlines()) if line["step"] == 1)
    marks = [(at, name) for at, name in marks if at < first] + [(first, "")]
    found: dict[str, tuple[float, float]] = {}
    for (at, name), (until, _) in pairwise(marks):
        wall, processor = found.get(name, (0.0, 0.0))
        found[name] = wall + until - at, processor + tree.total(until) - tree.total(at)
    return found


# All parts

PARTS: Final[Mapping[str, tuple[str, Callable[[int], str]]]] = {
    "stages": ("ZeRO stages", stages),
    "checkpoint": ("Checkpoints", checkpoints),
    "overhead": ("Ray and tracking compared with a bare loop", overhead),
    "start": ("From the command to the first update", start),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to measure: {' '.join(PARTS)} [all]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # the cases as JSON, for a worker
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)  # file of a run, for the bare loop
    given = parser.parse_args()
    if given.worker or given.bare:
        if given.worker:
            worker([Case(**each) for each in json.loads(given.worker)])
        else:
            print(json.dumps(bare(given.bare)), flush=True)
        os._exit(0)  # gloo's threads abort a normal exit in one of four runs
    if unknown := set(given.parts) - set(PARTS):
        sys.exit(f"invalid part: got {', '.join(unknown)}, expected {', '.join(PARTS)}; choose one of them")
    for name in given.parts or PARTS:
        title, part = PARTS[name]
        before, text = hardware(), part(given.rounds)
        text = f"`python -m benchmarks.scale {name} --rounds {given.rounds}`, {now()}, {before}\n\n{text}\n"
        print(f"## {title}\n\n{text}", flush=True)
        if given.write:
            write(RESULTS / f"scale-{now()[:10]}.md", title, text)


def write(file: Path, title: str, text: str) -> None:
    """Write a section into a file. It replaces the section with the same title; other sections are kept."""
    _, *sections = file.read_text(encoding="utf-8").split("\n## ") if file.exists() else [""]
    kept = dict(section.split("\n\n", 1) for section in sections) | {title: text}
    order = [title for title, _ in PARTS.values() if title in kept]
    about = "# Scale: costs of distributed training\n\nRecovery has separate files: `python -m benchmarks.recovery`.\n"
    file.write_text(
        "\n## ".join([about, *(f"{title}\n\n{kept[title].strip()}\n" for title in order)]), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
