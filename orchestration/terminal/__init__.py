"""Output of a command on a terminal.

Read output.py first. views.py has tables and trees, progress.py bars and lines, stage.py the state of one stage.
doctor.py checks the machine, inspect.py decodes the sequences of a step, complete.py completes words in a shell.
"""

from orchestration.terminal.output import (
    BEGAN_S,
    CommandResult,
    announce,
    print_answer,
    print_error,
    print_plan,
    show_wait,
    write_part,
)
from orchestration.terminal.progress import is_plain, show_progress

__all__ = [
    "BEGAN_S",
    "CommandResult",
    "announce",
    "is_plain",
    "print_answer",
    "print_error",
    "print_plan",
    "show_progress",
    "show_wait",
    "write_part",
]
