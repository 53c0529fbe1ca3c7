"""Where a command meets its terminal.

Read output.py first; views.py are tables and trees, progress.py bars and lines of the stages in stage.py. doctor.py
looks at the machine, inspect.py at the rows of a step; complete.py is what the shell asks.
"""

from orchestration.terminal.output import (
    BEGAN_S,
    CommandResult,
    announce,
    print_answer,
    print_error,
    print_plan,
    show_wait,
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
]
