"""Errors that a user can correct, one class per exit code.

SesameError
  BadInput       2   an input cannot be used: a name, a key, a file, a directory, a full disk
  DataError      3   the input could be read, but too little of it is usable
  ResourceError  4   the machine lacks something: memory, a free port, a lock that another process holds
  Diverged       5   training produced numbers that cannot be used
  MiscountedLoss 1   a head does not score the targets that its loss counts: a bug in the file that the message names
  Preempted     75   stopped on request; the same command resumes

A message is one line: "PLACE: invalid X: got Y, expected Z", then a remedy. The command prints it without a traceback.
"""

import platform
import sys
from typing import Final

FLOORS: Final = ("preprocessing", "pipeline", "training", "orchestration", "sesame")


def explain_missing_module(error: ModuleNotFoundError) -> str:
    """A message of one line with the packages to install if a third-party module is missing.

    A missing module of Sesame is a bug: its error is raised again.

    >>> error = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    >>> explain_missing_module(error).split("; ")[0].split(" (")[0]
    "No module named 'torch' in this Python"
    """
    module = (error.name or "").split(".")[0]
    if not module or module in FLOORS:
        raise error
    return (
        f"No module named {module!r} in this Python ({sys.executable}, {platform.python_version()}); install the "
        "requirements of Sesame: pip install 'sesame-pretraining[pipeline,training,orchestration]', or `make setup`; "
        "on a cluster, install them on every machine"
    )


class SesameError(Exception):
    """A failure that the user can correct; `exit_code` is the exit code of the command."""

    exit_code = 2


class BadInput(SesameError, ValueError):
    """An input cannot be used: correct it and repeat the command."""

    exit_code = 2


class DataError(SesameError):
    """Nothing, or too little, of the input is usable."""

    exit_code = 3


class ResourceError(SesameError):
    """The machine lacks something: memory, a free port, a lock that another process holds."""

    exit_code = 4


class Diverged(SesameError):
    """Training produced numbers that cannot be used."""

    exit_code = 5


class MiscountedLoss(SesameError):
    """A bug in a loss: its head does not score the targets that the loss counts before the forward pass."""

    exit_code = 1


class MiscountedWeights(SesameError):
    """A bug in an architecture or a loss: its weights differ from the weights that it states for memory planning."""

    exit_code = 1


class Preempted(SesameError):
    """Stopped on request after a checkpoint; the same command resumes from it."""

    exit_code = 75


def with_article(noun: str) -> str:
    """A noun with its indefinite article.

    >>> with_article("encoder"), with_article("decoder")
    ('an encoder', 'a decoder')
    """
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"
