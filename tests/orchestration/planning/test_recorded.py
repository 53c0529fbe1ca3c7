"""The plan of each case that was measured on two workers (benchmarks/memory.py --write), beside what was measured."""

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
NOTHING = 1_000  # bytes
NETS = ("bert", "gpt2", "albert", "t5", "electra")


def _name(line: dict[str, Any]) -> str:
    case = Case(**line["case"])
    return f"{case.net}, ZeRO {case.zero} {case.describe()}"


def _compared() -> Iterator[Any]:
    for line, part in product(LINES, (*PARTS, "peak")):
        yield pytest.param(line, part, id=f"{_name(line)} {part}")


@pytest.mark.parametrize(("line", "part"), _compared())
def test_a_plan_is_near_what_was_measured(line: dict[str, Any], part: str) -> None:
    """Each of weights, gradients, masters and moments to a tenth, the peak to a fifth."""
    plan, found = in_parts(planned(Case(**line["case"]))), line["measured"]
    near, least = (0.2, 0) if part == "peak" else (0.1, NOTHING)
    assert plan[part] == pytest.approx(found[part], rel=near, abs=least)


def test_all_stages_of_each_net_were_measured() -> None:
    """Two nets alone had once passed for all."""
    cases = [Case(**line["case"]) for line in LINES]
    assert {(case.net, case.zero) for case in cases} == set(product(NETS, range(4)))


@pytest.mark.parametrize(
    ("recipe", "replicas", "of_owned"),
    # in float32: LAMB has a group for each tensor; of 110 M weights of BERT 23 M are the token table
    [("albert_base", 4, 4.0), ("bert_base", 2, 1.0), ("bert_base", 8, 2.0)],
)
def test_gradients_of_tensors_that_workers_share_are_whole_on_each(recipe: str, replicas: int, of_owned: float) -> None:
    demand = workload_of(load(recipe))
    owned = 4 * demand.parameters / replicas
    layout = ParallelLayout(data=replicas, zero=2, precision="fp32")
    assert planning.device_memory(demand, layout, 128).gradients == pytest.approx(of_owned * owned)
    mixed = ParallelLayout(data=replicas, zero=2, precision="bf16")
    assert planning.device_memory(demand, mixed, 128).gradients == pytest.approx(owned)
