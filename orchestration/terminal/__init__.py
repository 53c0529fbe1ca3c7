"""Where a command meets its terminal.

Read output.py first; views.py are tables and trees, progress.py bars and lines of the stages in stage.py. doctor.py
looks at the machine, inspect.py at the rows of a step; complete.py is what the shell asks.
"""

from orchestration.terminal.output import BEGAN_S, CommandResult, announce, planned, print_answer, refuse, waiting
from orchestration.terminal.progress import is_plain, shown

__all__ = ["BEGAN_S", "CommandResult", "announce", "is_plain", "planned", "print_answer", "refuse", "shown", "waiting"]
