"""`make chaos`: inject a fault into small real runs, each at one moment, and repeat the command until it succeeds.

    python -m tests.chaos [--points N] [--only NAME] [--seed S] [--lanes 2] [--out DIR] [--json FILE] [--list]

The exit code is 1 if a run differs from the undisturbed run, leaves files or processes behind, lacks a required
message, or was not hit by the fault. Its directory then stays, with the log of its commands. Some faults need root for
mounts, networks and control groups: without root, they are skipped, and their names are printed.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from tests.chaos.ground import Ground
from tests.chaos.plan import lacking, points
from tests.chaos.play import Outcome, play, undisturbed
from tests.chaos.report import line, recovery, table, values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--points", type=int, default=0, metavar="N", help="Play N points; 0: each point of the table once [0]."
    )
    parser.add_argument(
        "--only", default="", metavar="NAME", help="Play only points with NAME in their fault or moment."
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="Seed for stages, steps, files and order [0].")
    parser.add_argument("--lanes", type=int, default=2, metavar="L", help="Play L points at a time [2].")
    parser.add_argument("--out", type=Path, help="Directory of the runs [a temporary directory].")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write all points and their times to FILE.")
    parser.add_argument("--list", action="store_true", help="Print the points and exit.")
    args = parser.parse_args()
    console, wanted = Console(highlight=False, soft_wrap=True), points(args.points, args.seed, args.only)
    playable = [point for point in wanted if not lacking(point)]
    for point in wanted:
        if reason := lacking(point):
            console.print(f"[yellow]skipped[/] {point.name}: {reason}")
    if args.list:
        for point in playable:
            console.print(point.name)
    if args.list or not playable:
        sys.exit(0 if playable else "no point to play; --list prints all points")
    root = args.out or Path(tempfile.mkdtemp(prefix="chaos-"))
    ground, began_s, outcomes = Ground(root.resolve()), time.monotonic(), list[Outcome]()
    ground.prepare()
    whole = undisturbed(ground)
    console.print(f"undisturbed: {', '.join(whole.weights)}, {time.monotonic() - began_s:.0f} s including its corpus")
    with ThreadPoolExecutor(args.lanes) as lanes:
        playing = [lanes.submit(play, point, ground, whole) for point in playable]
        for future in as_completed(playing):
            outcomes.append(future.result())
            console.print(line(outcomes[-1], len(outcomes), len(playable)))
    failed = [outcome for outcome in outcomes if outcome.faults]
    console.print(table(outcomes))
    summary = f"{len(outcomes) - len(failed)} of {len(outcomes)} points equal the undisturbed run"
    console.print(f"{summary}, {(time.monotonic() - began_s) / 60:.0f} minutes", style="red" if failed else "green")
    if recovered := recovery(outcomes):
        console.print(str(recovered), style="red" if recovered.is_slow else None)
    if args.json:
        machine = f"{platform.platform()}, {len(os.sched_getaffinity(0))} cores"
        report: dict[str, Any] = {"date": datetime.now().astimezone().isoformat(timespec="seconds"), "machine": machine}
        report |= {
            "seed": args.seed,
            "seconds": round(time.monotonic() - began_s),
            "recovery": recovered and asdict(recovered),
        }
        report |= {"points": values(outcomes)}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    for outcome in failed:
        console.print(f"{outcome.point.name}: {outcome.logs}", style="red")
        for fault in outcome.faults:
            console.print(f"  {escape(fault)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
