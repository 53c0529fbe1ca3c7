"""The engine of one process: flat parameters, bf16 with float32 master weights, and updates that the device decides."""

import gc
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from preprocessing.collate import collate_unpadded
from tests.training.batches import random_rows
from tests.training.corpora import mini_run
from training.engines import DeepSpeedEngine, Fragments, LocalEngine, open_engine, write
from training.engines.flat_parameters import ALIGNED, FlatParameters
from training.formats import build_model, describe_model
from training.model import parameter_groups
from training.optimizers import Adafactor, AdamW, Lamb, Lion, Muon, Optimizer
from training.run import Run
from training.specs import EngineSettings

OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": AdamW(learning_rate=1e-2),
    "uncorrected": AdamW(learning_rate=1e-2, bias_correction=False),
    "lamb": Lamb(learning_rate=1e-2),
    "adafactor": Adafactor(learning_rate=1e-2),
    "lion": Lion(learning_rate=1e-3),
    "muon": Muon(learning_rate=1e-2),
}
FP32, BF16 = EngineSettings(), EngineSettings(precision="bf16")


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    run = mini_run(corpus, tmp_path)
    return replace(run, model=replace(run.model, hidden_dropout=0.0, attention_dropout=0.0))


def engine_of(run: Run, optimizer: str = "adamw", machine: EngineSettings = FP32) -> LocalEngine[Any]:
    return LocalEngine(build_model(run), OPTIMIZERS[optimizer], machine)


def update(engine: LocalEngine[Any], seeds: tuple[int, ...] = (0,), factor: float = 1.0, rate: float = 1e-2) -> float:
    """One update with a micro-batch for each seed; returns the loss."""
    total = 0.0
    for seed in seeds:
        score = engine.forward(collate_unpadded(random_rows([9, 7, 12], 467, seed=seed)))["masked_tokens"]
        engine.backward(factor * score.loss / len(seeds))
        total += float(score.loss.detach())
    engine.step(rate)
    return total


