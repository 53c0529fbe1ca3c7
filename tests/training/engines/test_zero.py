"""ZeRO stages, numbers of workers and micro-batch sizes do not change what is learned. A killed worker does not change
it either.

Each group of workers starts once and trains all its runs one after the other, because starting takes longer than
training. The fast tests check QUICK, one run of each kind. Tests of all other runs, and of a single worker, are slow.
"""

import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch

from preprocessing.errors import ResourceError
from tests.training.corpora import electra, gpt, mini_run, two_sided, two_stages
from tests.training.worker import CRUMB, CRUMBS, job
from training import checkpoint
from training.checkpoint import find_newest, weights_of
from training.engines import connect, deepspeed_import
from training.engines.deepspeed import deepspeed_config
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import pretrain
from training.optimizers import Adafactor, AdamW, Lamb, Lion, Muon, Optimizer
from training.run import CHECKPOINTS, Run
from training.specs import EngineSettings, LossSpikes, Phase
from training.specs.loss_spikes import Policy

ROOT = Path(__file__).parents[3]
STAGES, SPLITS = (0, 1, 2, 3), (10_000, 96)  # tokens of a micro-batch: enough for all sequences, or for two
SHORT = (Phase(seq_length=48, global_batch_size=9, steps=6),)
BRIEF = (Phase(seq_length=48, global_batch_size=9, steps=4),)  # `make parity` has twenty steps
SHORTEST = (Phase(seq_length=48, global_batch_size=9, steps=3),)
SPIKY = (Phase(seq_length=48, global_batch_size=9, steps=10),)
RESTARTED = (Phase(seq_length=48, global_batch_size=9, steps=10),)  # saved after 4, 8 and 10 steps
NETS: dict[str, tuple[Callable[[Run], Run], dict[int, tuple[int, ...]]]] = {  # and the ZeRO stages by number of workers
    "electra": (electra, {1: STAGES}),  # its samples depend on the worker
    "two stages": (two_stages, {1: (2, 3)}),
    "two sides": (two_sided, {1: (0, 1), 2: (2, 3)}),
}
WHOLE: dict[str, Optimizer] = {
    "lamb": Lamb(learning_rate=1e-2, warmup_steps=1),
    "adafactor": Adafactor(learning_rate=0.1, warmup_steps=2),
}
# Optimizers that use the sign of each number or whole matrices; the gradient norm always exceeds max_grad_norm.
SIGNED: dict[str, Optimizer] = {
    "lion": Lion(learning_rate=1e-3, warmup_steps=2, max_grad_norm=0.05),
    "muon": Muon(learning_rate=1e-2, warmup_steps=2, max_grad_norm=0.05),
}
# stage, precision, policy, and the steps that are skipped
SPIKED: dict[str, tuple[int, str, Policy, tuple[int, ...]]] = {
    "skip 1": (1, "fp32", "skip", (9,)),
    "skip 2": (2, "bf16", "skip", (9,)),
    "skip 3": (3, "fp32", "skip", (9,)),
    "rollback 1": (1, "fp32", "rollback", (8, 9)),
    "rollback 2": (2, "bf16", "rollback", (8, 9)),
    "rollback 3": (3, "fp32", "rollback", (8, 9)),
}

pytestmark = pytest.mark.timeout(3600)  # in seconds; a busy machine takes several times as long as an idle one


def cell(world: int, zero: int, micro_tokens: int, precision: str = "fp32") -> str:
    return f"{world} workers, ZeRO {zero}, {micro_tokens} tokens, {precision}"


def with_optimizer(optimizer: str, world: int, zero: int) -> str:
    return f"{optimizer}, {world} workers, ZeRO {zero}"


QUICK = {cell(2, zero, 96) for zero in STAGES} | {cell(2, 2, 96, "bf16"), "two sides 3", "poisoned 3", "gpt", "bf16-2"}
QUICK |= {with_optimizer("lamb", 2, 3), with_optimizer("muon", 2, 1), "fp32-2"}
QUICK |= {"rollback 2", "rollback 2 again"}


