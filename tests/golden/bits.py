"""What a refactoring of the models leaves equal to the bit.

For each recipe: the names, shapes and slices of its tensors, its counts, its class of transformers, its initial weights
and its weights after twenty steps at tiny scale. For six models: twenty losses on two workers in each parallel layout.

`python -m tests.golden.bits` writes bits.json, and `--against REV` compares this tree with a commit on this machine.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch

from orchestration.config import Recipe, load
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.memory import activations
from orchestration.planning.workload import workload_of
from preprocessing.errors import BadInput
from preprocessing.tokenization import table_rows
from tests import family
from tests.golden import record
from tests.golden.process import KERNELS, alike_everywhere
from tests.parity import nets
from tests.parity.cells import DEGREES, Cell
from tests.parity.group import Seen, train_in_groups
from tests.training.corpora import mini_corpus
from training.architectures import ONLY, Share
from training.formats import describe_export
from training.model import Model, shapes_of
from training.model_spec import ModelSpec

FILE: Final = Path(__file__).with_name("bits.json")
ROOT: Final = Path(__file__).parents[2]
PADS: Final = (0, 1, None)  # IDs of the padding, which some classes of transformers prescribe


@cache
def machine() -> dict[str, str]:
    """What the last bit of a matrix product depends on, in the process of process.py."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    maker = next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), platform.machine())
    return {"processor": maker, "torch": torch.__version__.partition("+")[0]}


def facts(name: str) -> dict[str, Any]:
    """Everything about the model of a recipe at full size that no processor changes."""
    one = family.recipe(name)
    rows = table_rows(one.data.tokenizer)
    demand, layout = workload_of(one), ParallelLayout()
    phase = demand.longest
    kept = activations(demand, layout, phase.seq_length, cuda=True)
    return {
        "tensors": _digest_of(_tensors(one, rows)),
        "parameters": demand.parameters,
        "training_flops": demand.training_flops,
        "kept_bytes": list(kept),
        "export": {
            str(pad): _export(ModelSpec(model=one.model, losses=one.losses, vocab_size=rows), pad) for pad in PADS
        },
    }


def _tensors(one: Recipe, rows: int) -> Iterator[str]:
    """A line for each tensor: name, shape, the shapes that are fused in it, and its slices for two workers."""
    with torch.device("meta"):
        model = Model(one.model, one.losses, rows, one.seed)
        cuts = {} if one.model.split_over(2) else _cut(one, rows)
    fused = shapes_of(model)
    for key, weight in model.named_parameters():
        yield f"{key} {tuple(weight.shape)} {fused[key]} {cuts.get(key, '')}"


def _cut(one: Recipe, rows: int) -> dict[str, str]:
    found = Model(one.model, one.losses, rows, one.seed, Share(1, 2), ONLY).trunk.cuts
    return {name: str(cut) for name, cut in found.items()}


def _export(spec: ModelSpec, pad: int | None) -> str:
    try:
        return describe_export(spec, pad)
    except BadInput:
        return "refused"


def initial_weights(name: str) -> str:
    """Digest of the initial weights of a tiny recipe."""
    return _digest_of_weights(family.model(load(name, scale="tiny")))


def train(name: str) -> tuple[str, list[float]]:
    """Digest of its weights after twenty steps, and their losses."""
    model, losses = record.train(name)
    return _digest_of_weights(model), losses


def trained_weights(name: str) -> str:
    return train(name)[0]


def _digest_of_weights(model: Model) -> str:
    found = hashlib.sha256()
    for name, weight in model.named_parameters():
        found.update(f"{name} {tuple(weight.shape)}".encode())
        found.update(weight.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def _digest_of(lines: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def cells() -> list[Cell]:
    """Six models in each layout of two workers that `sesame check` allows."""
    plain = Cell("", 1, 1, 1, 1, 1, "fp32", "AdamW")
    each = (plain._replace(net=net, **{axis: 2}) for net in nets.RECIPES for axis in ("data", *DEGREES))
    return [cell for cell in each if not nets.refusal(cell)]


def layouts(folder: Path) -> dict[str, list[float]]:
    """Twenty losses of each cell, from two workers."""
    corpus = mini_corpus(folder / "corpus")
    jobs = {
        cell.name: {"plain": False, "run": nets.run(cell, corpus, folder / "runs").to_json(), "data": 1}
        for cell in cells()
    }

    def report(name: str, seen: Seen) -> None:
        if seen.error:
            raise RuntimeError(f"{name}: {seen.error}")
        print(f"bits: {name}", flush=True)

    with mock.patch.dict(os.environ, KERNELS):  # the workers inherit them
        found = train_in_groups(jobs, 2, folder / "groups", "tests.parity.worker", report)
    return {name: seen.losses for name, seen in found.items()}


def all_bits() -> dict[str, Any]:
    """The content of bits.json."""
    alike = record.alike(family.RECIPES)
    found: dict[str, Any] = {"machine": machine(), "facts": {name: facts(name) for name in family.RECIPES}}
    with alike_everywhere() as process:
        for kind, compute in (("initial_weights", initial_weights), ("trained_weights", trained_weights)):
            found[kind] = {}
            for name in sorted(set(alike.values())):
                found[kind][name] = process.submit(compute, name).result()
                print(f"bits: {kind} of {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found["layouts"] = layouts(Path(folder))
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any], place: str = "") -> list[str]:
    """A line for each value that differs between two files."""
    lines = []
    for key in sorted(before.keys() | after.keys()):
        old, new, where = before.get(key), after.get(key), f"{place}/{key}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += differences(old, new, where)
        elif old != new:
            lines.append(f"{where}: {old} -> {new}")
    return lines


def bits_at(revision: str) -> dict[str, Any]:
    """The content of bits.json as another commit computes it on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder) / "tree", Path(folder) / "bits.json"
        subprocess.run(["git", "worktree", "add", "--detach", tree, revision], cwd=ROOT, check=True)
        try:
            subprocess.run([sys.executable, "-m", "tests.golden.bits", "--out", out], cwd=tree, check=True)
            found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
            return found
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", metavar="REV", help="compare with this commit instead of writing bits.json")
    parser.add_argument("--out", type=Path, default=FILE, help="the file [tests/golden/bits.json]")
    asked = parser.parse_args()
    if not asked.against:
        asked.out.write_text(json.dumps(all_bits(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    lines = differences(bits_at(asked.against), all_bits())
    print("\n".join(lines) or f"bits: equal to {asked.against}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
