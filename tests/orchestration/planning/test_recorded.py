"""Plan of each case that was measured with two workers (benchmarks/memory.py --write), beside the measurement."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from benchmarks.memory import PARTS, RESULTS, Case, in_parts, planned
from orchestration import planning
from orchestration.config import load
from orchestration.planning import ParallelLayout, workload_of

NEWEST = max(RESULTS.glob("memory-*.json"))
LINES: list[dict[str, Any]] = json.loads(NEWEST.read_text())
NEGLIGIBLE = 1_000  # bytes
NETS = ("bert", "gpt2", "albert", "t5", "electra")


def _name(line: dict[str, Any]) -> str:
    case = Case(**line["case"])
    return f"{case.net}, ZeRO {case.zero} {case.describe()}"


def _compared() -> Iterator[Any]:
    for line, part in product(LINES, (*PARTS, "peak")):
        yield pytest.param(line, part, id=f"{_name(line)} {part}")


@pytest.mark.parametrize(("line", "part"), _compared())
def test_plan_is_near_the_measurement(line: dict[str, Any], part: str) -> None:
    """Weights, gradients, master weights and moments agree within 10 %, the peak within 20 %."""
    plan, found = in_parts(planned(Case(**line["case"]))), line["measured"]
    relative, absolute = (0.2, 0) if part == "peak" else (0.1, NEGLIGIBLE)
    assert plan[part] == pytest.approx(found[part], rel=relative, abs=absolute)


def test_every_model_was_measured_with_every_zero_stage() -> None:
    """Two models alone once counted as complete coverage."""
    cases = [Case(**line["case"]) for line in LINES]
    assert {(case.net, case.zero) for case in cases} == set(product(NETS, range(4)))


@pytest.mark.parametrize(
    ("recipe", "replicas", "of_owned"),
    # in float32: LAMB has a group for each tensor; BERT's token table has 23 M of 110 M weights
    [("albert_base", 4, 4.0), ("bert_base", 2, 1.0), ("bert_base", 8, 2.0)],
)
def test_gradients_of_tensors_shared_between_workers_are_planned_whole(
    recipe: str, replicas: int, of_owned: float
) -> None:
    demand = workload_of(load(recipe))
    owned = 4 * demand.parameters / replicas
    layout = ParallelLayout(data=replicas, zero=2, precision="fp32")
    assert planning.device_memory(demand, layout, 128).gradients == pytest.approx(of_owned * owned)
    mixed = ParallelLayout(data=replicas, zero=2, precision="bf16")
    assert planning.device_memory(demand, mixed, 128).gradients == pytest.approx(owned)
