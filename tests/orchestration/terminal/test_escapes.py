"""With NO_COLOR or TERM=dumb, a terminal gets no control sequence."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration.terminal import progress

ROOT = Path(__file__).parents[3]
STAGES = """
from orchestration.terminal import show_progress
with show_progress("auto") as report:
    report({"stage": "importing Beam"})
    for done in range(3):
        report({"stage": "pretrain", "done": done, "total": 2, "loss": 4.0})
"""
CLI = ["-m", "orchestration.cli"]
COMMANDS = {
    "help": [*CLI, "--help"],
    "help of a command": [*CLI, "run", "--help"],
    "a table": [*CLI, "recipes"],
    "a tree": [*CLI, "recipes", "gpt2"],
    "keys": [*CLI, "keys", "optimizer"],
    "a check": [*CLI, "check", "bert_base"],
    "an error": [*CLI, "chek"],
    "bars": ["-c", STAGES],
}


def run_on_terminal(command: list[str], **environment: str) -> str:
    """Return everything that a command writes to a terminal."""
    ours, theirs = pty.openpty()
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM", "FORCE_COLOR")}
    given = plain | {"TERM": "xterm-256color"} | environment
    process = subprocess.Popen(
        [sys.executable, *command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=given
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # on Linux: the writer has exited
            break
        if not part:
            break
        written += part
    os.close(ours)
    process.wait()
    return written.decode()


@pytest.mark.one_in(6)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_color_writes_no_control_sequence(command: str) -> None:
    output = run_on_terminal(COMMANDS[command], NO_COLOR="1")
    assert output.strip()
    assert "\x1b" not in output


@pytest.mark.one_in(3)
@pytest.mark.parametrize("command", ["bars", "a table", "help"])
def test_dumb_terminal_gets_no_control_sequence(command: str) -> None:
    assert "\x1b" not in run_on_terminal(COMMANDS[command], TERM="dumb")


@pytest.mark.slow
def test_other_terminal_gets_bars_and_colors() -> None:
    assert "\x1b[" in run_on_terminal(COMMANDS["bars"])
    assert "\x1b[" in run_on_terminal(COMMANDS["a tree"])


@pytest.mark.parametrize(
    ("environment", "plain"),
    [({}, False), ({"NO_COLOR": ""}, False), ({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, True)],
)
def test_no_color_counts_if_it_is_not_empty(
    environment: dict[str, str], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert progress.is_plain() is plain
