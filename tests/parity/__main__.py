"""`make parity`: print the table of layouts. The exit code is 1 if a layout gives other losses than one process."""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.parity import bare, nets, table
from tests.parity.cells import AXES, Cell, combined, covering, plain_product, whole_product
from tests.parity.group import Seen, in_lanes, train_in_groups
from tests.training.corpora import mini_corpus

PROGRAM: Final = "tests.parity.worker"
RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "results"
MOST_WORKERS: Final = 8


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("work/parity"), help="directory for the corpus, the runs and the table"
    )
    parser.add_argument("--save", action="store_true", help=f"also write the table to {RESULTS}")
    parser.add_argument("--only", default="", help="run only cells with these values, e.g. net=BERT,zero=1")
    parser.add_argument(
        "--bare",
        action="store_true",
        help="train the same models on DeepSpeed alone; differences do not count as failures",
    )
    args = parser.parse_args()
    out = args.out / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    words = set(filter(None, args.only.split(",")))
    name, page, values, failed = (_bare if args.bare else _layouts)(out, lambda cell: words <= _words(cell))
    print(page)
    for folder in [out, RESULTS] if args.save else [out]:
        stem = folder / f"{name}-{datetime.now(UTC).date()}"
        stem.with_suffix(".md").write_text(page)
        stem.with_suffix(".json").write_text(json.dumps(values, indent=1) + "\n")
    sys.exit(failed)


def _words(cell: Cell) -> set[str]:
    return {f"{axis}={value}" for axis, value in cell._asdict().items()}


Found = tuple[str, str, Any, bool]
"""File name, page, values for the JSON file, and whether a cell failed."""


def _layouts(out: Path, wanted: Callable[[Cell], bool]) -> Found:
    """Train and compare our engine on every layout."""
    started = time.monotonic()
    product = whole_product()
    refused = {cell: line for cell in product if (line := nets.refusal(cell))}
    plainly = [cell for cell in plain_product() if cell not in refused]
    cells = [*plainly, *covering([c for c in product if c not in refused and c.world <= MOST_WORKERS], plainly)]
    cells += combined()
    plainly, cells = list(filter(wanted, plainly)), list(filter(wanted, cells))
    jobs: dict[str, tuple[Cell, dict[str, Any]]] = {cell.name: (cell, {}) for cell in cells}
    seen, plain = _seen(jobs, [_reference(cell) for cell in cells], out)
    outcomes = [table.outcome(cell, seen[cell.name], plain[_reference(cell).name]) for cell in cells]
    cpu_s = sum(one.cpu_s * one.cell.world for one in outcomes) + sum(one.cpu_s for one in plain.values())
    heading = _heading(product, refused, plainly, outcomes, time.monotonic() - started, cpu_s)
    page = table.markdown(heading, outcomes, plainly, Counter(_without_override(line) for line in refused.values()))
    values = {"heading": heading, "refused": Counter(refused.values()), "cells": [one.values() for one in outcomes]}
    return "parity", page, values, any(one.failed for one in outcomes)


def _bare(out: Path, wanted: Callable[[Cell], bool]) -> Found:
    """Train and compare DeepSpeed without our engine."""
    cells = list(filter(wanted, bare.cells()))
    jobs = {cell.name: (cell, {"bare": list(cell)}) for cell in cells}
    seen, plain = _seen(jobs, [bare.reference(cell) for cell in cells if bare.has_our_rule(cell)], out)
    outcomes = [
        table.outcome(cell, seen[cell.name], (plain if bare.has_our_rule(cell) else seen)[bare.reference(cell).name])
        for cell in cells
    ]
    heading = _bare_heading()
    values = {"heading": heading, "cells": [one.values() for one in outcomes]}
    return "parity-deepspeed", table.bare_markdown(heading, outcomes), values, False


