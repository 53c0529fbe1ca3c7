"""Where a command meets its terminal. Read output.py first; views.py are tables and trees, progress.py bars."""

from orchestration.terminal.output import Answer, announce, planned, print_answer, refuse
from orchestration.terminal.progress import shown

__all__ = ["Answer", "announce", "planned", "print_answer", "refuse", "shown"]
