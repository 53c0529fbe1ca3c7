"""Activation checkpointing, offload, overlap and the dtype of reductions: machine keys that do not change what is
learned."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from preprocessing.errors import ResourceError
from tests.training.architectures.test_memory import xlnet
from tests.training.corpora import mini_run, two_sided
from tests.training.engines.test_zero import SHORT, Plain, in_one_process, losses, outcome
from tests.training.worker import job
from training import checkpoint
from training.engines import connect, deepspeed_import
from training.engines.deepspeed import deepspeed_config
from training.formats import build_model
from training.optimizers import Adafactor, AdamW, Lamb, Lion, Muon, Optimizer
from training.run import CHECKPOINTS, Run
from training.specs import EngineSettings
from training.specs.deepspeed_keys import BLOCKS, LEAST, OTHERS, OWNED, SWITCHES, VALUES, WRONG

LAYOUTS: dict[str, dict[str, Any]] = {
    "recomputed 2": {"zero_stage": 2, "activation_checkpointing": "full"},
    "recomputed 3": {"zero_stage": 3, "activation_checkpointing": "full"},
    "selective 3": {"zero_stage": 3, "activation_checkpointing": "selective"},
    "optimizer on the host 1": {"zero_stage": 1, "offload_optimizer": "cpu"},
    "optimizer on the host 2": {"zero_stage": 2, "offload_optimizer": "cpu"},
    "optimizer on the host 3": {"zero_stage": 3, "offload_optimizer": "cpu"},
    "all on the host 3": {"zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"},
    "overlapping 2": {"zero_stage": 2, "overlap_comm": True},
    "small buckets 3": {
        "zero_stage": 3,
        "deepspeed": {"zero_optimization": {"reduce_bucket_size": 1_000, "stage3_prefetch_bucket_size": 100}},
    },
}


def xlnet_without_dropout(run: Run) -> Run:
    """XLNet without dropout, because each worker draws different dropout masks."""
    run = xlnet(run)
    return replace(run, model=replace(run.model, hidden_dropout=0, attention_dropout=0))


NETS = {"bert": lambda run: run, "two sides": two_sided, "memory": xlnet_without_dropout}
BORN: dict[str, dict[str, Any]] = {
    **{f"{zero} fp32": {"zero_stage": zero} for zero in (0, 1, 2, 3)},
    **{f"{zero} bf16": {"zero_stage": zero, "precision": "bf16"} for zero in (1, 2, 3)},
    "3 some whole": {"zero_stage": 3, "param_persistence_threshold": 1_000},
    "3 on the host": {"zero_stage": 3, "offload_param": "cpu", "offload_optimizer": "cpu"},
}
RECOMPUTED = ("recomputed 3", "selective 3")


def cells() -> list[tuple[str, str]]:
    """Pairs of model and layout; only activation checkpointing depends on the model."""
    return [("bert", name) for name in LAYOUTS] + [(net, name) for net in NETS if net != "bert" for name in RECOMPUTED]


def on(corpus: Path, folder: Path, net: str, layout: str, **more: Any) -> Run:
    """A run in a layout, with several micro-batches per step."""
    run = NETS[net](mini_run(corpus, folder / f"{net} {layout}"))
    machine = EngineSettings(**{"micro_batch_tokens": 96, "param_persistence_threshold": 0, **LAYOUTS[layout], **more})
    return replace(
        run, engine=machine, phases=(replace(run.phases[0], steps=6, global_batch_size=SHORT[0].global_batch_size),)
    )


@pytest.fixture(scope="module")
def seen(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The metrics of two workers, by model and layout; "folder" is the directory of the weights."""
    folder = tmp_path_factory.mktemp("layouts")
    jobs = {f"{net} {layout}": job(on(corpus, folder, net, layout)) for net, layout in cells()}
    for zero in (1, 2, 3):
        for reduce_dtype in ("fp32", "bf16"):
            run = on(corpus, folder, "bert", "recomputed 2", zero_stage=zero, reduce_dtype=reduce_dtype)
            jobs[f"sums {zero} {reduce_dtype}"] = job(replace(run, folder=str(folder / f"sums {zero} {reduce_dtype}")))
    for name, keys in BORN.items():
        run = on(corpus, folder, "two sides", "recomputed 2", **keys)
        jobs[f"first {name}"] = job(replace(run, folder=str(folder / f"first {name}"))) | {"first": True}
    run = on(corpus, folder, "bert", "optimizer on the host 2")
    jobs["lamb"] = job(replace(run, optimizer=Lamb(learning_rate=1e-2, warmup_steps=1), folder=str(folder / "lamb")))
    return dict(zip(jobs, outcome(2, list(jobs.values()), folder / "group"), strict=True)) | {"folder": folder}


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plain]:
    """The results of one plain process without recomputation."""
    folder = tmp_path_factory.mktemp("plain")
    machine = {"zero_stage": 2, "activation_checkpointing": "none"}
    return {net: in_one_process(on(corpus, folder, net, "recomputed 2", **machine)) for net in NETS}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("net", "layout"), cells())
