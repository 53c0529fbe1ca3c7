"""Measurements of several workers: bytes that they send, CPU time of their processes, and the tables of results."""

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
    """A simulated group of two workers, which sends nothing; this process is one of them."""
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("of_two")
def test_a_ring_of_two_workers_sends_the_expected_bytes() -> None:
    """Each of two workers sends half of a tensor: twice for all-reduce, once for all-gather and reduce-scatter."""
    with exchanged() as sent:
        torch.distributed.all_reduce(torch.zeros(100))
        assert sent[0] == 400
        torch.distributed.all_gather_into_tensor(torch.zeros(100), torch.zeros(50))
        assert sent[0] == 400 + 200
        torch.distributed.reduce_scatter_tensor(torch.zeros(50), torch.zeros(100))
        assert sent[0] == 400 + 200 + 200


def test_cpu_time_of_a_process_and_its_children_is_measured() -> None:
    burn = "import sys, time\nwhile time.process_time() < 0.6: pass\nprint(flush=True)\nsys.stdin.read()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    began = time.time()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", child], **pipes) as process:
        assert process.stdout
        assert process.stdin
        with Tree(process.pid) as tree:
            process.stdout.readline()
            samples = len(tree.seen)
            while len(tree.seen) < samples + 2:  # a sample that began after all of the work
                time.sleep(0.01)
            process.stdin.close()
    most, others = tree.between(began, time.time())
    assert 0.2 < most < 1.0
    assert others < most


def test_the_table_has_medians_and_the_ratios_of_each_repetition() -> None:
    turns = [
        {"sesame": {"wall": ours, "worker": ours, "others": 0.01}, "bare": {"wall": 1.0, "worker": 1.0}}
        for ours in (1.0, 1.5, 1.1)
    ]
    assert "| wall time | 1.1000 s | 1.0000 s | 1.100 (1.000, 1.100, 1.500) |" in overhead_table(turns)


def test_a_failing_command_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALE_ROOM", str(tmp_path))
    with pytest.raises(RuntimeError, match="exit 3"):
        begun([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_repeated_measurement_replaces_only_its_own_section(tmp_path: Path) -> None:
    (stages, _), (overhead, _) = scale.PARTS["stages"], scale.PARTS["overhead"]
    file = tmp_path / "scale.md"
    for title, text in ((overhead, "before"), (stages, "| a |\n\nb"), (overhead, "after")):
        scale.write(file, title, text)
    assert file.read_text().split("\n\n")[2:] == [f"## {stages}", "| a |", "b", f"## {overhead}", "after\n"]
