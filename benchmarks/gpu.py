"""Tests and measurements on one GPU, in ten minutes and without a network.

    python -m benchmarks.gpu [PART ...] [--tiny] [--out FOLDER]      # parts: tests bert_base gpt2 largest

`tests` runs the tests with the mark `gpu`.

The name of a recipe measures tokens/s and MFU of its published model in bf16, for Sesame's engine and for the Trainer
of transformers (or a plain loop with autocast if accelerate is not installed). Both have the same weights, the same
sequences and one process.

`largest` plans GPTs with hidden size 4,096 and takes the deepest model that fits, with activation checkpointing, and
with optimizer and parameters in host memory. It trains this model for three steps and compares memory with the plan.

Each part runs in its own process, with a time limit. `--tiny` does the same with small models on a CPU. Required
packages: torch, deepspeed, transformers, accelerate, pydantic, PyYAML, psutil, and the first list of dependencies in
pyproject.toml. Ray and MLflow are not required. The results are also written to FOLDER/gpu.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.workers import free_port, hardware, now
from training.specs import BUCKET

PARTS: Final = {"tests": 150, "bert_base": 100, "gpt2": 100, "largest": 220}  # time limits in seconds
HOST_FILLED: Final = 0.7  # fraction of the host memory that a plan may use
MOST_WEIGHTS: Final = 6e9  # the weights are initialized on one core: a billion takes about ten seconds


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements: by default of published models on a GPU."""

    device: str = "cuda"
    precision: str = "bf16"
    rows: int = 64
    length: int = 512
    steps: int = 20
    width: int = 4_096
    memory: float = 0.0  # bytes for `largest`; 0: the memory of the device
    scale: str = ""


TINY: Final = Sizes("cpu", "fp32", rows=2, length=32, steps=2, width=64, memory=4 * BUCKET + 16e6, scale="tiny")


def speed(name: str, sizes: Sizes) -> dict[str, Any]:
    """Tokens per second and MFU, of Sesame and of transformers."""
    from benchmarks.step import made_up, small_vocab, tensors, theirs
    from orchestration.config import load
    from orchestration.planning import workload_of
    from preprocessing.collate import collate_padded, collate_unpadded
    from preprocessing.tokenization import table_rows
    from training.meter import peak
    from training.model import Model

    recipe = load(name, scale=sizes.scale)
    length = min(sizes.length, recipe.model.longest)
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        vocab = small_vocab(recipe, folder / "vocab")
        rows = made_up(recipe, vocab, sizes.rows, length)
        model = Model(recipe.model, recipe.losses, table_rows(recipe.data.tokenizer), seed=0).train()
        (net,) = theirs(recipe, model, folder / "vocab", folder / "theirs")
    engine = engine_of(model, recipe, sizes)
    batch, weights = collate_unpadded(rows), {loss.kind: loss.weight for loss in recipe.losses}

    def ours() -> None:
        scores = engine.forward(batch)
        terms = [weight * scores[kind].loss / max(1, scores[kind].count) for kind, weight in weights.items()]
        engine.backward(sum(terms))
        engine.step(1e-5)

    took = {"Sesame": seconds_of(ours, sizes)}
    examples = examples_of(name, tensors(collate_padded(rows, length, vocab.pad or 0)))
    by, took_theirs = their_seconds(net, examples, sizes)
    took[by] = took_theirs
    tokens, flops = sizes.rows * length, workload_of(recipe).flops(sizes.rows, length)
    flop_s = peak(device_name(sizes)) if sizes.device == "cuda" else None
    return {
        way: {"tokens_per_s": tokens / second, "mfu": flops / second / flop_s if flop_s else None}
        for way, second in took.items()
    }


def engine_of(model: Any, recipe: Any, sizes: Sizes, **more: Any) -> Any:
    """The DeepSpeed engine with one process, with the settings of a cluster file."""
    from training.engines import DeepSpeedEngine, connect
    from training.specs import EngineSettings

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(free_port()), "DS_ACCELERATOR": sizes.device}
    machine = EngineSettings(device=sizes.device, precision=sizes.precision, **more)  # type: ignore[arg-type]
    connect(machine)
    return DeepSpeedEngine(model, recipe.optimizer, machine)


