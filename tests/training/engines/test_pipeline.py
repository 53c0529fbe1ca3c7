"""Workers that each hold a pipeline stage of a model learn the same as one plain process."""

import math
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch

from tests.training.corpora import mini_run
from tests.training.engines.test_tensor_parallel import (
    NETS,
    RESUMED,
    ROWS,
    SHORT,
    WHOLE,
    PlainRun,
    in_one_process,
    train_plainly,
    with_optimizer,
)
from tests.training.engines.test_zero import has_slow_tests, losses, machine, outcome
from tests.training.worker import job
from training.engines import DeepSpeedEngine, pipeline
from training.losses import NextToken
from training.run import CHECKPOINTS, Run
from training.specs import ActivationCheckpointing, EngineSettings, LossSpikes, Offload, Phase
from training.specs.engine_settings import Precision
from training.specs.loss_spikes import Policy

pytestmark = pytest.mark.timeout(3600)  # in seconds; a busy machine takes several times as long as an idle one


class Cell(NamedTuple):
    """A run of a model with its numbers of pipeline stages, tensor-parallel workers and other layout settings."""

    net: str
    zero: int
    stages: int = 2
    tensor: int = 1
    sequence: int = 1
    recompute: ActivationCheckpointing = "none"
    precision: Precision = "fp32"
    offload: Offload = "none"

    @property
    def name(self) -> str:
        return " ".join(map(str, self))

    def run(self, corpus: Path, folder: Path, **changes: Any) -> Run:
        shared = replace(
            machine(self.zero),
            pipeline_parallel_size=self.stages,
            tensor_parallel_size=self.tensor,
            sequence_parallel_size=self.sequence,
            activation_checkpointing=self.recompute,
            precision=self.precision,
            offload_optimizer=self.offload,
        )
        run = mini_run(corpus, folder / self.name, engine=shared, vocab_size=ROWS)
        return replace(NETS[self.net](run), **changes)


def trained(corpus: Path, folder: Path, cells: list[Cell], world: int, **changes: Any) -> dict[Cell, Any]:
    """The metrics of the first worker, by cell."""
    jobs = [job(cell.run(corpus, folder, **changes)) for cell in cells]
    return dict(zip(cells, outcome(world, jobs, folder / f"group-{world}"), strict=True))


def assert_alike(cell: Cell, found: Any, wanted: PlainRun, folder: Path) -> None:
    """Assert equal losses, last gradient norm and whole weights."""
    assert losses(found) == pytest.approx(wanted.losses, rel=1e-5), cell
    last = found["steps"][str(len(wanted.losses))]
    assert last["train/grad_norm"] == pytest.approx(wanted.last["train/grad_norm"], rel=1e-4), cell
    weights = safetensors.torch.load_file(folder / cell.name / "final.safetensors")
    assert weights.keys() == wanted.weights.keys(), cell
    for name, weight in wanted.weights.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=1e-4, msg=f"{name}, {cell}")


QUICK = [Cell("bert", 1, recompute="full"), Cell("gpt", 0)]
CELLS = [*QUICK, Cell("bert", 0), Cell("gpt", 1)]
EACH_CELL = pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=() if cell in QUICK else pytest.mark.slow) for cell in CELLS], ids=str
)


@pytest.fixture(scope="module")
def seen(
    request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[Cell, Any]]:
    folder, cells = tmp_path_factory.mktemp("pipeline"), CELLS if has_slow_tests(request) else QUICK
    return folder, trained(corpus, folder, cells, 2, phases=SHORT, eval_every=3)


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, PlainRun]:
    return train_plainly(corpus, tmp_path_factory.mktemp("plain"), ["bert", "gpt"], phases=SHORT, eval_every=3)


@EACH_CELL
def test_two_stages_learn_the_same_as_one_plain_process(cell: Cell, seen, plain) -> None:
    folder, runs = seen
    assert_alike(cell, runs[cell], plain[cell.net], folder)


@EACH_CELL
def test_two_stages_evaluate_the_same_as_one_plain_process(cell: Cell, seen, plain) -> None:
    found, wanted = seen[1][cell]["steps"]["3"], plain[cell.net].last
    assert found["eval/loss"] == pytest.approx(wanted["eval/loss"], rel=1e-5)
    assert found["train/tokens"] == wanted["train/tokens"]