def each(name_of: Callable[..., str], **axes: Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize a test with all combinations of the axes. A case is slow if its run is not in QUICK."""
    cases = [
        pytest.param(*values, marks=() if name_of(*values) in QUICK else pytest.mark.slow)
        for values in product(*axes.values())
    ]
    return pytest.mark.parametrize(tuple(axes), cases)


def has_slow_tests(request: pytest.FixtureRequest) -> bool:
    """Whether a slow test of this module is selected."""
    return any(item.path == request.path and item.get_closest_marker("slow") for item in request.session.items)


def spawn(
    world: int, jobs: list[dict[str, Any]], folder: Path, program: str = "tests.training.worker"
) -> list[subprocess.Popen[bytes]]:
    """Start a group of workers, which writes its results to folder/out.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    port = _free_port()
    command = [sys.executable, "-m", program]
    files = [str(folder / "jobs.json"), str(folder / "out.json")]
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [*command, str(rank), str(world), str(port), *files],
            cwd=ROOT,
            env=environment,
            stdout=open(folder / f"{rank}.log", "wb"),
            stderr=subprocess.STDOUT,
        )
        for rank in range(world)
    ]


def _free_port() -> int:
    """A free port below the kernel's ephemeral range, so that it is still free when the worker binds it."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise OSError("no free port found in 100 tries")


def outcome(world: int, jobs: list[dict[str, Any]], folder: Path, last_is_killed: bool = False) -> list[dict[str, Any]]:
    """The results of the first worker, one for each job, except a job in which the last worker is killed."""
    workers = spawn(world, jobs, folder)
    survivors = [] if last_is_killed else workers[:-1]  # the other workers wait forever for a killed worker
    try:
        codes = [worker.wait(timeout=1500) for worker in (workers[-1], *survivors)]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    actual = [(folder / f"{rank}.log").read_text()[-2000:] for rank in range(world)]
    assert codes == ([-signal.SIGKILL] if last_is_killed else [0] * world), actual
    return json.loads((folder / "out.json").read_text())


def losses(seen: dict[str, Any]) -> list[float]:
    assert "error" not in seen, seen
    return [metrics["train/loss"] for metrics in seen["steps"].values()]


def machine(zero: int, micro_tokens: int = 96, precision: str = "fp32") -> EngineSettings:
    keys: dict[str, Any] = {"zero_stage": zero, "precision": precision}
    return EngineSettings(micro_batch_tokens=micro_tokens, param_persistence_threshold=0, **keys)


@dataclass(frozen=True)
class Seen:
    """The results of all groups of workers, by the name of the run; the directory of a run has the same name."""

    folder: Path
    runs: dict[str, Any]
    kill_at: int  # number of updates before the second worker is killed in the run "killed", which has no results

    def losses(self, name: str) -> list[float]:
        return losses(self.runs[name])


class Plain(NamedTuple):
    """The reference for the workers."""

    losses: list[float]
    weights: dict[str, torch.Tensor]
    last: dict[str, float]  # metrics of the last step


def of_whole_tensors(run: Run, name: str) -> Run:
    """The run with an optimizer that needs whole tensors. It is wide enough for Adafactor to keep rows and columns.
    Queries, keys and values are one parameter, of which each of two workers holds one and a half tensors."""
    return replace(run, model=replace(run.model, num_hidden_layers=1, hidden_size=128), optimizer=WHOLE[name])


def signed_of(run: Run, name: str) -> Run:
    return replace(run, optimizer=SIGNED[name], phases=BRIEF)


def durable(run: Run, folder: Path, zero: int, precision: str = "fp32") -> Run:
    """A run with dropout and a data loader process; it saves after 4, 8 and 10 steps."""
    trunk = replace(run.model, hidden_dropout=0.1, attention_dropout=0.1)
    loading = replace(machine(zero, precision=precision), dataloader_num_workers=1)
    return replace(
        run, model=trunk, folder=str(folder), engine=loading, phases=RESTARTED, save_every=4, keep_checkpoints=3
    )


DURABLE = {"fp32-2": (2, "fp32"), "fp32-3": (3, "fp32"), "bf16-1": (1, "bf16"), "bf16-2": (2, "bf16")}
DURABLE |= {"adafactor": (2, "fp32"), "lamb": (3, "fp32"), "small ones whole": (3, "bf16")}


def durable_of(corpus: Path, folder: Path, name: str) -> Run:
    """The run of DURABLE with this name, in its directory."""
    run = mini_run(corpus, folder)
    run = durable(of_whole_tensors(run, name) if name in WHOLE else run, folder / name, *DURABLE[name])
    threshold = EngineSettings().param_persistence_threshold if name == "small ones whole" else 0
    return replace(run, engine=replace(run.engine, param_persistence_threshold=threshold))


def killed_of(corpus: Path, folder: Path) -> Run:
    """The run whose second worker is killed, possibly while a checkpoint is written."""
    return durable(mini_run(corpus, folder), folder / "killed", 2)


def resumed_elsewhere(corpus: Path, folder: Path, world: int, zero: int, precision: str = "fp32") -> Run:
    """A run that is saved after 2 of 4 steps, and resumes with another number of workers and another stage."""
    placed = machine(zero, precision=precision)
    return mini_run(corpus, folder / f"moved {world} {precision}", engine=placed, phases=BRIEF, save_every=2)


# number of workers at first, then two; their stages
MOVES = {(1, "fp32"): (1, 3), (2, "fp32"): (3, 1), (2, "bf16"): (2, 3)}


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The results of one worker and of two workers: all runs that finish, and one run that is killed.

    If no slow test of this module is selected, only the runs of QUICK are trained.
    """
    folder, kill_at = tmp_path_factory.mktemp("zero"), random.randrange(10)
    is_quick = not has_slow_tests(request)
    runs: dict[str, Any] = {}
    for world in (1, 2):
        jobs: dict[str, dict[str, Any]] = {}
        for zero, micro_tokens in product(STAGES, SPLITS):
            name = cell(world, zero, micro_tokens)
            changes = {"engine": machine(zero, micro_tokens), "phases": BRIEF, "eval_every": 4}
            jobs[name] = job(mini_run(corpus, folder / name, **changes))
        for net, (net_of, stages) in NETS.items():
            for zero in stages.get(world, ()):
                run = mini_run(corpus, folder / f"{net} {zero}", engine=machine(zero), phases=SHORTEST)
                jobs[f"{net} {zero}"] = job(net_of(run))
        for (first, precision), (zero, _) in MOVES.items():
            if first == world:
                jobs[f"moved {world} {precision}"] = job(resumed_elsewhere(corpus, folder, world, zero, precision))
        for optimizer, zero in product(WHOLE, STAGES):
            name = with_optimizer(optimizer, world, zero)
            run = mini_run(corpus, folder / name, engine=machine(zero), phases=BRIEF)
            jobs[name] = job(of_whole_tensors(run, optimizer))
        for optimizer, zero in product(SIGNED if world == 2 else (), STAGES):
            name = with_optimizer(optimizer, world, zero)
            jobs[name] = job(signed_of(mini_run(corpus, folder / name, engine=machine(zero)), optimizer))
        if world == 1:
            for zero in (1, 2, 3):
                run = mini_run(corpus, folder, engine=machine(zero, 10_000, "bf16"))
                jobs[f"crumbs {zero}"] = job(run) | {"crumbs": True}
        else:
            for zero in (1, 2, 3):
                name = cell(world, zero, 96, "bf16")
                run = mini_run(corpus, folder / name, engine=machine(zero, precision="bf16"), phases=BRIEF)
                jobs[name] = job(run)
            for zero in STAGES:
                run = mini_run(corpus, folder / f"poisoned {zero}", engine=machine(zero), phases=BRIEF)
                jobs[f"poisoned {zero}"] = job(run, poison_at=2)
            jobs["gpt"] = job(gpt(mini_run(corpus, folder / "gpt", engine=machine(3), phases=BRIEF)))
            for name, (zero, precision, policy, skipped) in SPIKED.items():
                run = mini_run(corpus, folder / name, engine=machine(zero, precision=precision), phases=SPIKY)
                run = replace(
                    run, save_every=3, loss_spikes=LossSpikes(policy=policy, window_steps=5, threshold_sigmas=30.0)
                )
                jobs[name] = job(run, spike_at=8)
                again = replace(run, folder=f"{run.folder} again", skip_steps=skipped, loss_spikes=LossSpikes())
                jobs[f"{name} again"] = job(again, spike_at=8)
            for name in DURABLE:
                jobs[name] = job(durable_of(corpus, folder, name))
        names = [name for name in jobs if name in QUICK or not is_quick]
        to_do = [jobs[name] for name in names]
        if world == 2:
            to_do.append(job(killed_of(corpus, folder), kill_at=kill_at))
        if to_do:
            runs |= dict(zip(names, outcome(world, to_do, folder / f"group-{world}", world == 2), strict=True))
    return Seen(folder, runs, kill_at)


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """The same run in one plain process, without DeepSpeed and in one micro-batch."""
    return in_one_process(mini_run(corpus, tmp_path_factory.mktemp("plain"), phases=BRIEF, eval_every=4))


