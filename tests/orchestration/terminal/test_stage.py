"""A stage's progress fits in one line of 80 columns for any values."""

import io
from typing import Any

import pytest
from rich.console import Console

from orchestration.terminal import progress
from orchestration.terminal.stage import StageProgress, fit_to_width

TYPICAL: dict[str, Any] = {"stage": "pretrain", "done": 600, "total": 4_000, "left_s": 754.0, "tokens_per_s": 11_834.0}
TYPICAL |= {"mfu": 0.431, "loss": 4.21537, "held_out": 4.4123}
WORST: dict[str, Any] = {"stage": "pretrain", "done": 999_999, "total": 1_000_000, "left_s": 863_999.0}
WORST |= {"tokens_per_s": 1_234_567.0, "mfu": 1.0, "loss": 10.12345, "held_out": 10.12345, "now": "evaluation"}
CORPUS: dict[str, Any] = {"stage": "corpus", "done": 9_999, "total": 10_000, "left_s": 86_399.0}
CORPUS |= {"documents": 1_234_567_890, "bytes": 12_345_678_901_234, "tokens": 3_000_000_000_000}
FINETUNE: dict[str, Any] = {"stage": "finetune", "done": 239_999, "total": 240_000, "left_s": 35_999.0}
FINETUNE |= {"steps_per_s": 1_234.5, "ended": "119/120 cells"}
EVERY = [TYPICAL, WORST, CORPUS, FINETUNE]


def make_stage(event: dict[str, Any]) -> StageProgress:
    made = StageProgress(event["stage"])
    made(event)
    return made


def draw_bar(event: dict[str, Any]) -> list[str]:
    """Return the lines that a terminal of 80 columns shows while a stage runs."""
    console = Console(width=80, record=True, force_terminal=True, file=io.StringIO())
    bars = progress.BarProgress(progress._make_bars(console))
    bars(event)
    console.print(bars.drawn.get_renderable())
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize("event", EVERY, ids=lambda event: f"{event['stage']}-{event['done']}")
def test_no_line_is_wider_than_80_columns(event: dict[str, Any]) -> None:
    made = make_stage(event)
    assert len(made.format_running(80)) <= 80
    assert len(made.format_ended(80)) <= 80
    assert len(made.format_ended(80, stopped=True)) <= 80


@pytest.mark.parametrize("event", EVERY, ids=lambda event: f"{event['stage']}-{event['done']}")
def test_bar_and_its_metrics_are_two_lines_of_80_columns(event: dict[str, Any]) -> None:
    lines = draw_bar(event)
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert f"{event['done']:,}/{event['total']:,}" in lines[0]
    assert "left" in lines[0]


def test_line_has_steps_rate_time_left_mfu_and_held_out_loss() -> None:
    assert make_stage(TYPICAL).format_running(80) == (
        "pretrain: 600/4,000  12:34 left  11.8K tok/s  MFU 43%  held-out 4.412"
    )
    assert (
        make_stage(WORST).format_running(80)
        == "pretrain: 999,999/1,000,000  9d 23h left  1.23M tok/s  MFU 100%  held-out 10.12"
    )


def test_all_metrics_are_below_the_bar() -> None:
    assert draw_bar(TYPICAL)[1].strip() == "11.8K tok/s  MFU 43%  loss 4.215  held-out 4.412"
    assert draw_bar(WORST)[1].strip() == "1.23M tok/s  MFU 100%  loss 10.12  held-out 10.12  evaluation"


@pytest.mark.parametrize(("loss", "message"), [(float("nan"), "loss nan"), (float("inf"), "loss inf")])
def test_non_finite_loss_is_shown(loss: float, message: str) -> None:
    assert (
        make_stage({"stage": "pretrain", "done": 9, "total": 9, "loss": loss}).format_ended(80)
        == f"pretrain: 9/9  0:00  {message}"
    )


def test_stage_without_metrics_shows_its_name_and_time() -> None:
    made = make_stage({"stage": "importing Beam"})
    assert made.format_running(80) == "importing Beam ..."
    made.began_s -= 65
    assert made.format_running(80) == "importing Beam: 1:05"
    assert made.format_ended(80) == "importing Beam: 1:05"
    assert made.format_ended(80, stopped=True) == "importing Beam: stopped after 1:05"


def test_stage_that_does_not_reach_its_total_is_shown_as_stopped() -> None:
    assert make_stage({"stage": "finetune", "done": 4, "total": 4}).format_ended(80) == "finetune: 4/4  0:00"
    assert (
        make_stage({"stage": "finetune", "done": 3, "total": 4}).format_ended(80) == "finetune: 3/4  stopped after 0:00"
    )


def test_truncated_text_ends_in_dots() -> None:
    assert fit_to_width([("far", "1,000,000/1,000,000")], 10) == "1,000,0..."
