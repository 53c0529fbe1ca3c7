"""The memory is part of a checkpoint: an interrupted run resumes with it bit for bit, on any engine."""

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from preprocessing.files import from_checked_json, to_checked_json
from preprocessing.masking import NoMasking, PartialPrediction
from preprocessing.objectives import CausalLM, PermutationLM
from preprocessing.packing import Stream, StreamPair
from tests.training.corpora import mini_run, resampled
from tests.training.engines.test_zero import losses, machine, outcome, spawn
from tests.training.worker import job
from training.engines import memory_in
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import TrainingResult, pretrain
from training.losses import MaskedTokens, NextToken
from training.reshard_memory import MemoryLayout, reshard_memory
from training.run import Run
from training.specs import (
    AdaptiveEmbedding,
    Decoder,
    EngineSettings,
    Phase,
    RelativePositions,
    TwoStream,
    TwoStreamRelativePositions,
)

SIZES: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "init_std": 0.1}


def transformer_xl(run: Run) -> Run:
    """The run with Transformer-XL and adaptive embeddings."""
    tables = AdaptiveEmbedding(cutoffs=(100, 200), div_val=2)
    return replace(
        resampled(run, packing=Stream(), masking=NoMasking(), objective=CausalLM()),
        model=Decoder(
            **SIZES,
            token_embedding=tables,
            position_embedding=RelativePositions(mem_len=24),
            norm_position="post",
            activation="relu",
        ),
        losses=(NextToken(bias=True),),
        phases=(Phase(seq_length=16, global_batch_size=6, steps=14),),
    )


def xlnet(run: Run) -> Run:
    """The run with XLNet."""
    return replace(
        resampled(
            run, packing=StreamPair(reuse_len=16), masking=PartialPrediction(), objective=PermutationLM(perm_size=16)
        ),
        model=TwoStream(
            **SIZES, position_embedding=TwoStreamRelativePositions(mem_len=24, reuse_len=16), type_vocab_size=3
        ),
        losses=(MaskedTokens(transform=False),),
        phases=(Phase(seq_length=32, global_batch_size=6, steps=14),),
    )


BOTH = pytest.mark.parametrize("make", [transformer_xl, xlnet])
Make = Callable[[Run], Run]


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    keys = {"save_every": 4, "async_checkpointing": False, "eval_every": 5}
    return mini_run(corpus, tmp_path / "run", engine=EngineSettings(micro_batch_tokens=64), **keys)


def train(run: Run, die_at: int = -1) -> tuple[TrainingResult, list[float], LocalEngine]:
    """The result of the run, its losses, and the engine."""
    engine, reported = LocalEngine(build_model(run), run.optimizer, run.engine), dict[int, dict[str, float]]()
    update, done = engine.step, 0

    def step(rate: float) -> Any:
        nonlocal done
        if done == die_at:
            raise KeyboardInterrupt
        done += 1
        return update(rate)

    engine.step = step  # type: ignore[method-assign]
    result = pretrain(run, engine, lambda step, metrics: reported.setdefault(step, {}).update(metrics))
    return result, [metrics["train/loss"] for metrics in reported.values() if "train/loss" in metrics], engine


@pytest.mark.one_in(2)
@BOTH
def test_an_interrupted_run_resumes_with_its_memory_bit_for_bit(run: Run, make: Make, tmp_path: Path) -> None:
    run = make(run)
    whole, all_losses, wanted = train(replace(run, folder=str(tmp_path / "whole")))
    with pytest.raises(KeyboardInterrupt):
        train(run, die_at=10)
    resumed, found, engine = train(run)
    assert resumed == whole
    assert found == all_losses[8:]
    weights = dict(wanted.model.named_parameters())
    assert all(torch.equal(weight, weights[name]) for name, weight in engine.model.named_parameters())