def states_of(engine: LocalEngine[Any]) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, by key."""
    part = engine.part(lambda name, tensor: tensor.clone())
    numbers = {f"{name}.{key}": value for name, held in part.numbers.items() for key, value in held.items()}
    return part.tensors | {key: torch.tensor(value) for key, value in numbers.items()}


@pytest.mark.parametrize("machine", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_that_is_not_finite_changes_no_bit_of_any_state(
    optimizer: str, machine: EngineSettings, run: Run
) -> None:
    engine = engine_of(run, optimizer, machine)
    for _ in range(2):
        update(engine)
    before, parameters = states_of(engine), {n: p.clone() for n, p in engine.model.named_parameters()}
    update(engine, factor=math.nan)
    after = states_of(engine)
    assert after.keys() == before.keys()
    assert [key for key in before if not torch.equal(before[key], after[key])] == []
    assert all(torch.equal(parameters[name], weight) for name, weight in engine.model.named_parameters())
    update(engine)
    assert not all(torch.equal(before[key], value) for key, value in states_of(engine).items())


@pytest.mark.parametrize("machine", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_engine_continues_to_the_bit(
    optimizer: str, machine: EngineSettings, run: Run, tmp_path: Path
) -> None:
    engine, resumed = (engine_of(run, optimizer, machine) for _ in range(2))
    for _ in range(3):
        update(engine, (0, 1))
    write(engine.part(lambda name, tensor: tensor), tmp_path / "part")
    resumed.load(Fragments([tmp_path / "part"]), {})
    for one in (engine, resumed):
        update(one, (2, 3))
    ours, theirs = states_of(engine), states_of(resumed)
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []


def test_flat_parameters_are_views_with_aligned_starts_in_float32(run: Run) -> None:
    engine = engine_of(run)
    assert engine.flat is not None
    for group in engine.flat.groups:
        starts = [weight.data_ptr() - group.weights.data_ptr() for weight in group.parameters]
        sizes = [weight.numel() for weight in group.parameters]
        assert starts == [4 * sum(sizes[:number]) for number in range(len(sizes))]
        odd = [number for number, size in enumerate(sizes) if size % ALIGNED]
        assert odd == list(range(len(sizes) - len(odd), len(sizes)))  # the last ones, so that all others are aligned
    names = [name for group in engine.flat.groups for name in group.names]
    assert sorted(names) == sorted(name for name, _ in engine.model.named_parameters())


def test_bf16_learns_as_float32_from_float32_master_weights(run: Run) -> None:
    plain, half = engine_of(run), engine_of(run, machine=BF16)
    assert {weight.dtype for weight in half.model.parameters()} == {torch.bfloat16}
    losses = [(update(plain), update(half)) for _ in range(20)]  # of the same batch
    assert losses[-1][0] < losses[0][0] - 5
    for ours, theirs in losses:
        assert theirs == pytest.approx(ours, rel=0.05)
    for (name, master), weight in zip(half.weights(), half.model.parameters(), strict=True):
        assert master.dtype == torch.float32, name
        assert torch.equal(master.to(torch.bfloat16), weight)


def test_updates_below_the_precision_of_bf16_add_up(run: Run) -> None:
    engine = engine_of(run, machine=BF16)
    before = engine.full_state()["trunk.tokens.weight"].clone()
    for step in range(8):
        update(engine, (step,), rate=1e-6)
    moved = (engine.full_state()["trunk.tokens.weight"] - before).abs()
    assert 4e-6 < float(moved.max()) < 1e-5  # half a unit of bf16 is 4e-5 at 0.02


def test_gradients_of_micro_batches_are_added_in_float32(run: Run) -> None:
    model = build_model(run).to(torch.bfloat16)
    flat = FlatParameters(model, parameter_groups(model, 0.01))
    wanted: dict[str, torch.Tensor] = {}
    for seed in range(5):
        batch = collate_unpadded(random_rows([9, 7], 467, seed=seed))
        model({name: torch.from_numpy(array) for name, array in batch.items()})["masked_tokens"].loss.backward()
        for name, weight in model.named_parameters():
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
            wanted[name] = wanted.get(name, 0) + gradient.float()
        flat.collect()
    for name, found in zip(wanted, flat.gradients, strict=True):
        assert torch.equal(found, wanted[name]), name


def test_steps_allocate_nothing_that_grows(run: Run) -> None:
    engine = engine_of(run, machine=BF16)

    def count() -> int:
        gc.collect()
        return sum(isinstance(each, torch.Tensor) for each in gc.get_objects())

    counts = []
    for step in range(6):
        update(engine, (step, step + 1))
        counts.append(count())
    assert len(set(counts[2:])) == 1, counts


def test_one_worker_needs_no_deepspeed_unless_it_uses_a_feature_of_it(run: Run) -> None:
    engine = open_engine(lambda *_: describe_model(run), run.optimizer, run.engine, world=1)
    assert isinstance(engine, LocalEngine)
    machine = EngineSettings(zero_stage=3)
    alone = [
        machine.is_alone(1),
        machine.is_alone(2),
        replace(machine, offload_optimizer="cpu").is_alone(1),
        replace(machine, deepspeed={"zero_optimization": {"reduce_bucket_size": 5}}).is_alone(1),
        EngineSettings(precision="fp16", device="cuda").is_alone(1),
    ]
    assert alone == [True, False, False, False, False]
    assert DeepSpeedEngine is not LocalEngine


def test_an_optimizer_without_a_loss_scale_is_asked_on_the_host(run: Run) -> None:
    engine = engine_of(run)
    assert engine.flat is not None
    engine.optimizer = torch.optim.SGD([flat.weights for flat in engine.flat.groups], lr=0.1)
    before = engine.full_state()["trunk.tokens.weight"].clone()
    update(engine, factor=math.inf)
    assert torch.equal(engine.full_state()["trunk.tokens.weight"], before)
    update(engine)
    assert not torch.equal(engine.full_state()["trunk.tokens.weight"], before)