def seconds_of(step: Callable[[], None], sizes: Sizes) -> float:
    """Mean time of a step in seconds, after three steps that do not count."""
    import torch

    synchronize = torch.cuda.synchronize if sizes.device == "cuda" else lambda: None
    for _ in range(3):
        step()
    synchronize()
    began = time.perf_counter()
    for _ in range(sizes.steps):
        step()
    synchronize()
    return (time.perf_counter() - began) / sizes.steps


def device_name(sizes: Sizes) -> str:
    import torch

    return torch.cuda.get_device_name() if sizes.device == "cuda" else "a CPU"


def examples_of(name: str, batch: dict[str, Any]) -> list[dict[str, Any]]:
    """The sequences of a padded batch as inputs for a model of transformers. A decoder shifts its labels itself."""
    from benchmarks.step import inside, labels_of

    columns = {"input_ids": batch["input_ids"], "attention_mask": inside(batch), "labels": labels_of(batch)}
    if name.startswith("gpt2"):
        columns = {"input_ids": batch["input_ids"], "labels": batch["input_ids"]}
    if "next_sentence_label" in batch:
        columns |= {"token_type_ids": batch["token_type_ids"], "next_sentence_label": batch["next_sentence_label"]}
    return [{key: values[row] for key, values in columns.items()} for row in range(len(batch["input_ids"]))]


def their_seconds(net: Any, examples: Sequence[dict[str, Any]], sizes: Sizes) -> tuple[str, float]:
    """The name of the training loop for transformers, and the seconds of one of its steps."""
    import torch

    try:
        import accelerate  # noqa: F401
    except ImportError:
        net.to(sizes.device)
        columns = {key: torch.stack([one[key] for one in examples]).to(sizes.device) for key in examples[0]}
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)

        def step() -> None:
            with torch.autocast(sizes.device, torch.bfloat16, enabled=sizes.precision == "bf16"):
                loss = net(**columns).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return "transformers, plain loop", seconds_of(step, sizes)
    from transformers import Trainer, TrainerCallback, TrainingArguments

    at: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if len(at) in (2, 2 + sizes.steps) and sizes.device == "cuda":
                torch.cuda.synchronize()
            at.append(time.perf_counter())

    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=sizes.rows,
        max_steps=3 + sizes.steps,
        learning_rate=1e-5,
        bf16=sizes.precision == "bf16",
        use_cpu=sizes.device == "cpu",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model=net, args=arguments, train_dataset=list(examples) * 2, callbacks=[Clock()]).train()
    return "transformers' Trainer", (at[-1] - at[2]) / sizes.steps


def largest(sizes: Sizes) -> dict[str, Any]:
    """The deepest GPT that fits according to its plan: parameters, planned and measured memory, and time of a step."""
    import torch

    from benchmarks.memory import Alive
    from benchmarks.step import made_up, small_vocab
    from orchestration.planning import workload_of
    from preprocessing.collate import collate_unpadded
    from preprocessing.tokenization import table_rows
    from training.model import Model

    cuda = sizes.device == "cuda"
    room = sizes.memory or float(torch.cuda.mem_get_info()[0])
    recipe, plan = deepest(sizes, room)
    with tempfile.TemporaryDirectory() as folder:
        batch = collate_unpadded(made_up(recipe, small_vocab(recipe, Path(folder)), 1, min(sizes.length, 1_024)))
    alive = None if cuda else Alive()
    with torch.device("meta"):
        model = Model(recipe.model, recipe.losses, table_rows(recipe.data.tokenizer), seed=0)
    more = {"zero_stage": 3, "activation_checkpointing": "full"}
    engine = engine_of(model, recipe, sizes, **more, offload_optimizer="cpu", offload_param="cpu")
    took = []
    for step in range(3):
        if alive and step == 2:
            alive.__enter__()
        began = time.perf_counter()
        scores = engine.forward(batch)
        engine.backward(scores["next_token"].loss / scores["next_token"].count)
        engine.step(1e-5)
        took.append(time.perf_counter() - began)
    if alive:
        alive.__exit__(None, None, None)
    peak = alive.most if alive else torch.cuda.max_memory_allocated()
    return {
        "weights": workload_of(recipe).parameters,
        "layers": recipe.model.num_hidden_layers,
        "planned_bytes": plan.peak - plan.cuda_context,
        "peak_bytes": peak,
        "ratio": (plan.peak - plan.cuda_context) / peak,
        "room_bytes": room,
        "planned_host_bytes": plan.host,
        "seconds": min(took),
    }


