"""The script that starts the workers of our own Ray."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestration.launch import setup_worker

SHOW = "import json, os, sys; print(json.dumps([sys.executable, sys.argv[1:], dict(os.environ)]))"


def run(context: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    """Start the script as Ray does. The program of the worker prints its Python, its arguments and its environment."""
    given = [f"--serialized-runtime-env-context={json.dumps(context)}", "--language=PYTHON", *words]
    environment = os.environ | {"LD": "/lib"}
    command = [sys.executable, setup_worker.__file__, "-c", SHOW, *given]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_worker_gets_its_arguments_and_its_variables() -> None:
    variables = {"OMP_NUM_THREADS": "2", "LD": "/mine:${LD}", "GONE": "a${NOT_SET_ANYWHERE}b", "PRICE": "5$"}
    done = run({"env_vars": variables, "command_prefix": []}, "--node-id=1", "a b", "$HOME")
    python, arguments, environment = json.loads(done.stdout)
    assert (python, arguments) == (sys.executable, ["--node-id=1", "a b", "$HOME"])
    assert [environment[name] for name in variables] == ["2", "/mine:/lib", "ab", "5$"]


def test_worker_runs_in_the_python_of_the_context(tmp_path: Path) -> None:
    python = tmp_path / "a directory" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@" chosen\n')
    python.chmod(0o755)
    done = run({"py_executable": shlex.quote(str(python))})
    assert json.loads(done.stdout)[1] == ["chosen"]


def test_unknown_part_of_a_context_is_refused() -> None:
    done = run({"command_prefix": ["cd x &&"]})
    assert done.returncode == 1
    assert "invalid runtime_env: got command_prefix, expected env_vars and py_executable" in done.stderr


@pytest.mark.parametrize("variables", [{}, {"A": "${PATH}", "B": "a${NOT_SET}$HOME", "C": "$", "D": "${lower}"}])
def test_variables_are_those_that_ray_sets(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private.utils import update_envs

    monkeypatch.setattr(os, "environ", dict(os.environ))
    update_envs(variables)
    expected = dict(os.environ)
    for name in variables:
        del os.environ[name]
    setup_worker.set_variables(variables)
    assert dict(os.environ) == expected
