"""Start a worker of our own Ray: set the variables of its runtime_env, then become the program of the worker.

For this, Ray 2.60 has a script that imports all of Ray, which the program of the worker then does again
(ray/_private/workers/setup_worker.py). This script gets the same arguments, and imports only the standard library.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

_CONTEXT: Final = "--serialized-runtime-env-context="
_LANGUAGE: Final = "--language="
_UNKNOWN: Final = re.compile(r"\$\{[A-Z0-9_]+\}")  # a variable that is not set counts as ""


def split_arguments(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The context of the runtime_env, and the arguments of the worker.

    >>> split_arguments(["worker.py", '--serialized-runtime-env-context={"a": {}}', "--language=PYTHON", "--a=1"])
    ({'a': {}}, ['worker.py', '--a=1'])
    """
    context = next((word.removeprefix(_CONTEXT) for word in arguments if word.startswith(_CONTEXT)), "{}")
    return json.loads(context), [word for word in arguments if not word.startswith((_CONTEXT, _LANGUAGE))]


def set_variables(variables: Mapping[str, str]) -> None:
    """Set environment variables; their values may refer to others, for example ${PATH}."""
    for name, value in variables.items():
        os.environ[name] = _UNKNOWN.sub("", os.path.expandvars(value))


def main(arguments: Sequence[str]) -> None:
    """Become the program of the worker. Raises ValueError for a runtime_env with more than variables and a Python."""
    context, of_worker = split_arguments(arguments)
    if others := {name for name, value in context.items() if value} - {"env_vars", "py_executable"}:
        raise ValueError(f"invalid runtime_env: got {', '.join(sorted(others))}, expected env_vars and py_executable")
    set_variables(context.get("env_vars", {}))
    python = shlex.split(context.get("py_executable", shlex.quote(sys.executable)))
    os.execvp(python[0], [*python, *of_worker])


if __name__ == "__main__":
    main(sys.argv[1:])