@EACH_CELL
def test_each_weight_is_held_by_exactly_one_stage(cell: Cell, seen, plain) -> None:
    weights = plain[cell.net].weights
    last = ("heads.", "trunk.blocks.1.", "trunk.final_norm.")
    of_last = sum(weight.numel() for name, weight in weights.items() if name.startswith(last))
    total = sum(weight.numel() for weight in weights.values())
    assert seen[1][cell]["weights"] == [total - of_last, of_last]


@pytest.mark.slow
def test_two_workers_of_one_model_log_the_z_loss_of_one_plain_process(corpus: Path, tmp_path: Path) -> None:
    cells, losses_of = [Cell("gpt", 0), Cell("gpt", 0, stages=1, tensor=2)], (NextToken(z_loss=0.1),)
    found = trained(corpus, tmp_path, cells, 2, phases=SHORT, losses=losses_of, eval_every=3)
    wanted = train_plainly(corpus, tmp_path / "plain", ["gpt"], phases=SHORT, losses=losses_of, eval_every=3)["gpt"]
    for cell in cells:
        assert_alike(cell, found[cell], wanted, tmp_path)
        for name in ("train/z_loss", "eval/z_loss", "eval/perplexity"):
            assert found[cell]["steps"]["3"][name] == pytest.approx(wanted.last[name], rel=1e-5), (cell, name)
            assert wanted.last[name] > 0


@pytest.mark.slow
def test_bf16_gradients_are_counted_once(corpus: Path, tmp_path: Path) -> None:
    """DeepSpeed 0.19.8 counted the gradients of the last micro-batch of the first stage twice. The norm was 1.4 times
    as large, but losses of twenty steps differed by less than the expected error of bf16."""
    one = Cell("bert", 1, stages=1, precision="bf16")
    cells = [one._replace(stages=2), one._replace(stages=2, offload="cpu")]
    found = trained(corpus, tmp_path, cells, 2, phases=SHORT)
    plain = trained(corpus, tmp_path, [one], 1, phases=SHORT)[one]["steps"]
    for cell in cells:
        for step, wanted in plain.items():
            seen = found[cell]["steps"][step]
            assert seen["train/grad_norm"] == pytest.approx(wanted["train/grad_norm"], rel=1e-2), (cell, step)
            assert seen["train/loss"] == pytest.approx(wanted["train/loss"], rel=1e-3), (cell, step)


@pytest.mark.slow
def test_every_zero_stage_learns_the_same_for_twenty_updates(corpus: Path, tmp_path: Path) -> None:
    nets = ("bert", "gpt", "wide", "deep")
    cells = [Cell(net, zero) for net, zero in product(nets, (0, 1))]
    cells += [Cell(net, 1, recompute="selective") for net in ("bert", "gpt")]
    found, wanted = trained(corpus, tmp_path, cells, 2), train_plainly(corpus, tmp_path / "plain", list(nets))
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_optimizers_of_whole_tensors_learn_the_same_in_stages(kind: str, corpus: Path, tmp_path: Path) -> None:
    # the stages of BERT have different numbers of parameters
    cells = [Cell("bert", 0), Cell("bert", 1), Cell("gpt", 1)]
    runs = {cell: with_optimizer(cell.run(corpus, tmp_path), kind) for cell in cells}
    found = outcome(2, [job(run) for run in runs.values()], tmp_path / "group")
    for cell, ended in zip(cells, found, strict=True):
        plain = NETS[cell.net](mini_run(corpus, tmp_path / "plain" / cell.name, vocab_size=ROWS))
        wanted = in_one_process(with_optimizer(plain, kind))
        assert losses(ended) == pytest.approx(wanted.losses, rel=1e-5), cell
        weights = safetensors.torch.load_file(tmp_path / cell.name / "final.safetensors")
        for name, weight in wanted.weights.items():
            mine = weights[name]
            # the bias of the keys has no gradient except rounding noise, but Adafactor uses its sign
            if name.endswith("qkv.bias"):
                mine, weight = (torch.cat(each.chunk(3)[::2]) for each in (mine, weight))
            torch.testing.assert_close(mine, weight, rtol=1e-3, atol=1e-4, msg=f"{name}, {cell}")


