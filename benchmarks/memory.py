"""Planned and measured memory of two workers, for five models and ZeRO stages 0 to 3; or of a lone worker.

    python -m benchmarks.memory [NET ...] [--stages 0,1,2,3] [--precision fp32] [--checkpointing none]
        [--layers 2] [--width 256] [--rows 8] [--length 128] [--all] [--write]
    python -m benchmarks.memory [NET ...] --alone [--layers 2] [--width 256] [--rows 8] [--length 128]

The models have the published objectives and dropout of their recipes, at other sizes. A worker counts the bytes of all
existing tensors at each operation of its third step, which has two micro-batches. The maximum is its peak. Weights,
gradients, master weights and moments are measured after a backward pass, and each storage is counted once. Tensors that
are neither these nor a bucket are `other`.

`--all` adds small buckets, bf16, activation checkpointing and offloading. `--write` writes the table to
benchmarks/results, and the measured bytes to a JSON file, which tests compare with the plan
(tests/orchestration/planning/test_recorded.py). `--alone` measures one worker without DeepSpeed, in float32 and bf16,
with one and with two micro-batches.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.workers import hardware, now, together
from orchestration.config import Recipe, load
from orchestration.planning import DeviceMemory, device_memory, workload_of
from orchestration.planning.layout import layout_of
from training.optimizers import Muon
from training.specs import EngineSettings, Phase

RECIPES: Final = {
    "bert": "bert_base",
    "gpt2": "gpt2",
    "albert": "albert_base",
    "t5": "t5_base",
    "electra": "electra_base",
}
OPTIMIZERS: Final = {"muon": Muon}
RESULTS: Final = Path(__file__).parent / "results"
PARTS: Final = ("weights", "gradients", "masters", "moments")
STEPS: Final = 3  # the last step is measured; the first step creates the moments
WORLD: Final = 2


@dataclass(frozen=True)
class Case:
    """A model, its batch, and the settings of its workers."""

    net: str = "bert"
    layers: int = 2
    width: int = 256
    vocab: int = 8_192
    rows: int = 8  # sequences of a micro-batch of each worker
    length: int = 128
    zero: int = 2
    precision: str = "fp32"
    checkpointing: str = "none"
    offload_optimizer: str = "none"
    offload_parameters: str = "none"
    persistence_threshold: int = 0
    bucket: int = 0  # elements; 0: the default of the engine
    workers: int = WORLD
    micro_batches: int = 2  # of a step
    optimizer: str = ""  # kind; "": that of the recipe

    @property
    def recipe(self) -> Recipe:
        """The published recipe with the sizes of this case."""
        phase = Phase(
            seq_length=self.length, global_batch_size=self.workers * self.micro_batches * self.rows, steps=STEPS
        )
        recipe = load(RECIPES[self.net])
        sizes: dict[str, Any] = {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.width // 64,
        }
        sizes |= {"embedding_size": self.width // 4} if self.net == "albert" else {}
        data = replace(recipe.data, tokenizer=replace(recipe.data.tokenizer, vocab_size=self.vocab))
        optimizer = OPTIMIZERS[self.optimizer](learning_rate=1e-3) if self.optimizer else recipe.optimizer
        model = replace(recipe.model, **sizes)
        return replace(recipe, model=model, data=data, optimizer=optimizer, phases=(phase,))

    @property
    def machine(self) -> EngineSettings:
        further = {"reduce_bucket_size": self.bucket, "allgather_bucket_size": self.bucket} if self.bucket else {}
        return EngineSettings(
            zero_stage=self.zero,  # type: ignore[arg-type]  # EngineSettings checks the values
            precision=self.precision,  # type: ignore[arg-type]
            micro_batch_tokens=self.rows * workload_of(self.recipe).row_tokens(self.length),
            activation_checkpointing=self.checkpointing,  # type: ignore[arg-type]
            offload_optimizer=self.offload_optimizer,  # type: ignore[arg-type]
            offload_param=self.offload_parameters,  # type: ignore[arg-type]
            param_persistence_threshold=self.persistence_threshold,
            deepspeed={"zero_optimization": further} if further else {},
        )

    def describe(self) -> str:
        """The settings that are not the default, as text."""
        usual = Case()
        names = (
            "precision",
            "checkpointing",
            "offload_optimizer",
            "offload_parameters",
            "persistence_threshold",
            "bucket",
            "micro_batches",
            "optimizer",
        )
        changed = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) != getattr(usual, name)]
        return ", ".join(changed)


def planned(case: Case) -> DeviceMemory:
    """The planned memory of a device, for CPUs."""
    demand = workload_of(case.recipe)
    layout = layout_of(case.machine, case.workers, demand.row_tokens(case.length), case.workers * case.rows)
    return device_memory(demand, layout, case.length, cuda=False)


def measured(cases: Sequence[Case]) -> Iterator[dict[str, float]]:
    """Yield the measured bytes of each case: the parts, the other tensors between micro-batches, and the peak.

    Each value is the larger one of all workers. The same processes run all cases, which have equal numbers of workers.
    """
    for found in together("benchmarks.memory", [asdict(case) for case in cases], cases[0].workers):
        yield {name: max(each[name] for each in found) for name in found[0]}


# Code of a worker. Only workers import torch.


def worker(cases: Sequence[Case]) -> None:
    """Measure each case in this process, which is one of the workers, and print the results."""
    from training.engines import connect

    if cases[0].workers > 1:
        connect(cases[0].machine)
    for case in cases:
        print(json.dumps(counted(case)), flush=True)


def counted(case: Case) -> dict[str, float]:
    """Train for a few steps and return the bytes of the last one."""
    now_alive, trainer = Alive(), Trainer(case)  # Alive first: it must count only tensors that are newer
    found: dict[str, float] = {}
    with now_alive:
        for step in range(STEPS):
            now_alive.most = now_alive.bytes
            trainer.pass_through()
            is_last = step == STEPS - 1
            if is_last or case.workers == 1:  # a lone worker keeps the buffer of its second micro-batch
                for _ in range(1, case.micro_batches):  # while the gradients of the first exist
                    trainer.pass_through()
            if is_last:
                gc.collect()
                found = parts(trainer.engine, now_alive.bytes)
            trainer.engine.step(1e-4)
        found["peak"] = now_alive.most
    return found


class Trainer:
    """An engine with the model of a case, and a batch."""

    def __init__(self, case: Case) -> None:
        import torch

        from benchmarks.step import made_up, small_vocab
        from preprocessing.collate import collate_unpadded
        from preprocessing.tokenization import table_rows
        from training.engines import DeepSpeedEngine, LocalEngine
        from training.model import Model

        recipe = case.recipe
        with tempfile.TemporaryDirectory() as folder:
            self.batch = collate_unpadded(made_up(recipe, small_vocab(recipe, Path(folder)), case.rows, case.length))
        with torch.device("meta"):
            model = Model(recipe.model, recipe.losses, table_rows(recipe.data.tokenizer), seed=0)
        engine = LocalEngine if case.machine.is_alone(case.workers) else DeepSpeedEngine
        self.engine: Any = engine(model, recipe.optimizer, case.machine)
        self.weights = {loss.kind: loss.weight for loss in recipe.losses}

    def pass_through(self) -> None:
        """Run a forward and a backward pass."""
        import torch

        scores = self.engine.forward(self.batch)
        terms = [weight * scores[kind].loss / max(1, scores[kind].count) for kind, weight in self.weights.items()]
        self.engine.backward(torch.stack(terms).sum())


def everything() -> Iterator[Any]:
    """All tensors that are Python objects."""
    import torch

    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.device.type == "cpu":
            yield each


def storages(tensors: Iterable[Any]) -> dict[int, int]:
    """The bytes of each storage in host memory, by address."""
    held = [tensor.untyped_storage() for tensor in tensors if tensor is not None and tensor.device.type == "cpu"]
    return {storage.data_ptr(): storage.nbytes() for storage in held if storage.nbytes()}


class Alive:
    """Counts the bytes of all storages that are newer than this object, and their maximum.

    It counts tensors that exist at the start of the block, and tensors that operations in the block read or create.
    """

    def __init__(self) -> None:
        self.bytes = self.most = 0
        self._sizes: dict[int, int] = {}
        self._before: set[int] = set()
        gc.collect()
        for tensor in everything():
            storage = tensor.untyped_storage()
            if storage._cdata not in self._before:
                self._before.add(storage._cdata)
                weakref.finalize(storage, self._before.discard, storage._cdata)

    def add(self, tensor: Any) -> None:
        """Count the storage of a tensor until it is freed."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if tensor.device.type != "cpu" or key in self._before:
            return
        known = self._sizes.get(key)
        self._sizes[key] = size
        self.bytes += size - (known or 0)
        self.most = max(self.most, self.bytes)
        if known is None:
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.bytes -= self._sizes.pop(key)

    def __enter__(self) -> None:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_iter

        add = self.add

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                out = func(*args, **(kwargs or {}))
                for each in tree_iter((args, out)):
                    if isinstance(each, torch.Tensor):
                        add(each)
                return out

        for tensor in everything():
            self.add(tensor)
        self._mode = Count()
        self._mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)


