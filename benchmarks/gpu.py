"""Speed of Sesame on one GPU beside plain torch and transformers, in ten minutes and without a network.

    python -m benchmarks.gpu [PART ...] [--tiny] [--out FOLDER]

A part is an arm and a net, such as "sesame gpt2", or `tests`, or `largest`. A word such as `sesame`, `gpt2` or
`bert_base` selects all parts with this arm, net or recipe. Without words, all parts run, the most important ones first.

Nets: `gpt2` is GPT-2 124M with 512 sequences of 1,024 tokens in a step. `bert512` and `bert128` are BERT base with 256
sequences of at most 512 or 128 tokens. All have the dropout of their recipes and run in bf16. Arms:

* `sesame` is the training loop of `sesame train` with the cluster file `one_gpu`: packing, masking and pairs of the
  recipe, loader processes, a made-up corpus. Checkpoints and evaluation are off. Padding does not count as tokens.
* `plain` is benchmarks/peers/plain_torch.py: compiled, without padding, with its batches on the device.
* `trainer` is the Trainer of transformers, not compiled, without padding.
* `restart` starts `sesame` again up to its first step, with the compiled kernels of the first start.
* `graphs` is `sesame` with `engine.cuda_graphs`. It runs only if the other parts leave enough time, as the next one.
* `fp8` trains GPT-2 with 1.3 billion parameters for the same steps in bf16 and with the recipes of `engine.fp8_recipe`,
  and compares speeds and losses. It requires torchao.

`tests` runs all tests with the mark `gpu`, except those that need a package that is not installed. `largest` plans GPTs
with hidden size 4,096 and takes the deepest model that fits, with activation checkpointing, and with optimizer and
parameters in host memory. It trains this model for three steps and compares memory with the plan.

Each part is a process with a time limit. A part may also use the time that earlier parts have left. After each part,
FOLDER/gpu.md has all results up to then; FOLDER/gpu-PART.log has the output of a part that failed. The table is last.

`--tiny` does the same with small models on a CPU. Required packages: torch, deepspeed, transformers, accelerate,
pydantic, PyYAML, psutil, and the first list of dependencies in pyproject.toml; for `tests` and `largest` also pytest
and threadpoolctl. Ray, MLflow and Beam are not required.
"""

import argparse
import importlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.gpu_table import FP8, GRAPHS, NETS, PLAIN, PRODUCTS, RESTART, SESAME, TRAINER, Net, render_table
from benchmarks.workers import free_port, hardware, now
from training.specs import BUCKET

ROOT: Final = Path(__file__).parents[1]
TOTAL_S: Final = 585.0  # for all parts together
LEAST_S: Final = 8.0  # a part with less time is not run
HOST_FILLED: Final = 0.7  # fraction of the host memory that a plan may use
MOST_WEIGHTS: Final = 6e9  # the weights are initialized on one core: a billion takes about ten seconds
GRAPHS_LEAST_S: Final = 40.0  # of a part with CUDA graphs, whose kernels `sesame` has compiled
FP8_LEAST_S: Final = 100.0  # of an FP8 part: initial weights, compilation and steps of 1.3 billion parameters
SESAME_S, PEER_S = 12.0, 8.0  # seconds of measurement of an arm
TRAINER_WARM_UP: Final = 2  # steps of the Trainer before the time is taken
OUTCOMES: Final = ("PASSED", "FAILED", "ERROR", "SKIPPED")  # of a test
SHOWN_PACKAGES: Final = ("torch", "deepspeed", "transformers")
PACKAGES: Final = (*SHOWN_PACKAGES, "accelerate", "pydantic", "yaml", "pytest", "threadpoolctl")


@dataclass(frozen=True)
class Part:
    """A process of this benchmark. `limit` is its time in seconds, without the time that earlier parts have left.

    A part with less than `least` seconds is not run. `products` is the precision of the products of an FP8 part.
    """

    kind: str
    net: str
    limit: float
    least: float = LEAST_S
    products: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.products or self.net}".strip()

    @property
    def words(self) -> set[str]:
        """The words that select this part on the command line."""
        recipe = {NETS[self.net].recipe, self.net} if self.net and not self.products else set()
        return {self.kind, self.name, *recipe}


