"""What is measured of training together: bytes on their way, processor time of many processes, and the tables."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks import scale
from benchmarks.scale import Tree, begun, exchanged, overhead_table


@pytest.fixture
def of_two() -> Iterator[None]:
    """A group of two workers, of which one is here: nothing is sent."""
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("of_two")
def test_bytes_that_a_ring_of_two_sends() -> None:
    """A sum of all is sent twice, what is gathered or scattered once, half of it by each of two."""
    with exchanged() as sent:
        torch.distributed.all_reduce(torch.zeros(100))
        assert sent[0] == 400
        torch.distributed.all_gather_into_tensor(torch.zeros(100), torch.zeros(50))
        assert sent[0] == 400 + 200
        torch.distributed.reduce_scatter_tensor(torch.zeros(50), torch.zeros(100))
        assert sent[0] == 400 + 200 + 200


def test_processor_time_of_a_process_and_of_its_children() -> None:
    burn = "import time\nwhile time.process_time() < {}: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn.format(0.6)!r}])"
    began = time.time()
    with subprocess.Popen([sys.executable, "-c", child]) as process, Tree(process.pid) as tree:
        process.wait()
    most, others = tree.between(began, time.time())
    assert 0.2 < most < 1.0
    assert others < most


def test_turns_become_medians_and_ratios_of_each_turn() -> None:
    turns = [
        {"sesame": {"wall": ours, "worker": ours, "others": 0.01}, "bare": {"wall": 1.0, "worker": 1.0}}
        for ours in (1.0, 1.5, 1.1)
    ]
    assert "| wall time | 1.1000 s | 1.0000 s | 1.100 (1.000, 1.100, 1.500) |" in overhead_table(turns)


def test_a_command_that_fails_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALE_ROOM", str(tmp_path))
    with pytest.raises(RuntimeError, match="exit 3"):
        begun([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_part_that_is_measured_again_leaves_the_others(tmp_path: Path) -> None:
    (stages, _), (overhead, _) = scale.PARTS["stages"], scale.PARTS["overhead"]
    file = tmp_path / "scale.md"
    for title, text in ((overhead, "before"), (stages, "| a |\n\nb"), (overhead, "after")):
        scale.write(file, title, text)
    assert file.read_text().split("\n\n")[2:] == [f"## {stages}", "| a |", "b", f"## {overhead}", "after\n"]
