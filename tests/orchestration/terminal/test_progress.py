import io

import pytest
from rich.console import Console

from orchestration.progress import Pace, Rates, ignore, together
from orchestration.terminal import progress


def test_plain_progress_prints_a_stage_when_it_begins_and_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("plain") as report:
        for done in (1, 2, 3):
            report({"stage": "read", "done": done, "total": 3})
        report({"stage": "encode", "done": 1, "total": 1, "tokens": 1_234_567})
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["read: 1/3", "read: 3/3", "encode: 1/1  tokens 1,234,567"]
    assert printed.out == ""


def test_plain_progress_prints_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(
        progress.time, "monotonic", lambda: float(next(clock)) / 2
    )  # the clock is asked once or twice a call
    lines = progress.Lines()
    for done in range(40):
        lines({"stage": "pretrain", "done": done})
    assert 3 <= len(capsys.readouterr().err.splitlines()) <= 9


def test_no_progress_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("none") as report:
        report({"stage": "read", "done": 1})
    assert capsys.readouterr() == ("", "")


def test_auto_is_plain_where_stderr_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("auto") as report:
        report({"stage": "read", "done": 1})
    assert capsys.readouterr().err == "read: 1\n"


def test_bars_show_stage_and_figures_on_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("rich") as report:
        report({"stage": "pretrain", "done": 1, "total": 2, "loss": 4.25})
        report({"stage": "pretrain", "done": 2, "total": 2, "loss": 4.125})
    printed = capsys.readouterr()
    assert "pretrain" in printed.err
    assert "loss 4.125" in printed.err
    assert printed.out == ""


def test_reports_that_go_together_all_get_an_event() -> None:
    got: list[object] = []
    together(got.append, ignore, got.append)({"stage": "read"})
    assert got == [{"stage": "read"}] * 2


# A corpus that grows


def grown(done: int, **more: int) -> dict[str, object]:
    return {"stage": "corpus", "done": done, "total": 10, "documents": 30 * done, "bytes": 4_000_000 * done} | more


def test_rates_are_those_of_this_process_and_not_of_the_parts_it_found() -> None:
    pace = Pace()
    assert pace(grown(6, tokens=6_000), 50.0) == Rates()
    assert pace(grown(7, tokens=8_000), 54.0) == Rates(1_000_000.0, 500.0, left_s=12.0)


def test_rates_stand_still_and_the_time_left_runs_while_a_part_is_at_work() -> None:
    pace = Pace()
    pace(grown(0), 0.0)
    assert pace(grown(2), 8.0) == Rates(1_000_000.0, 0.0, left_s=32.0)
    assert pace(grown(2), 11.0) == Rates(1_000_000.0, 0.0, left_s=29.0)
    assert pace(grown(2), 500.0).left_s == 0.0


def test_a_line_of_a_corpus_has_documents_sizes_rates_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    with progress.shown("plain") as report:
        report(grown(0, tokens=0))
        now_s += 20.0
        report(grown(2, tokens=50_000))
        now_s += 80.0
        report(grown(10, tokens=250_000))
        report({"stage": "vocabulary"})
    assert capsys.readouterr().err.splitlines() == [
        "corpus: 0/10  0 documents  0.0 MB",
        "corpus: 2/10  60 documents  8.0 MB  0.4 MB/s  2,500 tokens/s  1:20 left",
        "corpus: 10/10  300 documents  40.0 MB  0.4 MB/s  2,500 tokens/s",
        "vocabulary:",
    ]


def test_a_stage_without_tokens_shows_no_rate_of_them_and_a_new_stage_begins_anew(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    with progress.shown("plain") as report:
        report(grown(0, tokens=0) | {"stage": "text"})
        now_s += 10.0
        report(grown(10, tokens=0) | {"stage": "text"})
        report(grown(0, tokens=0))
    values = capsys.readouterr().err.splitlines()
    assert values[1:] == ["text: 10/10  300 documents  40.0 MB  4.0 MB/s", "corpus: 0/10  0 documents  0.0 MB"]


def test_a_bar_of_a_corpus_shows_its_rates_and_its_own_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    console = Console(record=True, width=140, force_terminal=True, file=io.StringIO())
    with progress._bars(console) as drawn:
        report = progress.Bars(drawn)
        report(grown(0, tokens=0))
        now_s += 45.0  # longer than what rich remembers
        report(grown(1, tokens=9_000))
        drawn.refresh()
    shown = console.export_text()
    assert "30 documents  4.0 MB  0.1 MB/s  200 tokens/s" in shown
    assert "6:45" in shown