PARTS: Final = (
    *(Part(SESAME, "gpt2", 80), Part(PLAIN, "gpt2", 60)),
    *(Part(SESAME, "bert512", 60), Part(PLAIN, "bert512", 50)),
    *(Part(SESAME, "bert128", 55), Part(PLAIN, "bert128", 45)),
    Part("tests", "", 70),
    *(Part(TRAINER, "gpt2", 30), Part(TRAINER, "bert512", 20), Part(TRAINER, "bert128", 20)),
    Part("largest", "", 71),
    *(Part(RESTART, net, 8) for net in NETS),
    *(Part(GRAPHS, net, 0, GRAPHS_LEAST_S) for net in ("bert128", "gpt2", "bert512")),
    *(Part(FP8, "gpt2", 0, FP8_LEAST_S, products) for products in PRODUCTS),
)
assert sum(part.limit for part in PARTS) <= TOTAL_S


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements: by default of published models on a GPU."""

    device: str = "cuda"
    precision: str = "bf16"
    scale: str = ""
    sesame_s: float = SESAME_S
    peer_s: float = PEER_S
    corpus_tokens: int = 16_000_000
    width: int = 4_096  # of `largest`, as the next two
    length: int = 1_024
    memory: float = 0.0  # bytes; 0: the memory of the device
    fp8_model: tuple[int, int, int] = (24, 2_048, 16)  # layers, hidden size and heads of `fp8`: 1.3 billion parameters
    fp8_steps: int = 40


TINY: Final = Sizes(
    *("cpu", "fp32", "tiny"),
    sesame_s=1.0,
    peer_s=1.0,
    corpus_tokens=200_000,
    width=64,
    length=32,
    memory=4 * BUCKET + 16e6,
    fp8_model=(2, 64, 2),
    fp8_steps=20,
)


def find_net(name: str, tiny: bool) -> Net:
    """The net of this name; with `tiny`, its sequences have 64 tokens, or 32 instead of 128."""
    net = NETS[name]
    if not tiny:
        return net
    length = min(64, net.length // 4)
    return replace(net, length=length, rows=8, plain_rows=4, trainer_rows=4, log_every=2, document_tokens=5 * length)


# Sesame's training loop


def open_engine(build: Callable[[], Any], optimizer: Any, settings: Any) -> Any:
    """The engine of a run of one process: `build` makes the model, as soon as the process is connected."""
    from training.engines import open_engine as open_engine_of

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(free_port()), "DS_ACCELERATOR": settings.device}
    return open_engine_of(lambda *_: build(), optimizer, settings, world=1)


def describe_run(net: Net, sizes: Sizes, corpus: Path, folder: Path) -> Any:
    """The run of a recipe with the cluster file `one_gpu`, with sequences of one length, without checkpoints."""
    from orchestration.config import load, load_cluster
    from preprocessing.tokenization import table_rows
    from training.run import Run
    from training.specs import Phase

    recipe, cluster = load(net.recipe, scale=sizes.scale), load_cluster("one_gpu")
    settings = cluster.engine
    if sizes.device == "cpu":
        settings = replace(
            settings, device="cpu", precision="bf16", padding="fixed", cpu_threads=1, dataloader_num_workers=1
        )
    return Run(
        model=recipe.model,
        losses=recipe.losses,
        optimizer=recipe.optimizer,
        phases=(Phase(seq_length=net.length, global_batch_size=net.rows, steps=recipe.num_steps),),
        sampling=recipe.sampling,
        recipe_hash=recipe.hash,
        corpus=str(corpus),
        vocab_size=table_rows(recipe.data.tokenizer),
        folder=str(folder),
        engine=settings,
        resume="never",
        loss_spikes=cluster.loss_spikes,
        log_every=net.log_every,
        save_every=0,
        eval_every=0,
    )


class MeasurementEnded(BaseException):
    """Ends the training loop without a last checkpoint. It is no Exception, which the loop would explain."""


class LoopMeasurement:
    """Adds up the metrics of a training loop, and prints the result after each log. The first log does not count."""

    def __init__(self, net: Net, sizes: Sizes, *, only_start: bool, last: int = 0) -> None:
        """With `last`, the loop ends after this step instead of a time."""
        self.net, self.sizes, self.only_start, self.last = net, sizes, only_start, last
        self.result: dict[str, Any] = {"device": device_name(sizes)}
        self.last_step = self.num_steps = 0
        self.seconds = self.tokens = self.peak_seconds = 0.0
        self.recorder: Any = None  # of the kernels of one step
        self.graphed: Any = None  # calls the model, perhaps through CUDA graphs

    def print_result(self) -> None:
        import torch

        cuda = self.sizes.device == "cuda"
        self.result["gib"] = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
        if failure := getattr(self.graphed, "failure", ""):
            self.result["problem"] = f"no graph: {failure}"
        print(json.dumps(self.result), flush=True)

    def log(self, step: int, values: dict[str, float]) -> None:
        """Add the mean speed since the last log."""
        if "perf/step_time_s" not in values:
            return
        steps, is_first = step - self.last_step, self.last_step == 0
        self.last_step = step
        if is_first:
            return
        seconds = steps * values["perf/step_time_s"]
        self.num_steps += steps
        self.seconds += seconds
        self.tokens += seconds * values["perf/tokens_per_second"]
        self.peak_seconds += seconds * values.get("perf/mfu", 0.0)
        self.result |= {
            "tokens_per_s": self.tokens / self.seconds,
            "mfu": self.peak_seconds / self.seconds or None,
            "step_s": self.seconds / self.num_steps,
            "steps": self.num_steps,
            "filled": self.tokens / self.num_steps / (self.net.rows * self.net.length),
            "loss": values["train/loss"],
            "last_step": step,
        }
        self.print_result()

    def report_activity(self, done: int, activity: str) -> None:
        """Note the time of the first step. When the time is over, count the kernels of one more step and end."""
        if activity:
            return
        if done == 1:
            self.result["first_step_s"] = find_age()
            self.print_result()
            if self.only_start:
                raise MeasurementEnded
        if self.recorder is not None:
            self.result |= count_launches(self.recorder)
            self.print_result()
            raise MeasurementEnded
        if self.last:
            if self.last_step >= self.last:
                raise MeasurementEnded
        elif self.seconds >= self.sizes.sesame_s:
            if self.sizes.device == "cpu":
                raise MeasurementEnded
            import torch

            try:
                self.recorder = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
                self.recorder.start()
            except RuntimeError as error:  # the machine does not let a process read its counters
                self.result["launches_problem"] = str(error)[:200]
                raise MeasurementEnded from None


def count_launches(recorder: Any) -> dict[str, int]:
    """The number of launches by the host, and of kernels on the device, since the recorder was started."""
    import torch

    torch.cuda.synchronize()
    recorder.stop()
    with suppress(AttributeError):  # not a public interface, but the public one takes seconds for 40,000 kernels
        events = [(str(event.device_type()), event.name()) for event in recorder.profiler.kineto_results.events()]
        kernels = [
            name for device, name in events if device.endswith("CUDA") and not name.startswith(("Memcpy", "Memset"))
        ]
        return {"launches": count_launch_names(name for _, name in events), "kernels": len(kernels)}
    return {}


def count_launch_names(names: Iterable[str]) -> int:
    """The number of names of functions of CUDA that launch a kernel or a graph.

    >>> count_launch_names(["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemcpyAsync", "gemm"])
    3
    """
    return sum("LaunchKernel" in name or "GraphLaunch" in name for name in names)


def measure_sesame(
    net: Net, sizes: Sizes, corpus: Path, folder: Path, *, only_start: bool = False, has_graphs: bool = False
) -> None:
    """Train with Sesame's loop, and print results while it runs."""
    from training.formats import describe_model
    from training.loop import Callbacks, pretrain

    run = describe_run(net, sizes, corpus, folder)
    if has_graphs and sizes.device == "cuda":
        run = replace(run, engine=replace(run.engine, cuda_graphs=True))
    measurement = LoopMeasurement(net, sizes, only_start=only_start)
    engine = open_engine(lambda: describe_model(run), run.optimizer, run.engine)
    measurement.graphed = engine.call if has_graphs else None
    with suppress(MeasurementEnded):
        pretrain(run, engine, measurement.log, Callbacks(report_activity=measurement.report_activity))