@pytest.mark.slow
def test_four_workers_combine_tensor_pipeline_sequence_and_data_parallelism(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell(net, zero, 2, 2) for net, zero in product(("bert", "gpt"), (0, 1))]  # tensor 2 x pipeline 2
    cells += [Cell(net, zero, 2) for net, zero in product(("bert", "gpt"), (0, 1))]  # pipeline 2 x data 2
    cells += [Cell(net, zero, 2, 1, 2) for net, zero in product(("bert", "gpt"), (0, 1))]  # and x sequence 2
    # four stages of five layers: one stage has two
    cells += [Cell("deep", zero, 4, recompute="full") for zero in (0, 1)]
    found = trained(corpus, tmp_path, cells, 4)
    wanted = train_plainly(corpus, tmp_path / "plain", ["bert", "gpt", "deep"])
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
def test_recomputation_in_a_stage_repeats_its_dropout(corpus: Path, tmp_path: Path) -> None:
    kinds: tuple[ActivationCheckpointing, ...] = ("none", "full", "selective")
    cells = [Cell("noisy", 1, recompute=which) for which in kinds]
    found = trained(corpus, tmp_path, cells, 2, phases=SHORT)
    for cell in cells:
        assert losses(found[cell]) == losses(found[cells[0]]), cell


@pytest.mark.slow
def test_a_run_in_stages_resumes_bit_for_bit(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell("bert", 0), Cell("gpt", 1), Cell("noisy", 1)]
    whole = trained(corpus, tmp_path, cells, 2, phases=RESUMED, save_every=3)
    for cell in cells:
        shutil.rmtree(Path(cell.run(corpus, tmp_path).folder) / CHECKPOINTS / "step-000000006")
    again = trained(corpus, tmp_path, cells, 2, phases=RESUMED, save_every=3)
    for cell in cells:
        assert losses(again[cell]) == losses(whole[cell])[3:], cell


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "skipped"), [("skip", [9]), ("rollback", [8, 9])])
def test_a_loss_spike_in_the_last_stage_is_skipped_by_all_stages(
    policy: Policy, skipped: list[int], corpus: Path, tmp_path: Path
) -> None:
    spiky = LossSpikes(policy=policy, window_steps=5, threshold_sigmas=30.0)
    changes = {"phases": (Phase(seq_length=48, global_batch_size=9, steps=12),), "loss_spikes": spiky, "save_every": 3}
    run = Cell("bert", 1).run(corpus, tmp_path, **changes)
    (found,) = outcome(2, [job(run, spike_at=8)], tmp_path / "group")
    assert found["skip_steps"] == skipped
    # skipped steps have no loss
    learned = [step["train/loss"] for step in found["steps"].values() if "train/loss" in step]
    assert len(learned) >= 12 - len(skipped)  # a step that is rolled back was logged before
    assert all(math.isfinite(loss) for loss in learned)
    weights = safetensors.torch.load_file(Path(run.folder) / "final.safetensors")
    assert all(bool(weight.isfinite().all()) for weight in weights.values())


def test_invalid_pipeline_settings_are_refused() -> None:
    for keys, message in (
        ({"pipeline_parallel_size": 0}, "invalid pipeline_parallel_size: got 0, expected at least 1 stage"),
        (
            {"pipeline_parallel_size": 2, "zero_stage": 2},
            "invalid zero_stage: got 2, expected 0 or 1 with pipeline parallelism: 2 and 3 would",
        ),
        (
            {"pipeline_parallel_size": 2, "zero_stage": 3},
            "invalid zero_stage: got 3, expected 0 or 1 with pipeline parallelism: 2 and 3 would",
        ),
        (
            {"pipeline_parallel_size": 2, "zero_stage": 1, "precision": "fp16", "device": "cuda"},
            "invalid precision: got 'fp16', expected fp32 or bf16 with pipeline parallelism",
        ),
        (
            {"pipeline_parallel_size": 2, "zero_stage": 1, "torch_compile": True},
            "invalid torch_compile: got True, expected false with tensor, pipel",
        ),
    ):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            EngineSettings(**keys)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("longest", [5, 6, 2**30])
def test_a_split_product_has_the_given_gradient(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "LONGEST", longest)
    x, d_x = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    pipeline.with_gradient(x, d_x).backward()
    assert x.grad is not None
    assert torch.equal(x.grad, d_x)


def test_a_pipeline_stage_refuses_forward() -> None:
    engine: DeepSpeedEngine[Any] = DeepSpeedEngine.__new__(DeepSpeedEngine)
    engine.pipeline = pipeline.PipelineRunner.__new__(pipeline.PipelineRunner)
    with pytest.raises(RuntimeError, match="call `scored`"):
        engine.forward({})
