"""The command `sesame`: options in, one answer out. Each verb has a file in verbs/ and imports what it needs late.

Exit codes: 0 success, 2 usage error or bad input, 3 too little usable data, 4 missing resource, 5 diverged,
75 preempted (the same command resumes), 130 interrupted. Each user error is one line on stderr.
"""

from orchestration.cli.app import app, main

__all__ = ["app", "main"]
