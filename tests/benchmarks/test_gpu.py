"""The benchmark for one GPU, run with tiny models on a CPU."""

import json

import pytest

from benchmarks import gpu


def test_the_deepest_gpt_fits_the_given_memory() -> None:
    room = gpu.TINY.memory
    small, _ = gpu.deepest(gpu.TINY, room)
    larger, needed = gpu.deepest(gpu.TINY, room + 8e6)
    assert small.model.num_hidden_layers < larger.model.num_hidden_layers
    assert needed.peak <= room + 8e6


@pytest.mark.slow  # each part runs in a process that imports DeepSpeed or transformers
@pytest.mark.parametrize("part", ["bert_base", "gpt2", "largest"])
def test_each_part_runs_on_a_cpu(part: str) -> None:
    actual = json.loads(gpu.one(part, tiny=True))
    assert actual.pop("device") == "a CPU"
    if part == "largest":
        assert 0.8 < actual["ratio"] < 1.2
    else:
        assert len(actual) == 2
        assert all(way["tokens_per_s"] > 0 for way in actual.values())
