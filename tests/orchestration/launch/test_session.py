"""The connection to Ray: what happens where it is slow to start."""

from pathlib import Path
from typing import Any

import pytest

from orchestration.launch import session
from preprocessing.errors import ResourceError

SLOW = Exception("The current node timed out during startup. This could happen because ...")


def start(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> int:
    """How often Ray is started when its starts end like this."""
    left = list(outcomes)

    def begin(*args: Any) -> None:
        if error := left.pop(0):
            raise error

    monkeypatch.setattr(session, "_start_here", begin)
    session._start_patiently(Path(), 1, 0, {})
    return len(outcomes) - len(left)


def test_a_start_that_was_too_slow_is_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, None) == 1
    assert start(monkeypatch, SLOW, None) == 2


def test_a_machine_that_is_too_busy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match="too busy; repeat the command later"):
        start(monkeypatch, SLOW, SLOW)


def test_any_other_failure_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no space"):
        start(monkeypatch, OSError("no space"))