def test_a_layout_learns_the_same_as_one_plain_process(
    seen: Mapping[str, Any], plain: Mapping[str, Plain], net: str, layout: str
) -> None:
    assert losses(seen[f"{net} {layout}"]) == pytest.approx(plain[net].losses, rel=1e-5)
    weights = safetensors.torch.load_file(seen["folder"] / f"{net} {layout}" / "final.safetensors")
    for name, wanted in plain[net].weights.items():
        torch.testing.assert_close(weights[name], wanted, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_an_offloaded_whole_tensor_optimizer_learns_the_same(
    seen: Mapping[str, Any], corpus: Path, tmp_path: Path
) -> None:
    run = on(corpus, tmp_path, "bert", "recomputed 2", activation_checkpointing="none")
    assert losses(seen["lamb"]) == pytest.approx(
        in_one_process(replace(run, optimizer=Lamb(learning_rate=1e-2, warmup_steps=1))).losses, rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_reductions_in_bf16_are_close_to_those_in_float32_but_not_equal(
    seen: Mapping[str, Any], plain: Mapping[str, Plain], zero: int
) -> None:
    whole, half = (losses(seen[f"sums {zero} {dtype}"]) for dtype in ("fp32", "bf16"))
    assert whole == pytest.approx(plain["bert"].losses, rel=1e-5)
    assert half == pytest.approx(whole, rel=1e-2)
    assert half != pytest.approx(whole, rel=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", BORN)
def test_partitioned_initialization_equals_whole_initialization_bit_for_bit(
    seen: Mapping[str, Any], corpus: Path, tmp_path: Path, name: str
) -> None:
    found = safetensors.torch.load_file(seen["folder"] / f"first {name}" / "first.safetensors")
    whole = build_model(on(corpus, tmp_path, "two sides", "recomputed 2"))
    wanted = {name: weight.detach() for name, weight in whole.named_parameters()}
    dtype = torch.bfloat16 if "bf16" in name else torch.float32
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], weight.to(dtype).float()) for key, weight in wanted.items())
    sizes = [0 if name.startswith("3") else weight.numel() for weight in wanted.values()]
    assert seen[f"first {name}"] == sizes


# Offload to a disk.

ON_DISK: dict[str, dict[str, Any]] = {
    "optimizer on a disk": {"offload_optimizer": "nvme"},
    "all on a disk": {"offload_optimizer": "nvme", "offload_param": "nvme"},
}


needs_disk = pytest.mark.skipif(
    not deepspeed_import.deepspeed().ops.op_builder.AsyncIOBuilder().is_compatible(verbose=False),
    reason="DeepSpeed's async_io needs the headers of libaio (apt install libaio-dev)",
)


