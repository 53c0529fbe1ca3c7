import pytest

from orchestration import progress


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