def parts(engine: Any, total: int) -> dict[str, float]:
    """The bytes of weights, gradients, master weights, moments, buckets and other tensors after a backward pass.

    A storage with two roles counts for the first one, for example if the master weights are the weights.
    """
    flat = getattr(engine, "flat", None)  # of a lone worker
    model, zero, stepping = (
        engine.model,
        None if flat else engine.optimizer,
        engine.optimizer if flat else engine._stepping,
    )
    seen: dict[int, int] = {}

    def new(tensors: Iterable[Any]) -> float:
        found = {place: size for place, size in storages(tensors).items() if place not in seen}
        seen.update(found)
        return float(sum(found.values()))

    weights = list(model.parameters())
    buckets = [bucket.buffer for bucket in getattr(zero, "ipg_buckets", {}).values()]
    buckets += [whole for whole, _ in flat._added] if flat else []
    flats = [flat.weights for flat in engine._flats()]
    found = {
        "buckets": new(flattened(buckets)),
        "weights": new([*weights, *(getattr(each, "ds_tensor", None) for each in weights)]),
        "gradients": new(gradients(weights, zero, flats)),
        # stage 2 keeps only the gradients of the last micro-batch until the next one
        "last": new(each.grad for each in weights) if engine.zero == 2 else 0.0,
        "masters": new(flats),
        "moments": new(each for state in stepping.state.values() for each in flattened(state.values())),
    }
    return found | {"other": total - sum(found.values())}


