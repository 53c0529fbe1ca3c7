"""Output of a command: results go to stdout, everything else to stderr."""

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

if TYPE_CHECKING:  # `--help` must not import the jobs
    from orchestration.jobs import JobStage

LONGEST: Final = 4_000  # maximum number of characters in a line of an error message
PIPE_WIDTH = 140  # columns, if stdout is not a terminal
FIRST_WORD_S = 1.0
AT_ONCE_S = 0.2
BEGAN_S: ContextVar[float] = ContextVar("BEGAN_S")  # start of the command, by time.perf_counter


@dataclass(frozen=True)
class CommandResult:
    """The result of a command as text (`shown`) and as data for `--json`, the next commands, and the exit code."""

    shown: tuple[RenderableType, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    next: tuple[str, ...] = ()
    exit_code: int = 0


def print_answer(answer: CommandResult, as_json: bool) -> int:
    """Print a result, as text or as one JSON document, and return its exit code."""
    if as_json:
        print(json.dumps(replace_non_finite({**answer.data, "next": answer.next}), indent=1, default=str), flush=True)
        return answer.exit_code
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    for part in answer.shown:
        console.print(part)
    for number, command in enumerate(answer.next):
        console.print(Text(f"{'    ' if number else 'next'}  {command}", "dim"), soft_wrap=True)
    return answer.exit_code


def write_part(text: str) -> None:
    """Write a part of a text to stdout at once, without the control characters that `print_answer` removes."""
    Console(highlight=False, soft_wrap=True).print(Text(text), end="")
    sys.stdout.flush()


@contextmanager
def show_wait(what: str) -> Iterator[threading.Thread]:
    """Print `what` on stderr if the block takes long, for example an import from a cold disk.

    Nothing is printed in the first second of a command, or if the block ends within AT_ONCE_S.
    """
    left_s = FIRST_WORD_S - (perf_counter() - BEGAN_S.get(perf_counter()))
    timer = threading.Timer(max(left_s, AT_ONCE_S), print, [f"{what} ..."], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def announce(stages: Sequence["JobStage"], notes: Iterable[str] = ()) -> None:
    """Print notes about the text, then for each stage whether it runs or is skipped, and the changes since it ran."""
    lines = [*notes, *(line for stage in stages for line in stage.describe())]
    for line in dict.fromkeys(lines):  # one directory is several stages if --data names a finished corpus
        print(line, file=sys.stderr)


def print_plan(stages: Sequence["JobStage"], command: str) -> CommandResult:
    """The result of a dry run: the stages that are not done."""
    due = dict.fromkeys(stage.name for stage in stages if stage.state != "done")
    values = {stage.name: {"folder": str(stage.folder), "state": stage.state} for stage in stages}
    return CommandResult(
        (Text(f"would do: {', '.join(due) or 'nothing, all stages are done'}"),), {"stages": values}, (command,)
    )


def print_error(message: str, exit_code: int) -> int:
    """Print each line of an error message on stderr and return the exit code."""
    for line in LOGIN.sub(f"//{HIDDEN}@", message).splitlines():
        print(f"sesame: {_short(line)}", file=sys.stderr)
    return exit_code


def _short(line: str) -> str:
    """A line without its middle part if it is long: a value may be a whole file, and the remedy is at the end."""
    if len(line) <= LONGEST:
        return line
    half = LONGEST // 2
    return f"{line[:half]} [{len(line) - 2 * half:,} more characters] {line[-half:]}"