def in_one_process(run: Run) -> Plain:
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    reported: dict[int, dict[str, float]] = {}
    pretrain(run, engine, lambda step, metrics: reported.setdefault(step, {}).update(metrics))
    return Plain([metrics["train/loss"] for metrics in reported.values()], engine.full_state(), reported[run.steps])


@each(cell, world=(1, 2), zero=STAGES, micro_tokens=SPLITS)
def test_every_stage_world_and_micro_batch_size_gives_the_plain_losses(
    seen: Seen, plain: Plain, world: int, zero: int, micro_tokens: int
) -> None:
    assert seen.losses(cell(world, zero, micro_tokens)) == pytest.approx(plain.losses, rel=1e-5)


def test_a_decoder_whose_head_has_no_weight_gives_the_plain_losses(seen: Seen, corpus: Path, tmp_path: Path) -> None:
    plain = in_one_process(gpt(mini_run(corpus, tmp_path, phases=BRIEF)))
    assert seen.losses("gpt") == pytest.approx(plain.losses, rel=1e-5)


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plain]:
    """The runs with optimizers that need whole tensors, in one plain process."""
    folder = tmp_path_factory.mktemp("whole")
    runs = {name: mini_run(corpus, folder / name, phases=BRIEF) for name in WHOLE}
    return {name: in_one_process(of_whole_tensors(run, name)) for name, run in runs.items()}


