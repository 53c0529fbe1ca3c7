"""The supported versions of Python: which of them `make setup` selects, and features to avoid."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
POSSESSIVE_GROUP = re.compile(r"\)[*+?]\+|\(\?>")


def lines(folder: str, pattern: re.Pattern[str]) -> list[str]:
    """The lines of Sesame's sources that match a pattern, with their files."""
    return [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if pattern.search(line)
    ]


@pytest.mark.parametrize("folder", ["preprocessing", "pipeline", "training", "orchestration"])
def test_no_pattern_has_a_possessive_group(folder: str) -> None:
    """Before Python 3.11.5, `re` matches such groups wrongly if they can backtrack (python/cpython#106052).

    Possessive character sets are not affected.
    """
    assert lines(folder, POSSESSIVE_GROUP) == []


@pytest.mark.parametrize("folder", ["preprocessing", "pipeline", "training", "orchestration"])
def test_text_is_read_as_utf_8_in_every_locale(folder: str) -> None:
    """`import sesame` cannot choose the locale of a notebook."""
    assert lines(folder, re.compile(r"\.read_text\(\)")) == []


def test_all_places_name_the_same_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classified = re.findall(r":: (3\.\d+)", "\n".join(project["classifiers"]))
    assert classified == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == ">=3.11,<3.14"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"PYTHONS := {' '.join(f'python{each}' for each in reversed(classified))} python3\n" in makefile
    for page in ("README.md", "CONTRIBUTING.md", "docs/install.md"):
        assert "Python 3.11, 3.12 or 3.13" in (ROOT / page).read_text(encoding="utf-8"), page


SHIM = """#!/bin/bash
echo "pyenv: $(basename "$0"): command not found" >&2
exit 127
"""
# Answers the questions of the Makefile like Python. It creates no environment, so nothing is installed.
STAND_IN = """#!/bin/bash
case "$*" in
  *sys.executable*) echo "{path}" ;;
  *ensurepip*) exit {venv} ;;
  *version_info*) echo python3.12 ;;
  --version) echo "Python {version}" ;;
  *) exit 3 ;;
esac
"""


def without_variables_of_make() -> dict[str, str]:
    """The environment, without the variables that a `make` above these tests exports."""
    names = ("MAKE", "MFLAGS", "PYTHON", "VENV", "VERSION")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def make_setup(folder: Path, *words: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run `make setup` in a directory in which no other program than these is on the path."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / "bin").mkdir()
    for name, code in programs.items():
        program = folder / "bin" / name.replace("_", ".")
        program.write_text(code.replace("{path}", str(program)))
        program.chmod(0o755)
    return subprocess.run(
        [shutil.which("make") or "make", "setup", *words],
        cwd=folder,
        env=without_variables_of_make() | {"PATH": str(folder / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )


def stand_in(version: str, *, path: str = "{path}", has_venv: bool = True) -> str:
    return STAND_IN.replace("{path}", path).replace("{version}", version).replace("{venv}", str(int(not has_venv)))


def test_make_selects_the_first_python_that_runs(tmp_path: Path) -> None:
    """A shim of pyenv exists and fails; a Python of another version prints no path."""
    done = make_setup(
        tmp_path, python3_13=SHIM, python3_12=stand_in("3.12.9"), python3_11=stand_in("3.11.2"), python3=SHIM
    )
    assert done.stdout == f"setup: creating .venv with Python 3.12.9 ({tmp_path}/bin/python3.12)\n"


def test_make_selects_python3_if_it_is_a_supported_version(tmp_path: Path) -> None:
    done = make_setup(tmp_path, python3=stand_in("3.13.5"))
    assert done.stdout == f"setup: creating .venv with Python 3.13.5 ({tmp_path}/bin/python3)\n"


def test_make_refuses_if_no_python_is_supported(tmp_path: Path) -> None:
    done = make_setup(tmp_path, python3=stand_in("3.9.18", path=""))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == (
        "setup: no Python 3.11, 3.12 or 3.13: got none of python3.13 python3.12 python3.11 python3; "
        "install one, or set its path with 'make setup PYTHON=/path/to/python'"
    )
    assert not (tmp_path / ".venv").exists()


def test_make_refuses_a_python_without_venv_and_names_the_package(tmp_path: Path) -> None:
    """Debian and Ubuntu have the module venv in a package of its own."""
    done = make_setup(tmp_path, python3=stand_in("3.12.3", has_venv=False))
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"setup: {tmp_path}/bin/python3 has no module venv or ensurepip: install it, on Debian and Ubuntu with "
        "'apt install python3.12-venv'"
    )


def test_make_uses_the_given_python_only(tmp_path: Path) -> None:
    given = tmp_path / "a folder"
    given.mkdir()
    done = make_setup(tmp_path, f"PYTHON={given}/python", python3_12=stand_in("3.12.9"))
    assert done.returncode == 2
    assert f"got {given}/python;" in done.stderr
    (given / "python").write_text(stand_in("3.11.9", path=str(given / "python")))
    (given / "python").chmod(0o755)
    shutil.rmtree(tmp_path / "bin")
    done = make_setup(tmp_path, f"PYTHON={given}/python", python3_12=stand_in("3.12.9"))
    assert done.stdout == f"setup: creating .venv with Python 3.11.9 ({given}/python)\n"


def test_make_test_python_needs_a_version() -> None:
    env = without_variables_of_make()
    done = subprocess.run(["make", "test-python"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("test-python: missing version: got none, expected 3.11, 3.12 or 3.13; run ")
    dry = ["make", "--dry-run", "test-python", "VERSION=3.12"]
    done = subprocess.run(dry, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert 'VENV=build/python-3.12 PYTHON="python3.12"' in done.stdout


def test_importing_jieba_prints_no_warning(tmp_path: Path) -> None:
    """Its patterns have invalid escapes, which Python 3.12 reports when it compiles them."""
    done = subprocess.run(
        [sys.executable, "-X", f"pycache_prefix={tmp_path}", "-c", "import preprocessing.text.chinese_words"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
