"""`make parity`: the table of layouts; exit code 1 where one learns something else than one process does."""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.parity import nets, table
from tests.parity.cells import AXES, Cell, covering, plain_product, whole_product
from tests.parity.group import Seen, in_lanes, trained
from tests.training.corpora import mini_corpus

PROGRAM: Final = "tests.parity.worker"
RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "results"
MOST_WORKERS: Final = 8


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("work/parity"), help="folder of corpus, runs and table")
    parser.add_argument("--save", action="store_true", help=f"put the table into {RESULTS}")
    parser.add_argument("--only", default="", help="words of which each cell must have all: BERT,LAMB")
    args = parser.parse_args()
    started = time.monotonic()
    out = args.out / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    product = whole_product()
    refused = {cell: line for cell in product if (line := nets.refusal(cell))}
    plainly = [cell for cell in plain_product() if cell not in refused]
    cells = [*plainly, *covering([c for c in product if c not in refused and c.world <= MOST_WORKERS], plainly)]
    cells = [cell for cell in cells if set(filter(None, args.only.split(","))) <= set(map(str, cell))]
    seen, plain = _seen(cells, out)
    outcomes = [table.outcome(cell, seen[cell.name], plain[_reference(cell).name]) for cell in cells]
    cpu_s = sum(one.cpu_s * one.cell.world for one in outcomes) + sum(one.cpu_s for one in plain.values())
    heading = _heading(product, refused, plainly, outcomes, time.monotonic() - started, cpu_s)
    page = table.markdown(heading, outcomes, plain_product(), Counter(_line(line) for line in refused.values()))
    print(page)
    values = {"heading": heading, "refused": Counter(refused.values()), "cells": [one.values() for one in outcomes]}
    for folder in [out, RESULTS] if args.save else [out]:
        stem = folder / f"parity-{datetime.now(UTC).date()}"
        stem.with_suffix(".md").write_text(page)
        stem.with_suffix(".json").write_text(json.dumps(values, indent=1) + "\n")
    sys.exit(any(one.failed for one in outcomes))


def _line(said: str) -> str:
    """What check says, without the override that it was asked by."""
    return said.partition(": ")[2] if said.startswith("override ") else said


def _reference(cell: Cell) -> Cell:
    """What a cell is compared with: one process, in bf16 of stage 1."""
    mode = "bf16" if cell.mode == "bf16" else "fp32"
    data = cell.data if cell.net in nets.SAMPLED else 1
    return cell._replace(zero=1, data=data, tensor=1, pipeline=1, sequence=1, mode=mode)


def _seen(cells: Sequence[Cell], out: Path) -> tuple[dict[str, Seen], dict[str, Seen]]:
    """What the cells gave, by name, and what one process gave, by the name of what a cell is compared with."""
    out.mkdir(parents=True)
    corpus = mini_corpus(out / "corpus")

    def job(cell: Cell, plain: bool) -> dict[str, Any]:
        return {"run": nets.run(cell, corpus, out / "runs").to_json(), "plain": plain, "data": cell.data}

    def told(name: str, one: Seen) -> None:
        print(f"{name}: {one.error or f'{one.losses[-1]:.6f}'} ({one.cpu_s:.1f} s)", file=sys.stderr, flush=True)

    plainly = {f"plain {(ref := _reference(cell)).name}": job(ref, True) for cell in cells}
    alone = {cell.name: job(cell, False) for cell in cells if cell.world == 1}
    cores = len(os.sched_getaffinity(0))
    seen = in_lanes(plainly | alone, min(cores, 4), out / "alone", PROGRAM, told)
    for world in sorted({cell.world for cell in cells} - {1}):
        jobs = {cell.name: job(cell, False) for cell in cells if cell.world == world}
        seen |= trained(jobs, world, out / f"of-{world}", PROGRAM, told)
    return seen, {name.removeprefix("plain "): one for name, one in seen.items() if name.startswith("plain ")}


def _heading(
    product: Sequence[Cell],
    refused: dict[Cell, str],
    plainly: Sequence[Cell],
    outcomes: Sequence[table.Outcome],
    wall_s: float,
    cpu_s: float,
) -> list[str]:
    axes = "; ".join(f"{axis} {', '.join(map(str, values))}" for axis, values in AXES.items() if len(values) > 1)
    failed = sum(one.failed for one in outcomes)
    fp32, bf16 = (f"{table.TOLERANCE[mode]:g}" for mode in ("fp32", "bf16"))
    where = f"{os.cpu_count()} cores ({platform.machine()}), gloo, Python {platform.python_version()}"
    return [
        f"# Parity of layouts, {datetime.now(UTC).date()}",
        f"`make parity` on {where}, torch {version('torch')}, DeepSpeed {version('deepspeed')}: "
        f"{wall_s / 60:.1f} minutes, {cpu_s / 60:.1f} of processor time. {len(outcomes)} cells, {failed} failed.",
        f"Axes: {axes}. Of their product of {len(product):,} cells `sesame check` refuses {len(refused):,} (last "
        "table). Trained were every stage with AdamW in float32 on every data-parallel world and on two workers that "
        f"share something ({len(plainly)} cells), and {len(outcomes) - len(plainly)} more, so that any two values that "
        f"can stand together on up to {MOST_WORKERS} workers do so in one cell: not the whole product.",
        f"Each cell is {nets.STEPS} steps of nine ragged rows of text of the mini-world. The number is the greatest "
        "relative difference of a loss from one plain process (torch alone, no DeepSpeed; for ELECTRA with the noise "
        f"of as many workers as read different rows), allowed up to {fp32}. In bf16 it is that from one bf16 process "
        f"of stage 1, allowed up to {bf16}.",
    ]


if __name__ == "__main__":
    main()
