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
    """Seconds that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(stage.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def said(report: Callable[[Any], None], capsys: pytest.CaptureFixture[str], mode: progress.Mode) -> list[str]:
    """The lines of stderr; nothing is on stdout."""
    with progress.show_progress(mode) as shown:
        report(shown)
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.splitlines()


@pytest.mark.parametrize("mode", ["plain", "auto"])  # auto: stderr is no terminal here
def test_a_line_stands_where_a_stage_begins_and_where_it_ends(
    mode: progress.Mode, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(report: Any) -> None:
        report({"stage": "importing Beam"})
        clock.now_s += 25
        for done in (1, 2, 3):
            report({"stage": "read", "done": done, "total": 3})
        report({"stage": "encode", "done": 1, "total": 1, "tokens": 1_234_567})

    assert said(work, capsys, mode) == [
        "importing Beam ...",
        "importing Beam: 0:25",
        "read: 1/3",
        "read: 3/3  0:00",
        "encode: 1/1  tokens 1.23M",
        "encode: 1/1  0:00  tokens 1.23M",
    ]


def test_a_stage_that_says_nothing_gets_a_line_an_interval(
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


def test_many_events_are_a_line_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    def work(report: Any) -> None:
        for done in range(4_000):
            report({"stage": "pretrain", "done": done, "total": 4_000})

    assert len(said(work, capsys, "plain")) == 2


@pytest.mark.parametrize("mode", ["plain", "rich"])
def test_what_was_begun_is_said_to_have_stopped_where_there_is_an_error(
    mode: progress.Mode, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(report: Any) -> None:
        report({"stage": "starting Ray"})
        clock.now_s += 7
        raise RuntimeError

    with pytest.raises(RuntimeError):
        said(work, capsys, mode)
    assert "starting Ray: stopped after 0:07" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["plain", "rich"])
def test_a_stage_that_another_follows_before_its_end_has_stopped(
    mode: progress.Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(report: Any) -> None:
        report({"stage": "pretrain", "done": 20, "total": 60})
        report({"stage": "starting workers"})  # one has died
        report({"stage": "pretrain", "done": 60, "total": 60})

    text = "\n".join(said(work, capsys, mode))
    assert "pretrain: 20/60  stopped after 0:00" in text
    assert "pretrain: 60/60  0:00" in text


def test_no_progress_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.show_progress("none") as report:
        report({"stage": "read", "done": 1})
    assert capsys.readouterr() == ("", "")


def test_the_end_of_a_bar_stays_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.show_progress("rich") as report:
        report({"stage": "pretrain", "done": 1, "total": 2, "loss": 4.25})
        report({"stage": "pretrain", "done": 2, "total": 2, "loss": 4.125})
    printed = capsys.readouterr()
    assert "* pretrain: 2/2  0:00  loss 4.125" in printed.err
    assert printed.out == ""


def test_no_bar_is_left_when_its_stage_is_over(clock: Clock) -> None:
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


def test_messages_of_the_log_stand_above_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    before = io.StringIO()
    handler = logging.StreamHandler(before)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    with progress.show_progress("rich") as report:
        report({"stage": "pretrain", "done": 1, "total": 2})
        assert handler.stream is not before
    assert handler.stream is before


def test_reports_that_go_together_all_get_an_event() -> None:
    got: list[object] = []
    combine_reports(got.append, ignore_progress, got.append)({"stage": "read"})
    assert got == [{"stage": "read"}] * 2


# A corpus that grows


def grown(done: int, **more: int) -> dict[str, object]:
    return {"stage": "corpus", "done": done, "total": 10, "documents": 30 * done, "bytes": 4_000_000 * done} | more


def test_rates_are_those_of_this_process_and_not_of_the_parts_it_found() -> None:
    pace = Pace()
    assert pace(grown(6, tokens=6_000), 50.0) == CorpusRates()
    assert pace(grown(7, tokens=8_000), 54.0) == CorpusRates(1_000_000.0, 500.0, left_s=12.0)


def test_rates_stand_still_and_the_time_left_runs_while_a_part_is_at_work() -> None:
    pace = Pace()
    pace(grown(0), 0.0)
    assert pace(grown(2), 8.0) == CorpusRates(1_000_000.0, 0.0, left_s=32.0)
    assert pace(grown(2), 11.0) == CorpusRates(1_000_000.0, 0.0, left_s=29.0)
    assert pace(grown(2), 500.0).left_s == 0.0


def test_the_line_of_a_corpus_has_documents_sizes_rates_and_the_time_left(clock: Clock) -> None:
    shown = stage.StageProgress("corpus")
    shown(grown(0, tokens=0))
    assert shown.running(80) == "corpus: 0/10  0 documents  0.0 MB"
    clock.now_s += 20.0
    shown(grown(2, tokens=50_000))
    assert shown.running(80) == "corpus: 2/10  1:20 left  60 documents  8.0 MB  0.4 MB/s  2,500 tok/s"
    clock.now_s += 80.0
    shown(grown(10, tokens=250_000))
    assert shown.ended(80) == "corpus: 10/10  1:40  300 documents  40.0 MB  0.4 MB/s  2,500 tok/s"


def test_a_stage_without_tokens_shows_no_rate_of_them(clock: Clock) -> None:
    shown = stage.StageProgress("text")
    shown(grown(0, tokens=0) | {"stage": "text"})
    clock.now_s += 10.0
    shown(grown(10, tokens=0) | {"stage": "text"})
    assert shown.ended(80) == "text: 10/10  0:10  300 documents  40.0 MB  4.0 MB/s"


def test_a_bar_of_a_corpus_shows_its_rates_and_its_own_time_left(clock: Clock) -> None:
    console = Console(record=True, width=80, force_terminal=True, file=io.StringIO())
    report = progress.BarProgress(progress._make_bars(console))
    report(grown(0, tokens=0))
    clock.now_s += 45.0  # longer than what rich remembers
    report(grown(1, tokens=9_000))
    console.print(report.drawn.get_renderable())
    first, second = console.export_text().splitlines()
    assert "1/10 0:45  6:45 left" in first
    assert second.strip() == "30 documents  4.0 MB  0.1 MB/s  200 tok/s"