def _bare_heading() -> list[str]:
    return [
        f"# DeepSpeed alone on the same models, {datetime.now(UTC).date()}",
        f"`python -m tests.parity --bare` on {_where()} trains the models, sequences and learning rates of `make "
        "parity` through `deepspeed.initialize`, as its documentation describes. The loss is the mean over a "
        "micro-batch of three sequences, averaged by `gradient_accumulation_steps` and over the workers. "
        "Optimizers are named in the configuration (AdamW with `torch_adam`, because DeepSpeed compiles its own "
        "AdamW at the first use). Tensor parallelism is AutoTP with a `partition_config`. `gradient_clipping` is "
        "set to our norm, because its default is 1.0 since DeepSpeed 0.19.",
        f"The number is the greatest relative difference of the mean loss over all targets in {nets.STEPS} steps. "
        "The reference is one plain process. For Muon and Adafactor, whose updates differ in DeepSpeed, it is "
        "DeepSpeed on one worker without ZeRO. Micro-batches and workers have different numbers of targets: a "
        "difference above 1e-5 means that DeepSpeed optimizes a mean of means. A failed cell shows the first line "
        "of its exception. Pipeline and sequence parallelism are not included, because DeepSpeed requires models "
        "written for them.",
    ]


def _where() -> str:
    where = f"{os.cpu_count()} cores ({platform.machine()}), gloo, Python {platform.python_version()}"
    return f"{where}, torch {version('torch')}, DeepSpeed {version('deepspeed')}"


def _without_override(expected_message: str) -> str:
    """The message of `sesame check` without its prefix about the override."""
    return expected_message.partition(": ")[2] if expected_message.startswith("override ") else expected_message


def _reference(cell: Cell) -> Cell:
    """The reference of a cell: one process, for bf16 with ZeRO stage 1."""
    data = cell.data if cell.net in nets.SAMPLED else 1
    return cell._replace(zero=1, data=data, tensor=1, pipeline=1, sequence=1, mode=cell.precision)


def _seen(
    jobs: Mapping[str, tuple[Cell, dict[str, Any]]], references: Iterable[Cell], out: Path
) -> tuple[dict[str, Seen], dict[str, Seen]]:
    """The results of the cells by name, and of the references in one process. A job may have additional keys."""
    out.mkdir(parents=True)
    corpus = mini_corpus(out / "corpus")

    def job(cell: Cell, plain: bool = False, **more: Any) -> dict[str, Any]:
        legal = bare.reference(cell) if more else cell  # a cell of bare DeepSpeed may be one that `check` refuses
        return {"run": nets.run(legal, corpus, out / "runs").to_json(), "plain": plain, "data": cell.data, **more}

    def report(name: str, one: Seen) -> None:
        print(f"{name}: {one.error or f'{one.losses[-1]:.6f}'} ({one.cpu_s:.1f} s)", file=sys.stderr, flush=True)

    alone = {f"plain {cell.name}": job(cell, plain=True) for cell in references}
    alone |= {name: job(cell, **more) for name, (cell, more) in jobs.items() if cell.world == 1}
    seen = in_lanes(alone, min(len(os.sched_getaffinity(0)), 4), out / "alone", PROGRAM, report)
    for world, tensor in sorted({(cell.world, cell.tensor) for cell, _ in jobs.values() if cell.world > 1}):
        mine = {name: one for name, one in jobs.items() if (one[0].world, one[0].tensor) == (world, tensor)}
        here = {name: job(cell, **more) for name, (cell, more) in mine.items()}
        seen |= train_in_groups(here, world, out / f"of-{world}-{tensor}", PROGRAM, report)
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
    return [
        f"# Parity of layouts, {datetime.now(UTC).date()}",
        f"`make parity` on {_where()}: {wall_s / 60:.1f} min, of which {cpu_s / 60:.1f} CPU min in training steps. "
        f"{len(outcomes)} cells, {failed} failed.",
        f"Axes: {axes}. `sesame check` refuses {len(refused):,} of the {len(product):,} cells of their product "
        "(last table). AdamW in float32 was trained on every stage, with every number of data-parallel workers and "
        f"on two model-parallel workers ({len(plainly)} cells). {len(outcomes) - len(plainly)} more cells cover all "
        f"legal pairs of values on up to {MOST_WORKERS} workers, but not the whole product. {len(combined())} of "
        "them have modes of several keys.",
        f"Each cell is {nets.STEPS} steps of nine sequences of different lengths from the mini-world. The number is "
        "the greatest relative difference of a loss from one plain process (torch alone, without DeepSpeed; for "
        f"ELECTRA with the noise of as many data-parallel workers). It may be up to {fp32}. For bf16, the reference "
        f"is one bf16 process of stage 1, and the number may be up to {bf16}.",
    ]


if __name__ == "__main__":
    main()
