"""Training progress: the time left includes evaluations, checkpoints, and longer sequences of a later phase."""

from pathlib import Path
from typing import Any

import pytest

from orchestration.launch import step_reports
from orchestration.launch.step_reports import FineTunings, StepReporter
from orchestration.terminal.stage import figures
from tests.training.corpora import mini_run
from training.run import Run
from training.specs import Phase


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(step_reports.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def make_run(**changes: Any) -> Run:
    phases = (Phase(seq_length=16, global_batch_size=4, steps=10),)
    return mini_run(Path("corpus"), Path("run"), **{"phases": phases, "eval_every": 5, "save_every": 0, **changes})


def test_first_step_is_named_without_metrics(clock: Clock) -> None:
    events: list[Any] = []
    StepReporter(make_run(), events.append).update(0)
    assert events == [{"stage": "pretrain", "done": 0, "total": 10, "now": "step 1"}]


def test_last_logged_metrics_are_shown_in_a_fixed_order(clock: Clock) -> None:
    events: list[Any] = []
    reporter = StepReporter(make_run(), events.append)
    reporter.log({"train/loss": 4.0, "train/learning_rate": 1e-3, "perf/tokens_per_second": 900.0})
    reporter.log({"eval/loss": 4.5})
    reporter.update(3)
    assert list(events[-1].items())[3:6] == [("tokens_per_s", 900.0), ("loss", 4.0), ("held_out", 4.5)]


def test_time_left_ignores_the_first_step_and_includes_evaluations(clock: Clock) -> None:
    events: list[Any] = []
    reporter = StepReporter(make_run(), events.append)
    reporter.update(0)
    clock.now_s += 60.0  # the first step includes compilation
    reporter.update(1)
    assert "left_s" not in events[-1]
    for done in (2, 3, 4, 5):
        clock.now_s += 2.0
        reporter.update(done, "evaluation" if done == 5 else "")
    assert events[-1]["left_s"] == pytest.approx(5 * 2.0)
    assert events[-1]["now"] == "evaluation"
    clock.now_s += 7.0
    reporter.update(5)
    assert events[-1]["left_s"] == pytest.approx(5 * 2.0 + 7.0)  # one evaluation is still to come at the end
    assert "now" not in events[-1]


def test_time_left_accounts_for_longer_sequences(clock: Clock) -> None:
    events: list[Any] = []
    phases = (Phase(seq_length=16, global_batch_size=4, steps=3), Phase(seq_length=64, global_batch_size=4, steps=2))
    reporter = StepReporter(make_run(phases=phases), events.append)
    for done in (0, 1, 2):
        reporter.update(done)
        clock.now_s += 1.0
    assert events[-1]["left_s"] == pytest.approx(1 + 2 * 4)


def test_resumed_run_reports_from_its_step(clock: Clock) -> None:
    events: list[Any] = []
    reporter = StepReporter(make_run(), events.append)
    for done in (6, 7, 8):
        reporter.update(done)
        clock.now_s += 3.0
    assert (events[0]["done"], events[-1]["left_s"]) == (6, pytest.approx(2 * 3.0))
    assert {event["resumed_at"] for event in events} == {6}
    assert ("resumed_at", "resumed at step 6") in figures(events[0])


def test_time_left_is_zero_at_the_end(clock: Clock) -> None:
    events: list[Any] = []
    reporter = StepReporter(make_run(), events.append)
    for done in (7, 8, 9, 10, 10):
        reporter.update(done)
        clock.now_s += 1.0
    assert events[-1] == {"stage": "pretrain", "done": 10, "total": 10, "resumed_at": 7, "left_s": 0.0}


def test_fine_tuning_reports_steps_and_step_rate(clock: Clock) -> None:
    events: list[Any] = []
    reporter = FineTunings(4, 200, events.append)
    reporter.update(0, 3)
    assert events[-1] == {"stage": "finetune", "done": 3, "total": 800, "ended": "0/4 trials"}
    clock.now_s += 20.0
    reporter.update(1, 103)
    assert (events[-1]["done"], events[-1]["steps_per_s"]) == (303, 15.0)
    reporter.update(4, 0)
    assert events[-1]["done"] == events[-1]["total"]
