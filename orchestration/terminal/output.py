"""Where a command meets its terminal: answers on stdout, everything else on stderr."""

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, RenderableType
from rich.text import Text

from preprocessing.credentials import HIDDEN, LOGIN
from preprocessing.finite import replace_non_finite

if TYPE_CHECKING:  # `--help` answers without all that a stage is made of
    from orchestration.jobs import JobStage

LONGEST: Final = 4_000  # characters of a line of an error
PIPE_WIDTH = 140  # columns, where stdout is not a terminal
FIRST_WORD_S = 1.0
AT_ONCE_S = 0.2
BEGAN_S: ContextVar[float] = ContextVar("BEGAN_S")  # when the command began, by time.perf_counter


@dataclass(frozen=True)
class CommandResult:
    """What a command has to say: to a person, to a program (`--json`), and which commands come next."""

    shown: tuple[RenderableType, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    next: tuple[str, ...] = ()
    exit_code: int = 0


def print_answer(answer: CommandResult, as_json: bool) -> int:
    """Print an answer, as one JSON document or for people; its exit code."""
    if as_json:
        print(json.dumps(replace_non_finite({**answer.data, "next": answer.next}), indent=1, default=str), flush=True)
        return answer.exit_code
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    for part in answer.shown:
        console.print(part)
    for number, command in enumerate(answer.next):
        console.print(Text(f"{'    ' if number else 'next'}  {command}", "dim"), soft_wrap=True)
    return answer.exit_code


@contextmanager
def show_wait(what: str) -> Iterator[threading.Thread]:
    """Say what is being done, where a command has run for longer than a moment: an import from a cold disk takes long.

    Nothing is said in the first second, nor of what is done at once.
    """
    left_s = FIRST_WORD_S - (perf_counter() - BEGAN_S.get(perf_counter()))
    timer = threading.Timer(max(left_s, AT_ONCE_S), print, [f"{what} ..."], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def announce(stages: Sequence["JobStage"], recognised: Iterable[str] = ()) -> None:
    """Before the work: what was recognised in the text, what is done and skipped, what differs."""
    for line in (*recognised, *(line for stage in stages for line in stage.describe())):
        print(line, file=sys.stderr)


def print_plan(stages: Sequence["JobStage"], command: str) -> CommandResult:
    """The answer of a dry run."""
    due = [stage.name for stage in stages if stage.state != "done"]
    values = {stage.name: {"folder": str(stage.folder), "state": stage.state} for stage in stages}
    return CommandResult(
        (Text(f"would do: {', '.join(due) or 'nothing, all is done'}"),), {"stages": values}, (command,)
    )


def print_error(message: str, exit_code: int) -> int:
    """One line on stderr for each thing that is wrong; the exit code."""
    for line in LOGIN.sub(f"//{HIDDEN}@", message).splitlines():
        print(f"sesame: {_short(line)}", file=sys.stderr)
    return exit_code


def _short(line: str) -> str:
    """A line that a person can read: what was given may be a whole file, and the end says what is allowed."""
    if len(line) <= LONGEST:
        return line
    half = LONGEST // 2
    return f"{line[:half]} [{len(line) - 2 * half:,} more characters] {line[-half:]}"
