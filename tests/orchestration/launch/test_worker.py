"""What a worker's process tells whoever looks on."""

from pathlib import Path

import pytest

from orchestration.launch import worker
from orchestration.launch.group import _counted
from orchestration.launch.worker import Worker


def test_a_poll_has_the_last_event_of_each_stage_in_order() -> None:
    each = Worker(0, 1)
    each.events.extend({"stage": stage, "done": done} for done, stage in enumerate(["a", "a", "b", "b", "c"]))
    step, events, said = each.poll()
    assert (step, said) == (0, [])
    assert events == [{"stage": "a", "done": 1}, {"stage": "b", "done": 3}, {"stage": "c", "done": 4}]
    assert each.poll() == (0, [], [])


def test_the_steps_of_a_fine_tuning_are_counted_in_a_file_a_few_times_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(worker, "monotonic", lambda: now_s)
    file = tmp_path / "0"
    assert _counted(file) == 0
    count, seen = worker._counter(file), []
    for done in range(4):
        count(done)
        seen.append(_counted(file))
        now_s += 0.2
    assert seen == [0, 0, 2, 2]
    file.write_text("")  # just being written
    assert _counted(file) == 0


def test_a_fine_tuning_goes_on_where_nobody_can_be_told(tmp_path: Path) -> None:
    worker._counter(tmp_path / "gone" / "0")(1)
    worker._counter(None)(1)
