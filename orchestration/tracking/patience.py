"""Calls to a tracking store that may never answer, and what it could not be told: kept in the run's folder."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from preprocessing.files import write_atomic

T = TypeVar("T")

FAILED_S: Final = 1.0  # for a store that has failed before
SLOW_S: Final = 3.0  # for one that has not: a busy machine takes its time
BEHIND: Final = "mlflow-behind.json"  # in the run's folder: what MLflow lacks


def within(seconds: float, call: Callable[[], T]) -> T:
    """What `call` returns; TimeoutError where it takes longer, and then it goes on in a thread of its own."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name="mlflow call")
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return found[0]


def behind(folder: Path) -> dict[str, Any]:
    """What MLflow lacks of the run in `folder`; {}: nothing that is known of."""
    try:
        return json.loads((folder / BEHIND).read_text())
    except (OSError, ValueError):
        return {}


def note_behind(folder: Path, **lacks: Any) -> None:
    """Add to what MLflow lacks."""
    write_atomic(folder / BEHIND, json.dumps(behind(folder) | lacks, indent=1).encode())


def forget(folder: Path, *names: str) -> None:
    """MLflow has these now."""
    left = {name: value for name, value in behind(folder).items() if name not in names}
    if left:
        write_atomic(folder / BEHIND, json.dumps(left, indent=1).encode())
    else:
        (folder / BEHIND).unlink(missing_ok=True)
