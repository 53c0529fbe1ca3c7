"""`make family`: run every recipe at tiny scale, from raw text to an MLflow run with an evaluation; print a table.

    python -m tests.family_run [NAME ...] [--third N] [--text PACKAGES] [--max-steps 60] [--output-dir work/family]

Each recipe is run with `sesame run`. Recipes that are equal at tiny scale, such as all sizes of GPT-3, run once.
Recipes with the same tokenizer share their corpus. At most four run at the same time, one per core, each on its own Ray
cluster. The table is printed as Markdown and written to `table.md` in the output directory. The exit code is 1 if a
recipe fails; its error output is printed. `--max-steps 0` trains for the number of steps of the scale, which takes
minutes per recipe.
"""

import argparse
import io
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from orchestration import cli
from orchestration.config import load
from orchestration.jobs import Job, JobFlags, open_job
from orchestration.launch import ray_session
from tests.family import RECIPES

# few labels, because a small text has few examples; their number also depends on the version of Python
EVAL = ["eval_tasks=[next_sentence]", "--max-train-samples", "40", "--num-seeds", "1"]
HOLD_OUT = 0.2  # fraction of text other than the demo; half of it is for the tasks, as in the demo
HEAD = "| recipe | s | tokens | held-out loss | downstream |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command for one recipe."""

    name: str
    seconds: float
    output: dict[str, Any] | None  # of `--json`; None if the command failed
    stderr: str

    @property
    def row(self) -> str:
        if self.output is None:
            last = (self.stderr.splitlines() or ["no error output"])[-1]
            return f"| `{self.name}` | {self.seconds:.0f} | failed: {last} | | |"
        result, scores = self.output["result"], self.output["scores"]
        eval_ = {name.removeprefix("eval/"): value for name, value in result["evaluation"].items()}
        losses = ", ".join(
            f"{name.removesuffix('/loss')} {value:.3f}" for name, value in eval_.items() if name.endswith("/loss")
        )
        tasks = ", ".join(
            f"{score['task']} {mean(score['pretrained']):.3f} (random {mean(score['random']):.3f})" for score in scores
        )
        return f"| `{self.name}` | {self.seconds:.0f} | {result['tokens']:,} | {losses} | {tasks} |"


@dataclass(frozen=True)
class Setting:
    """The settings of all runs."""

    out: Path
    packages: str  # packages whose documentation is the text; "" for the whole demo
    steps: int

    def data(self, name: str) -> list[str]:
        """The text instead of the demo: a part of it, and parallel sentences if the recipe reads them."""
        text = load(name, scale="tiny").data.corpus
        pairs = Path(cli.__file__).parents[1] / "corpora" / "sentences"
        parallel = [f"parallel:{pairs}.en,{pairs}.eo"] if text == "demo_parallel" else []
        return [f"python_docs:{self.packages}", *parallel] if self.packages else []

    def overrides(self) -> list[str]:
        phase = f"phases=[{{seq_length: 64, global_batch_size: 32, steps: {self.steps}}}]"
        return [phase, f"optimizer.warmup_steps={max(1, self.steps // 6)}"] if self.steps else []

    def command(self, verb: str, name: str) -> Outcome:
        """Run `sesame VERB NAME` in this process."""
        words = [verb, name, *self.overrides(), "--scale", "tiny", "--output-dir", str(self.out), "--json"]
        words += ["--progress", "none", *(word for given in self.data(name) for word in ("--data", given))]
        words += ["--holdout-ratio", str(HOLD_OUT)] if self.packages else []
        if verb == "run":
            words += ["cluster.num_workers=1", *EVAL]
        start = time.monotonic()
        with redirect_stdout(io.StringIO()) as stdout, redirect_stderr(io.StringIO()) as stderr:
            try:
                code = cli.main(words)
            except Exception:
                code = 1
                traceback.print_exc()
        document = json.loads(stdout.getvalue()) if code == 0 else None
        return Outcome(name, time.monotonic() - start, document, stderr.getvalue())

    def jobs(self, names: Sequence[str]) -> dict[str, Job]:
        """The job of each recipe."""
        given = {"scale": "tiny", "output_dir": self.out, "overrides": self.overrides()}
        given |= {"holdout_ratio": HOLD_OUT} if self.packages else {}
        return {name: open_job(JobFlags(recipe=name, data=self.data(name), **given)) for name in names}


_lane = ExitStack()  # the Ray cluster of a process for all of its runs


def _open_lane() -> None:
    _lane.enter_context(ray_session(cpus=1))


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="Run these recipes [all].")
    parser.add_argument("--third", type=int, metavar="N", help="Run each third recipe, from number N modulo 3.")
    parser.add_argument(
        "--text", default="", metavar="PACKAGES", help="Train on the documentation of PACKAGES [the demo]."
    )
    parser.add_argument("--max-steps", type=int, default=60, help="Train for N steps; 0: the steps of the scale [60].")
    parser.add_argument("--output-dir", type=Path, default=Path("work/family"))
    return parser.parse_args(words)


def main() -> None:
    args = parse()
    names = args.names or RECIPES
    setting = Setting(args.output_dir, args.text, args.max_steps)
    jobs, alike = setting.jobs(names), dict[str, list[str]]()
    for name, job in jobs.items():
        alike.setdefault(job.plan.run.hash, []).append(name)
    groups = list(alike.values()) if args.third is None else list(alike.values())[args.third % 3 :: 3]
    corpora = {jobs[name].plan.corpus.folder: name for name, *_ in groups}
    args.output_dir.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in corpora.values():
        corpus = setting.command("corpus", name)
        print(f"corpus of {name}: {corpus.seconds:.0f} s", file=sys.stderr, flush=True)
        if corpus.output is None:
            failed.append(corpus)
    rows = dict[str, str]()
    print(HEAD, flush=True)
    lanes = min(4, len(os.sched_getaffinity(0)))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(lanes, mp_context=spawn, initializer=_open_lane) as pool:
        runs = {pool.submit(setting.command, "run", name): (name, *others) for name, *others in groups}
        for future in as_completed(runs):
            outcome, shared = future.result(), "`, `".join(runs[future])
            rows[outcome.name] = outcome.row.replace(outcome.name, shared, 1)
            print(rows[outcome.name], flush=True)
            if outcome.output is None:
                failed.append(outcome)
    (args.output_dir / "table.md").write_text("\n".join([HEAD, *(rows[name] for name, *_ in groups)]) + "\n")
    for outcome in failed:
        print(f"\n{outcome.name}:\n{outcome.stderr}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
