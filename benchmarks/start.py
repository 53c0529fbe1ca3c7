"""Time to the first result: small commands of one or two checkouts, in turn, by part.

    python -m benchmarks.start --text PATH --table FILE:TEXT,LABEL [--before CHECKOUT] [--repetitions 5] [--steps 60]
        [--only check,run,...]

All commands are small: most of their time passes before and after the work, with imports, MLflow, Ray and workers.
Each repetition runs the commands of both checkouts in new output directories, and swaps the order of the checkouts.
Each checkout needs its own .venv and its own bytecode, as `make setup` makes it. The result has medians of seconds and
of CPU seconds of all processes, the ratios of each repetition, and when each stage began, from the lines of the command
with `--progress plain`. On a busy machine, CPU seconds compare better than seconds.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.peers.measure import adopt
from benchmarks.workers import hardware

HERE: Final = Path(__file__).parents[1]
RECIPE: Final = ["bert_tiny", "--scale", "tiny"]
COMMANDS: Final = ("help", "check", "recipes", "tasks", "run", "inspect", "eval")
STAGES: Final = (  # the first words of lines of `--progress plain`
    *("importing Beam", "opening MLflow", "text", "vocabulary", "corpus", "starting workers", "importing DeepSpeed"),
    *("building the model", "pretrain", "exporting weights", "loading workers", "finetune", "logging to MLflow"),
)


def measure(checkout: Path, words: list[str]) -> dict[str, Any]:
    """Seconds and CPU seconds of a command, and when its stages began, in seconds. Raises SystemExit if it fails."""
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }
    environment["PATH"] = f"{checkout / '.venv/bin'}:{environment['PATH']}"
    before, began_s, stages, lines = _children_cpu_s(), time.perf_counter(), dict[str, float](), list[str]()
    process = subprocess.Popen(
        [str(checkout / ".venv/bin/sesame"), *words],
        env=environment, cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    sampled_s, ended = dict[tuple[int, float], float](), threading.Event()

    def sample() -> None:
        while not ended.wait(0.1):
            with suppress(psutil.Error):
                top = psutil.Process(process.pid)
                for one in (top, *top.children(recursive=True)):
                    with suppress(psutil.Error):
                        used = one.cpu_times()
                        sampled_s[one.pid, one.create_time()] = used.user + used.system

    sampler = threading.Thread(target=sample)
    sampler.start()
    for line in process.stdout or ():
        lines.append(line)
        stage = next((each for each in STAGES if re.match(rf"{each}( \.\.\.|: (?!to do))", line)), "")
        if stage:
            stages.setdefault(stage, round(time.perf_counter() - began_s, 2))
    process.wait()
    took_s = time.perf_counter() - began_s
    ended.set()
    sampler.join()
    if process.returncode:
        raise SystemExit(f"sesame {' '.join(words)}: exit {process.returncode}\n{''.join(lines[-20:])}")
    with suppress(ChildProcessError):
        while True:
            os.wait()
    waited_s = _children_cpu_s() - before  # without the workers of Ray, for which no process waits
    return {"s": took_s, "cpu_s": max(waited_s, sum(sampled_s.values())), "stages": stages}


def measure_all(checkout: Path, given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The measurements of each command, in a new output directory."""
    out = Path(tempfile.mkdtemp(prefix="sesame-start-"))
    at = ["--output-dir", str(out)]
    run = [*RECIPE, "--data", given.text, "--max-steps", str(given.steps), "eval_tasks=[cloze]"]
    commands = {
        "help": lambda: ["--help"],
        "check": lambda: ["check", "bert_base"],
        "recipes": lambda: ["recipes"],
        "tasks": lambda: ["tasks"],
        "run": lambda: ["run", *run, "--progress", "plain", *at],
        "inspect": lambda: ["inspect", str(next((out / "runs").iterdir())), "--step", "3", *at],
        "eval": lambda: [
            *("eval", str(next((out / "runs").iterdir())), "--csv", given.table, "--max-steps", "20"),
            *("--progress", "plain", *at),
        ],
    }
    try:
        return {name: measure(checkout, make()) for name, make in commands.items() if name in given.only}
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--text", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", default=",".join(COMMANDS), help="commands; inspect and eval need run [all]")
    given = parser.parse_args()
    given.only = given.only.split(",")
    adopt()
    checkouts = {"after": HERE} | ({"before": given.before.resolve()} if given.before else {})
    rows, before = list[dict[str, dict[str, Any]]](), hardware()
    for number in range(given.repetitions):
        row = {name: measure_all(checkouts[name], given) for name in sorted(checkouts, reverse=bool(number % 2))}
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(f"\n{date.today().isoformat()}, {before}\n")
    header = [f"{name}, {what}" for what in ("s", "CPU s") for name in checkouts]
    print(f"| command | {' | '.join(header)} | ratios of CPU |\n|{'---|' * (len(header) + 2)}")
    for command in given.only:
        medians = [
            f"{statistics.median(row[name][command][what] for row in rows):.2f}"
            for what in ("s", "cpu_s")
            for name in checkouts
        ]
        ratios = [row["after"][command]["cpu_s"] / row["before"][command]["cpu_s"] for row in rows if "before" in row]
        print(f"| {command} | {' | '.join(medians)} | {', '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    for command in given.only:
        for stage in (each for each in STAGES if each in rows[0]["after"][command]["stages"]):
            begins = [
                f"{statistics.median(row[name][command]['stages'].get(stage, float('nan')) for row in rows):.1f}"
                for name in checkouts
            ]
            print(f"| {command}: {stage} begins at | {' | '.join(begins)} |")


if __name__ == "__main__":
    main()