@each(with_optimizer, optimizer=WHOLE, world=(1, 2), zero=STAGES)
def test_optimizers_of_whole_tensors_learn_the_same_on_every_stage(
    seen: Seen, whole: dict[str, Plain], optimizer: str, world: int, zero: int
) -> None:
    name = with_optimizer(optimizer, world, zero)
    assert seen.losses(name) == pytest.approx(whole[optimizer].losses, rel=1e-5)
    weights = safetensors.torch.load_file(seen.folder / name / "final.safetensors")
    for tensor, wanted in whole[optimizer].weights.items():
        found = weights[tensor]
        # the bias of the keys has no gradient except rounding noise, but Adafactor uses its sign
        if tensor.endswith("qkv.bias"):
            found, wanted = (torch.cat(each.chunk(3)[::2]) for each in (found, wanted))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5, msg=tensor)


@pytest.fixture(scope="module")
def signed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plain]:
    """The runs of SIGNED in one plain process."""
    folder = tmp_path_factory.mktemp("signed")
    return {name: in_one_process(signed_of(mini_run(corpus, folder / name), name)) for name in SIGNED}


@each(with_optimizer, optimizer=SIGNED, world=(2,), zero=STAGES)
def test_lion_and_muon_clip_the_raw_gradient_and_not_the_update(
    seen: Seen, signed: dict[str, Plain], optimizer: str, world: int, zero: int
) -> None:
    """DeepSpeed's own Muon clips the orthogonal update under ZeRO 1 to 3 (DeepSpeed #8439, Megatron-LM #5394)."""
    found = seen.runs[with_optimizer(optimizer, world, zero)]
    norms = [metrics["train/grad_norm"] for metrics in found["steps"].values()]
    assert zero == 0 or min(norms) > SIGNED[optimizer].max_grad_norm  # stage 0 reports no norm
    assert losses(found) == pytest.approx(signed[optimizer].losses, rel=1e-5)