@pytest.mark.one_in(2)
@BOTH
def test_a_run_without_its_memory_has_other_losses(run: Run, make: Make, tmp_path: Path, monkeypatch) -> None:
    run = make(run)
    _, wanted, _ = train(replace(run, folder=str(tmp_path / "whole")))
    with pytest.raises(KeyboardInterrupt):
        train(run, die_at=10)
    monkeypatch.setattr("training.checkpoint.memory_in", lambda _: {})
    assert train(run)[1][0] != wanted[8]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("workers", 2, "workers 2, but this run has workers 1"),
        ("tensor_parallel_size", 2, "tensor_parallel_size 2, but this run has tensor_parallel_size 1"),
        ("sequence_parallel_size", 2, "sequence_parallel_size 2, but this run has sequence_parallel_size 1"),
        ("pipeline_parallel_size", 2, "pipeline_parallel_size 2, but this run has pipeline_parallel_size 1"),
        ("micro_batch_tokens", 32, "micro_batch_tokens 32, but this run has micro_batch_tokens 64"),
        (
            "micro_batch_tokens",
            None,
            "micro_batch_tokens unknown, but this run has micro_batch_tokens 64",
        ),  # as in checkpoints older than this key
    ],
)
def test_a_run_in_another_layout_starts_with_an_empty_memory_and_a_note(
    run: Run, caplog: pytest.LogCaptureFixture, key: str, value: int | None, line: str
) -> None:
    run = transformer_xl(run)
    with pytest.raises(KeyboardInterrupt):
        train(run, die_at=10)
    manifest = Path(run.folder) / "checkpoints" / "step-000000008" / "manifest.json"
    written = from_checked_json(manifest.read_bytes())
    assert key in written
    changed = {name: number for name, number in (written | {key: value}).items() if number is not None}
    manifest.write_bytes(to_checked_json(changed))
    assert train(run)[0].finished
    assert f"was written with {line}; the memory of the model starts empty" in caplog.text