def gradients(weights: Sequence[Any], zero: Any, flats: Sequence[Any]) -> Iterator[Any]:
    """The gradients, which DeepSpeed stores in different places by stage and precision."""
    for each in weights:
        yield from (getattr(each, name, None) for name in ("grad_accum", "_hp_grad"))
        yield each.grad if zero is None or not getattr(zero, "partition_gradients", False) else None
    yield from (flat.grad for flat in flats)
    for name in ("averaged_gradients", "all_grad_tensors", "grad_partitions_flat_buffer", "fp32_groups_gradients_flat"):
        yield from flattened(getattr(zero, name, None))


def flattened(held: Any) -> Iterator[Any]:
    """The tensors in nested lists and dictionaries."""
    import torch

    if isinstance(held, torch.Tensor):
        yield held
    elif not isinstance(held, str | bytes) and isinstance(held, Iterable):
        for each in held.values() if isinstance(held, dict) else held:
            yield from flattened(each)


# The table


def compared(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """Yield a row for each case: planned and measured bytes of each part, of all states, and of the peak."""
    for case, found in zip(cases, measured(cases), strict=True):
        yield _line(case, planned(case), found)


def in_parts(plan: DeviceMemory) -> dict[str, float]:
    """The planned bytes, by the names of the measured parts."""
    planned_bytes = {
        "weights": plan.weights,
        "gradients": plan.gradients,
        "masters": plan.master,
        "moments": plan.optimizer,
    }
    return planned_bytes | {"states": plan.states, "peak": plan.peak}


def _line(case: Case, plan: DeviceMemory, found: dict[str, float]) -> dict[str, Any]:
    found["states"] = sum(found[name] for name in PARTS)
    return {
        "case": asdict(case),
        "about": case.describe(),
        "planned": in_parts(plan),
        "measured": found,
        "plan": dict(plan.items()),
    }


def ratio(line: dict[str, Any], name: str) -> float:
    """Planned bytes divided by measured bytes; 1 if both are at most 1,000."""
    plan, found = line["planned"][name], line["measured"][name]
    return plan / found if found > 1_000 else 1.0 if plan <= 1_000 else float("inf")


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with planned and measured MB and their ratio."""
    names = (*PARTS, "states", "peak")
    head = ["net", "ZeRO", "settings", *names]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for line in lines:
        cells = [line["case"]["net"], str(line["case"]["zero"]), line["about"]]
        for name in names:
            plan, found = line["planned"][name] / 1e6, line["measured"][name] / 1e6
            cells.append(f"{plan:.1f} / {found:.1f} = {ratio(line, name):.2f}")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def asked_for(given: argparse.Namespace) -> Iterator[list[Case]]:
    """Yield the cases of each model, with the other settings if --all is given."""
    sizes = {"layers": given.layers, "width": given.width, "rows": given.rows, "length": given.length}
    for net in given.nets or RECIPES:
        first = Case(net=net, precision=given.precision, checkpointing=given.checkpointing, **sizes)
        if given.alone:
            yield list(lone_cases(first))
            continue
        cases = [replace(first, zero=zero) for zero in given.stages]
        yield cases + (list(other_ways(first)) if given.all else [])


def lone_cases(first: Case) -> Iterator[Case]:
    """Yield the cases of one worker: each precision, with one and with two micro-batches."""
    for precision, number in product(("fp32", "bf16"), (1, 2)):
        yield replace(first, workers=1, precision=precision, micro_batches=number)


def other_ways(first: Case) -> Iterator[Case]:
    """Yield a case with other settings: small buckets, bf16, checkpointing, persistent parameters, offloading."""
    yield from (replace(first, zero=zero, bucket=1_000_000) for zero in (2, 3))
    yield from (replace(first, zero=zero, precision="bf16") for zero in (1, 2, 3))
    yield replace(first, zero=2, bucket=1_000_000, checkpointing="full")
    yield replace(first, zero=3, bucket=1_000_000, persistence_threshold=100_000)
    for zero in (1, 2, 3):
        yield replace(first, zero=zero, precision="bf16", offload_optimizer="cpu")
    yield replace(first, zero=3, precision="bf16", offload_optimizer="cpu", offload_parameters="cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"models to measure: {' '.join(RECIPES)} [all]")
    parser.add_argument("--stages", type=lambda text: [int(each) for each in text.split(",")], default=[0, 1, 2, 3])
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--checkpointing", choices=("none", "selective", "full"), default="none")
    for name, default in (("layers", 2), ("width", 256), ("rows", 8), ("length", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # the cases as JSON, for a worker
    given = parser.parse_args()
    if given.worker:
        worker([Case(**each) for each in json.loads(given.worker)])
        os._exit(0)  # gloo's threads abort a normal exit in one of four runs
    if unknown := set(given.nets) - set(RECIPES):
        sys.exit(f"invalid model: got {', '.join(unknown)}, expected {', '.join(RECIPES)}; choose one of them")
    lines = []
    for cases in asked_for(given):
        for line in compared(cases):
            lines.append(line)
            print(table([line]).splitlines()[-1], flush=True)
    if given.write:
        write(lines, given)


def write(lines: Sequence[dict[str, Any]], given: argparse.Namespace) -> None:
    """Write the table with its command, and the measured bytes as JSON, to the directory of results."""
    sizes = f"{given.layers} layers per stack, hidden size {given.width}"
    about = f"{sizes}, {given.rows} sequences of {given.length} tokens per worker"
    text = f"""# Planned and measured memory of two workers

{now()}, {hardware()}. `python -m benchmarks.memory {" ".join(sys.argv[1:])}`

{about}. MB of one worker: planned / measured = ratio. Parts are measured after a backward pass. The peak is the maximum
of all existing tensors in a step. The load of the machine does not change these numbers.

{table(lines)}
"""
    name = f"memory-{now()[:10]}"
    (RESULTS / f"{name}.md").write_text(text)
    records = [{"case": line["case"], "measured": line["measured"]} for line in lines]
    (RESULTS / f"{name}.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