def on_disk(corpus: Path, folder: Path, layout: str) -> Run:
    """A run with matrices that are large enough to be offloaded to a disk: DeepSpeed requires 1 MiB per worker."""
    run = mini_run(corpus, folder / layout, save_every=4, keep_checkpoints=2, log_every=1)
    trunk = replace(run.model, hidden_size=512, num_attention_heads=8, intermediate_size=2048)
    keys = ON_DISK.get(layout, {"offload_optimizer": "cpu"})
    place = {"nvme_path": str(folder / f"{layout} disk")} if layout in ON_DISK else {}
    further = {"zero_optimization": {"sub_group_size": 1_500_000}}
    machine = EngineSettings(
        zero_stage=3, micro_batch_tokens=96, param_persistence_threshold=1_000, deepspeed=further, **keys, **place
    )
    phases = (replace(run.phases[0], steps=6, global_batch_size=SHORT[0].global_batch_size),)
    return replace(run, model=trunk, engine=machine, phases=phases)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs_disk
def test_offload_to_disk_learns_the_same_and_resumes(corpus: Path, tmp_path: Path) -> None:
    layouts = ("on the host", *ON_DISK)
    runs = {layout: on_disk(corpus, tmp_path, layout) for layout in layouts}
    first = dict(zip(layouts, outcome(2, list(map(job, runs.values())), tmp_path / "first"), strict=True))
    for layout in layouts[1:]:
        assert losses(first[layout]) == losses(first["on the host"])
        assert any(file.stat().st_size for file in Path(runs[layout].engine.nvme_path).rglob("*.swp"))
    after = [checkpoint.name(4), checkpoint.name(6)]
    for layout in layouts:
        assert sorted(path.name for path in (Path(runs[layout].folder) / CHECKPOINTS).glob("step-*")) == after
        shutil.rmtree(Path(runs[layout].folder) / CHECKPOINTS / after[1])
    then = dict(zip(layouts, outcome(2, list(map(job, runs.values())), tmp_path / "then"), strict=True))
    for layout in layouts:
        assert losses(then[layout]) == losses(first["on the host"])[4:]
        for name, wanted in safetensors.torch.load_file(tmp_path / "on the host" / "final.safetensors").items():
            found = safetensors.torch.load_file(tmp_path / layout / "final.safetensors")[name]
            assert torch.equal(found, wanted), name


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs_disk
@pytest.mark.parametrize(
    "optim",
    [Lamb(learning_rate=1e-3), Lion(learning_rate=1e-4), Muon(learning_rate=1e-3), Adafactor()],
    ids=lambda optim: optim.kind,
)
def test_offload_to_disk_learns_the_same_with_other_optimizers(optim: Optimizer, corpus: Path, tmp_path: Path) -> None:
    layouts = ("on the host", *ON_DISK)
    runs = [replace(on_disk(corpus, tmp_path, layout), optimizer=replace(optim, warmup_steps=1)) for layout in layouts]
    runs = [replace(run, phases=(replace(run.phases[0], steps=3),), save_every=0) for run in runs]
    on_host, *others = map(losses, outcome(2, list(map(job, runs)), tmp_path / "group"))
    assert others == [on_host, on_host]


# The configuration.


def config_of(**keys: Any) -> Any:
    """Our configuration, parsed by DeepSpeed's own classes."""
    return deepspeed_import.deepspeed().DeepSpeedConfig(
        deepspeed_config(EngineSettings(**keys), AdamW(learning_rate=1e-3))
    )


def test_deepspeed_understands_offload_and_overlap() -> None:
    found = config_of(zero_stage=3, offload_optimizer="nvme", offload_param="cpu", nvme_path="/nvme").zero_config
    assert (found.offload_optimizer.device, str(found.offload_optimizer.nvme_path)) == ("nvme", "/nvme")
    assert (found.offload_param.device, found.offload_param.pin_memory) == ("cpu", False)
    assert config_of(zero_stage=2, overlap_comm=True).zero_config.overlap_comm
    none = config_of(zero_stage=2).zero_config
    assert (none.offload_optimizer, none.offload_param, none.overlap_comm) == (None, None, False)


def test_deepspeed_understands_fp16_and_the_dtype_of_reductions() -> None:
    found = config_of(device="cuda", precision="fp16", reduce_dtype="bf16")
    half = found.float16_config
    assert half.enabled
    assert not found.bfloat16_config.enabled
    assert (half.loss_scale, half.initial_scale_power, half.min_loss_scale) == (0, 16, 1)  # 0: dynamic
    assert found.communication_data_type == torch.bfloat16
    assert config_of().communication_data_type == torch.float32