@each(str, name=[f"{net} {zero}" for net, (_, stages) in NETS.items() for zero in chain(*stages.values())])
def test_electra_and_t5_learn_the_same_on_every_stage(name: str, seen: Seen, corpus: Path, tmp_path: Path) -> None:
    net = name.rpartition(" ")[0]
    plain = in_one_process(NETS[net][0](mini_run(corpus, tmp_path, phases=SHORTEST)))
    assert seen.losses(name) == pytest.approx(plain.losses, rel=1e-5)
    weights = safetensors.torch.load_file(seen.folder / name / "final.safetensors")
    assert weights.keys() == plain.weights.keys()
    for tensor, wanted in plain.weights.items():
        torch.testing.assert_close(weights[tensor], wanted, rtol=1e-3, atol=1e-4, msg=tensor)


@each(partial(cell, micro_tokens=96), world=(1, 2), zero=STAGES)
def test_workers_evaluate_the_same_as_one_plain_process(seen: Seen, plain: Plain, world: int, zero: int) -> None:
    found = seen.runs[cell(world, zero, 96)]["steps"]["4"]
    assert found["eval/loss"] == pytest.approx(plain.last["eval/loss"], rel=1e-5)
    assert found["eval/pair_accuracy"] == plain.last["eval/pair_accuracy"]


@each(partial(cell, micro_tokens=96), world=(1, 2), zero=STAGES)
def test_the_gathered_weights_equal_those_of_one_plain_process(seen: Seen, plain: Plain, world: int, zero: int) -> None:
    weights = safetensors.torch.load_file(seen.folder / cell(world, zero, 96) / "final.safetensors")
    assert weights.keys() == plain.weights.keys()
    for name, wanted in plain.weights.items():
        torch.testing.assert_close(weights[name], wanted, rtol=1e-3, atol=1e-4, msg=name)


def in_bf16(zero: int) -> str:
    return cell(2, zero, 96, "bf16")


BF16 = [in_bf16(zero) for zero in (1, 2, 3)]


@each(str, name=[cell(world, zero, 96) for world in (1, 2) for zero in STAGES] + BF16)
def test_a_checkpoint_contains_the_same_weights_for_one_process(seen: Seen, name: str) -> None:
    path = find_newest(seen.folder / name / CHECKPOINTS)
    assert path is not None
    found = weights_of(path)
    for name_of, weight in safetensors.torch.load_file(seen.folder / name / "final.safetensors").items():
        assert torch.equal(found[name_of], weight), name_of


def test_stage_three_partitions_every_tensor(seen: Seen, plain: Plain) -> None:
    assert seen.runs[cell(2, 3, 96)]["partitioned"] == len(plain.weights)
    assert seen.runs[cell(2, 2, 96)]["partitioned"] == 0


@each(str, name=SPIKED)
def test_skipping_a_spike_equals_leaving_out_the_batch_on_every_stage(seen: Seen, name: str) -> None:
    assert tuple(seen.runs[name]["skip_steps"]) == SPIKED[name][-1], seen.runs[name]
    one, again = (
        safetensors.torch.load_file(seen.folder / each / "final.safetensors") for each in (name, f"{name} again")
    )
    for tensor, weight in one.items():
        assert torch.equal(weight, again[tensor]), tensor


@each(in_bf16, zero=(1, 2, 3))
def test_bf16_losses_are_close_to_those_in_float32(seen: Seen, plain: Plain, zero: int) -> None:
    found = seen.losses(in_bf16(zero))
    assert found == pytest.approx(plain.losses, rel=5e-3)
    assert found != pytest.approx(plain.losses, rel=1e-5)  # proves that the run was in bf16


@each(in_bf16, zero=(1, 2, 3))
def test_bf16_training_returns_float32_weights(seen: Seen, zero: int) -> None:
    weights = safetensors.torch.load_file(seen.folder / in_bf16(zero) / "final.safetensors")
    table = weights["trunk.tokens.weight"]
    assert table.dtype == torch.float32
    assert (table != table.bfloat16().float()).any()


@each("crumbs {}".format, zero=(1, 2, 3))
def test_bf16_adds_gradients_in_float32(seen: Seen, zero: int) -> None:
    once, with_crumbs = seen.runs[f"crumbs {zero}"]
    assert with_crumbs == pytest.approx((1 + CRUMBS * CRUMB) * once, rel=1e-4)


@each("poisoned {}".format, zero=STAGES)
def test_a_nonfinite_gradient_of_one_worker_is_skipped_by_all(seen: Seen, zero: int) -> None:
    found = seen.runs[f"poisoned {zero}"]
    assert found["skipped"] == 1
    assert all(math.isfinite(loss) for loss in losses(found))


