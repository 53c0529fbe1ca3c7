"""Time to the first result: `sesame run` and `sesame eval` of two checkouts, in turn.

    python -m benchmarks.startup --before CHECKOUT --text PATH --table FILE:TEXT,LABEL [--repetitions 5] [--steps 60]

Both commands are small: most of their time passes before and after the work, with imports, MLflow, Ray and workers.
Each repetition runs both commands of both checkouts in new output directories, and swaps the order of the checkouts.
Each checkout needs its own .venv. The result has the medians in seconds, the ratio of each repetition, and the load.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parents[1]
VERBS: Final = ("run", "eval")


def measure(checkout: Path, out: Path, words: list[str]) -> float:
    """Seconds of a command of a checkout. Raises CalledProcessError, with its output, if it fails."""
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment["PATH"] = f"{checkout / '.venv/bin'}:{environment['PATH']}"
    began_s = time.perf_counter()
    subprocess.run(
        [str(checkout / ".venv/bin/sesame"), *words, "--output-dir", str(out)],
        check=True, env=environment, cwd=checkout, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began_s


def repeat(checkouts: dict[str, Path], text: str, table: str, steps: int, swapped: bool) -> dict[str, dict[str, float]]:
    """Seconds of each verb of each checkout."""
    took: dict[str, dict[str, float]] = {verb: {} for verb in VERBS}
    for name in sorted(checkouts, reverse=swapped):
        out = Path(tempfile.mkdtemp(prefix="sesame-startup-"))
        try:
            run = [
                "run",
                "bert_tiny",
                "--scale",
                "tiny",
                "--data",
                text,
                "--max-steps",
                str(steps),
                "eval_tasks=[cloze]",
            ]
            took["run"][name] = measure(checkouts[name], out, run)
            made = next((out / "runs").iterdir())
            took["eval"][name] = measure(checkouts[name], out, ["eval", str(made), "--csv", table, "--max-steps", "20"])
        finally:
            shutil.rmtree(out, ignore_errors=True)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    checkouts = {"after": HERE, "before": given.before.resolve()}
    rows = list[dict[str, dict[str, float]]]()
    for number in range(given.repetitions):
        rows.append(repeat(checkouts, given.text, given.table, given.steps, swapped=bool(number % 2)))
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "date": date.today().isoformat(),
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "medians": {
            verb: {name: round(statistics.median(row[verb][name] for row in rows), 1) for name in checkouts}
            for verb in VERBS
        },
        "ratios": {verb: [round(row[verb]["after"] / row[verb]["before"], 2) for row in rows] for verb in VERBS},
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
