import io
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from orchestration.progress import CorpusRates, Pace, combine_reports, ignore_progress
from orchestration.terminal import progress, stage


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(stage.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def progress_lines(report: Callable[[Any], None], capsys: pytest.CaptureFixture[str], mode: progress.Mode) -> list[str]:
    """Return the lines of stderr; stdout must be empty."""
    with progress.show_progress(mode) as shown:
        report(shown)
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.splitlines()


@pytest.mark.parametrize("mode", ["plain", "auto"])  # auto: stderr is not a terminal here
def test_plain_progress_has_a_line_at_start_and_end_of_a_stage(
    mode: progress.Mode, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(report: Any) -> None:
        report({"stage": "importing Beam"})
        clock.now_s += 25
        for done in (1, 2, 3):
            report({"stage": "read", "done": done, "total": 3})
        report({"stage": "encode", "done": 1, "total": 1, "tokens": 1_234_567})

    assert progress_lines(work, capsys, mode) == [
        "importing Beam ...",
        "importing Beam: 0:25",
        "read: 1/3",
        "read: 3/3  0:00",
        "encode: 1/1  tokens 1.23M",
        "encode: 1/1  0:00  tokens 1.23M",
    ]


def test_silent_stage_gets_a_line_per_interval(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.001)
    lines: list[str] = []
    with progress.show_progress("plain") as report:
        report({"stage": "starting Ray"})
        clock.now_s += 20
        began_s = time.perf_counter()
        while len(lines) < 3 and time.perf_counter() - began_s < 60:
            threading.Event().wait(0.005)
            lines += capsys.readouterr().err.splitlines()
    assert lines[1:3] == ["starting Ray: 0:20"] * 2
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_a_model_that_compiles_gives_a_line_more_often(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "COMPILING_EVERY_S", 0.001)  # LINE_EVERY_S stays ten seconds
    lines: list[str] = []
    with progress.show_progress("plain") as report:
        report({"stage": "pretrain", "done": 0, "total": 60, "now": "compiling"})
        began_s = time.perf_counter()
        while len(lines) < 3 and time.perf_counter() - began_s < 60:
            threading.Event().wait(0.005)
            lines += capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert {line.split()[-1] for line in lines} == {"compiling"}


def test_many_events_give_a_line_per_interval(capsys: pytest.CaptureFixture[str]) -> None:
    def work(report: Any) -> None:
        for done in range(4_000):
            report({"stage": "pretrain", "done": done, "total": 4_000})

    assert len(progress_lines(work, capsys, "plain")) == 2


@pytest.mark.parametrize("mode", ["plain", "rich"])
def test_stage_that_ends_with_an_error_is_shown_as_stopped(
    mode: progress.Mode, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(report: Any) -> None:
        report({"stage": "starting Ray"})
        clock.now_s += 7
        raise RuntimeError

    with pytest.raises(RuntimeError):
        progress_lines(work, capsys, mode)
    assert "starting Ray: stopped after 0:07" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["plain", "rich"])
def test_stage_followed_by_another_before_its_end_is_shown_as_stopped(
    mode: progress.Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(report: Any) -> None:
        report({"stage": "pretrain", "done": 20, "total": 60})
        report({"stage": "starting workers"})  # a worker has died
        report({"stage": "pretrain", "done": 60, "total": 60})

    text = "\n".join(progress_lines(work, capsys, mode))
    assert "pretrain: 20/60  stopped after 0:00" in text
    assert "pretrain: 60/60  0:00" in text


def test_progress_none_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.show_progress("none") as report:
        report({"stage": "read", "done": 1})
    assert capsys.readouterr() == ("", "")


def test_final_line_of_a_bar_stays_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.show_progress("rich") as report:
        report({"stage": "pretrain", "done": 1, "total": 2, "loss": 4.25})
        report({"stage": "pretrain", "done": 2, "total": 2, "loss": 4.125})
    printed = capsys.readouterr()
    assert "* pretrain: 2/2  0:00  loss 4.125" in printed.err
    assert printed.out == ""


def test_bar_is_removed_when_its_stage_ends(clock: Clock) -> None:
    console = Console(record=True, width=80, force_terminal=True, file=io.StringIO())
    drawn = progress._make_bars(console)
    bars = progress.BarProgress(drawn)
    for name in ("importing Ray", "starting Ray", "starting workers"):
        bars({"stage": name})
        clock.now_s += 3
        assert len(drawn.tasks) == 1
    bars.close()
    assert not drawn.tasks
    assert [line.strip() for line in console.export_text().splitlines()] == [
        "* importing Ray: 0:03",
        "* starting Ray: 0:03",
        "* starting workers: 0:03",
    ]


def test_log_messages_are_printed_above_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    before = io.StringIO()
    handler = logging.StreamHandler(before)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    with progress.show_progress("rich") as report:
        report({"stage": "pretrain", "done": 1, "total": 2})
        assert handler.stream is not before
    assert handler.stream is before


def test_combined_reports_all_get_an_event() -> None:
    got: list[object] = []
    combine_reports(got.append, ignore_progress, got.append)({"stage": "read"})
    assert got == [{"stage": "read"}] * 2


# Progress of a corpus


def corpus_event(done: int, **more: int) -> dict[str, object]:
    return {"stage": "corpus", "done": done, "total": 10, "documents": 30 * done, "bytes": 4_000_000 * done} | more


def test_rates_ignore_parts_of_an_earlier_process() -> None:
    pace = Pace()
    assert pace(corpus_event(6, tokens=6_000), 50.0) == CorpusRates()
    assert pace(corpus_event(7, tokens=8_000), 54.0) == CorpusRates(1_000_000.0, 500.0, left_s=12.0)


def test_time_left_decreases_between_events_while_rates_stay() -> None:
    pace = Pace()
    pace(corpus_event(0), 0.0)
    assert pace(corpus_event(2), 8.0) == CorpusRates(1_000_000.0, 0.0, left_s=32.0)
    assert pace(corpus_event(2), 11.0) == CorpusRates(1_000_000.0, 0.0, left_s=29.0)
    assert pace(corpus_event(2), 500.0).left_s == 0.0


def test_corpus_line_has_documents_sizes_rates_and_time_left(clock: Clock) -> None:
    shown = stage.StageProgress("corpus")
    shown(corpus_event(0, tokens=0))
    assert shown.format_running(80) == "corpus: 0/10  0 documents  0.0 MB"
    clock.now_s += 20.0
    shown(corpus_event(2, tokens=50_000))
    assert shown.format_running(80) == "corpus: 2/10  1:20 left  60 documents  8.0 MB  0.4 MB/s  2,500 tok/s"
    clock.now_s += 80.0
    shown(corpus_event(10, tokens=250_000))
    assert shown.format_ended(80) == "corpus: 10/10  1:40  300 documents  40.0 MB  0.4 MB/s  2,500 tok/s"


def test_stage_without_tokens_shows_no_token_rate(clock: Clock) -> None:
    shown = stage.StageProgress("text")
    shown(corpus_event(0, tokens=0) | {"stage": "text"})
    clock.now_s += 10.0
    shown(corpus_event(10, tokens=0) | {"stage": "text"})
    assert shown.format_ended(80) == "text: 10/10  0:10  300 documents  40.0 MB  4.0 MB/s"


def test_corpus_bar_shows_rates_and_time_left(clock: Clock) -> None:
    console = Console(record=True, width=80, force_terminal=True, file=io.StringIO())
    report = progress.BarProgress(progress._make_bars(console))
    report(corpus_event(0, tokens=0))
    clock.now_s += 45.0  # longer than the window of rich's speed estimate
    report(corpus_event(1, tokens=9_000))
    console.print(report.drawn.get_renderable())
    first, second = console.export_text().splitlines()
    assert "1/10 0:45  6:45 left" in first
    assert second.strip() == "30 documents  4.0 MB  0.1 MB/s  200 tok/s"
