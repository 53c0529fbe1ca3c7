"""The script that selects the Python of a submitted job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration.jobs import submission
from orchestration.launch import job_server

ROOT = job_server.ROOT
SCRIPT = ROOT / submission.JOB_PYTHON
RAYLET = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', *sys.argv[2:]]).returncode)"
SUPERVISOR = "import subprocess, sys; sys.exit(subprocess.run(['sh', *sys.argv[1:]]).returncode)"


def run_job(path: str, python_of_ray: str = "", cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `sesame --version` by the script: raylet, supervisor, shell, as in a job of Ray."""
    workers = subprocess.list2cmdline([python_of_ray, "default_worker.py"])  # as ray._private.services
    option = f"--python_worker_command={workers}" if python_of_ray else "--no_python"
    command = [sys.executable, "-c", RAYLET, option, SUPERVISOR, str(SCRIPT), "--version"]
    environment = {"PATH": f"{path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def without_sesame(tmp_path: Path) -> str:
    """A directory with a `python` and a `python3` that have no packages."""
    for name in ("python", "python3"):
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\nexec "{sys.base_prefix}/bin/python3" -I -S "$@"\n')
        file.chmod(0o755)
    return str(tmp_path)


def test_a_job_uses_the_python_of_ray(without_sesame: str) -> None:
    """Ray was started as `.venv/bin/ray start`, and `python` on the PATH has no packages."""
    done = run_job(without_sesame, sys.executable)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"job: {sys.executable}, Python {sys.version.split()[0]}")
    assert done.stdout.startswith("sesame ")


def test_a_job_uses_the_python_of_ray_in_a_directory_with_a_space(without_sesame: str, tmp_path: Path) -> None:
    python = tmp_path / "a folder" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done = run_job(without_sesame, str(python))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"job: {python}, Python ")


def test_the_path_is_used_if_ray_has_another_python(without_sesame: str) -> None:
    done = run_job(os.path.dirname(sys.executable), f"{without_sesame}/python")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"job: {sys.executable},")


def test_a_variable_takes_precedence(without_sesame: str) -> None:
    done = run_job(without_sesame, f"{without_sesame}/python", SESAME_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"job: {sys.executable},")


def test_without_the_packages_the_error_names_each_python(without_sesame: str) -> None:
    done = run_job(without_sesame, f"{without_sesame}/python", SESAME_PYTHON="/missing/python")
    assert done.returncode == 4
    assert done.stderr == (
        "sesame: this node has no Python with the packages of Sesame: tried "
        f"{without_sesame}/python, {without_sesame}/python3; install Sesame there, start Ray from its environment "
        "(.venv/bin/ray start), or set SESAME_PYTHON on the node\n"
    )
