"""`make chaos`: small real runs, each disturbed at one moment and repeated until it is finished.

    python -m tests.chaos [--points N] [--only NAME] [--seed S] [--lanes 2] [--out DIR] [--json FILE] [--list]

Exit code 1 where a run differs from the undisturbed one, leaves something behind, does not say what it should, or could
not be struck; its folder stays, with the log of its commands. Mounts, networks and control groups of their own want
root: without it those faults are left out, by name.
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
    parser.add_argument("--points", type=int, default=0, metavar="N", help="so many; 0: each of the table once")
    parser.add_argument("--only", default="", metavar="NAME", help="those of this fault or moment, or part of a name")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of stages, steps, files and their order")
    parser.add_argument("--lanes", type=int, default=2, metavar="L", help="points at a time")
    parser.add_argument("--out", type=Path, help="where the runs are made; by default a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all points and their times, machine-readable")
    parser.add_argument("--list", action="store_true", help="say the points, and do nothing")
    args = parser.parse_args()
    console, wanted = Console(highlight=False, soft_wrap=True), points(args.points, args.seed, args.only)
    able = [point for point in wanted if not lacking(point)]
    for point in wanted:
        if reason := lacking(point):
            console.print(f"[yellow]left out[/] {point.name}: {reason}")
    if args.list:
        for point in able:
            console.print(point.name)
    if args.list or not able:
        sys.exit(0 if able else "no such point; --list says them")
    root = args.out or Path(tempfile.mkdtemp(prefix="chaos-"))
    ground, began_s, outcomes = Ground(root.resolve()), time.monotonic(), list[Outcome]()
    ground.prepare()
    whole = undisturbed(ground)
    console.print(f"undisturbed: {', '.join(whole.weights)}, {time.monotonic() - began_s:.0f} s with its corpus")
    with ThreadPoolExecutor(args.lanes) as lanes:
        playing = [lanes.submit(play, point, ground, whole) for point in able]
        for future in as_completed(playing):
            outcomes.append(future.result())
            console.print(line(outcomes[-1], len(outcomes), len(able)))
    failed = [outcome for outcome in outcomes if outcome.faults]
    console.print(table(outcomes))
    said = f"{len(outcomes) - len(failed)} of {len(outcomes)} points as if nothing had been"
    console.print(f"{said}, {(time.monotonic() - began_s) / 60:.0f} minutes", style="red" if failed else "green")
    if recovered := recovery(outcomes):
        console.print(str(recovered), style="red" if recovered.is_slow else None)
    if args.json:
        machine = f"{platform.platform()}, {len(os.sched_getaffinity(0))} cores"
        told: dict[str, Any] = {"date": datetime.now().astimezone().isoformat(timespec="seconds"), "machine": machine}
        told |= {
            "seed": args.seed,
            "seconds": round(time.monotonic() - began_s),
            "recovery": recovered and asdict(recovered),
        }
        told |= {"points": values(outcomes)}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(told, indent=1) + "\n")
    for outcome in failed:
        console.print(f"{outcome.point.name}: {outcome.logs}", style="red")
        for fault in outcome.faults:
            console.print(f"  {escape(fault)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
