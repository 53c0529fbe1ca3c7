"""The cost of a checkpoint: its pause as a fraction of a step, and the duration of steps while it is written."""

from pathlib import Path

import pytest

from benchmarks import checkpoint
from benchmarks.memory import Case


def test_the_pause_and_the_steps_during_a_save_are_measured_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "load", lambda name: Case(layers=1, width=64, vocab=512).recipe)
    found = checkpoint.measured("bert_base", rounds=2, rows=2, length=16, folder=tmp_path)
    seconds, steps = found["seconds"], found["steps"]
    assert {"step", "step, while it is written", "pause, in the background"} <= set(seconds)
    assert steps["step, while it is written"] > 0
    assert (found["rows"], found["length"]) == (2, 16)