@pytest.mark.parametrize("zero", STAGES)
def test_every_stage_reports_the_norm_of_the_raw_gradient(seen: Seen, plain: Plain, zero: int) -> None:
    assert seen.runs[cell(2, zero, 96)]["steps"]["4"]["train/grad_norm"] == pytest.approx(
        plain.last["train/grad_norm"], rel=1e-3
    )


def test_killed_and_damaged_runs_resume_to_the_same_weights(seen: Seen, corpus: Path) -> None:
    """A run whose second worker received SIGKILL at a random step, and durable runs whose newest files are
    truncated."""
    killed, kill_at = killed_of(corpus, seen.folder), seen.kill_at
    durables = [name for name in DURABLE if name in seen.runs]
    for name in durables:
        last = max((seen.folder / name / "checkpoints").glob("step-*"))
        for file in last.glob("rank-*"):
            os.truncate(file, file.stat().st_size // 2)

    again = {name: durable_of(corpus, seen.folder, name) for name in durables}
    moves = {}
    for (world, precision), (_, zero) in MOVES.items():
        if f"moved {world} {precision}" not in seen.runs:
            continue
        run = resumed_elsewhere(corpus, seen.folder, world, zero, precision)
        shutil.rmtree(Path(run.folder) / CHECKPOINTS / checkpoint.name(4))
        moves[cell(2, zero, 96, precision)] = run
    jobs = [job(run) for run in (killed, *again.values(), *moves.values())]
    found = outcome(2, jobs, seen.folder / "group-again")
    resumed = found[: len(found) - len(moves)]
    for name, after in zip(("fp32-2", *durables), resumed, strict=True):
        assert after["loss"] == seen.runs[name]["loss"], f"{name}, killed after {kill_at} steps"
        assert losses(after) == seen.losses(name)[-len(losses(after)) :], f"{name}, killed after {kill_at} steps"
    first, *others = (min(map(int, after["steps"])) for after in resumed)
    saved = kill_at // 4 * 4
    assert first in {saved + 1, max(0, saved - 4) + 1}  # an unfinished checkpoint is ignored
    assert others == [9] * len(durables)
    for undisturbed, after in zip(moves, found[len(resumed) :], strict=True):
        assert list(after["steps"]) == ["3", "4"]
        precise = 1e-6 if undisturbed.endswith("fp32") else 5e-4  # bf16 rounds other sums on other stages
        assert losses(after) == pytest.approx(seen.losses(undisturbed)[2:], rel=precise), undisturbed


class Recorder(dict[str, Any]):
    """A dictionary that records which of its keys are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def test_deepspeed_reads_every_key_of_the_configuration() -> None:
    config = Recorder(deepspeed_config(EngineSettings(), AdamW(learning_rate=1e-3)) | {"zero_optimisation": {}})
    deepspeed_import.deepspeed().DeepSpeedConfig(config)
    assert set(config) - config.read == {"zero_optimisation"}  # DeepSpeed silently ignores a misspelled key


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_deepspeed_understands_the_configuration(zero: int, precision: str) -> None:
    given = deepspeed_config(machine(zero, precision=precision), AdamW(learning_rate=1e-3, max_grad_norm=0.5))
    config = deepspeed_import.deepspeed().DeepSpeedConfig(given)
    assert config.gradient_clipping == 0.5
    assert config.zero_config.stage == zero
    assert config.zero_config.param_persistence_threshold == 0
    assert config.bfloat16_config.enabled == (precision == "bf16")
    assert (config.grad_accum_dtype, config.managed_gradient_accumulation) == ("fp32", False)


def test_worker_timeout_is_that_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(deepspeed_import.deepspeed(), "init_distributed", lambda **given: asked.update(given))
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    connect(EngineSettings(init_timeout_seconds=90))
    assert asked["timeout"].total_seconds() == 90
    with pytest.raises(ValueError, match="timeout"):
        EngineSettings(init_timeout_seconds=0)


def test_a_worker_on_the_wrong_device_names_the_setting() -> None:
    with pytest.raises(
        ResourceError, match="got cpu, expected cuda, the device of the cluster; set DS_ACCELERATOR=cuda"
    ):
        connect(EngineSettings(device="cuda"))
