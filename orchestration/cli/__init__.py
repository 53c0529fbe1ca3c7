"""The command `sesame`. Each verb has a file in verbs/, which imports slow modules in the function of the verb.

Exit codes: 0 success, 2 usage error or bad input, 3 too little usable data, 4 missing resource, 5 diverged,
75 preempted (the same command resumes), 130 interrupted. Each user error is one line on stderr.
"""

from orchestration.cli.app import app, main

__all__ = ["app", "main"]
