"""`make family`: every recipe from raw text to an MLflow run with an eval, at tiny scale, and a table of it all.

    python -m tests.family_run [NAME ...] [--third 0|1|2] [--steps 60] [--out work/family]

Each is a `sesame run` of its own; recipes of one vocabulary share their corpus. A table of Markdown goes to stdout and
to `table.md` in the output folder. Exit code 1 where one recipe fails, with the end of what it said. `--steps 0` trains
as long as the scale says, minutes for each recipe.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from tests.family import RECIPES


@dataclass(frozen=True)
class Outcome:
    """How the run of one recipe ended."""

    name: str
    seconds: float
    told: dict[str, Any] | None  # what `sesame run --json` says; None where it failed
    said: str  # the end of stderr

    @property
    def row(self) -> str:
        if self.told is None:
            last = (self.said.splitlines() or ["nothing was said"])[-1]
            return f"| `{self.name}` | {self.seconds:.0f} | failed: {last} | | |"
        result, scores = self.told["result"], self.told["scores"]
        eval_ = {name.removeprefix("eval/"): value for name, value in result["evaluation"].items()}
        losses = ", ".join(
            f"{name.removesuffix('/loss')} {value:.3f}" for name, value in eval_.items() if name.endswith("/loss")
        )
        tasks = ", ".join(
            f"{score['task']} {mean(score['pretrained']):.3f} (random {mean(score['random']):.3f})" for score in scores
        )
        return f"| `{self.name}` | {self.seconds:.0f} | {result['tokens']:,} | {losses} | {tasks} |"


HEAD = "| recipe | s | tokens | held-out loss | downstream |\n|---|---|---|---|---|"


def run(name: str, steps: int, out: Path) -> Outcome:
    """`sesame run` of one recipe."""
    command = [sys.executable, "-m", "orchestration.cli", "run", name, "--scale", "tiny", "--out", str(out)]
    command += ["--json", "--progress", "none", "evals=[follows]"]
    if steps:
        command += [f"phases=[{{length: 64, batch: 32, steps: {steps}}}]", f"optim.warmup={steps // 6}"]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    return Outcome(name, seconds, json.loads(done.stdout) if done.returncode == 0 else None, done.stderr[-4_000:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes; by default all")
    parser.add_argument("--third", type=int, choices=(0, 1, 2), help="each third recipe, from this one on")
    parser.add_argument("--steps", type=int, default=60, help="updates of each; 0: as many as the scale says")
    parser.add_argument("--out", type=Path, default=Path("work/family"))
    args = parser.parse_args()
    names = args.names or (RECIPES if args.third is None else RECIPES[args.third :: 3])
    outcomes = list[Outcome]()
    print(HEAD, flush=True)
    for name in names:
        outcomes.append(run(name, args.steps, args.out))
        print(outcomes[-1].row, flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "table.md").write_text("\n".join([HEAD, *(outcome.row for outcome in outcomes)]) + "\n")
    for outcome in outcomes:
        if outcome.told is None:
            print(f"\n{outcome.name}:\n{outcome.said}", file=sys.stderr)
    sys.exit(any(outcome.told is None for outcome in outcomes))


if __name__ == "__main__":
    main()
