"""How far a training is: the time left has evaluations and checkpoints in it, and longer rows of a later phase."""

from pathlib import Path
from typing import Any

import pytest

from orchestration.launch import step_reports
from orchestration.launch.step_reports import FineTunings, StepReporter
from tests.training.corpora import mini_run
from training.run import Run
from training.specs import Phase


class Clock:
    """Seconds that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(step_reports.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def run(**changes: Any) -> Run:
    phases = (Phase(seq_length=16, global_batch_size=4, steps=10),)
    return mini_run(Path("corpus"), Path("run"), **{"phases": phases, "eval_every": 5, "save_every": 0, **changes})


def test_the_first_step_has_a_name_and_no_figures(clock: Clock) -> None:
    events: list[Any] = []
    StepReporter(run(), events.append).update(0)
    assert events == [{"stage": "pretrain", "done": 0, "total": 10, "now": "step 1"}]


def test_the_figures_of_the_last_log_are_shown_in_one_order(clock: Clock) -> None:
    events: list[Any] = []
    told = StepReporter(run(), events.append)
    told.log({"train/loss": 4.0, "train/learning_rate": 1e-3, "perf/tokens_per_second": 900.0})
    told.log({"eval/loss": 4.5})
    told.update(3)
    assert list(events[-1].items())[3:-1] == [("tokens_per_s", 900.0), ("loss", 4.0), ("held_out", 4.5)]


def test_the_first_step_is_no_measure_and_what_an_evaluation_takes_is_added(clock: Clock) -> None:
    events: list[Any] = []
    told = StepReporter(run(), events.append)
    told.update(0)
    clock.now_s += 60.0  # compiling
    told.update(1)
    assert "left_s" not in events[-1]
    for done in (2, 3, 4, 5):
        clock.now_s += 2.0
        told.update(done, "evaluation" if done == 5 else "")
    assert events[-1]["left_s"] == pytest.approx(5 * 2.0)
    assert events[-1]["now"] == "evaluation"
    clock.now_s += 7.0
    told.update(5)
    assert events[-1]["left_s"] == pytest.approx(5 * 2.0 + 7.0)  # the evaluation at the end
    assert "now" not in events[-1]


def test_longer_rows_of_a_later_phase_take_longer(clock: Clock) -> None:
    events: list[Any] = []
    phases = (Phase(seq_length=16, global_batch_size=4, steps=3), Phase(seq_length=64, global_batch_size=4, steps=2))
    told = StepReporter(run(phases=phases), events.append)
    for done in (0, 1, 2):
        told.update(done)
        clock.now_s += 1.0
    assert events[-1]["left_s"] == pytest.approx(1 + 2 * 4)


def test_a_run_that_goes_on_begins_where_it_was(clock: Clock) -> None:
    events: list[Any] = []
    told = StepReporter(run(), events.append)
    for done in (6, 7, 8):
        told.update(done)
        clock.now_s += 3.0
    assert (events[0]["done"], events[-1]["left_s"]) == (6, pytest.approx(2 * 3.0))


def test_at_the_end_nothing_is_left(clock: Clock) -> None:
    events: list[Any] = []
    told = StepReporter(run(), events.append)
    for done in (7, 8, 9, 10, 10):
        told.update(done)
        clock.now_s += 1.0
    assert events[-1] == {"stage": "pretrain", "done": 10, "total": 10, "left_s": 0.0}


def test_fine_tunings_are_counted_in_steps_with_their_rate(clock: Clock) -> None:
    events: list[Any] = []
    told = FineTunings(4, 200, events.append)
    told.update(0, 3)
    assert events[-1] == {"stage": "finetune", "done": 3, "total": 800, "ended": "0/4 trials"}
    clock.now_s += 20.0
    told.update(1, 103)
    assert (events[-1]["done"], events[-1]["steps_per_s"]) == (303, 15.0)
    told.update(4, 0)
    assert events[-1]["done"] == events[-1]["total"]