@pytest.mark.one_in(4)
@BOTH
@pytest.mark.parametrize("micro_tokens", [32, 96, 192])
def test_a_run_with_other_micro_batches_resumes_with_the_old_memory(
    run: Run, make: Make, micro_tokens: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = steady(make(run))
    _, wanted, _ = train(replace(run, folder=str(tmp_path / "whole")))
    with pytest.raises(KeyboardInterrupt):
        train(run, die_at=10)
    _, found, _ = train(replace(run, engine=replace(run.engine, micro_batch_tokens=micro_tokens)))
    assert found == pytest.approx(wanted[8:], rel=1e-6)
    assert "forgotten" not in caplog.text


@pytest.mark.parametrize("batch", [6, 7])
@pytest.mark.parametrize("tensor", [1, 2])
def test_a_memory_is_redistributed_to_any_other_layout(batch: int, tensor: int) -> None:
    """Each sequence keeps its own states, and no worker reads more files than it needs."""
    layouts = [MemoryLayout(batch, micro_rows, world, tensor) for micro_rows in (1, 2, 9) for world in (1, 2, 3)]
    row_B = torch.arange(1, batch + 1)
    state_LBMD = row_B.float()[None, :, None, None].expand(2, -1, 4, 3)

    def memory(layout: MemoryLayout, number: int) -> dict[str, torch.Tensor]:
        """The memory of one worker; its first slot has fewer states than the others."""
        slots = dict(enumerate(layout.slots(number)))
        states = {f"states.{slot}": state_LBMD[:, list(rows), slot > 0 :] for slot, rows in slots.items()}
        return states | {f"counts.{slot}": row_B[list(rows)] for slot, rows in slots.items()}

    for theirs, ours in product(layouts, layouts):
        for number in range(ours.world):
            read = list[int]()

            def noted(rank: int, theirs: MemoryLayout = theirs, read: list[int] = read) -> dict[str, torch.Tensor]:
                read.append(rank)
                return memory(theirs, rank // tensor)

            found = reshard_memory(noted, theirs, ours, number)
            for slot, rows in enumerate(ours.slots(number)):
                states = found[f"states.{slot}"]
                assert found[f"counts.{slot}"].tolist() == row_B[list(rows)].tolist()
                assert torch.equal(states[:, :, -3:], state_LBMD[:, list(rows), -3:])
                assert len(found) == 2 * len(ours.slots(number))
            assert all(rank % tensor == 0 for rank in read)
            if theirs == ours:
                assert read == [number * tensor]


@BOTH
def test_a_checkpoint_contains_only_the_slots_of_training(run: Run, make: Make) -> None:
    run = make(run)
    _, _, engine = train(run)
    assert min(engine.model.trunk.memory.states) < 0
    (newest,) = sorted(Path(run.folder).glob("checkpoints/step-*"))[-1:]
    held = memory_in(newest / "rank-00000.safetensors")
    slots = {int(name.partition(".")[2]) for name in held}
    assert slots == {slot for slot in engine.model.trunk.memory.states if slot >= 0}
    assert len(slots) > 1
    assert held["states.0"].shape[0] == 2


# DeepSpeed.


@pytest.fixture(scope="module")
def group(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The directory of the runs, and the metrics of each model and stage. Two workers trained them, with two memory
    slots each."""
    folder = tmp_path_factory.mktemp("memory")
    names = [f"{make.__name__} {zero}" for make, zero in CELLS]
    runs = {name: on(corpus, folder / name, *cell) for name, cell in zip(names, CELLS, strict=True)}
    seen = outcome(2, [job(run) for run in runs.values()], folder / "group")
    return folder, dict(zip(runs, seen, strict=True))


CELLS = [(make, zero) for make in (transformer_xl, xlnet) for zero in (1, 2, 3)]


def on(corpus: Path, folder: Path, make: Make, zero: int) -> Run:
    """The run on a ZeRO stage, with micro-batches of one or two sequences."""
    keys = {"save_every": 4, "async_checkpointing": False, "keep_checkpoints": 9}
    return steady(make(mini_run(corpus, folder, engine=machine(zero, micro_tokens=40), **keys)))


def steady(run: Run) -> Run:
    """The run without dropout, because each worker draws different dropout masks."""
    return replace(run, model=replace(run.model, hidden_dropout=0.0, attention_dropout=0.0))


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a busy machine takes several times as long as an idle one
@pytest.mark.parametrize(("make", "zero"), CELLS)
def test_every_stage_gives_the_losses_of_one_plain_process(group, make, zero: int, run: Run) -> None:
    _, wanted, _ = train(steady(make(replace(run, eval_every=0))))
    assert losses(group[1][f"{make.__name__} {zero}"]) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a busy machine takes several times as long as an idle one
@pytest.mark.parametrize(("make", "zero"), [(transformer_xl, 2), (xlnet, 3)])
def test_killed_workers_resume_with_their_memories_bit_for_bit(
    group, make, zero: int, corpus: Path, tmp_path: Path
) -> None:
    folder, seen = group
    run = on(corpus, tmp_path / "run", make, zero)
    workers = spawn(2, [job(run, kill_at=10)], tmp_path / "killed")
    try:
        assert workers[1].wait(timeout=800) == -signal.SIGKILL
    finally:
        for worker in workers:
            worker.kill()
    files = sorted(Path(run.folder).glob("checkpoints/step-000000008/rank-*"))
    assert [bool(memory_in(file)) for file in files] == [True, True]
    (resumed,) = outcome(2, [job(run)], tmp_path / "resumed")
    assert losses(resumed) == losses(seen[f"{make.__name__} {zero}"])[8:]
    final, wanted = (
        safetensors.torch.load_file(at / "final.safetensors")
        for at in (Path(run.folder), folder / f"{make.__name__} {zero}")
    )
    assert all(torch.equal(weight, wanted[name]) for name, weight in final.items())


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a busy machine takes several times as long as an idle one
@pytest.mark.parametrize("make", [transformer_xl, xlnet])
def test_a_run_with_memory_moves_from_one_worker_to_two_and_back(group, make, corpus: Path, tmp_path: Path) -> None:
    folder, seen = group
    wanted = losses(seen[f"{make.__name__} 2"])
    first = on(corpus, tmp_path / "run", make, 2)
    for path in (folder / f"{make.__name__} 2" / "checkpoints").iterdir():
        if path.name in ("step-000000004", "step-000000008"):
            shutil.copytree(path, Path(first.folder) / "checkpoints" / path.name)
    (alone,) = outcome(1, [job(first)], tmp_path / "alone")
    assert losses(alone) == pytest.approx(wanted[8:], rel=1e-6)
    shutil.rmtree(Path(first.folder) / "checkpoints" / "step-000000014")
    (again,) = outcome(2, [job(first)], tmp_path / "again")
    assert losses(again) == pytest.approx(wanted[12:], rel=1e-6)
    actual = "".join(file.read_text() for file in tmp_path.rglob("*.log"))
    assert "forgotten" not in actual
