"""Planned memory equals that of two real workers: states of DeepSpeed within 10 %, the peak within 20 %."""

import pytest

from benchmarks import memory
from benchmarks.memory import Case


@pytest.mark.slow  # two processes import DeepSpeed, and train four runs of three steps
def test_two_workers_use_the_planned_memory() -> None:
    # a bucket of the default 50 million elements would be nearly all of the memory of this small model
    sizes = {"layers": 2, "width": 128, "vocab": 2_048, "rows": 8, "length": 64, "bucket": 100_000}
    found = list(memory.compared([Case(net="bert", zero=stage, **sizes) for stage in range(4)]))
    assert len(found) == 4
    for line in found:
        stage = line["case"]["zero"]
        assert all(0.9 < memory.ratio(line, name) < 1.1 for name in (*memory.PARTS, "states")), (stage, line)
        assert 0.8 < memory.ratio(line, "peak") < 1.2, (stage, line)


def test_the_table_has_planned_and_measured_memory_and_their_ratio() -> None:
    both = dict.fromkeys((*memory.PARTS, "states", "peak"), 2e6)
    line = {"case": {"net": "bert", "zero": 2}, "about": "", "planned": both, "measured": both | {"peak": 1e6}}
    assert memory.table([line]).splitlines()[-1].endswith("| 2.0 / 2.0 = 1.00 | 2.0 / 1.0 = 2.00 |")
