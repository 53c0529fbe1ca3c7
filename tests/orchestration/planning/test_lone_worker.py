"""The plan of a lone worker, which has no DeepSpeed: its memory beside a measured one, and the notes about its time."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from benchmarks.memory import PARTS, Case, counted, in_parts, planned
from orchestration import planning
from orchestration.config import load, load_cluster
from orchestration.planning import ParallelLayout, workload_of
from orchestration.planning.layout import layout_of
from training.specs import LOGIT_BYTES, EngineSettings, count_logits_at_once

TINY = Case(workers=1, layers=1, width=128, vocab=2_048, rows=4, length=64)
OPTIMIZERS = {"AdamW": ("bert", ""), "LAMB": ("albert", ""), "Adafactor": ("t5", ""), "Muon": ("gpt2", "muon")}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("optimizer", "precision", "number"), product(OPTIMIZERS, ("fp32", "bf16"), (1, 2)))
def test_planned_memory_is_the_measured_one(optimizer: str, precision: str, number: int) -> None:
    """States agree within 2 %, the peak within 20 %, as with two workers (test_recorded.py)."""
    net, kind = OPTIMIZERS[optimizer]
    case = replace(TINY, net=net, optimizer=kind, precision=precision, micro_batches=number)
    plan, found = planned(case), counted(case)
    for part in PARTS:
        assert in_parts(plan)[part] == pytest.approx(found[part], rel=0.02, abs=1_000)
    assert plan.permanent_buffers == pytest.approx(found["buckets"], rel=0.02, abs=1_000)
    assert plan.peak == pytest.approx(found["peak"], rel=0.2)


@pytest.mark.parametrize(
    ("workers", "keys"),
    [
        (1, {}),
        (2, {}),
        (1, {"precision": "bf16"}),
        (1, {"device": "cuda", "precision": "fp16"}),
        (1, {"offload_optimizer": "cpu"}),
        (1, {"zero_stage": 3, "offload_param": "cpu"}),
        (1, {"deepspeed": {"zero_optimization": {"reduce_bucket_size": 1_000}}}),
    ],
)
def test_layout_and_engine_agree_on_who_is_alone(workers: int, keys: dict[str, Any]) -> None:
    machine = EngineSettings(**keys)
    assert layout_of(machine, workers, 128, 8).is_alone == machine.is_alone(workers)


def test_layouts_of_a_lone_worker_do_not_differ_by_zero_stage() -> None:
    found = planning.find_best_layouts(workload_of(load("gpt2")), planning.DEVICES["h100"], 1, count=99)
    plain = [one.layout for one in found if not one.layout.offload]
    assert {layout.zero for layout in plain} == {2}
    assert not any("ZeRO" in layout.describe() for layout in plain)


def test_slices_of_logits_follow_the_memory_of_the_gpu() -> None:
    demand, layout = workload_of(load("gpt2")), ParallelLayout(rows=64)
    of_cpu = planning.device_memory(demand, layout, 1_024, cuda=False).logit_slices
    for memory in (24e9, 80e9):
        needed = planning.device_memory(demand, layout, 1_024, gpu_memory=memory).logit_slices
        padded = 2 * 768 * (50_257 + 128)  # the token table in whole tiles, 16 bits
        whole = LOGIT_BYTES * count_logits_at_once(memory) + padded
        assert of_cpu < 0.8 * whole < needed <= whole


def test_plan_of_a_lone_gpu_says_that_its_time_is_not_calibrated() -> None:
    def notes(cluster: str, *keys: str) -> str:
        given = [f"cluster.{key}" for key in keys]
        return "\n".join(planning.estimate_run(load("gpt2"), load_cluster(cluster, given)).notes)

    assert "time: calibrated before" in notes("one_gpu", "gpu_type=h100")
    assert "calibrated" not in notes("one_gpu", "gpu_type=h100", "engine.offload_optimizer=cpu")
    assert "calibrated" not in notes("8xh100") + notes("local", "num_workers=1")
