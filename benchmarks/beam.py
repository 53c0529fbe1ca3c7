"""Measures the overhead of Beam: Sesame's corpus job with two Beam workers, and with a pool of two processes.

    python benchmarks/beam.py [--mb 100] [--rounds 3] [--json]

Both jobs call the same functions on the same parts and shards (benchmarks/peers/sesame_job.py and sesame_pool.py) and
must produce the same manifest. They run alternately on the same two cores. Results are medians over the rounds, and
overheads are medians of the ratios of the rounds. CPU time includes all processes and their startup.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

from corpus import ROOT, Bench, System, make_bench
from peers.measure import Run, adopt

JOBS: Final = {"Beam": System("Beam", "sesame_job.py"), "pool": System("pool", "sesame_pool.py")}
STAGES: Final = ("text", "vocabulary", "corpus")


def seconds(run: Run) -> dict[str, float]:
    """Seconds of each stage of a run, of all stages together, and of the whole run, and its CPU time."""
    ends = [*(run.begins[stage] for stage in STAGES), run.wall]
    stages = {stage: stop - start for stage, start, stop in zip(STAGES, ends, ends[1:], strict=False)}
    return {**stages, "wall": run.wall - run.start, "wall with imports": run.wall, "CPU": run.cpu}


def compare(bench: Bench, rounds: int) -> list[dict[str, Any]]:
    """The median of each quantity for both jobs, and the median overhead of Beam."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    runs: dict[str, list[Run]] = {name: [] for name in JOBS}
    for turn in range(rounds):
        for name in sorted(JOBS, reverse=turn % 2 == 1):
            runs[name].append(bench.run(JOBS[name], cores))
    if len({run.printed["digest"] for each in runs.values() for run in each}) > 1:
        sys.exit("the corpora differ")
    took = {name: [seconds(run) for run in each] for name, each in runs.items()}
    return [
        {"what": what}
        | {name: median(each[what] for each in took[name]) for name in JOBS}
        | {"overhead": median(a[what] / b[what] for a, b in zip(took["Beam"], took["pool"], strict=True)) - 1}
        for what in took["Beam"][0]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=100, help="MB of text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "corpus")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    adopt()
    rows = compare(make_bench(args.shared, args.scratch, args.mb), args.rounds)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'':20} {'Beam s':>8} {'pool s':>8} {'overhead':>9}")
    for row in rows:
        print(f"{row['what']:20} {row['Beam']:>8.1f} {row['pool']:>8.1f} {row['overhead']:>9.1%}")


if __name__ == "__main__":
    main()