def deepest(sizes: Sizes, room: float) -> tuple[Any, Any]:
    """The recipe of the deepest GPT that fits according to its plan, and its planned memory."""
    result = None
    for recipe in gpts(sizes):
        needed = planned(recipe, sizes)
        host = psutil.virtual_memory().total * HOST_FILLED
        if needed.peak > room or needed.host > host:
            break
        result = recipe, needed
    if result is None:
        sys.exit(f"no GPT with hidden size {sizes.width:,} fits in {room:,.0f} bytes; use a larger device or --tiny")
    return result


def gpts(sizes: Sizes) -> Iterator[Any]:
    """Yield GPT-2 with this hidden size and 1, 2, ... layers, up to MOST_WEIGHTS parameters."""
    from orchestration.config import load
    from orchestration.planning import workload_of

    recipe = load("gpt2", scale=sizes.scale)
    heads = max(1, sizes.width // 128)
    for layers in range(1, 200):
        trunk = replace(
            recipe.model,
            num_hidden_layers=layers,
            hidden_size=sizes.width,
            num_attention_heads=heads,
            head_dim=0,
            intermediate_size=0,
        )
        deeper = replace(recipe, model=trunk)
        if workload_of(deeper).parameters > MOST_WEIGHTS:
            return
        yield deeper


def planned(recipe: Any, sizes: Sizes) -> Any:
    """The memory that one device needs for a batch of one sequence."""
    from orchestration.planning import ParallelLayout, device_memory, workload_of

    layout = ParallelLayout(
        zero=3, rows=1, checkpointing="full", offload=True, offload_parameters=True, precision=sizes.precision
    )
    return device_memory(workload_of(recipe), layout, min(sizes.length, 1_024), cuda=sizes.device == "cuda")


def tests(tiny: bool) -> dict[str, Any]:
    """The exit code and the last line of pytest, for the tests that need a GPU."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "tests/training/architectures",
    ]
    done = subprocess.run([*command, *(["--collect-only"] if tiny else [])], capture_output=True, text=True)
    return {"exit": done.returncode, "summary": done.stdout.strip().splitlines()[-1]}


def part(name: str, tiny: bool) -> dict[str, Any]:
    sizes = TINY if tiny else Sizes()
    if name == "tests":
        return tests(tiny)
    return largest(sizes) if name == "largest" else speed(name, sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run: {' '.join(PARTS)} [all]")
    parser.add_argument("--tiny", action="store_true", help="use small models on a CPU")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--here", help=argparse.SUPPRESS)  # name of the part that this process runs
    given = parser.parse_args()
    if given.here:
        print(
            json.dumps(part(given.here, given.tiny) | {"device": device_name(TINY if given.tiny else Sizes())}),
            flush=True,
        )
        os._exit(0)
    if unknown := set(given.parts) - set(PARTS):
        sys.exit(f"invalid part: got {', '.join(unknown)}, expected {', '.join(PARTS)}; choose one of them")
    given.out.mkdir(parents=True, exist_ok=True)
    lines = [f"# One GPU\n\n{now()}, {hardware()}\n"]
    for name in given.parts or PARTS:
        lines.append(f"* {name}: {one(name, given.tiny)}")
        print(lines[-1], flush=True)
        (given.out / "gpu.md").write_text("\n".join(lines) + "\n")


def one(name: str, tiny: bool) -> str:
    """The result of a part, or the reason why it has none."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--here", name, *(["--tiny"] if tiny else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PARTS[name])
    except subprocess.TimeoutExpired:
        return f"not finished in {PARTS[name]} s"
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return answers[-1] if answers else f"failed: {done.stderr[-1_500:]}"


if __name__ == "__main__":
    main()