def measure_fp8(net: Net, sizes: Sizes, corpus: Path, folder: Path, products: str) -> None:
    """Train a large GPT-2 for some steps with Sesame's loop, with linear layers in bf16 or FP8, and print results.

    A CPU emulates FP8, which a cluster file refuses, in float32.
    """
    import torch

    from training.architectures import use_float8
    from training.architectures.float8 import iterate_layers
    from training.formats import describe_model
    from training.loop import Callbacks, pretrain

    layers, width, heads = sizes.fp8_model
    recipe: Any = "none" if products == PRODUCTS[0] else products
    run = describe_run(net, sizes, corpus, folder)
    model = replace(
        run.model,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        head_dim=0,
        intermediate_size=0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    emulates = sizes.device == "cpu"
    (phase,) = run.phases
    run = replace(
        run,
        model=model,
        optimizer=replace(run.optimizer, learning_rate=2e-4, warmup_steps=10),
        phases=(replace(phase, global_batch_size=net.rows // 8),),
        engine=run.engine if emulates else replace(run.engine, fp8_recipe=recipe, micro_batch_tokens=32_768),
    )
    measurement = LoopMeasurement(net, sizes, only_start=False, last=sizes.fp8_steps)
    engine = open_engine(lambda: describe_model(run), run.optimizer, run.engine)
    if emulates:
        use_float8(engine.model, recipe, torch.device("cpu"))
    used = sum(layer.product is not None for layer in dict.fromkeys(iterate_layers(engine.model)))
    measurement.result |= {"weights": sum(weight.numel() for weight in engine.model.parameters()), "fp8_layers": used}
    if recipe != "none" and not used:
        measurement.result["problem"] = "the FP8 products have failed their trial"
    with suppress(MeasurementEnded):
        pretrain(run, engine, measurement.log, Callbacks(report_activity=measurement.report_activity))


def find_age() -> float:
    """Seconds since this process was started, before its imports."""
    return time.time() - psutil.Process().create_time()


def device_name(sizes: Sizes) -> str:
    import torch

    return torch.cuda.get_device_name() if sizes.device == "cuda" else "a CPU"


# Other systems


def describe_plain(name: str, tiny: bool) -> list[str]:
    """The command of plain torch."""
    net, script = find_net(name, tiny), ROOT / "benchmarks" / "peers" / "plain_torch.py"
    sizes = ["--rows", net.plain_rows, "--batch", net.rows, "--seconds", TINY.peer_s if tiny else PEER_S]
    if tiny:
        sizes += ["--length", net.length, "--width", 64, "--layers", 2, "--vocab", 4_096, "--device", "cpu"]
        sizes += ["--no-compile"]
    return [sys.executable, str(script), name, *map(str, sizes)]


def measure_trainer(net: Net, sizes: Sizes, corpus: Path) -> dict[str, Any]:
    """Speed of the Trainer of transformers, with initial weights of Sesame and sequences without padding."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from benchmarks.step import made_up, tensors, theirs
    from orchestration.config import load
    from preprocessing.collate import collate_padded
    from preprocessing.tokenization import Vocab, table_rows
    from training.model import Model

    recipe, vocab = load(net.recipe, scale=sizes.scale), Vocab.load(corpus / "vocab")
    cuda = sizes.device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        model = Model(recipe.model, recipe.losses, table_rows(recipe.data.tokenizer), seed=0).train()
        (peer,) = theirs(recipe, model, corpus / "vocab", Path(folder))
    batch = tensors(collate_padded(made_up(recipe, vocab, net.trainer_rows, net.length), net.length, vocab.pad or 0))
    examples = make_examples(net.recipe, batch)
    ends, first_step_s = list[float](), list[float]()

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if cuda:
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
            first_step_s.append(find_age())
            measured = ends[TRAINER_WARM_UP - 1 :]
            control.should_training_stop = len(measured) > 1 and measured[-1] - measured[0] >= sizes.peer_s

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=net.trainer_rows,
            gradient_accumulation_steps=net.rows // net.trainer_rows,
            max_steps=1_000_000,
            learning_rate=1e-5,
            bf16=sizes.precision == "bf16",
            use_cpu=not cuda,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        dataset: Any = list(examples) * (net.rows // net.trainer_rows)
        Trainer(model=peer, args=arguments, train_dataset=dataset, callbacks=[Clock()]).train()
    step_s = (ends[-1] - ends[TRAINER_WARM_UP - 1]) / (len(ends) - TRAINER_WARM_UP)
    return {
        "tokens_per_s": net.rows * net.length / step_s,
        "step_s": step_s,
        "first_step_s": first_step_s[0],
        "steps": len(ends) - TRAINER_WARM_UP,
        "gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
        "device": device_name(sizes),
    }


def make_examples(recipe: str, batch: dict[str, Any]) -> list[dict[str, Any]]:
    """The sequences of a padded batch as inputs for a model of transformers. A decoder shifts its labels itself."""
    from benchmarks.step import inside, labels_of

    columns = {"input_ids": batch["input_ids"], "attention_mask": inside(batch), "labels": labels_of(batch)}
    if recipe == "gpt2":
        columns = {"input_ids": batch["input_ids"], "labels": batch["input_ids"]}
    if "next_sentence_label" in batch:
        columns |= {"token_type_ids": batch["token_type_ids"], "next_sentence_label": batch["next_sentence_label"]}
    return [{key: values[row] for key, values in columns.items()} for row in range(len(batch["input_ids"]))]


def compute_mfu(net: Net, sizes: Sizes, result: dict[str, Any]) -> float | None:
    """MFU of a peer by the formula of Sesame, with the table of the recipe; None if the device is unknown."""
    from orchestration.config import load
    from preprocessing.tokenization import table_rows
    from training.meter import flops, peak
    from training.specs import BatchWork

    flop_s = peak(result["device"])
    if not flop_s:
        return None
    recipe = load(net.recipe, scale=sizes.scale)
    tokens = net.rows * net.length
    predicted = recipe.masking.predicted * tokens
    work = BatchWork(tokens=tokens, squares=tokens * net.length, targets=round(predicted))
    return flops(recipe.model, table_rows(recipe.data.tokenizer), work) / result["step_s"] / flop_s


# The largest model


def train_largest(sizes: Sizes) -> None:
    """Train the deepest GPT that fits, and print parameters, planned and measured memory, and time after each step."""
    import torch

    from benchmarks.memory import Alive
    from benchmarks.step import made_up, small_vocab
    from orchestration.planning import workload_of
    from preprocessing.collate import collate_unpadded
    from preprocessing.tokenization import table_rows
    from training.model import Model
    from training.specs import EngineSettings

    cuda = sizes.device == "cuda"
    room = sizes.memory or float(torch.cuda.mem_get_info()[0])
    recipe, plan = find_deepest(sizes, room)
    with tempfile.TemporaryDirectory() as folder:
        batch = collate_unpadded(made_up(recipe, small_vocab(recipe, Path(folder)), 1, sizes.length))
    alive = None if cuda else Alive()

    def build() -> Model:
        with torch.device("meta"):
            return Model(recipe.model, recipe.losses, table_rows(recipe.data.tokenizer), seed=0)

    offloaded = {
        "zero_stage": 3,
        "activation_checkpointing": "full",
        "offload_optimizer": "cpu",
        "offload_param": "cpu",
    }
    settings = EngineSettings(device=sizes.device, precision=sizes.precision, **offloaded)  # type: ignore[arg-type]
    engine = open_engine(build, recipe.optimizer, settings)
    took = []
    for step in range(3):
        if alive and step == 2:
            alive.__enter__()
        began = time.perf_counter()
        scores = engine.forward(batch)
        engine.backward(scores["next_token"].loss / scores["next_token"].count)
        engine.step(1e-5)
        took.append(time.perf_counter() - began)
        if alive and step < 2:
            continue
        peak = alive.most if alive else torch.cuda.max_memory_allocated()
        result = {
            "weights": workload_of(recipe).parameters,
            "layers": recipe.model.num_hidden_layers,
            "planned_bytes": plan.peak - plan.cuda_context,
            "peak_bytes": peak,
            "ratio": (plan.peak - plan.cuda_context) / peak,
            "room_bytes": room,
            "planned_host_bytes": plan.host,
            "seconds": min(took),
            "steps": step + 1,
            "device": device_name(sizes),
        }
        print(json.dumps(result), flush=True)


def find_deepest(sizes: Sizes, room: float) -> tuple[Any, Any]:
    """The recipe of the deepest GPT that fits according to its plan, and its planned memory."""
    result = None
    for recipe in iterate_gpts(sizes):
        needed = plan_memory(recipe, sizes)
        host = psutil.virtual_memory().total * HOST_FILLED
        if needed.peak > room or needed.host > host:
            break
        result = recipe, needed
    if result is None:
        sys.exit(f"no GPT with hidden size {sizes.width:,} fits in {room:,.0f} bytes; use a larger device or --tiny")
    return result


def iterate_gpts(sizes: Sizes) -> Iterator[Any]:
    """Yield GPT-2 with this hidden size and 1, 2, ... layers, up to MOST_WEIGHTS parameters."""
    from orchestration.config import load
    from orchestration.planning import workload_of

    recipe = load("gpt2", scale=sizes.scale)
    heads = max(1, sizes.width // 128)
    for layers in range(1, 200):
        model = replace(
            recipe.model,
            num_hidden_layers=layers,
            hidden_size=sizes.width,
            num_attention_heads=heads,
            head_dim=0,
            intermediate_size=0,
        )
        deeper = replace(recipe, model=model)
        if workload_of(deeper).parameters > MOST_WEIGHTS:
            return
        yield deeper


def plan_memory(recipe: Any, sizes: Sizes) -> Any:
    """The memory that one device needs for a batch of one sequence."""
    from orchestration.planning import ParallelLayout, device_memory, workload_of

    layout = ParallelLayout(
        zero=3, rows=1, checkpointing="full", offload=True, offload_parameters=True, precision=sizes.precision
    )
    return device_memory(workload_of(recipe), layout, sizes.length, cuda=sizes.device == "cuda")


# Tests


def run_tests(tiny: bool) -> dict[str, Any]:
    """The number of passed tests with the mark `gpu`, the names of the others, and the files that were left out."""
    if importlib.util.find_spec("pytest") is None:
        return {"problem": "not run: pytest is not installed"}
    files, left_out = [], {}
    for path in find_gpu_tests():
        if missing := find_missing_package(path):
            left_out[path] = f"needs {missing}"
        else:
            files.append(path)
    result: dict[str, Any] = {"left_out": left_out}
    for line in stream_tests(files, only_collect=tiny):
        print(line, file=sys.stderr)
        words = line.split()
        if len(words) > 1 and words[1] in OUTCOMES:
            result.setdefault(words[1].lower(), []).append(words[0].removeprefix("tests/"))
            print(json.dumps(summarize_tests(result)), flush=True)
        if words and words[0] == "ERROR":  # a file that cannot be imported, or the code before or after a test
            result["problem"] = line[:300]
        result["summary"] = line or result.get("summary", "")
    if not tiny and not {outcome.lower() for outcome in OUTCOMES} & result.keys():
        result["problem"] = f"no test has run: {result.get('summary', '')}"
    return summarize_tests(result)


def summarize_tests(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of the tests with the number of passed tests, and a `problem` if a test has failed.

    >>> summarize_tests({"passed": ["a", "b"], "failed": ["c"]})
    {'passed': 2, 'failed': ['c'], 'problem': '1 failed'}
    """
    failed = [*result.get("failed", ()), *result.get("error", ())]
    problem = {"problem": f"{len(failed)} failed"} if failed else {}
    return {**result, "passed": len(result.get("passed", ()))} | problem


def stream_tests(files: Sequence[str], *, only_collect: bool) -> Iterator[str]:
    """Yield the lines of pytest, one for each test as soon as it has ended."""
    # not the settings in pyproject.toml, which require plugins of pytest
    command = [sys.executable, "-m", "pytest", "-v", "-rfE", "-m", "gpu", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(ROOT), *(["--collect-only", "-q"] if only_collect else []), *files]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            yield line.rstrip()


def find_gpu_tests() -> list[str]:
    """The files of tests with the mark `gpu`, relative to the checkout; those of training, which are short, first."""
    files = sorted((ROOT / "tests").rglob("test_*.py"), reverse=True)
    return [str(file.relative_to(ROOT)) for file in files if "pytest.mark.gpu" in file.read_text(encoding="utf-8")]


def find_missing_package(path: str) -> str:
    """The name of a package that a file of tests imports and that is not installed; "" if there is none."""
    parents = [
        parent / "conftest" for parent in reversed(Path(path).parents) if (ROOT / parent / "conftest.py").exists()
    ]
    for module in [*parents, Path(path).with_suffix("")]:
        try:
            importlib.import_module(".".join(module.parts))
        except ModuleNotFoundError as error:
            return error.name or str(error)
    return ""


# The command


class Benchmark:
    """Runs parts one after the other, and writes their results after each."""

    def __init__(self, parts: Sequence[Part], out: Path, scratch: Path, *, tiny: bool) -> None:
        self.parts, self.out, self.scratch, self.tiny = parts, out, scratch, tiny
        self.sizes = TINY if tiny else Sizes()
        self.began = time.monotonic()
        self.results: dict[str, dict[str, Any]] = {}
        self.lines = [
            f"# One GPU\n\n{now()}, {hardware()}\n",
            f"Time for all parts: {TOTAL_S:.0f} s. Of padded sequences, only tokens count.\n",
        ]

    def run(self) -> None:
        """Run all parts and print the table."""
        if self.tiny:
            self.lines.append("Tiny models on a CPU: these figures are no speeds of the nets in the table.\n")
        if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
            self.lines.append(f"Not installed: {', '.join(missing)}; some parts will fail.\n")
        print("\n".join(self.lines), flush=True)
        for number, part in enumerate(self.parts):
            later = sum(other.limit for other in self.parts[number + 1 :])
            left = TOTAL_S - later - self.elapsed
            began = self.elapsed
            result = self._measure(part, left) if left >= part.least else {"problem": f"not run: {left:.0f} s left"}
            self.results[part.name] = result
            self.lines.append(f"* {part.name} ({self.elapsed - began:.0f} of {left:.0f} s): {render_result(result)}")
            print(self.lines[-1], flush=True)
            self._write()
        print(f"\n{self._summary}", flush=True)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def _summary(self) -> str:
        """The device, the versions, the time of all parts, and the table."""
        devices = [result["device"] for result in self.results.values() if "device" in result]
        about = [
            *devices[:1],
            f"Python {platform.python_version()}",
            *map(describe_version, SHOWN_PACKAGES),
        ]
        return f"{', '.join(about)}; {self.elapsed:.0f} of {TOTAL_S:.0f} s\n\n{render_table(self.results)}"

    def _write(self) -> None:
        text = "\n".join(self.lines)
        (self.out / "gpu.md").write_text(f"{text}\n\n{self._summary}\n")

    def _measure(self, part: Part, seconds: float) -> dict[str, Any]:
        """The result of a part, which may take `seconds` seconds."""
        if part.kind == RESTART and "first_step_s" not in self.results.get(f"{SESAME} {part.net}", {}):
            return {"problem": f"not run: it requires a result of {SESAME} {part.net}"}
        deadline = time.monotonic() + seconds
        if part.net and part.kind != PLAIN:
            self._corpus(part.net)
        if part.kind == PLAIN:
            command = describe_plain(part.net, self.tiny)
        else:
            command = [sys.executable, "-m", "benchmarks.gpu", "--here", part.name, "--scratch", str(self.scratch)]
            command += ["--tiny"] if self.tiny else []
        caches = (
            self.scratch
            / f"caches-{SESAME if part.kind in (RESTART, GRAPHS) else part.kind}-{part.products or part.net}"
        )
        environment = {
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "HF_HUB_OFFLINE": "1",
        }
        if self.tiny:
            environment["OMP_NUM_THREADS"] = "1"  # threads of small models mostly wait for each other
        result, log = run_process(command, environment, deadline - time.monotonic())
        if "problem" in result:
            (self.out / f"gpu-{part.name.replace(' ', '-')}.log").write_text(log)
        if part.kind in (PLAIN, TRAINER) and "step_s" in result:
            result["mfu"] = compute_mfu(find_net(part.net, self.tiny), self.sizes, result)
        return result

    def _corpus(self, net: str) -> None:
        """Make the corpus of the net's recipe, unless another part has made it."""
        from benchmarks.gpu_corpus import make_corpus
        from orchestration.config import load

        sizes = find_net(net, self.tiny)
        folder = corpus_folder(self.scratch, sizes)
        if not folder.exists():
            tokenizer = load(sizes.recipe, scale=self.sizes.scale).data.tokenizer
            make_corpus(folder, tokenizer, self.sizes.corpus_tokens, sizes.document_tokens)


def describe_version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def render_result(result: Mapping[str, Any]) -> str:
    """A result as JSON in one line, with numbers of four digits.

    >>> render_result({"tokens_per_s": 491366.2, "mfu": 0.39712, "gib": None})
    '{"tokens_per_s": 491366, "mfu": 0.3971, "gib": null}'
    """
    short = {
        key: (round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")) if isinstance(value, float) else value
        for key, value in result.items()
    }
    return json.dumps(short)


def corpus_folder(scratch: Path, net: Net) -> Path:
    return scratch / f"corpus-{net.recipe}-{net.document_tokens:.0f}"


def run_process(command: Sequence[str], environment: dict[str, str], seconds: float) -> tuple[dict[str, Any], str]:
    """The last JSON object that the command printed, and the end of its other output.

    After `seconds` seconds, the command and its loader processes are killed; the result then has a `problem`.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | environment, stdout=output, stderr=errors, start_new_session=True
        )
        problem = ""
        try:
            if process.wait(timeout=seconds):
                problem = f"failed with exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            problem = f"stopped after {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        answers, log = [line for line in output if line.startswith("{")], errors.read()[-20_000:]
    result = json.loads(answers[-1]) if answers else {}
    if problem and not answers:
        problem = f"{problem}: {(log.strip().splitlines() or ['no output'])[-1][:300]}"
    return result | ({"problem": problem} if problem else {}), log


def run_part(part: Part, scratch: Path, tiny: bool) -> None:
    """Run a part in this process, and print its result."""
    sizes = TINY if tiny else Sizes()
    if part.kind == "tests":
        print(json.dumps(run_tests(tiny)), flush=True)
    elif part.kind == "largest":
        train_largest(sizes)
    else:
        net = find_net(part.net, tiny)
        corpus = corpus_folder(scratch, net)
        if part.kind == FP8:
            measure_fp8(net, sizes, corpus, scratch / f"run-{part.products}", part.products)
        elif part.kind == TRAINER:
            print(json.dumps(measure_trainer(net, sizes, corpus)), flush=True)
        else:
            folder, is_graphs = scratch / f"run-{part.kind}-{part.net}", part.kind == GRAPHS
            measure_sesame(net, sizes, corpus, folder, only_start=part.kind == RESTART, has_graphs=is_graphs)


def select_parts(words: Sequence[str]) -> list[Part]:
    """The parts that at least one of the words selects; all parts without words."""
    if unknown := set(words) - {word for part in PARTS for word in part.words}:
        known = dict.fromkeys(word for part in PARTS for word in (part.kind, part.net) if word)
        sys.exit(f"invalid part: got {', '.join(sorted(unknown))}, expected {', '.join(known)}; choose one of them")
    return [part for part in PARTS if not words or part.words & set(words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="arms, nets or parts to run [all]")
    parser.add_argument("--tiny", action="store_true", help="use small models on a CPU")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--here", help=argparse.SUPPRESS)  # name of the part that this process runs
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        (part,) = (part for part in PARTS if part.name == given.here)
        run_part(part, given.scratch, given.tiny)
        os._exit(0)
    parts = select_parts(given.parts)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended on request"))
    given.out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp())
    try:
        Benchmark(parts, given.out, scratch, tiny=given.tiny).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
