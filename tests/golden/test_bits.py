"""The models are those of bits.json, to the bit.

The last bit of a trained weight depends on the processor: on one of another maker, or with another version of torch,
the weights of `python -m tests.golden.bits --against REV` decide.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.family import RECIPES
from tests.golden import bits, record
from tests.golden.process import alike_everywhere

RECORDED: dict[str, Any] = json.loads(bits.FILE.read_text(encoding="utf-8"))
DISTINCT = sorted(set(record.alike(RECIPES).values()))


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    with alike_everywhere() as process:
        yield process


def skip_on_another_machine() -> None:
    if bits.machine() != RECORDED["machine"]:
        pytest.skip(f"recorded on {RECORDED['machine']}; use python -m tests.golden.bits --against REV")


def test_bits_cover_every_recipe_and_layout() -> None:
    assert sorted(RECORDED["facts"]) == RECIPES
    assert sorted(RECORDED["initial_weights"]) == sorted(RECORDED["trained_weights"]) == DISTINCT
    assert sorted(RECORDED["layouts"]) == sorted(cell.name for cell in bits.cells())


@pytest.mark.parametrize("name", RECIPES)
def test_tensors_counts_and_export_of_a_recipe_are_the_recorded_ones(name: str) -> None:
    assert bits.differences(RECORDED["facts"][name], bits.facts(name)) == []


@pytest.mark.parametrize("name", DISTINCT)
def test_initial_weights_are_the_recorded_ones(name: str, process: ProcessPoolExecutor) -> None:
    """The generator of torch is the same on each processor with AVX2."""
    assert process.submit(bits.initial_weights, name).result() == RECORDED["initial_weights"][name]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_losses_of_two_workers_are_the_recorded_ones(tmp_path: Path) -> None:
    skip_on_another_machine()
    assert bits.differences(RECORDED["layouts"], bits.layouts(tmp_path)) == []


def test_a_difference_is_found_and_named() -> None:
    before = {"a": {"b": 1.0, "c": [1, 2]}, "d": "x"}
    assert bits.differences(before, {"a": {"b": 1.0, "c": [1, 2]}, "d": "x"}) == []
    assert bits.differences(before, {"a": {"b": 1.5, "c": [1, 3]}}) == [
        "/a/b: 1.0 -> 1.5",
        "/a/c: [1, 2] -> [1, 3]",
        "/d: x -> None",
    ]