def test_further_keys_reach_deepspeed_and_leave_ours_as_they_are() -> None:
    further = {"zero_optimization": {"contiguous_gradients": False, "reduce_bucket_size": 7}, "memory_breakdown": True}
    found = config_of(zero_stage=1, deepspeed=further)
    assert (found.zero_config.contiguous_gradients, found.zero_config.reduce_bucket_size) == (False, 7)
    assert (found.zero_config.stage, found.memory_breakdown) == (1, True)


def test_the_pinned_deepspeed_has_each_further_key() -> None:
    from deepspeed.comm.config import CommsLoggerConfig
    from deepspeed.profiling import constants as profiling
    from deepspeed.runtime import constants
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.swap_tensor import constants as aio
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    models = {"zero_optimization": DeepSpeedZeroConfig, "fp16": DeepSpeedFP16Config, "comms_logger": CommsLoggerConfig}
    named = {block: {field.alias or name for name, field in of.model_fields.items()} for block, of in models.items()}
    named["aio"] = {value for key, value in vars(aio).items() if key.startswith("AIO_") and isinstance(value, str)}
    named["flops_profiler"] = {
        value for key, value in vars(profiling).items() if key.startswith("FLOPS_PROFILER_") and isinstance(value, str)
    }
    top = {value for value in vars(constants).values() if isinstance(value, str)}
    assert {block: keys - named[block] for block, keys in BLOCKS.items()} == dict.fromkeys(BLOCKS, frozenset())
    assert top >= VALUES
    for block, of in models.items():
        for name, field in of.model_fields.items():
            if (key := field.alias or name) in BLOCKS[block]:
                kinds = (bool,) if key in SWITCHES else OTHERS.get(key, (int,))
                assert field.annotation in kinds, key
                assert all(least <= LEAST.get(key, 0) for least in (getattr(it, "ge", 0) for it in field.metadata)), key
                assert all(least < LEAST.get(key, 0) for least in (getattr(it, "gt", -9) for it in field.metadata)), key
    for name in (*OWNED, *WRONG):
        block, _, key = name.partition(".")
        assert key in named[block] if key else block in top | {"compile", "activation_checkpointing"}, name
    assert "enabled" in DeepSpeedBF16Config.model_fields


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"precision": "fp16"}, "invalid precision: got 'fp16', expected fp32 or bf16; fp16 only with device cuda"),
        (
            {"zero_stage": 1, "offload_optimizer": "nvme"},
            "invalid offload_optimizer: got 'nvme', expected none or cpu with zero_stage 1",
        ),
        (
            {"zero_stage": 0, "offload_optimizer": "cpu"},
            "invalid offload_optimizer: got 'cpu', expected none with zero_stage 0",
        ),
        (
            {"zero_stage": 2, "offload_param": "cpu"},
            "invalid offload_param: got 'cpu', expected none with zero_stage 2",
        ),
        (
            {"zero_stage": 3, "offload_optimizer": "nvme"},
            "invalid nvme_path: got '', expected a directory on a local disk with nvme",
        ),
        ({"nvme_path": "/nvme"}, "invalid nvme_path: got '/nvme', expected .* otherwise empty"),
        ({"zero_stage": 3, "overlap_comm": True}, "invalid overlap_comm: got True, expected false with zero_stage 3"),
        ({"deepspeed": {"memory_breakdwon": True}}, r"deepspeed.memory_breakdwon .*did you mean memory_breakdown\?"),
        (
            {"deepspeed": {"zero_optimization": {"reduce_bucket": 1}}},
            r"zero_optimization.reduce_bucket is not .*did you mean zero_optimization.reduce_bucket_size\?",
        ),
        ({"deepspeed": {"zero_optimization": {"stage": 3}}}, "stage cannot be set: set engine.zero_stage instead"),
        (
            {
                "zero_stage": 3,
                "tensor_parallel_size": 2,
                "deepspeed": {"zero_optimization": {"zero_hpz_partition_size": 2}},
            },
            "zero_hpz_partition_size: got 2, expected 1 with tensor parallelism: neighboring workers",
        ),
        (
            {"deepspeed": {"zero_optimization": 3}},
            "invalid engine.deepspeed.zero_optimization: got 3, expected a block of keys",
        ),
        ({"deepspeed": {"data_types": {}}}, "deepspeed.data_types cannot be set: Sesame sets it"),
        (
            {"deepspeed": {"zero_optimization": {"round_robin_gradients": True}}},
            "round_robin_gradients cannot be set: .*checkpoints and exports would have wrong weights; leave it out",
        ),
        ({"deepspeed": {"prescale_gradients": True}}, "prescale_gradients cannot be set: stages 2 and 3 fail with it"),
        (
            {
                "zero_stage": 3,
                "deepspeed": {"gradient_predivide_factor": 2.0, "zero_optimization": {"reduce_scatter": False}},
            },
            "gradient_predivide_factor cannot be set: .*stage 3 without reduce_scatter divides gradients again",
        ),
        (
            {"zero_stage": 2, "deepspeed": {"zero_optimization": {"stage3_max_live_parameters": 9}}},
            "stage3_max_live_parameters has no effect with zero_stage 2; leave it out, or set engine.zero_stage=3",
        ),
        (
            {"zero_stage": 1, "deepspeed": {"zero_optimization": {"zero_hpz_partition_size": 2}}},
            "zero_hpz_partition_size has no effect with zero_stage 1; leave it out",
        ),
        (
            {"precision": "bf16", "deepspeed": {"fp16": {"hysteresis": 1}}},
            "deepspeed.fp16 has no effect with precision bf16; leave it out, or set engine.precision=fp16",
        ),
        (
            {"zero_stage": 3, "offload_optimizer": "cpu", "deepspeed": {"aio": {"queue_depth": 8}}},
            "deepspeed.aio has no effect with no offload to a disk; leave it out, or set .*=nvme",
        ),
        *(
            (
                {"zero_stage": 3, "deepspeed": {"zero_optimization": {key: value}}},
                f"invalid engine.deepspeed.zero_optimization.{key}: got .* of at least {least}",
            )
            for key, least in (("reduce_bucket_size", 1), ("zero_hpz_partition_size", 1), ("sub_group_size", 0))
            for value in ("auto", -1, 2.5, math.nan, math.inf, None, True, [1])
        ),
        (
            {"deepspeed": {"wall_clock_breakdown": 7}},
            "invalid engine.deepspeed.wall_clock_breakdown: got 7, expected true or false",
        ),
        (
            {"deepspeed": {"flops_profiler": {"output_file": 3}}},
            "invalid engine.deepspeed.flops_profiler.output_file: got 3, expected the path of a local file",
        ),
        (
            {"deepspeed": {"comms_logger": {"prof_ops": "all_reduce"}}},
            "invalid engine.deepspeed.comms_logger.prof_ops: got 'all_reduce', expected a list",
        ),
        (
            {"device": "cuda", "precision": "fp16", "deepspeed": {"fp16": {"loss_scale": -1.5}}},
            "invalid engine.deepspeed.fp16.loss_scale: got -1.5, expected a number of at least 0",
        ),
        (
            {"param_persistence_threshold": -5},
            "invalid param_persistence_threshold: got -5, expected at least 0 elements",
        ),
        ({"deepspeed": {"horse": 1}}, r"deepspeed.horse is not an allowed key; expected one of \['aio', "),
    ],
    ids=str,
)
def test_incompatible_keys_are_refused_in_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        EngineSettings(**keys)
    assert "\n" not in str(caught.value)


def test_offload_to_disk_is_refused_if_deepspeed_cannot_build_async_io(monkeypatch: pytest.MonkeyPatch) -> None:
    builders = deepspeed_import.deepspeed().ops.op_builder
    monkeypatch.setattr(builders.AsyncIOBuilder, "is_compatible", lambda *_, **__: False)
    with pytest.raises(ResourceError, match=r"engine.offload_optimizer: got nvme, expected cpu, because DeepSpeed"):
        connect(EngineSettings(zero_stage=3, offload_optimizer="nvme", nvme_path="/nvme"))
