"""`make release`: check that a release is consistent, build its wheel, and run it in an empty environment.

The version of pyproject.toml, the git tag of this commit, CITATION.cff and the newest section of CHANGELOG.md must
agree; each difference is one line, and the exit code is 2. The wheel is then built and installed into a new
environment, with the pinned dependencies. There, `sesame --version` and `sesame recipes` must work from an empty
directory. The wheel is left in dist/.

`--dry-run` needs no tag: differences are printed, and the wheel is built and tried, but not kept. `--quick` takes the
dependencies from the environment of this Python instead of the package index; it is for the tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("orchestration", "pipeline", "preprocessing", "training")
FILES: Final = ("sesame.py", "pyproject.toml", "README.md", "LICENSE")
EXTRAS: Final = "pipeline,training,orchestration"
_SECTION: Final = re.compile(r"^## \[(?P<name>[^\]]+)\](?P<rest>.*)$", re.MULTILINE)
_BUILD: Final = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"


class ReleaseError(Exception):
    """A step of the release failed; the message is one line."""


def differences(root: Path) -> list[str]:
    """The inconsistencies of a checkout, one line each; [] if it can be released.

    An empty `[Unreleased]` section may stay on top of the changelog.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version, found = str(project["version"]), list[str]()
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"pyproject.toml: invalid version: got {version}, expected MAJOR.MINOR.PATCH")
    tags = _git(root, "tag", "--points-at", "HEAD", "v*").split()
    if f"v{version}" not in tags:
        found.append(
            f"git: no tag v{version} at this commit: got {', '.join(tags) or 'no tag'}; commit, then run "
            f"`git tag v{version}`"
        )
    if changed := _git(root, "status", "--porcelain", "--untracked-files=all").splitlines():
        found.append(f"git: {len(changed)} changed or untracked files, such as {changed[0][3:]}; commit them first")
    found += _of_changelog((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    if str(citation["version"]) != version:
        found.append(f"CITATION.cff: invalid version: got {citation['version']}, expected {version}")
    return found


def _of_changelog(text: str, version: str) -> list[str]:
    """
    >>> _of_changelog("## [Unreleased]\\n\\n## [0.2.0] - 2026-11-27\\n", "0.2.0")
    []
    >>> _of_changelog("## [0.1.0] - 2026-11-26\\n", "0.2.0")
    ['CHANGELOG.md: invalid newest section: got [0.1.0], expected [0.2.0]']
    """
    sections = list(_SECTION.finditer(text))
    bodies = [text[one.end() : other.start()] for one, other in pairwise(sections)]
    if bodies and sections[0]["name"] == "Unreleased" and not bodies[0].strip():
        del sections[0]
    if not sections:
        return [f"CHANGELOG.md: no section: expected [{version}]"]
    newest = sections[0]
    if newest["name"] != version:
        return [f"CHANGELOG.md: invalid newest section: got [{newest['name']}], expected [{version}]"]
    if not re.fullmatch(r" - \d{4}-\d{2}-\d{2}", newest["rest"]):
        return [f"CHANGELOG.md: [{version}] has no date; write ## [{version}] - YYYY-MM-DD"]
    return []


def build(root: Path, target: Path) -> Path:
    """Build the wheel of a checkout in `target`, from a copy, because setuptools writes next to its sources."""
    with tempfile.TemporaryDirectory() as source:
        for name in PACKAGES:
            shutil.copytree(root / name, Path(source, name), ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(root / name, source)
        _run([sys.executable, "-c", _BUILD], Path(source))
        (built,) = Path(source).glob("*.whl")
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(built, target))


def install(wheel: Path, environment: Path, *, quick: bool) -> Path:
    """Create an environment with the wheel, and return its directory of commands.

    With `quick`, the dependencies are those of the environment of this Python, without its editable installation of
    Sesame.
    """
    _run([sys.executable, "-m", "venv", "--without-pip", str(environment)], environment.parent)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    if quick:
        _run([*pip, "--no-deps", str(wheel)], environment.parent)
        (site,) = (environment / "lib").glob("python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    else:
        _run([*pip, "-c", str(ROOT / "constraints.txt"), f"{wheel}[{EXTRAS}]"], environment.parent)
    return environment / "bin"


def try_out(commands: Path, version: str, num_recipes: int) -> None:
    """Run the installed command from an empty directory; ReleaseError if it is not this version with all recipes."""
    with tempfile.TemporaryDirectory() as empty:
        answer = _run([str(commands / "sesame"), "--version"], Path(empty)).strip()
        if answer != f"sesame {version}":
            raise ReleaseError(f"sesame --version: got {answer!r}, expected 'sesame {version}'")
        names = "import sesame; print(len(sesame.recipes()), sesame.__file__)"
        count, place = _run([str(commands / "python"), "-c", names], Path(empty)).split(maxsplit=1)
        if int(count) != num_recipes or not place.startswith(str(commands.parent)):
            raise ReleaseError(
                f"invalid recipes: got {count} from {place.strip()}, expected {num_recipes} from the wheel"
            )
        table = _run([str(commands / "sesame"), "recipes"], Path(empty))
        if "bert_base" not in table:
            raise ReleaseError("sesame recipes: does not list bert_base")
        if left := os.listdir(empty):
            raise ReleaseError(f"sesame recipes: wrote {', '.join(left)} into the current directory")


def release(root: Path = ROOT, *, dry_run: bool = False, quick: bool = False) -> int:
    """Check, build, install and try the release; return the exit code."""
    if found := differences(root):
        for line in found:
            print(f"release: {line}", file=sys.stderr)
        if not dry_run:
            return 2
        print(
            f"release: {len(found)} differences; fix them before the release (the dry run continues)", file=sys.stderr
        )
    version = str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    begin = perf_counter()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            wheel = build(root, Path(temporary))
            print(f"release: built {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB")
            commands = install(wheel, Path(temporary, "environment"), quick=quick)
            print(f"release: installed it into an empty environment, {perf_counter() - begin:,.0f} s")
            try_out(commands, version, len(list((root / "orchestration" / "recipes").glob("*.yaml"))))
            print(f"release: sesame --version and sesame recipes work there, {perf_counter() - begin:,.0f} s")
            if dry_run:
                print("release: dry run, so the wheel is not kept")
            else:
                (root / "dist").mkdir(exist_ok=True)
                shutil.copy(wheel, root / "dist")
                print(f"release: {root / 'dist' / wheel.name} is ready to be published")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    return 0


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def _run(words: Sequence[str], place: Path) -> str:
    """Run a command without the PYTHON variables of this process; return its output, or raise ReleaseError."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise ReleaseError(f"{Path(words[0]).name} {' '.join(words[1:4])}: exit code {done.returncode}: {last}")
    return done.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make release", description="Check, build and try a release.")
    parser.add_argument("--dry-run", action="store_true", help="Print differences, continue, and keep nothing.")
    parser.add_argument("--quick", action="store_true", help="Take the dependencies from this environment.")
    options = parser.parse_args()
    sys.exit(release(dry_run=options.dry_run, quick=options.quick))
